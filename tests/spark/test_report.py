"""What the report says, of audits that went well, badly, half or not at all."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kordon.spark_jobs import report
from kordon.spark_jobs.cli import audit
from kordon.spark_jobs.report.kinds import KINDS, kind_of
from kordon.spark_jobs.report.page import render, report_of
from kordon.spark_jobs.report.series import Clock, lag
from kordon.spark_jobs.report.tables import Row, read
from kordon.spark_jobs.report.topics import topics
from kordon.spark_jobs.report.verdicts import PROMISES, RuleVerdict
from kordon.spark_jobs.report_command import report as command
from kordon.testing.audits import report_sample

UNKNOWN = {**report_sample.FINDING, "verdict": "unknown", "kind": "gap", "rule": 0, "name": "GAPS", "finding_id": "g"}
DOCS = Path(__file__).parents[2] / "docs" / "audit.md"


def made(folder: Path, *findings: Row) -> report.Report:
    """The report of the sample with some findings."""
    report_sample.write(folder / "audit", findings=findings)
    return report.write(folder / "audit", folder / "report.html")


def test_a_clean_run_says_that_order_held(tmp_path: Path) -> None:
    """By every rule."""
    told = made(tmp_path)

    assert told.headline == "Order held."
    assert set(told.verdicts.values()) == {"pass"}
    assert "None: nothing that the auditor has read contradicts a promise" in (tmp_path / "report.html").read_text()


def test_a_broken_rule_fails_and_the_others_pass(tmp_path: Path) -> None:
    """The finding stands with what proves it and what is to be done."""
    told = made(tmp_path, report_sample.FINDING)

    assert told.verdict == "fail"
    assert [name for name, verdict in told.verdicts.items() if verdict == "fail"] == ["COUNT-FENCE"]
    (finding,) = told.findings
    assert [proof.name for proof in finding.proofs] == ["kordon-1-7f3a:8812", "kordon-1-7f3a:8840"]
    assert json.loads(finding.proofs[0].decision)["evidence"] == {"sent_epoch": 3}
    assert finding.proofs[1].decision == ""


def test_a_gap_fails_no_rule_but_the_whole_is_unknown(tmp_path: Path) -> None:
    """Missing evidence is not told as if all was well."""
    told = made(tmp_path, UNKNOWN)

    assert told.headline == "Nothing wrong was found, but not all could be judged."
    assert told.verdicts["GAPS"] == "unknown"
    assert told.verdicts["COUNT-FENCE"] == "pass"


def test_a_finding_that_went_on_stands_once_as_it_was_told_last(tmp_path: Path) -> None:
    """The sample tells it twice, the second time with a wider range."""
    told = made(tmp_path, report_sample.FINDING)

    assert [finding.row["last_offset"] for finding in told.findings] == [report_sample.FINDING["last_offset"]]


def test_what_clients_have_chosen_is_escaped_everywhere(tmp_path: Path) -> None:
    """It stands in a finding, a decision and a topic that was asked for: never as markup."""
    made(tmp_path, report_sample.FINDING)
    page = (tmp_path / "report.html").read_text()

    assert page.count("&lt;script&gt;document.title") >= 3
    assert "<script>document.title" not in page
    assert len(re.findall("<script", page)) == 2  # the numbers of the one timeline, and the page's own


def test_hostile_topics_do_not_leave_their_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in an attribute, in a title and in the numbers that the script reads."""
    monkeypatch.setattr(report_sample, "TOPIC", "\"'></script><script>alert(1)</script>")
    made(tmp_path)
    page = (tmp_path / "report.html").read_text()

    assert "<script>alert" not in page
    assert "</script><script>" not in page


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    """No address stands in it but those of its own sections."""
    made(tmp_path, report_sample.FINDING)
    page = unescape((tmp_path / "report.html").read_text())

    assert "default-src 'none'" in page
    assert {each for each in re.findall(r'(?:href|src)="([^"]*)"', page) if not each.startswith("#")} == set()
    assert not re.search(r"https?://", page)


def test_an_audit_that_has_read_nothing_yet_has_a_report(tmp_path: Path) -> None:
    """It says so, and no rule passes."""
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "about.json").write_text("{}")

    told = report.write(tmp_path / "audit", tmp_path / "report.html")

    assert told.headline == "There was nothing to judge."
    assert "pass" not in told.verdicts.values()
    assert "The auditor has not read any decision yet." in (tmp_path / "report.html").read_text()


def test_a_rule_that_the_audit_did_not_run_is_said_so(tmp_path: Path) -> None:
    """An audit of an earlier version knew fewer rules."""
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "about.json").write_text(json.dumps({"rules": [{"number": 0, "name": "GAPS"}]}))

    told = report.write(tmp_path / "audit", tmp_path / "report.html")

    assert {each.name: each.why for each in told.judged}["NO-SKIP"] == "This audit did not run the rule."


@pytest.mark.parametrize("has_verdicts", [True, False])
def test_rules_with_nothing_to_judge_are_folded_away(tmp_path: Path, *, has_verdicts: bool) -> None:
    """Whoever opens the page sees verdicts first; where there is no verdict at all, the rules are there at once."""
    report_sample.write(tmp_path / "audit")
    tables = read(tmp_path / "audit")
    judged = [row for row in tables.checked if has_verdicts and row["rule"] != 5]
    findings = [row for row in tables.findings if has_verdicts and row["rule"] != 5]

    told = report_of(replace(tables, checked=judged, findings=findings))
    page = render(told, 0)

    section = page.split('id="rules"')[1].split("</section>")[0]
    shown, _, folded = section.partition("<details")
    assert ("NO-SKIP" in shown, "NO-SKIP" in folded) == (False, True)
    assert ("KEY-ORDER" in shown) == has_verdicts
    assert folded.startswith(" open") != has_verdicts
    idle = sum(each.verdict is RuleVerdict.NOTHING for each in told.judged)
    assert f"Rules with nothing to judge ({idle})" in folded


def test_a_half_written_micro_batch_is_not_read(tmp_path: Path) -> None:
    """Spark marks what is complete; the one before counts until then."""
    report_sample.write(tmp_path / "audit")
    (tmp_path / "audit" / "findings" / "batch=31" / "_SUCCESS").unlink()

    (finding,) = read(tmp_path / "audit").findings

    assert finding["last_offset"] == finding["first_offset"]


def test_the_foremost_reader_s_lag_is_told_in_records() -> None:
    """A stream moved meanwhile: offsets of two partitions are one line of records."""
    row = {"topic": "t", "stream": 3, "width_ms": 1000, "admitted_records": None, "admitted_to": None}
    row |= {"delivered_to": None}
    traffic = [
        {**row, "bucket_ms": 0, "move": 0, "partition": 0, "admitted_records": 10, "admitted_to": 109},
        {**row, "bucket_ms": 1000, "move": 1, "partition": 4, "admitted_records": 20, "admitted_to": 39},
        {**row, "bucket_ms": 2000, "move": 0, "partition": 0, "delivered_to": 109},
        {**row, "bucket_ms": 3000, "move": 1, "partition": 4, "delivered_to": 39},
    ]

    behind, last = lag(traffic, Clock(0, 1000, 5))

    assert behind == [10, 30, 20, 0, 0]
    assert last == {3: 0}


def test_layouts_that_a_worker_reads_when_it_starts_are_no_changes_of_that_time(tmp_path: Path) -> None:
    """It adopts all there have been, one after the other; what is on record with a commit happened then."""
    report_sample.write(tmp_path)
    tables = read(tmp_path)
    sample = sorted(tables.layouts, key=lambda row: row["layout_epoch"])
    start = sample[0]["since_ms"]
    learned = [{**row, "committed_ms": None, "since_ms": start + place} for place, row in enumerate(sample)]

    (as_it_was,) = topics(tables)
    (passed,) = topics(replace(tables, layouts=learned))
    (last_seen,) = topics(replace(tables, layouts=[*learned[:-1], sample[-1]]))

    assert as_it_was.counts == [3, 4, 5, 6, 5, 4]
    assert passed.counts == [4]
    assert last_seen.counts == [5, 4]


def test_a_topic_that_nobody_reads_has_no_lag_and_one_that_nobody_uses_no_traffic(tmp_path: Path) -> None:
    """An empty picture would say that all was read."""
    report_sample.write(tmp_path)
    tables = read(tmp_path)
    unread = [{**row, "delivered_records": None, "delivered_to": None} for row in tables.traffic]

    (topic,) = topics(replace(tables, traffic=unread))
    (idle,) = topics(replace(tables, traffic=[]))

    assert [panel.label for panel in topic.timeline.panels] == ["Partitions", "", "Traffic"]
    assert "Nobody read it." in topic.words
    assert [panel.label for panel in idle.timeline.panels] == ["Partitions", ""]
    assert "Nothing was written or read meanwhile." in idle.words


def test_what_dialect_readers_got_of_a_partition_counts_for_its_streams() -> None:
    """They read physical partitions, in which virtual ones lie."""
    row = {"topic": "t", "width_ms": 1000, "admitted_records": None, "admitted_to": None, "delivered_to": None}
    traffic = [
        {**row, "stream": 3, "bucket_ms": 0, "move": 0, "partition": 0, "admitted_records": 10, "admitted_to": 109},
        {**row, "stream": ~0, "bucket_ms": 1000, "move": 0, "partition": 0, "delivered_to": 200},
    ]

    behind, _ = lag(traffic, Clock(0, 1000, 2))

    assert behind == [10, 0]


def test_the_command_writes_the_page_and_says_what_came_of_it(tmp_path: Path) -> None:
    """A folder without an audit is a mistake of the caller's, told in a sentence."""
    report_sample.write(tmp_path / "audit")
    out = tmp_path / "page.html"

    done = CliRunner().invoke(command, ["--from", str(tmp_path / "audit"), "--out", str(out)])
    failed = CliRunner().invoke(command, ["--from", str(tmp_path / "nothing"), "--out", str(out)])

    assert done.exit_code == 0
    assert "A promise was broken. 1 finding." in done.output
    assert out.read_text().startswith("<!doctype html>")
    assert failed.exit_code == 2
    assert "no audit has written to" in failed.output


def test_the_manual_of_the_commands_has_each_option_that_there_is() -> None:
    """And no others."""
    manual = DOCS.with_name("cli.md").read_text()
    with click.Context(audit) as context:
        commands = {name: audit.get_command(context, name) for name in audit.list_commands(context)}
    assert sorted(commands) == ["report", "run"]
    for name, shown in commands.items():
        assert shown is not None
        table = manual.split(f"| flag of `audit {name}` |")[1].split("\n\n")[0]
        documented = set(re.findall(r"^\| `(--[a-z-]+)", table, re.MULTILINE))
        assert documented == {flag for option in shown.params for flag in option.opts if flag.startswith("--")}


def test_a_kind_of_a_later_audit_is_shown_by_its_word() -> None:
    """A report must not fail on what it does not know."""
    assert kind_of("odd-thing").title == "Odd thing"


def test_the_report_knows_each_rule_that_the_audit_runs() -> None:
    """In the words of whoever only wants to know whether order held."""
    pytest.importorskip("polars", reason="the auditor's extra is not installed")
    rules = "kordon.spark_jobs.judging.rules"
    all_rules, gaps = (importlib.import_module(f"{rules}.{each}") for each in ("all_rules", "gaps"))

    run = [(rule.number, rule.name) for rule in (gaps.RULE, *all_rules.ALL)]
    assert run == [(promise.number, promise.name) for promise in PROMISES]


def test_the_manual_has_a_heading_for_each_rule_and_each_kind_of_finding() -> None:
    """The report and the alerts send people there."""
    headings = set(re.findall(r"^#+ (.*)$", DOCS.read_text(), re.MULTILINE))

    assert {f"{promise.number}. {promise.name}" for promise in PROMISES} <= headings
    assert set(KINDS) <= headings
