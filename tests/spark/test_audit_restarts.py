"""The audit from files to findings, ended and killed at every step: it finds what it finds undisturbed, once each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from kordon.spark_jobs.audit import Audit, Options
from kordon.spark_jobs.engine import EngineParts
from kordon.spark_jobs.errors import CannotCheck
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.report.verdicts import RuleVerdict
from kordon.spark_jobs.sources import Reading

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

IN_THE_FIRST: Final = "findings"
IN_THE_SECOND: Final = "end"
FOR_GOOD: Final = "sinks"
"""Steps of micro-batches at which the job dies, the last one by SIGKILL; test_engine_restarts.py has all others."""


class KilledError(RuntimeError):
    """Stands for kill -9."""


def decisions(worker: str, numbers: Sequence[int]) -> str:
    told = (
        {"schema": 1, "at_ms": 1000 + n, "host": "h", "worker": worker, "number": n, "kind": "join"} for n in numbers
    )
    return "".join(json.dumps(each) + "\n" for each in told)


def append(folder: Path, worker: str, numbers: Sequence[int], file: int = 0) -> None:
    with (folder / f"decisions-{worker}-{file:06}.jsonl").open("a") as lines:
        lines.write(decisions(worker, numbers))


def audit(spark: SparkSession, root: Path, step: Callable[[str], None] = lambda _: None) -> Audit:
    """One without rules besides GAPS, and without the report's tables: what they make is tested elsewhere."""
    reading = Reading(folder=root / "files", is_pinned=True)
    parts = EngineParts(rules=(), summaries=(), step=step)
    return Audit(spark, Options(out=str(root / "out"), reading=reading), AuditMetrics(), parts)


def found(root: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(file) for file in sorted((root / "out" / "findings").rglob("*.parquet"))]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["finding_id"])


def write_first(folder: Path) -> None:
    folder.mkdir(parents=True)
    append(folder, "a", [0, 1, 2, 5, 6])
    append(folder, "b", [0, 1])
    with (folder / "decisions-b-000000.jsonl").open("a") as lines:
        lines.write('nonsense\n{"schema": 1, "at_ms": 5')  # and a line that is still being written


def write_second(folder: Path) -> None:
    (folder / "decisions-b-000000.jsonl").write_text(decisions("b", [0, 1]) + "nonsense\n" + decisions("b", [4]))
    append(folder, "a", [5, 6, 7], file=1)  # two were written again
    append(folder, "c", [0, 9])


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit in two runs that nothing befell."""
    root = tmp_path_factory.mktemp("undisturbed")
    for write in (write_first, write_second):
        write(root / "files")
        assert audit(spark, root).once() is RuleVerdict.UNKNOWN
    return root


def ended(spark: SparkSession, root: Path, at: str, *, micro_batch: int) -> None:
    """Has the job die at a step of a micro-batch; those before it are taken, or repeated, to their ends."""
    visited: list[str] = []

    def die(step: str) -> None:
        visited.append(step)
        if step == at and visited.count(at) > micro_batch:
            raise KilledError(step)

    with pytest.raises(CannotCheck, match=at):
        audit(spark, root, die).once()
    assert visited.count(at) == micro_batch + 1


def killed(root: Path, at: str) -> None:
    """Has a process of its own take a micro-batch up to a step, where SIGKILL ends it."""
    command = [sys.executable, "-m", "kordon.testing.audits.dying_audit", str(root / "files"), str(root / "out"), at]
    with (root / "log").open("wb") as log:  # no pipe: its JVM would hold it open, and dies later
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == -signal.SIGKILL, (root / "log").read_text()


def test_killed_at_any_step_it_finds_the_same_once(spark: SparkSession, undisturbed: Path, tmp_path: Path) -> None:
    """In the first micro-batch, and in the second, there also for good: nothing of the process is left to tidy up.

    There is more to read when the first one is repeated.
    """
    expected = found(undisturbed)
    assert [(row["kind"], row["verdict"]) for row in expected] == [("gap", "unknown")] * 3
    root = tmp_path / "killed"
    write_first(root / "files")
    ended(spark, root, IN_THE_FIRST, micro_batch=0)
    write_second(root / "files")
    ended(spark, root, IN_THE_SECOND, micro_batch=1)
    killed(root, FOR_GOOD)
    whole = audit(spark, root)
    assert whole.once() is RuleVerdict.UNKNOWN
    assert found(root) == expected
    assert whole.engine.totals.decisions == 11
    assert whole.engine.totals.unreadable == 1


def test_what_was_read_is_not_read_again(spark: SparkSession, undisturbed: Path) -> None:
    """A run with little new finds nothing new; old versions of states are gone."""
    expected = found(undisturbed)
    append(undisturbed / "files", "a", [8], file=1)
    assert audit(spark, undisturbed).once() is RuleVerdict.UNKNOWN
    assert found(undisturbed) == expected
    versions = {each.name for each in (undisturbed / "out" / "state").iterdir()}
    assert versions == {"1", "2", "_known"}


def test_without_decisions_nothing_was_checked(spark: SparkSession, tmp_path: Path) -> None:
    """An empty folder is no proof, and one that is not there is said to be none."""
    with pytest.raises(CannotCheck, match="no folder"):
        audit(spark, tmp_path).once()
    (tmp_path / "files").mkdir()
    with pytest.raises(CannotCheck, match="no decisions"):
        audit(spark, tmp_path).once()
