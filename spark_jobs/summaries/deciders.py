"""Who decided, and why clients were refused, held or limited."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.summaries.summary import Summary, at_kind, columns, newest_of

MOST_WORKERS: Final = 2_000
MOST_REASONS: Final = 2_000


_WORKERS: Final = columns(
    "worker string, host string, decisions bigint, first_number bigint, last_number bigint, first_ms bigint, "
    "last_ms bigint, leases_lost bigint, dropped bigint"
)


def _workers(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Who decided, how much, and what is missing of it. Bounded: the newest `MOST_WORKERS`."""
    at, number = F.col("at_ms"), F.col("number")
    lost = F.when((F.col("kind") == Kind.LEASE.value) & (F.col("reason") == "lost"), 1).otherwise(0)
    dropped = at_kind(Kind.GAP, F.col("last_number") - F.col("first_number") + 1)
    new = facts.decisions.groupBy("worker", "host").agg(
        F.count(F.lit(1)).alias("decisions"),
        F.min(number).alias("first_number"),
        F.max(number).alias("last_number"),
        F.min(at).alias("first_ms"),
        F.max(at).alias("last_ms"),
        F.sum(lost).cast("bigint").alias("leases_lost"),
        F.coalesce(F.sum(dropped), F.lit(0)).cast("bigint").alias("dropped"),
    )
    first = {"first_number", "first_ms"}
    last = {"last_number", "last_ms"}
    folds = [
        (F.min if each in first else F.max if each in last else F.sum)(each).alias(each) for each in _WORKERS.names[2:]
    ]
    return newest_of(stacked(state, new).groupBy("worker", "host").agg(*folds), MOST_WORKERS, F.col("last_ms"))


_REASONS: Final = columns(
    "kind string, topic string, api_key int, rule string, reason string, times bigint, first_ms bigint, last_ms bigint"
)
_REASONED: Final = ("kind", "topic", "api_key", "rule", "reason")


def _reasons(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """How often something was refused, held, limited or dropped, and why. Bounded: the newest `MOST_REASONS`."""
    kinds = [Kind.REFUSE, Kind.HOLD, Kind.LIMIT, Kind.CLOSE, Kind.GAP, Kind.LEASE, Kind.REWIND]
    new = facts.decisions.where(F.col("kind").isin([each.value for each in kinds])).select(
        *_REASONED,
        F.coalesce("batches", F.lit(1)).cast("bigint").alias("times"),
        F.col("at_ms").alias("first_ms"),
        F.col("at_ms").alias("last_ms"),
    )
    grouped = (
        stacked(state, new)
        .groupBy(*_REASONED)
        .agg(F.sum("times").alias("times"), F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms"))
    )
    return newest_of(grouped, MOST_REASONS, F.col("last_ms"))


SUMMARIES: Final = (
    Summary(name="workers", state=_WORKERS, fold=_workers),
    Summary(name="reasons", state=_REASONS, fold=_reasons),
)
