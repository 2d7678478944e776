"""How far the topics have been read, and what was gone before it could be."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import shaped

READ: Final = columns(topic=pl.String, partition=pl.Int32, hole_to=pl.Int64, read_to=pl.Int64)
"""Of each partition: `read_to` is the last offset that was read; below `hole_to` something was gone before."""


def read_so_far(known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns how far each partition has been read after this micro-batch, as `READ`."""
    joined = facts.read_to.join(known, on=["topic", "partition"], how="full", coalesce=True)
    is_behind = (pl.col("log_start") > pl.col("read_to") + 1) | pl.col("hole_to").is_null()
    reached = joined.with_columns(
        pl.when(is_behind).then("log_start").otherwise("hole_to").alias("hole_to"),
        pl.max_horizontal(pl.col("next_offset") - 1, "read_to").alias("read_to"),
    )
    return shaped(reached, READ)
