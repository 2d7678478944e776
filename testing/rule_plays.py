"""Plays a rule of the auditor over micro-batches, with its state carried from one to the next, as the engine does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from kordon.spark_jobs.rules import belonging
from kordon.spark_jobs.rules.ranges import ROW
from kordon.spark_jobs.rules.rule import Facts, Rule
from kordon.spark_jobs.schema import BATCHES, DECISIONS, READ_TO, SEGMENTS, STAYS

Row = Mapping[str, Any]
START_MS: Final = 1_760_000_000_000
GAPS: Final = StructType(
    [
        StructField("worker", StringType()),
        StructField("first_number", LongType()),
        StructField("last_number", LongType()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """What is new for a rule; segments and stays hold until other ones are told."""

    decisions: Sequence[Row] = ()
    batches: Sequence[Row] = ()
    keys: Sequence[Row] = ()
    read_to: Sequence[Row] = ()
    segments: Sequence[Row] | None = None
    stays: Sequence[Row] | None = None
    is_last: bool = False


@dataclass
class Played:
    """What came of it."""

    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    checked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    state: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Behind the last micro-batch."""
    waiting: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Batches that are not certain yet, and up to where all are."""

    def found(self, *columns: str) -> list[Any]:
        """Returns some columns of all findings, sorted; one column without tuples."""
        rows = [tuple(each[column] for column in columns) for each in self.findings]
        return sorted((row[0] if len(columns) == 1 else row for row in rows), key=repr)

    def count(self, verdict: str) -> int:
        """Returns how much was looked at with this verdict."""
        return sum(each["count"] for each in self.checked if each["verdict"] == verdict)


def decided(kind: str, number: int, *, worker: str = "w1", seconds: float = 0, **fields: Any) -> dict[str, Any]:
    """A decision; `evidence` is an object."""
    evidence = fields.pop("evidence", None)
    return {
        "host": "host",
        "worker": worker,
        "number": number,
        "kind": kind,
        "at_ms": START_MS + round(seconds * 1000),
        "evidence": None if evidence is None else json.dumps(evidence),
        "log_partition": 0,
        **fields,
    }


def play(spark: SparkSession, rule: Rule, micro_batches: Iterable[MicroBatch | Sequence[Row]]) -> Played:
    """Runs a rule over micro-batches; gaps are found as the engine's first rule would.

    Args:
        micro_batches: Decisions alone, or all that is new.
    """
    played = Played()
    segments: Sequence[Row] = ()
    stays: Sequence[Row] = ()
    gaps: list[Row] = []
    numbers: dict[str, int] = {}
    newest_ms = 0
    for batch_id, each in enumerate(micro_batches):
        batch = each if isinstance(each, MicroBatch) else MicroBatch(decisions=each)
        segments = batch.segments if batch.segments is not None else segments
        stays = batch.stays if batch.stays is not None else stays
        gaps += gaps_in(batch.decisions, numbers)
        newest_ms = max(newest_ms, *(row["at_ms"] for row in batch.decisions), 0)
        facts = Facts(
            decisions=table(spark, batch.decisions, DECISIONS),
            batches=table(spark, batch.batches, BATCHES),
            segments=table(spark, segments, SEGMENTS),
            stays=table(spark, stays, STAYS),
            read_to=table(spark, batch.read_to, READ_TO),
            batch_id=batch_id,
            newest_ms=newest_ms,
            late_ms=600_000,
            is_last=batch.is_last,
            placed=table(spark, [], belonging.PLACED),
            gaps=table(spark, gaps, GAPS),
        )
        waiting = table(spark, played.waiting, ROW)
        if rule.state is ROW:
            placed, waiting = belonging.placed(facts, waiting)
            facts = replace(facts, placed=placed)
        outcome = rule.check(facts, table(spark, played.state, rule.state))
        tables = {"findings": outcome.findings, "checked": outcome.checked, "state": outcome.state}
        told = _rows({**tables, "waiting": waiting})
        played.findings += told["findings"]
        played.checked += told["checked"]
        played.state = told["state"]
        played.waiting = told["waiting"]
    return played


def table(spark: SparkSession, rows: Iterable[Row], schema: StructType) -> DataFrame:
    """Makes a table, without a Python worker of Spark's; columns that rows do not name are null."""
    whole = [{name: row.get(name) for name in schema.names} for row in rows]
    return spark.createDataFrame(pyarrow.Table.from_pylist(whole, schema=to_arrow_schema(schema)), schema)


def _rows(tables: Mapping[str, DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """Returns all tables by one job of Spark, as each job costs more than the rows."""
    told = [
        frame.select(F.lit(name).alias("name"), F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
        for name, frame in tables.items()
    ]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in tables}
    for name, row in reduce(DataFrame.unionByName, told).collect():
        rows[name].append(_with_numbers(json.loads(row), tables[name].schema))
    return rows


def _with_numbers(row: dict[str, Any], schema: StructType) -> dict[str, Any]:
    """Makes the keys of maps numbers again, where they were."""
    for each in schema.fields:
        kind = each.dataType
        if isinstance(kind, MapType) and not isinstance(kind.keyType, StringType) and row[each.name] is not None:
            row[each.name] = {int(key): value for key, value in row[each.name].items()}
    return row


def gaps_in(decisions: Iterable[Row], numbers: dict[str, int]) -> list[Row]:
    """Returns the gaps in the numbers of workers, as `GAPS` has them; `numbers` goes on with the last of each."""
    found: list[Row] = []
    for row in sorted(decisions, key=lambda each: each["number"]):
        following = numbers.get(row["worker"], -1) + 1
        if row["number"] > following:
            found.append({"worker": row["worker"], "first_number": following, "last_number": row["number"] - 1})
        numbers[row["worker"]] = row["number"]
    return found
