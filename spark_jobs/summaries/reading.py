"""What was read, decisions and topics: a verdict holds for this and nothing else."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.summaries.summary import Summary, columns

_READ_DECISIONS: Final = columns(
    "log_partition int, kind string, decisions bigint, first_offset bigint, last_offset bigint, first_ms bigint, "
    "last_ms bigint"
)


def _read_decisions(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Which decisions were read. Bounded by the log's partitions and the kinds of decisions."""
    new = facts.decisions.select(
        "log_partition",
        "kind",
        F.lit(1).cast("bigint").alias("decisions"),
        F.col("log_offset").alias("first_offset"),
        F.col("log_offset").alias("last_offset"),
        F.col("at_ms").alias("first_ms"),
        F.col("at_ms").alias("last_ms"),
    )
    return (
        stacked(state, new)
        .groupBy("log_partition", "kind")
        .agg(
            F.sum("decisions").alias("decisions"),
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
        )
    )


_READ_BATCHES: Final = columns(
    "topic string, partition int, batches bigint, records bigint, bytes bigint, untagged bigint, control bigint, "
    "first_offset bigint, last_offset bigint, log_start bigint, next_offset bigint, first_ms bigint, last_ms bigint"
)


def _read_batches(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Which topic data was read, and of what kind. Bounded by the topics' partitions."""
    time = F.when(F.col("max_timestamp_ms") > 0, F.col("max_timestamp_ms"))
    one = F.lit(1).cast("bigint")
    nothing = F.lit(None).cast("bigint")
    read = facts.batches.select(
        "topic",
        "partition",
        one.alias("batches"),
        "records",
        "bytes",
        F.when(F.col("v").isNull() & ~F.col("is_control"), one).alias("untagged"),
        F.when(F.col("is_control"), one).alias("control"),
        F.col("base_offset").alias("first_offset"),
        "last_offset",
        nothing.alias("log_start"),
        nothing.alias("next_offset"),
        time.alias("first_ms"),
        time.alias("last_ms"),
    )
    reached = facts.read_to.select("topic", "partition", "log_start", "next_offset")
    both = stacked(state, read, reached)
    first = {"first_offset", "first_ms"}
    sums = {"batches", "records", "bytes", "untagged", "control"}
    folds = [
        (F.min if each in first else F.sum if each in sums else F.max)(each).alias(each)
        for each in _READ_BATCHES.names[2:]
    ]
    return both.groupBy("topic", "partition").agg(*folds)


SUMMARIES: Final = (
    Summary(name="read_decisions", state=_READ_DECISIONS, fold=_read_decisions),
    Summary(name="read_batches", state=_READ_BATCHES, fold=_read_batches),
)
