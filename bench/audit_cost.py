"""What an audit costs: `python -m kordon.bench.audit_cost`, in a process of its own, so that its memory is its own.

A made-up day is audited, micro-batch by micro-batch. Decisions come from files, by the auditor's own source; batches
come from bytes as brokers answer with them, by the auditor's own reader, so that no broker takes processor time. Each
micro-batch is there when the one before is done: so it has what was meant for it, and nothing is left for another one.
Counted is the processor time of the driver's Python, of its JVM and of all Python workers.

    first        starts the JVM, and what Java compiles is new
    warm-up      the first half of the day: layouts change, states grow
    steady       its second half
    idle         quiet rounds behind it, with next to nothing in each
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any, Final

import click
import polars as pl
from pyspark.sql import DataFrame, SparkSession

from kordon.bench import results
from kordon.bench.audit_day import Day
from kordon.bench.audit_decisions import write_decisions
from kordon.bench.audit_source import RecordedSource
from kordon.bench.audit_usage import Memory, cpu_seconds, jvm_pid, watched_memory
from kordon.spark_jobs import decisions_source
from kordon.spark_jobs.engine import Engine, EngineParts
from kordon.spark_jobs.judging.rule import UNKNOWN
from kordon.spark_jobs.judging.schema import FINDINGS
from kordon.spark_jobs.session import Setup, close_session, open_session, parts_of
from kordon.spark_jobs.storage import Storage

_NO_LIMIT: Final = str(1 << 40)
IDLE_FROM: Final = 10
"""Micro-batches before that are not counted as idle: Java still compiles."""


class Schedule:
    """The micro-batches of a day, whose files lie ready and are there one by one.

    Args:
        ends: The round before which each of them ends.
    """

    def __init__(self, day: Day, ends: Sequence[int], folder: Path) -> None:
        self._ends = ends
        self._ready = folder / "ready"
        self.decisions = folder / "decisions"
        self.decisions.mkdir()
        self.round = folder / "round"
        self.round.write_text("0")
        self._next = 0
        # in a process of its own: what it has in memory is not the audit's
        context = multiprocessing.get_context("spawn")
        writing = context.Process(target=_write, args=(day, ends, self._ready))
        writing.start()
        writing.join()
        self._counts: list[int] = json.loads((self._ready / "counts").read_text())

    @property
    def decided(self) -> int:
        """How many decisions there are so far."""
        return sum(self._counts[: self._next])

    def go_on(self) -> bool:
        """Lets the next micro-batch be there; False: there is none."""
        if self._next == len(self._ends):
            return False
        for path in sorted((self._ready / str(self._next)).iterdir()):
            path.rename(self.decisions / path.name)
        self.round.write_text(str(self._ends[self._next]))
        self._next += 1
        return True


def _write(day: Day, ends: Sequence[int], folder: Path) -> None:
    counts = list(write_decisions(day, ends, folder))
    (folder / "counts").write_text(json.dumps(counts))


class Watched:
    """An engine, and what each of its micro-batches took."""

    def __init__(self, engine: Engine, out: Path, schedule: Schedule, memory: Memory) -> None:
        self._engine = engine
        self._out = out
        self._schedule = schedule
        self._memory = memory
        self._jvm = jvm_pid()
        self._before = cpu_seconds(self._jvm)
        self._began = time.monotonic()
        self.batches: list[dict[str, float]] = []

    def run(self, rows: DataFrame, batch_id: int) -> None:
        """Takes one micro-batch; for `foreachBatch`.

        Reading comes before it, and Spark's own work behind it: all is counted from one end to the next.
        """
        before = self._engine.totals
        self._engine.run(rows, batch_id)
        after, cpu, now = self._engine.totals, cpu_seconds(self._jvm), time.monotonic()
        took, peak = cpu - self._before, self._memory.peak_bytes()
        told = {
            "decisions": float(after.decisions - before.decisions),
            "batches": float(after.batches - before.batches),
            "mb": (after.bytes - before.bytes) / 1e6,
            "cpu_s": took.total,
            **{f"cpu_{name}_s": value for name, value in asdict(took).items()},
            "wall_s": now - self._began,
            **{f"pss_{name}_mb": value / 1e6 for name, value in asdict(peak).items()},
            "state_mb": _state_bytes(self._out, batch_id) / 1e6,
        }
        self.batches.append(told)
        click.echo(json.dumps({name: round(value, 3) for name, value in told.items()}), err=True)  # a day takes long
        if self._engine.totals.decisions >= self._schedule.decided:
            self._schedule.go_on()
        self._before, self._began = cpu, now


def _state_bytes(out: Path, batch_id: int) -> int:
    return sum(path.stat().st_size for path in (out / "state" / str(batch_id)).rglob("kept=true/*.parquet"))


def measure(day: Day, ends: Sequence[int], *, master: str, parts: int | None = None) -> dict[str, Any]:
    """Audits a day.

    Args:
        ends: The round before which each micro-batch ends.
        parts: Among how many parts topics are divided; None: as the auditor itself does.

    Returns:
        What was found, and what each micro-batch took.
    """
    with tempfile.TemporaryDirectory(prefix="kordon-bench-") as folder:
        out, schedule = Path(folder) / "audit", Schedule(day, ends, Path(folder))
        spark = open_session(Setup(master=master, parts=parts, needs_kafka=False))
        try:
            storage = Storage(spark, str(out))
            engine = Engine(spark, storage, EngineParts())
            with watched_memory(jvm_pid()) as memory:
                watched = Watched(engine, out, schedule, memory)
                _run(_rows(spark, day, schedule), out, watched, schedule)
            found = pl.concat([FINDINGS.to_frame(), *storage.tables("findings")]).get_column("finding_id").n_unique()
        finally:
            close_session(spark)
    unknown = sum(each["ranges"] for each in engine.checked if each["verdict"] == UNKNOWN)
    return {"findings": found, "unknown": unknown, "micro_batches": watched.batches}


def _rows(spark: SparkSession, day: Day, schedule: Schedule) -> DataFrame:
    """Reads all of it as an audit would."""
    spark.dataSource.register(RecordedSource)
    parts = {"parts": str(parts_of(spark)), "tasks": str(spark.sparkContext.defaultParallelism)}
    told = decisions_source.from_files(spark, schedule.decisions, {"max_bytes": _NO_LIMIT, **parts})
    options = {"day": json.dumps(asdict(day)), "round": str(schedule.round), **parts}
    return told.unionByName(spark.readStream.format(RecordedSource.name()).options(**options).load())


def _run(rows: DataFrame, out: Path, watched: Watched, schedule: Schedule) -> None:
    schedule.go_on()
    query = rows.writeStream.foreachBatch(watched.run).option("checkpointLocation", f"{out}/checkpoint").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def kinds(day: Day, ends: Sequence[int]) -> list[str]:
    """Returns what each micro-batch is."""

    def kind(number: int, end: int) -> str:
        if number == 0:
            return results.FIRST
        if end > day.rounds:
            return results.IDLE
        return results.STEADY if ends[number - 1] >= day.rounds // 2 else results.WARM_UP

    return [kind(number, end) for number, end in enumerate(ends)]


def figures(told: dict[str, Any], of: Sequence[str]) -> dict[str, float]:
    """Returns the figures of BENCHMARKS.md: throughput and state of the second half, and what others take.

    Args:
        told: By `measure`.
        of: By `kinds`.
    """
    batches: list[dict[str, float]] = told["micro_batches"]
    by_kind = {kind: [each for each, its in zip(batches, of, strict=True) if its == kind] for kind in of}
    idle = [each for each, its in list(zip(batches, of, strict=True))[IDLE_FROM - 1 :] if its == results.IDLE]
    peak = max(batches, key=_pss)
    found = {
        results.AUDIT_FIRST_CPU: batches[0]["cpu_s"],
        results.AUDIT_PSS_MB: _pss(peak),
        results.AUDIT_JVM_MB: peak["pss_jvm_mb"],
        results.AUDIT_FINDINGS: float(told["findings"]),
        results.AUDIT_UNKNOWN: float(told["unknown"]),
    }
    if idle:
        found[results.AUDIT_FLOOR_CPU] = max(each["cpu_s"] for each in idle)
    if steady := by_kind.get(results.STEADY):
        cpu_seconds = sum(each["cpu_s"] for each in steady)
        found |= {
            results.AUDIT_SIZE: mean(each["decisions"] for each in steady),
            results.AUDIT_DECISIONS: sum(each["decisions"] for each in steady) / cpu_seconds,
            results.AUDIT_MB: sum(each["mb"] for each in steady) / cpu_seconds,
            results.AUDIT_STATE_MIDDLE_MB: steady[0]["state_mb"],
            results.AUDIT_STATE_MB: steady[-1]["state_mb"],
        }
    return found


def _pss(batch: dict[str, float]) -> float:
    return sum(batch[f"pss_{name}_mb"] for name in ("driver", "jvm", "workers"))


@click.command()
@click.option("--rounds", default=12, show_default=True, help="Seconds of the day in a micro-batch.")
@click.option("--micro-batches", default=1, show_default=True)
@click.option("--idle", default=0, show_default=True, help="Micro-batches behind them with next to nothing in them.")
@click.option("--topics", default=3, show_default=True)
@click.option("--virtual", default=96, show_default=True, help="Virtual partitions of each topic.")
@click.option("--master", default="local[1]", show_default=True, help="Of Spark; local-cluster[2,1,1024]: two workers.")
@click.option("--parts", default=1, show_default=True, help="Among how many topics are divided.")
def main(*, rounds: int, micro_batches: int, idle: int, topics: int, virtual: int, **spark: Any) -> None:
    """Audits a day that was made up, and prints as JSON what it took; each micro-batch to standard error, too."""
    day = Day(rounds * micro_batches, topics=topics, virtual=virtual, quiet=idle)
    ends = [*range(rounds, day.rounds + 1, rounds), *range(day.rounds + 1, day.all_rounds + 1)]
    told, of = measure(day, ends, **spark), kinds(day, ends)
    each = [{"kind": kind, "figures": its} for kind, its in zip(of, told["micro_batches"], strict=True)]
    click.echo(json.dumps({"figures": figures(told, of), "micro_batches": each}))


if __name__ == "__main__":
    main()
