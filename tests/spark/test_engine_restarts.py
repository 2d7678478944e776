"""An engine that dies at every step of a micro-batch, and is begun again: all tables are those of one that did not."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import LongType, StructField, StructType

from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.spark_jobs.batches_source import ROWS
from kordon.spark_jobs.engine import Engine, EngineParts
from kordon.spark_jobs.findings import FindingsTopic, Sinks
from kordon.spark_jobs.rules.rule import FAIL, PASS, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked, findings
from kordon.spark_jobs.schema import DECISIONS
from kordon.spark_jobs.storage import Storage
from kordon.spark_jobs.summaries import Summary
from kordon.testing.rule_plays import Row, decided, table

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTED: Final = StructType([StructField("counted", LongType())])
LAST: Final = 2
"""The micro-batch in which the job dies: the first that removes old versions of states."""
STREAM: Final = StructType([StructField("decision", DECISIONS), StructField("batch", ROWS)])


def _counted(facts: Facts, state: DataFrame) -> DataFrame:
    """How many decisions and batches there were so far: with one missed, or taken twice, it is another number."""
    new = facts.decisions.select(F.lit(1).alias("counted")).unionAll(facts.batches.select(F.lit(1)))
    both = state.select("counted").unionAll(new.select(F.col("counted").cast("bigint")))
    return both.agg(F.coalesce(F.sum("counted"), F.lit(0)).alias("counted"))


def _count(facts: Facts, state: DataFrame) -> RuleOutcome:
    counted = _counted(facts, state)
    told = counted.withColumns(
        {"kind": F.lit("counted"), "verdict": F.lit(FAIL), "text": F.col("counted").cast("string")}
    )
    looked_at = facts.decisions.select("topic", F.lit(PASS).alias("verdict"))
    return RuleOutcome(
        findings=findings(told, COUNT.number, COUNT.name, ("text",), facts), state=counted, checked=checked(looked_at)
    )


COUNT: Final = Rule(number=99, name="COUNT", proves="Nothing.", state=COUNTED, check=_count)
"""Its findings and its state are another if a micro-batch is missed, or taken twice."""
SUMMARY: Final = Summary(name="counted", state=COUNTED, fold=lambda facts, _, state: _counted(facts, state))


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
            rows = [row for file in sorted(mark.parent.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
            found[str(mark.parent.relative_to(self.folder))] = sorted(rows, key=repr)
        for file in self.folder.glob("state/_known/[0-9]*"):
            found[str(file.relative_to(self.folder))] = json.loads(file.read_text())
        told = json.loads((self.folder / "progress.json").read_text())
        return found | {"progress": {name: value for name, value in told.items() if name != "seconds"}}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table, over all micro-batches."""
        return [row for name, rows in self.tables().items() if name.startswith(f"{table}/") for row in rows]

    def _keep(self, step: str) -> None:
        name = step.replace("/", "-")
        folder = self.folder.with_name(f"{self.folder.name}-{name}")
        shutil.copytree(self.folder, folder)
        self.left[step] = Job(self._spark, folder, self.topic)


def rows_of(spark: SparkSession, decisions: Sequence[Row], batches: Sequence[Row]) -> DataFrame:
    """A micro-batch as the stream has it."""
    told = [{"decision": each} for each in decisions] + [{"batch": each} for each in batches]
    return table(spark, told, STREAM)


def batch(base: int, **more: Any) -> dict[str, Any]:
    """A batch of ten records."""
    return {"topic": "orders", "partition": 0, "base_offset": base, "last_offset": base + 9, "bytes": 500, **more}


@pytest.fixture(scope="module")
def micro_batches(spark: SparkSession) -> list[DataFrame]:
    """Three: with gaps, a layout, a topic that is let go, and decisions that come again."""
    layout = json.loads(LAYOUT_JSON.dump_json(Layout.created("orders", uuid.UUID(int=1), 1, 4)))
    first = [decided("adopt", 0, topic="orders", layouts_offset=3, layout_epoch=0, evidence={"layout": layout})]
    first += [decided("join", number) for number in (1, 3)]
    second = [decided("join", number) for number in (3, 4, 7)] + [decided("forget", 8, topic="gone", layouts_offset=9)]
    third = [decided("join", number) for number in (8, 9)] + [decided("join", 1, worker="w2")]
    read_to: Mapping[str, Any] = {"topic": "orders", "partition": 0, "log_start": 0}
    return [
        rows_of(spark, first, [batch(0), batch(10), {**read_to, "next_offset": 20}]),
        rows_of(spark, second, [batch(20), {**read_to, "next_offset": 30}]),
        rows_of(spark, third, [{**read_to, "next_offset": 30}]),
    ]


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
    assert steps[0] == "facts"
    assert steps[-1] == "end"
    assert {"state/gaps", "state/count", "findings", "checked", "summaries/counted", "sinks"} <= set(steps)
    begun_with = {name: rows for name, rows in job.left["facts"].tables().items() if name.endswith(f"/{LAST - 1}")}
    assert {"state/gaps/1", "state/_waiting/1", "state/count/1"} <= begun_with.keys()
    assert len(begun_with) == 5
    for step, left in job.left.items():
        assert begun_with.items() <= left.tables().items(), step
        engine = left.engine()
        engine.resume(LAST)
        is_known = (left.folder / f"state/_known/{LAST}").exists()
        assert engine.last_batch == (LAST if is_known else LAST - 1), step
        assert engine.totals.decisions == (8 if is_known else 6), step
        assert engine.topics == {"orders"}, step


def test_a_micro_batch_that_is_repeated_over_what_a_dying_one_left_gives_the_same(
    spark: SparkSession, job: Job, micro_batches: list[DataFrame]
) -> None:
    """What it left may be whole, or half of it."""
    killed = job.left["end"]
    for mark in killed.folder.glob(f"*/*{LAST}/_SUCCESS"):
        mark.unlink()
    (half,) = (killed.folder / f"state/count/{LAST}").glob("*.parquet")
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
def test_a_micro_batch_repeated_from_each_step_gives_the_same(
    spark: SparkSession, job: Job, micro_batches: list[DataFrame]
) -> None:
    """And once more, over what the repetition has left."""
    for left in job.left.values():
        for _ in range(2):
            left.run(micro_batches[LAST], LAST)
            assert_same(left, job)


def assert_same(killed: Job, undisturbed: Job) -> None:
    """No row is missing, and none is there twice."""
    assert killed.tables() == undisturbed.tables()
