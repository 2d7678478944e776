"""Batches of a log as they are kept in a state: some two bytes each, so that hours of them can be.

A run is what one micro-batch had of one partition, in the order of offsets; each batch is told by how it differs from
the one before. What transactions have aborted has runs of its own. Runs are only added, and go as a whole. Those that
are asked for are spread out into rows again.

    runs     topic partition first_offset last_offset seen_ms is_aborted | holes lengths lacks streams controls (a list
             each)
    batches  topic partition first_offset last_offset records stream is_control is_aborted
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.schema import OF_STREAM, columns
from kordon.spark_jobs.judging.tables import shaped

BATCHES: Final = columns(OF_STREAM, is_control=pl.Boolean, is_aborted=pl.Boolean)
"""`is_control` null: of a transaction, and nobody can say what became of it. `is_aborted`: readers of committed records
do not get it; older states have null, and `is_control` null for all that is of a transaction."""
_LISTS: Final = columns(
    holes=pl.List(pl.Int32),
    lengths=pl.List(pl.Int32),
    lacks=pl.List(pl.Int32),
    streams=pl.List(pl.Int16),
    controls=pl.List(pl.Boolean),
)
"""Of each batch: how many offsets lie between the one before and it; how far its last offset lies behind its first; by
how many records it has fewer than that."""
RUNS: Final = columns(
    columns(
        topic=pl.String,
        partition=pl.Int32,
        first_offset=pl.Int64,
        last_offset=pl.Int64,
        seen_ms=pl.Int64,
        is_aborted=pl.Boolean,
    ),
    _LISTS,
)
_WINDOW: Final = 1 << 30
"""Batches of one run begin within so many offsets, so that all differences have 32 bits, as the length of a batch."""
RUN_BYTES: Final = 16
BATCH_BYTES: Final = 4
"""As tables of runs are kept, in Arrow's stream format with zstd: 13 and 1 to 2 where batches are much alike; not more
than this where each of them has another length and any of 4,096 streams."""


def runs_of(batches: pl.DataFrame, seen_ms: int) -> pl.DataFrame:
    """Returns batches as runs."""
    first, last = pl.col("first_offset"), pl.col("last_offset")
    window = (first // _WINDOW).alias("window")
    runs = batches.sort("first_offset").group_by("topic", "partition", "is_aborted", window, maintain_order=True)
    told = runs.agg(
        first.first(),
        last.max(),
        (first - last.shift(1) - 1).fill_null(0).alias("holes"),
        (last - first).alias("lengths"),
        (last - first - pl.col("records")).alias("lacks"),
        pl.col("stream").alias("streams"),
        pl.col("is_control").alias("controls"),
    )
    return shaped(told.with_columns(pl.lit(seen_ms).alias("seen_ms")), RUNS)


def batches_of(runs: pl.DataFrame) -> pl.DataFrame:
    """Returns the batches of some runs; columns that runs have besides stay."""
    rows = runs.with_row_index("run").explode(_LISTS.names())
    length = pl.col("lengths").cast(pl.Int64)
    last = pl.col("first_offset") + (pl.col("holes") + length + 1).cum_sum().over("run") - 1
    told = rows.with_columns(last.alias("last_offset")).with_columns(
        (pl.col("last_offset") - length).alias("first_offset"),
        (length - pl.col("lacks")).alias("records"),
        pl.col("streams").cast(pl.Int32).alias("stream"),
        pl.col("controls").alias("is_control"),
    )
    return told.drop("run", *_LISTS)


def size() -> pl.Expr:
    """Returns how many bytes a run takes where it is kept, and hardly more."""
    return RUN_BYTES + BATCH_BYTES * pl.col("streams").list.len().cast(pl.Int64)
