"""What PARENT-FIRST keeps of topics: enough to tell whether anything that can be delivered is left before an end."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.codecs.decision import Kind
from kordon.spark_jobs.rules.belonging import JANITOR, NO_V
from kordon.spark_jobs.rules.parent_readers import STATE
from kordon.spark_jobs.rules.ranges import FOR_EVER
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.rules.tables import union

MOST_RUNS: Final = 1_000
_PLACE: Final = ("topic", "partition")


def data_of(facts: Facts, state: DataFrame) -> DataFrame:
    """Returns what is known of the topics' batches, with what is new; of a topic that was let go nothing is kept."""
    let_go = facts.decisions.where(F.col("kind") == Kind.FORGET.value).select("topic").distinct()
    old = state.where("what in ('tail', 'run', 'forgotten', 'read')").join(let_go, "topic", "left_anti")
    seen = facts.batches.where(f"not is_control and (v is null or v != {JANITOR})")
    tails = (
        union([old.where("what = 'tail'"), _as_given(seen, facts.stays)], STATE)
        .groupBy(*_PLACE, "v", "move")
        .agg(F.max("last_offset").alias("last_offset"))
        .withColumns({"what": F.lit("tail"), "first_offset": F.col("last_offset")})
    )
    read = facts.read_to.select(
        *_PLACE, F.col("log_start").alias("first_offset"), F.col("next_offset").alias("last_offset")
    )
    reads = (
        union([old.where("what = 'read'"), read], STATE)
        .groupBy(*_PLACE)
        .agg(F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"))
        .withColumn("what", F.lit("read"))
    )
    return union([tails, reads, _runs(old, seen)], STATE)


def _as_given(seen: DataFrame, stays: DataFrame) -> DataFrame:
    """Names batches by the virtual partition whose readers get them (TAKEOVER-SHARES)."""
    shared = stays.where("shared_from is not null").select(
        *_PLACE, "shared_from", F.coalesce("shared_to", F.lit(FOR_EVER)).alias("_to")
    )
    s, here = shared.distinct().alias("s"), [F.col(f"b.{each}") == F.col(f"s.{each}") for each in _PLACE]
    is_shared = here[0] & here[1] & F.col("base_offset").between(F.col("shared_from"), F.col("_to") - 1)
    joined = seen.alias("b").join(F.broadcast(s), is_shared, "left")
    is_host = F.col("s.topic").isNotNull() & F.col("v").isNotNull() & (F.col("v") < NO_V)
    return joined.select(
        *(F.col(f"b.{each}") for each in _PLACE),
        F.when(is_host, F.col("b.partition")).otherwise(F.col("v")).alias("v"),
        "move",
        "last_offset",
    )


def _runs(old: DataFrame, seen: DataFrame) -> DataFrame:
    """Merges batches that follow on each other; of what is older than the newest ones it keeps where it ends."""
    in_order = Window.partitionBy(*_PLACE).orderBy("first_offset")
    newest = Window.partitionBy(*_PLACE).orderBy(F.desc("first_offset"))
    new = seen.select(*_PLACE, F.col("base_offset").alias("first_offset"), "last_offset")
    reached = F.max("last_offset").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    return (
        union([old.where("what in ('run', 'forgotten')"), new], STATE)
        .withColumn("_breaks", F.coalesce(F.col("first_offset") > reached + 1, F.lit(True)).cast("int"))
        .withColumn("_run", F.sum("_breaks").over(in_order))
        .groupBy(*_PLACE, "_run")
        .agg(F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"))
        .withColumn("_place", F.row_number().over(newest))
        .where(F.col("_place") <= MOST_RUNS + 1)
        .withColumn("what", F.when(F.col("_place") <= MOST_RUNS, "run").otherwise("forgotten"))
    )
