"""When writes and readers waited, and for what."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.summaries.summary import Summary, columns, newest_of

MOST_PAUSES: Final = 500
MOST_HOLDS: Final = 20_000


_PAUSES: Final = columns(
    "topic string, what string, reason string, worker string, stream int, connection bigint, number bigint, "
    "began_ms bigint, ended_ms bigint, holds bigint, longest_ms bigint"
)
_HELD: Final = ("worker", "topic", "stream", "connection")


def _pauses(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """When writes, or dialect readers, of a topic waited, and for what.

    A worker that holds all of a fence goes on by a release, or by the layout that it adopts. A hold that has no end yet
    is a row of its own (`ended_ms` null); the others are merged where they overlap.
    Bounded: the newest `MOST_PAUSES` per topic and reason, and the newest `MOST_HOLDS` without an end.
    """
    kinds = [Kind.HOLD.value, Kind.RELEASE.value, Kind.ADOPT.value, Kind.FORGET.value]
    is_open = F.col("ended_ms").isNull()
    still = state.where(is_open).select(
        *_HELD, "number", "what", "reason", F.col("began_ms").alias("at_ms"), F.lit(Kind.HOLD.value).alias("kind")
    )
    new = facts.decisions.where(F.col("kind").isin(kinds)).select(
        *_HELD,
        "number",
        F.when(F.col("reason") == "gate", "readers").otherwise("writes").alias("what"),
        F.coalesce("reason", "rule", F.lit("")).alias("reason"),
        "at_ms",
        "kind",
    )
    following = F.lead("at_ms").over(Window.partitionBy(*_HELD).orderBy("number"))
    held = (
        stacked(still, new)
        .withColumn("ended_ms", following)
        .where(F.col("kind") == Kind.HOLD.value)
        .withColumnRenamed("at_ms", "began_ms")
        .withColumn("holds", F.lit(1).cast("bigint"))
        .withColumn("ended_ms", _not_before("ended_ms"))
        .withColumn("longest_ms", F.col("ended_ms") - F.col("began_ms"))
    )
    opened = newest_of(held.where(is_open), MOST_HOLDS, F.col("began_ms")).select(*_PAUSES.names)
    merged = _merged(stacked(state.where(~is_open), held.where(~is_open)))
    return stacked(opened, newest_of(merged, MOST_PAUSES, F.col("began_ms"), ("topic", "what", "reason")))


def _not_before(end: str) -> Column:
    return F.when(F.col(end).isNotNull(), F.greatest("began_ms", end))


def _merged(pauses: DataFrame) -> DataFrame:
    """One row for what overlaps in time, per topic and reason (gaps and islands)."""
    same = ("topic", "what", "reason")
    by_time = Window.partitionBy(*same).orderBy("began_ms", "ended_ms")
    reached = F.max("ended_ms").over(by_time.rowsBetween(Window.unboundedPreceding, -1))
    is_new = F.when(F.col("began_ms") <= reached, 0).otherwise(1)
    island = F.sum("_new").over(by_time.rowsBetween(Window.unboundedPreceding, 0))
    nothing = {"worker": "string", "stream": "int", "connection": "bigint", "number": "bigint"}
    return (
        pauses.withColumn("_new", is_new)
        .withColumn("_island", island)
        .groupBy(*same, "_island")
        .agg(
            F.min("began_ms").alias("began_ms"),
            F.max("ended_ms").alias("ended_ms"),
            F.sum("holds").alias("holds"),
            F.max("longest_ms").alias("longest_ms"),
        )
        .withColumns({name: F.lit(None).cast(kind) for name, kind in nothing.items()})
        .select(*_PAUSES.names)
    )


SUMMARIES: Final = (Summary(name="pauses", state=_PAUSES, fold=_pauses),)
