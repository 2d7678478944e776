"""An engine that dies at every step of a micro-batch, and is begun again: all tables are those of one that did not."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.spark_jobs.engine import Engine, EngineParts
from kordon.spark_jobs.findings import FindingsTopic, Sinks
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.intake import of_decisions, of_partition
from kordon.spark_jobs.judging.rule import FAIL, PASS, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.schema import BATCHES, READ_TO, columns
from kordon.spark_jobs.judging.shipments import What, to_arrow
from kordon.spark_jobs.judging.summaries.summary import Summary
from kordon.spark_jobs.judging.tables import checked, findings
from kordon.spark_jobs.storage import Storage
from kordon.spark_jobs.tasks import COLUMNS
from kordon.testing.audits.judged import table
from kordon.testing.audits.rule_plays import Row, decided

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTED: Final = columns(counted=pl.Int64)
LAST: Final = 2
"""The micro-batch in which the job dies: the first that removes old versions of states."""
PARTS: Final = "spark.sql.shuffle.partitions"


def _counted(facts: Facts, before: pl.DataFrame) -> pl.DataFrame:
    """How many decisions and batches there were so far: with one missed, or taken twice, it is another number."""
    so_far = before.get_column("counted").sum()
    return pl.DataFrame([(so_far + facts.decisions.height + facts.batches.height,)], schema=COUNTED, orient="row")


def _count(facts: Facts, state: State) -> RuleOutcome:
    counted = _counted(facts, state["counted"])
    text = pl.col("counted").cast(pl.String)
    told = counted.with_columns(kind=pl.lit("counted"), verdict=pl.lit(FAIL), text=text)
    looked_at = facts.decisions.select("topic", verdict=pl.lit(PASS))
    return RuleOutcome(
        findings=findings(told, COUNT.number, COUNT.name, ("text",), facts),
        state={"counted": counted},
        checked=checked(looked_at),
    )


COUNT: Final = Rule(number=99, name="COUNT", proves="Nothing.", state={"counted": COUNTED}, check=_count)
"""Its findings and its state are another if a micro-batch is missed, or taken twice."""
SUMMARY: Final = Summary(name="counted", state=COUNTED, fold=lambda facts, _, before: _counted(facts, before))


@pytest.fixture(scope="module", autouse=True)
def taken_along() -> Iterator[None]:
    """Spark's workers cannot import this module: what it defines is sent to them."""
    module, pickled = sys.modules[__name__], cast("Any", cloudpickle)
    pickled.register_pickle_by_value(module)
    yield
    pickled.unregister_pickle_by_value(module)


class _Told(FindingsTopic):
    """A compacted topic: the newest value of each key."""

    def write(self, findings: DataFrame) -> None:
        found: dict[str, Any] = self.options  # type: ignore[assignment]
        found.update({row["finding_id"]: row.asDict() for row in findings.collect()})


class Job:
    """A job in one folder, begun anew for each micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path, topic: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.topic: dict[str, Any] = dict(topic or {})
        self.left: dict[str, Job] = {}
        """By step of the last micro-batch that was watched: what there is if it dies in front of it."""
        self._spark = spark

    def engine(self, step: Callable[[str], None] = lambda _: None) -> Engine:
        """A new one."""
        sinks = Sinks(topic=_Told(name="findings", options=self.topic))
        parts = EngineParts(rules=(COUNT,), summaries=(SUMMARY,), sinks=sinks, step=step)
        return Engine(self._spark, Storage(self._spark, str(self.folder)), parts)

    def run(self, rows: DataFrame, batch_id: int, *, is_watched: bool = False) -> Engine:
        """Takes a micro-batch; as the job is begun anew, it takes up first what the folder has."""
        engine = self.engine(self._keep if is_watched else lambda _: None)
        engine.resume(batch_id)
        engine.run(rows, batch_id)
        return engine

    def tables(self) -> dict[str, Any]:
        """All that it has written, by table; of tables only those that are complete."""
        found: dict[str, Any] = {"topic": sorted(self.topic.items())}
        for mark in self.folder.rglob("_SUCCESS"):
            rows = [row for file in sorted(mark.parent.rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]
            found[str(mark.parent.relative_to(self.folder))] = sorted(rows, key=repr)
        for file in self.folder.glob("state/_known/[0-9]*"):
            found[str(file.relative_to(self.folder))] = json.loads(file.read_text())
        told = json.loads((self.folder / "progress.json").read_text())
        return found | {"progress": {name: value for name, value in told.items() if name != "seconds"}}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table, over all micro-batches."""
        return [row for each, rows in self.tables().items() if each.startswith(f"{name}/") for row in rows]

    def _keep(self, step: str) -> None:
        name = step.replace("/", "-")
        folder = self.folder.with_name(f"{self.folder.name}-{name}")
        shutil.copytree(self.folder, folder)
        self.left[step] = Job(self._spark, folder, self.topic)


def news(spark: SparkSession, decisions: Sequence[Row], batches: Sequence[Row], next_offset: int) -> DataFrame:
    """A micro-batch as the stream has it."""
    lines = [
        json.dumps({"schema": 1, **each, "evidence": json.loads(each["evidence"] or "null")}).encode()
        for each in decisions
    ]
    offsets = list(range(len(lines)))
    read_to = [{"topic": "orders", "partition": 0, "log_start": 0, "next_offset": next_offset}]
    parts = int(spark.conf.get(PARTS) or 1)
    shipments = [
        *of_decisions(lines, [0] * len(lines), offsets, name="0", first=0, parts=parts),
        *of_partition(What.BATCHES, table(batches, BATCHES), "orders", 0, parts),
        *of_partition(What.READ_TO, table(read_to, READ_TO), "orders", 0, parts),
    ]
    return spark.createDataFrame(pa.Table.from_batches([to_arrow(shipments)]), COLUMNS)


def batch(base: int) -> dict[str, Any]:
    """A batch of ten records."""
    return {"topic": "orders", "partition": 0, "base_offset": base, "last_offset": base + 9, "bytes": 500}


def days(spark: SparkSession) -> list[DataFrame]:
    """Three micro-batches: with gaps, a layout, a topic that is let go, and decisions that come again."""
    layout = json.loads(LAYOUT_JSON.dump_json(Layout.created("orders", uuid.UUID(int=1), 1, 4)))
    first = [decided("adopt", 0, topic="orders", layouts_offset=3, layout_epoch=0, evidence={"layout": layout})]
    first += [decided("join", number) for number in (1, 3)]
    second = [decided("join", number) for number in (3, 4, 7)] + [decided("forget", 8, topic="gone", layouts_offset=9)]
    third = [decided("join", number) for number in (8, 9)] + [decided("join", 1, worker="w2")]
    return [
        news(spark, first, [batch(0), batch(10)], 20),
        news(spark, second, [batch(20)], 30),
        news(spark, third, [], 30),
    ]


@pytest.fixture(scope="module")
def micro_batches(spark: SparkSession) -> list[DataFrame]:
    return days(spark)


@pytest.fixture(scope="module")
def job(spark: SparkSession, micro_batches: list[DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Has taken them all; what dying at each step of the last one leaves behind is kept."""
    job = Job(spark, tmp_path_factory.mktemp("engine") / "job")
    for number, rows in enumerate(micro_batches):
        job.run(rows, number, is_watched=number == LAST)
    return job


def test_dying_at_any_step_leaves_what_the_micro_batch_began_with(job: Job) -> None:
    """States, summaries and all that is known of the one before are whole, and are what is taken up."""
    steps = list(job.left)
    assert steps == [
        "judge", "read back", "findings", "checked", "summaries/counted", "sinks", "state/_known", "metrics", "forget",
        "end",
    ]  # fmt: skip
    begun_with = {name: rows for name, rows in job.left["judge"].tables().items() if name.endswith(f"/{LAST - 1}")}
    assert begun_with.keys() == {"state/1", "state/_known/1", "summaries/counted/1"}
    for step, left in job.left.items():
        assert begun_with.items() <= left.tables().items(), step
        engine = left.engine()
        engine.resume(LAST)
        is_known = (left.folder / f"state/_known/{LAST}").exists()
        assert engine.last_batch == (LAST if is_known else LAST - 1), step
        assert engine.totals.decisions == (8 if is_known else 6), step
        assert engine.topics == {"orders"}, step


def test_a_micro_batch_that_is_repeated_over_what_a_dying_one_left_gives_the_same(
    job: Job, micro_batches: list[DataFrame]
) -> None:
    """What it left may be whole, or half of it."""
    killed = job.left["end"]
    for mark in killed.folder.glob(f"*/*{LAST}/_SUCCESS"):
        mark.unlink()
    for half in killed.folder.glob(f"state/{LAST}/*/*.parquet"):
        half.write_bytes(half.read_bytes()[:100])
    for name in (f"state/_known/{LAST}", "progress.json"):
        told = killed.folder / name
        told.write_text(told.read_text()[:-20])
    engine = killed.run(micro_batches[LAST], LAST)
    assert engine.last_batch == LAST
    assert_same(killed, job)
    assert sorted(row["text"] for row in job.rows("findings") if row["kind"] == "counted") == ["11", "5", "9"]
    assert len([row for row in job.rows("findings") if row["kind"] == "gap"]) == 3


@pytest.mark.deep
def test_a_micro_batch_repeated_from_each_step_gives_the_same(job: Job, micro_batches: list[DataFrame]) -> None:
    """And once more, over what the repetition has left."""
    for left in job.left.values():
        for _ in range(2):
            left.run(micro_batches[LAST], LAST)
            assert_same(left, job)


def test_the_number_of_parts_may_change_between_runs(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """Each state goes to the part that judges its topic now; what is found is the same."""
    other = Job(spark, tmp_path / "job")
    try:
        for number, parts in enumerate((3, 1, 2)):
            spark.conf.set(PARTS, str(parts))
            other.run(days(spark)[number], number)
    finally:
        spark.conf.set(PARTS, "1")
    gaps = [sorted(row["finding_id"] for row in each.rows("findings") if row["kind"] == "gap") for each in (job, other)]
    assert gaps[0] == gaps[1]
    engine = other.engine()
    engine.resume(LAST)
    assert engine.totals.decisions == 8
    assert engine.topics == {"orders"}


def assert_same(killed: Job, undisturbed: Job) -> None:
    """No row is missing, and none is there twice."""
    assert killed.tables() == undisturbed.tables()
