"""What an audit costs: `python -m kordon.bench.audit_cost`, in a process of its own, so that its memory is its own.

Decisions come from files and batches from bytes as brokers answer with them, both by the auditor's own sources, so that
no broker takes processor time. Counted is that of the driver's Python, of its JVM and of all Python workers.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import psutil
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import DataType, StructType

from kordon.bench import results
from kordon.bench.audit_day import TOPIC, Day, fetched, write_decisions
from kordon.codecs.fetched import Fetched
from kordon.spark_jobs import decisions_source
from kordon.spark_jobs.batch_reader import RecordBatch, read_partition
from kordon.spark_jobs.batches_source import ROWS, BatchRange
from kordon.spark_jobs.brokers import PartitionKey
from kordon.spark_jobs.engine import Engine, EngineParts
from kordon.spark_jobs.schema import DECISIONS, FINDINGS
from kordon.spark_jobs.session import Setup, close_session, open_session
from kordon.spark_jobs.storage import Storage

_SOURCE: Final = "kordon.bench.recorded"
_TINY_ROUNDS: Final = 10


class Recorded:
    """Answers as the brokers of a day would."""

    def __init__(self, day: Day) -> None:
        self._day = day

    def fetch(self, place: PartitionKey, offset: int, most_bytes: int) -> Fetched:
        """Returns batches from an offset on."""
        return fetched(self._day, place.partition, offset, most_bytes)

    def ends(self, places: list[PartitionKey], _: int) -> dict[PartitionKey, int]:
        """Nothing was removed: each log begins at 0."""
        return dict.fromkeys(places, 0)


class RecordedSource(DataSource):
    """A day's batches as a stream. Options: `day`, JSON; `rounds` of a micro-batch."""

    @classmethod
    def name(cls) -> str:
        return _SOURCE

    def schema(self) -> StructType:
        return ROWS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return RecordedStream(Day(**json.loads(self.options["day"])), int(self.options["rounds"]))


class RecordedStream(DataSourceStreamReader):
    """Its offsets are rounds."""

    def __init__(self, day: Day, rounds: int) -> None:
        self._day = day
        self._rounds = rounds
        self._at = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"round": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"round": min(self._day.rounds, self._at + self._rounds)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._at = end["round"]
        first, last = (each["round"] * self._day.round_records for each in (start, end))
        return (
            [BatchRange(PartitionKey(TOPIC, q), first, last) for q in range(self._day.partitions)]
            if first < last
            else []
        )

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        assert isinstance(partition, BatchRange)
        recorded: Any = Recorded(self._day)
        yield from read_partition(recorded, partition.place, partition.start, partition.end)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept back."""


class Usage:
    """Processor time and memory of this process, of its JVM, and of the Python workers under that."""

    def __init__(self) -> None:
        gateway: Any = SparkContext._gateway  # pyright: ignore[reportPrivateUsage]
        self._jvm = psutil.Process(gateway.proc.pid)
        self.peak_jvm_bytes = self.peak_python_bytes = 0

    def cpu_seconds(self) -> float:
        """Returns what they have taken so far; also looks at their memory."""
        below = [each for each in self._jvm.children(recursive=True) if each.is_running()]
        self.peak_jvm_bytes = max(self.peak_jvm_bytes, self._jvm.memory_info().rss)
        found, workers_bytes = 0.0, psutil.Process().memory_info().rss
        for each in (psutil.Process(), self._jvm, *below):
            try:
                times = each.cpu_times()
                found += times.user + times.system + (times.children_user + times.children_system) * (each in below)
                workers_bytes += each.memory_info().rss if each in below else 0
            except psutil.NoSuchProcess:
                continue
        self.peak_python_bytes = max(self.peak_python_bytes, workers_bytes)
        return found


class Watched:
    """An engine, and what each of its micro-batches took."""

    def __init__(self, engine: Engine, folder: str, usage: Usage) -> None:
        self._engine = engine
        self._folder = Path(folder)
        self._usage = usage
        self.batches: list[dict[str, float]] = []
        self._before = usage.cpu_seconds()
        """CPU of reading comes before `run`: it is counted from the end of one micro-batch to that of the next."""

    def run(self, rows: DataFrame, batch_id: int) -> None:
        """Takes one micro-batch; for `foreachBatch`."""
        began, done = time.monotonic(), self._engine.totals.decisions
        self._engine.run(rows, batch_id)
        now = self._usage.cpu_seconds()
        told = {
            "decisions": float(self._engine.totals.decisions - done),
            "cpu_s": now - self._before,
            "seconds": time.monotonic() - began,
        }
        for table in ("state", "summaries"):
            sizes = list(_sizes(self._folder / table, batch_id))
            told |= {f"{table}_rows": float(sum(each[0] for each in sizes))}
            told |= {f"{table}_bytes": float(sum(each[1] for each in sizes))}
        self.batches.append(told)
        click.echo(json.dumps(told), err=True)  # a day takes hours
        self._before = now


def _sizes(folder: Path, batch_id: int) -> Iterator[tuple[int, int]]:
    for path in folder.glob(f"*/{batch_id}/*.parquet"):
        yield pq.ParquetFile(path).metadata.num_rows, path.stat().st_size


def measure(day: Day, micro_batches: int, *, is_brief: bool, cores: int) -> dict[str, Any]:
    """Audits a day.

    Args:
        micro_batches: About how many it is to take.

    Returns:
        What was read, what it took, and each micro-batch.
    """
    with tempfile.TemporaryDirectory(prefix="kordon-bench-") as folder:
        decisions, out = Path(folder) / "decisions", f"{folder}/audit"
        decisions.mkdir()
        written = write_decisions(day, decisions)
        spark = open_session(Setup(master=f"local[{cores}]", needs_kafka=False, is_brief=is_brief))
        try:
            usage = Usage()
            engine = Engine(spark, Storage(spark, out), EngineParts(ends=lambda: _ends(day)))
            watched = Watched(engine, out, usage)
            rows = _rows(spark, day, decisions, written, micro_batches)
            _run(rows, out, watched)
            found = spark.read.schema(FINDINGS).parquet(f"{out}/findings").count()
            total = engine.totals.as_dict()
        finally:
            close_session(spark)
    return {
        "findings": found,
        "decisions": total["decisions"],
        "batches": total["batches"],
        "topic_bytes": total["bytes"],
        "peak_jvm_bytes": usage.peak_jvm_bytes,
        "peak_python_bytes": usage.peak_python_bytes,
        "micro_batches": watched.batches,
    }


def _ends(day: Day) -> dict[PartitionKey, int]:
    return {PartitionKey(TOPIC, q): day.end for q in range(day.partitions)}


def _rows(spark: SparkSession, day: Day, decisions: Path, written: int, micro_batches: int) -> DataFrame:
    """Reads all of it as an audit would, in micro-batches of the same share of both."""
    spark.dataSource.register(RecordedSource)
    most_bytes = str(written // micro_batches + 1)
    told = decisions_source.from_files(spark, decisions, {"max_bytes": most_bytes, "pinned": "true"})
    rounds = str(-(-day.rounds // micro_batches))
    read = spark.readStream.format(_SOURCE).options(day=json.dumps(asdict(day)), rounds=rounds).load()
    return told.select(F.struct(*DECISIONS.names).alias("decision"), _none(ROWS).alias("batch")).unionByName(
        read.select(_none(DECISIONS).alias("decision"), F.struct(*ROWS.names).alias("batch"))
    )


def _run(rows: DataFrame, out: str, watched: Watched) -> None:
    query = rows.writeStream.foreachBatch(watched.run).option("checkpointLocation", f"{out}/checkpoint").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def _none(of: DataType) -> Any:
    return F.lit(None).cast(of)


def figures(told: dict[str, Any]) -> dict[str, float]:
    """Returns the figures of BENCHMARKS.md.

    The first micro-batch is left out of what a decision takes: it compiles.
    """
    batches: list[dict[str, float]] = told["micro_batches"]
    counted = batches[1:] or batches
    cpu_seconds, decisions = (sum(each[name] for each in counted) for name in ("cpu_s", "decisions"))
    share = decisions / told["decisions"] if told["decisions"] else 0.0
    middle, last = batches[len(batches) // 2], batches[-1]
    return {
        results.AUDIT_DECISIONS: decisions / cpu_seconds,
        results.AUDIT_MB: told["topic_bytes"] * share / 1e6 / cpu_seconds,
        results.AUDIT_BATCH_CPU: cpu_seconds / len(counted),
        results.AUDIT_STATE_ROWS: last["state_rows"],
        results.AUDIT_STATE_MIDDLE_ROWS: middle["state_rows"],
        results.AUDIT_STATE_MB: (last["state_bytes"] + last["summaries_bytes"]) / 1e6,
        results.AUDIT_JVM_MB: told["peak_jvm_bytes"] / 1e6,
        results.AUDIT_PYTHON_MB: told["peak_python_bytes"] / 1e6,
        results.AUDIT_FINDINGS: float(told["findings"]),
    }


@click.command()
@click.option("--partitions", default=3, show_default=True)
@click.option("--rounds", default=_TINY_ROUNDS, show_default=True, help="Seconds of the day.")
@click.option("--micro-batches", default=3, show_default=True)
@click.option("--cores", default=1, show_default=True)
@click.option("--brief", is_flag=True, help="As `kordon audit run --once`.")
def main(*, partitions: int, rounds: int, micro_batches: int, cores: int, brief: bool) -> None:
    """Audits a day that was made up, and prints as JSON what it took; each micro-batch to standard error."""
    told = measure(Day(partitions, rounds), micro_batches, is_brief=brief, cores=cores)
    click.echo(json.dumps(figures(told)))


if __name__ == "__main__":
    main()
