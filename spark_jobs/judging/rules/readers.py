"""What readers were given and asked for, in the order of each: for rules that hold a reader against itself.

A reader is a connection and a stream, where ~q stands for a physical partition as clients of the dialect see it. The
rules keep a row for each, its newest step. It goes with the reader's CLOSE, and after `QUIET_MS` of silence, as workers
that were killed close nothing; so the rows are bounded by the connections that are open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import QUIET_MS, follows, together

READER: Final = columns(
    worker=pl.String, connection=pl.Int64, topic=pl.String, stream=pl.Int32, number=pl.Int64, at_ms=pl.Int64
)
"""Columns that each table of readers has: who it is, and the number and time of its newest step."""
_WHO: Final = ("worker", "connection", "topic", "stream")

IS_DELIVERY: Final = pl.col("kind") == Kind.DELIVER.value
_STEPS: Final = (Kind.DELIVER.value, Kind.REWIND.value)


def steps_of(decisions: pl.DataFrame, *others: Kind) -> pl.DataFrame:
    """Returns what readers were given, and where they asked to continue; and decisions on them of other kinds."""
    is_of_reader = pl.all_horizontal(pl.col("connection", "topic", "stream", "partition").is_not_null())
    return decisions.filter(pl.col("kind").is_in([*_STEPS, *others]) & is_of_reader)


def in_order(
    readers: pl.DataFrame, steps: pl.DataFrame, before: Sequence[str], carried: Sequence[str] = ()
) -> pl.DataFrame:
    """Returns steps, and readers as they stood before all of these, in the order of each reader.

    Args:
        readers: The state so far.
        steps: With the columns of `readers`, and others.
        before: Columns of which each row gets the value in its reader's row before, as `<column>_before`; null: there
            is none.
        carried: Columns that a row which has null there takes over from its reader's row before.

    Returns:
        With `is_newest`. Rows of the state have no `kind`.
    """
    rows = together(pl.concat([readers, steps], how="diagonal").sort("number"), _WHO)
    goes_on = follows(_WHO)
    return rows.with_columns(_carried(name, goes_on) for name in carried).with_columns(
        *(pl.when(goes_on).then(pl.col(name).shift(1)).alias(f"{name}_before") for name in before),
        goes_on.shift(-1, fill_value=False).not_().alias("is_newest"),
    )


def _carried(name: str, goes_on: pl.Expr) -> pl.Expr:
    is_told = pl.col(name).is_not_null() | ~goes_on
    return pl.col(name).gather(pl.when(is_told).then(pl.int_range(pl.len())).forward_fill())


def still_open(steps: pl.DataFrame, facts: Facts, quiet_ms: int = QUIET_MS) -> pl.DataFrame:
    """Returns the newest step of each reader whose connection is open, as far as is known."""
    closed = facts.of_all.filter(pl.col("kind") == Kind.CLOSE.value)
    heard_of = steps.filter(pl.col("is_newest") & (pl.col("at_ms") > facts.newest_ms - quiet_ms))
    return heard_of.join(closed, on=["worker", "connection"], how="anti", maintain_order="left")
