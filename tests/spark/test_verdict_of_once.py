"""What `--once` prints and ends with is what the report of the same folder says: *pass* only where all was judged."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from click.testing import CliRunner
from pyspark.sql import SparkSession

from kordon.spark_jobs.audit import Audit, Options
from kordon.spark_jobs.cli import audit as command
from kordon.spark_jobs.engine import EngineParts
from kordon.spark_jobs.judging.rules import seq_image
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.report.page import report_of
from kordon.spark_jobs.report.tables import read
from kordon.spark_jobs.report.verdicts import RuleVerdict, overall
from kordon.spark_jobs.sources import Reading
from kordon.testing.audits.rule_histories import History, lines_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def write_as(name: str, folder: Path) -> None:
    """Writes the decisions on a topic; of `loose`, producers have no ids."""
    files: dict[str, list[str]] = defaultdict(list)
    for line in lines_of(History(name, 7)):
        told = json.loads(line)
        without = ("producer_id", "producer_epoch", "first_sequence", "last_sequence") if name == "loose" else ()
        kept = {column: value for column, value in told.items() if column not in without}
        files[told["worker"]].append(json.dumps(kept) + "\n")
    for worker, lines in files.items():
        (folder / f"decisions-{worker}-000000.jsonl").write_text("".join(lines))


def audit(spark: SparkSession, root: Path) -> Audit:
    """One of decisions in files, that reads no topic."""
    reading = Reading(folder=root / "files", is_pinned=True)
    parts = EngineParts(rules=(seq_image.RULE,), summaries=())
    return Audit(spark, Options(out=str(root / "out"), reading=reading), AuditMetrics(), parts)


def test_what_could_not_be_judged_is_no_pass(spark: SparkSession, tmp_path: Path) -> None:
    """Acknowledged writes that nobody held against the topic, or could not, make the verdict unknown."""
    (tmp_path / "files").mkdir()
    for name in ("unread", "loose"):
        write_as(name, tmp_path / "files")
    made = audit(spark, tmp_path)
    verdict = made.once()
    tables = read(tmp_path / "out")
    told = {(each["topic"], each["verdict"]) for each in tables.checked if each["rule"] == seq_image.RULE.number}
    assert told == {("unread", "unknown"), ("loose", "unknown")}
    assert verdict is report_of(tables).verdict is RuleVerdict.UNKNOWN
    assert "ranges that could not be judged: SEQ-IMAGE" in made.summary()


def test_what_came_too_late_is_no_pass(spark: SparkSession, tmp_path: Path) -> None:
    """A decision that is an hour older than what was judged makes of a pass an unknown."""
    files = tmp_path / "files"
    files.mkdir()
    write_as("orders", files)
    admits = take_out(files, "admit")
    made = audit(spark, tmp_path)
    assert made.once() is report_of(read(tmp_path / "out")).verdict is RuleVerdict.PASS
    late = {**admits[0], "worker": "late", "number": 0, "at_ms": admits[0]["at_ms"] - 3_600_000}
    (files / "decisions-late-000000000.jsonl").write_text(json.dumps(late) + "\n")
    again = audit(spark, tmp_path)
    assert again.once() is report_of(read(tmp_path / "out")).verdict is RuleVerdict.UNKNOWN


def take_out(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Takes the decisions of a kind out of a folder; the numbers of the others go on without a hole."""
    taken: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        taken += [each for each in lines if each["kind"] == kind]
        left = [each for each in lines if each["kind"] != kind]
        path.write_text("".join(json.dumps({**each, "number": n}) + "\n" for n, each in enumerate(left)))
    return taken


@pytest.mark.parametrize(
    ("findings", "ranges", "verdict"),
    [
        ([], {}, RuleVerdict.NOTHING),
        ([], {"pass": 3}, RuleVerdict.PASS),
        ([], {"pass": 3, "unknown": 1}, RuleVerdict.UNKNOWN),
        (["unknown"], {"pass": 3}, RuleVerdict.UNKNOWN),
        (["unknown", "fail"], {"pass": 3, "unknown": 1}, RuleVerdict.FAIL),
    ],
)
def test_the_worst_there_is_is_the_verdict(findings: list[str], ranges: dict[str, int], verdict: RuleVerdict) -> None:
    """One range that could not be judged is enough for *unknown*; nothing at all is no *pass* either."""
    checked = [{"rule": 6, "verdict": told, "ranges": count} for told, count in ranges.items()]
    assert overall([{"verdict": told} for told in findings], checked) is verdict


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(RuleVerdict.PASS, 0), (RuleVerdict.FAIL, 1), (RuleVerdict.UNKNOWN, 3), (RuleVerdict.NOTHING, 3)],
)
def test_word_and_exit_code_are_the_verdict(
    verdict: RuleVerdict, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kordon audit run --once && echo "order held"` says so where order held, and nowhere else."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for name in ("open_session", "close_session"):
        monkeypatch.setattr(f"kordon.spark_jobs.session.{name}", lambda _: None)
    monkeypatch.setattr(Audit, "__init__", lambda self, *_: None)
    monkeypatch.setattr(Audit, "once", lambda _: verdict)
    monkeypatch.setattr(Audit, "summary", lambda _: "all of it")
    done = CliRunner().invoke(command, ["run", "--once", "--files", str(tmp_path), "--out", str(tmp_path / "out")])
    assert (done.exit_code, done.output) == (code, f"{verdict.value}: all of it\n")
