"""What was read, decisions and topics: a verdict holds for this and nothing else."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.summaries.summary import Summary, grouped, longs
from kordon.spark_jobs.judging.tables import stacked

_READ_DECISIONS: Final = columns(
    log_partition=pl.Int32, kind=pl.String, **longs("decisions", "first_offset", "last_offset", "first_ms", "last_ms")
)
_FIRST: Final = ("first_offset", "first_ms")


def _read_decisions(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """Which decisions were read. Bounded by the log's partitions and the kinds of decisions."""
    keys = ("log_partition", "kind")
    new = facts.decisions.group_by(keys).agg(
        pl.len().alias("decisions"),
        pl.min("log_offset").alias("first_offset"),
        pl.max("log_offset").alias("last_offset"),
        pl.min("at_ms").alias("first_ms"),
        pl.max("at_ms").alias("last_ms"),
    )
    return grouped(stacked(_READ_DECISIONS, state, new), keys, sums=["decisions"], least=_FIRST)


_COUNTS: Final = ("batches", "records", "bytes", "untagged", "control")
_READ_BATCHES: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    **longs(*_COUNTS, "first_offset", "last_offset", "log_start", "next_offset", "first_ms", "last_ms"),
)


def _read_batches(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """Which topic data was read, and of what kind. Bounded by the topics' partitions."""
    keys = ("topic", "partition")
    is_data = ~pl.col("is_control") & pl.col("event").is_null()
    time = pl.when(pl.col("max_timestamp_ms") > 0).then("max_timestamp_ms")
    read = facts.batches.select(
        *keys,
        "records",
        "bytes",
        "last_offset",
        pl.lit(1, pl.Int64).alias("batches"),
        pl.when(pl.col("v").is_null() & is_data).then(1).alias("untagged"),
        pl.when(~is_data).then(1).alias("control"),
        pl.col("base_offset").alias("first_offset"),
        time.alias("first_ms"),
        time.alias("last_ms"),
    )
    new = stacked(_READ_BATCHES, state, grouped(read, keys, sums=_COUNTS, least=_FIRST), facts.read_to)
    return grouped(new, keys, sums=_COUNTS, least=_FIRST)


SUMMARIES: Final = (
    Summary(name="read_decisions", state=_READ_DECISIONS, fold=_read_decisions),
    Summary(name="read_batches", state=_READ_BATCHES, fold=_read_batches),
)
