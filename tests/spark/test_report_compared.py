"""What the report says is new: since another audit, or since the same one as it was at some time."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from kordon.spark_jobs.report import Report
from kordon.spark_jobs.report.compare import Former, Mark
from kordon.spark_jobs.report.page import render, report_of
from kordon.spark_jobs.report.tables import Row, Tables, read
from kordon.spark_jobs.report_command import report as command
from kordon.testing.audits import report_sample

HALF: Final = len(report_sample.RULES) - 1
"""Ranges that the sample's first micro-batch has found right: one of each rule but the one that is broken."""
ALL: Final = 2 * HALF + 1


def finding(name: str, **more: Any) -> Row:
    return {**report_sample.FINDING, "finding_id": name, **more}


def checked(rule: int, verdict: str, ranges: int) -> Row:
    return {"rule": rule, "topic": report_sample.TOPIC, "verdict": verdict, "ranges": ranges, "count": 10 * ranges}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Those of the sample, without findings."""
    report_sample.write(tmp_path / "audit", findings=())
    return read(tmp_path / "audit")


def compared(now: Tables, then: Tables, *, is_itself: bool = False) -> Report:
    return report_of(now, Former(name="then", tables=then, is_itself=is_itself))


def marks(told: Report) -> dict[str, Mark]:
    assert told.comparison is not None
    return dict(told.comparison.marks)


def test_findings_are_the_same_by_their_id(tables: Tables) -> None:
    """New, gone, with another verdict, with more offsets, or as they were."""
    then = [finding("gone"), finding("doubt", verdict="unknown"), finding("shorter"), finding("same")]
    now = [finding("new"), finding("doubt"), finding("shorter", last_offset=50_000), finding("same")]

    of_both = [checked(1, "pass", 1800), checked(1, "unknown", 1)]
    told = compared(*(replace(tables, findings=found, checked=of_both) for found in (now, then)))

    assert marks(told) == {"new": Mark.NEW, "doubt": Mark.OTHER, "shorter": Mark.LONGER}
    assert told.comparison is not None
    assert [each.row["finding_id"] for each in told.comparison.gone] == ["gone"]
    assert told.comparison.words == (
        "1 new finding, 1 with more offsets, 1 with another verdict, 1 gone; "
        "ranges found right: 1,800 then, 1,800 now; not judged: 1 then, 1 now."
    )


def test_a_finding_that_names_fewer_offsets_than_then_is_not_new(tables: Tables) -> None:
    """Retention may have taken what it began with."""
    then, now = finding("a", first_offset=1, last_offset=9), finding("a", first_offset=4, last_offset=9)

    assert marks(compared(replace(tables, findings=[now]), replace(tables, findings=[then]))) == {}


@pytest.mark.parametrize(
    ("place", "is_judged"),
    [
        ({"partition": 4, "first_offset": 48_211, "last_offset": 48_230}, True),
        ({"partition": 4, "first_offset": 48_211, "last_offset": 300_001}, False),
        ({"partition": 7, "first_offset": 0, "last_offset": 0}, False),
        ({"partition": None, "first_offset": None, "last_offset": None, "found_ms": report_sample.START + 5}, True),
        ({"partition": None, "first_offset": None, "last_offset": None, "found_ms": report_sample.START - 5}, False),
    ],
)
def test_of_a_finding_that_is_gone_the_page_says_whether_its_place_was_judged_again(
    tables: Tables, place: dict[str, Any], *, is_judged: bool
) -> None:
    """By what the newer audit has read: offsets, or decisions of that time."""
    told = compared(tables, replace(tables, findings=[finding("gone", **place)]))

    assert told.comparison is not None
    assert [each.is_judged for each in told.comparison.gone] == [is_judged]
    word = "judged again, and not found" if is_judged else "this audit has not read it"
    assert render(told, 0).count(word) == 1


def test_rules_with_another_verdict_are_told(tables: Tables) -> None:
    """And what each has checked, then and now."""
    now = replace(tables, checked=[checked(1, "pass", 5), checked(5, "pass", 9), checked(5, "unknown", 2)])
    then = replace(tables, checked=[checked(1, "pass", 3), checked(5, "pass", 4)])

    told = compared(now, then)

    assert told.comparison is not None
    assert [(rule.now.name, rule.then.verdict, rule.now.verdict) for rule in told.comparison.changed] == [
        ("NO-SKIP", "pass", "unknown")
    ]
    assert told.comparison.words.endswith("ranges found right: 7 then, 14 now; not judged: 0 then, 2 now.")
    (row,) = re.findall(r'<tr class="changed">(.*?)</tr>', render(told, 0), re.DOTALL)
    assert re.findall(r'data-sort="(\d+)"', row) == ["5", "4", "9", "40", "90", "0", "2", "0", "0"]


@pytest.mark.parametrize(
    ("findings", "passed", "unknown", "is_itself", "verdict"),
    [
        ([], (3, 5), (0, 0), True, "pass"),
        ([], (3, 3), (0, 0), True, "nothing to judge"),
        ([], (3, 3), (0, 0), False, "pass"),
        ([], (3, 0), (0, 0), False, "nothing to judge"),
        ([], (3, 5), (4, 4), True, "pass"),
        ([], (3, 5), (4, 5), True, "unknown"),
        ([], (3, 5), (4, 5), False, "unknown"),
        ([finding("known")], (3, 5), (0, 0), True, "pass"),
        ([finding("known", last_offset=50_000)], (3, 5), (0, 0), True, "fail"),
        ([finding("known"), finding("new")], (3, 5), (0, 0), True, "fail"),
        ([finding("known"), finding("new", verdict="unknown")], (3, 5), (0, 0), True, "unknown"),
    ],
)
def test_what_is_new_has_a_verdict_of_its_own(
    tables: Tables,
    findings: Sequence[Row],
    passed: tuple[int, int],
    unknown: tuple[int, int],
    verdict: str,
    *,
    is_itself: bool,
) -> None:
    """What was found before does not count again. Another audit has judged all of its own anew."""
    then, now = (
        replace(tables, findings=found, checked=[checked(1, "pass", right), checked(1, "unknown", doubted)])
        for found, right, doubted in zip(([finding("known")], findings), passed, unknown, strict=True)
    )

    told = compared(now, then, is_itself=is_itself)

    assert told.comparison is not None
    assert told.comparison.verdict.value == verdict


def test_new_findings_stand_first_among_those_of_their_verdict(tables: Tables) -> None:
    """With a mark, and a link from the top."""
    then = [finding("a"), finding("b"), finding("doubt", verdict="unknown")]

    told = compared(replace(tables, findings=[*then, finding("c")]), replace(tables, findings=then))
    page = render(told, 0)

    assert [each.row["finding_id"] for each in told.findings] == ["c", "a", "b", "doubt"]
    since = page.split('id="since"')[1].split("</section>")[0]
    assert re.findall('href="#([^"]+)"', since) == ["finding-1"]
    assert page.count('<span class="tag mark">new</span>') == 2


def test_a_page_that_compares_nothing_says_nothing_of_it(tables: Tables) -> None:
    """No section, no mark, no link."""
    page = render(report_of(tables), 0)

    assert 'id="since"' not in page
    assert 'href="#since"' not in page


def aged(folder: Path, batches: dict[str, float]) -> None:
    """Makes micro-batches as old as if they had been written so many hours ago."""
    for name, hours in batches.items():
        at = time.time() - 3600 * hours
        for mark in folder.glob(f"*/batch={name}/_SUCCESS"):
            os.utime(mark, (at, at))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample, of which the finding's wider form and the second half of what was checked are of today."""
    report_sample.write(tmp_path / "audit")
    aged(tmp_path / "audit", {"0": 50, "30": 50, "1": 2, "31": 2})
    return tmp_path / "audit"


def run(folder: Path, since: str | Path, *more: str) -> Result:
    out = folder.parent / "report.html"
    return CliRunner().invoke(command, ["--from", str(folder), "--out", str(out), "--since", str(since), *more])


@pytest.mark.parametrize(
    ("since", "told"),
    [
        ("60h", f"1 new finding, none gone; ranges found right: 0 then, {ALL} now;"),
        ("1d", f"no new findings, 1 with more offsets, none gone; ranges found right: {HALF} then, {ALL} now;"),
        ("1h", f"no new findings, none gone; ranges found right: {ALL} then, {ALL} now;"),
    ],
)
def test_an_audit_is_compared_with_itself_at_a_time(folder: Path, since: str, told: str) -> None:
    """By when it wrote its micro-batches: what it found of older data is new all the same."""
    result = run(folder, since)

    assert result.exit_code == 0
    assert re.search(rf"^since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC: {re.escape(told)}", result.output, re.MULTILINE)
    assert "New since 20" in (folder.parent / "report.html").read_text()


def test_an_audit_is_compared_with_that_of_another_folder(folder: Path) -> None:
    """Printed are what is new and gone, and the rules with another verdict."""
    shutil.copytree(folder, folder.with_name("yesterday"))
    shutil.rmtree(folder / "findings" / "batch=30")
    shutil.rmtree(folder / "findings" / "batch=31")

    new = run(folder.with_name("yesterday"), folder)
    gone = run(folder, folder.with_name("yesterday"))

    assert "  COUNT-FENCE: pass then, fail now" in new.output.splitlines()
    assert "  new: fail, COUNT-FENCE bypass in orders-4, offsets 48211 to 48230" in new.output.splitlines()
    assert "  COUNT-FENCE: fail then, pass now" in gone.output.splitlines()
    assert "  gone: fail, COUNT-FENCE bypass in orders-4, offsets 48211 to 48230" in gone.output.splitlines()


@pytest.mark.parametrize(("since", "code"), [("60h", 1), ("1d", 1), ("1h", 3)])
def test_the_exit_code_is_the_verdict_of_what_is_new_if_that_is_asked_for(folder: Path, since: str, code: int) -> None:
    """A timer mails then what has come; without the option a page that was written is a success."""
    assert run(folder, since, "--fail-on-new").exit_code == code
    assert run(folder, since).exit_code == 0


def test_nothing_new_that_is_wrong_is_a_success(tmp_path: Path) -> None:
    """Something was judged since, and it holds."""
    report_sample.write(tmp_path / "audit", findings=())
    aged(tmp_path / "audit", {"0": 50})

    assert run(tmp_path / "audit", "1d", "--fail-on-new").exit_code == 0


def test_many_findings_are_not_all_printed(folder: Path) -> None:
    """The page has them."""
    then = folder.with_name("yesterday")
    report_sample.write(then, findings=())
    shutil.rmtree(folder)
    report_sample.write(folder, findings=[finding(f"finding {number}") for number in range(700)])

    lines = run(folder, then).output.splitlines()

    assert sum(line.startswith("  new: ") for line in lines) == 20
    assert lines[-1] == "  and 680 more"


@pytest.mark.parametrize(
    ("since", "more", "told"),
    [
        ("soon", [], "'soon' is neither a time (24h, 7d, 2026-11-22T09:30) nor the folder of an audit"),
        (".", [], "no audit has written to ."),
    ],
)
def test_what_cannot_be_compared_is_told(folder: Path, since: str, more: list[str], told: str) -> None:
    """No page is written then."""
    result = run(folder, since, *more)

    assert result.exit_code == 2
    assert told in result.output
    assert not (folder.parent / "report.html").exists()


def test_whoever_asks_for_an_exit_code_says_since_when(folder: Path) -> None:
    """Else it would be that of the whole audit, which `audit run --once` has."""
    result = CliRunner().invoke(command, ["--from", str(folder), "--fail-on-new"])

    assert result.exit_code == 2
    assert "--fail-on-new needs --since" in result.output


def test_names_do_not_command_the_terminal_nor_the_page(folder: Path) -> None:
    """Of a topic, and of the folder that is compared with."""
    name = "\x1b[2K<script>alert(1)<!--"
    then = folder.with_name(name)
    report_sample.write(then, findings=[finding("gone", topic=name)])

    result = run(folder, then)

    assert "gone: fail, COUNT-FENCE bypass in \\u001b[2K" in result.output
    page = (folder.parent / "report.html").read_text()
    assert page.count("\\u001b[2K&lt;script&gt;alert") >= 2
    assert "\x1b" not in result.output + page
