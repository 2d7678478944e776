"""What a summary is, and what all of them are made with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts, nothing
from kordon.spark_jobs.judging.schema import FINDINGS, Column
from kordon.spark_jobs.judging.tables import stacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One table of the report."""

    name: str
    """The name of its folder."""
    state: pl.Schema
    """Its columns; the first micro-batch is given an empty table."""
    fold: Callable[[Facts, pl.DataFrame, pl.DataFrame], pl.DataFrame]
    """What is new, the findings of this micro-batch, and the table so far, to the next one."""


def merged(summary: Summary, tables: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Returns the one table that the tables of all parts make: nothing new is folded into all their rows."""
    rows = stacked(summary.state, summary.state.to_frame(), *tables)
    return summary.fold(nothing(), FINDINGS.to_frame(), rows)


def grouped(
    rows: pl.DataFrame, keys: Sequence[str], *, sums: Collection[str] = (), least: Collection[str] = ()
) -> pl.DataFrame:
    """Makes one row of those that have the same keys: the largest value of each column, null where none has one.

    Args:
        sums: Columns that are added up instead.
        least: Columns of which the smallest value is taken.
    """
    folds = (
        _sum(name) if name in sums else pl.min(name) if name in least else pl.max(name)
        for name in rows.columns
        if name not in keys
    )
    return rows.group_by(keys).agg(*folds).select(rows.columns)


def _sum(name: str) -> pl.Expr:
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum())


def longs(*names: str) -> dict[str, Column]:
    """Returns columns of whole numbers, for a schema."""
    return dict.fromkeys(names, pl.Int64)


def at_kind(kind: Kind, value: str | pl.Expr) -> pl.Expr:
    """Returns a value of decisions of one kind, null of others."""
    return pl.when(pl.col("kind") == kind.value).then(value)


def is_of(*kinds: Kind) -> pl.Expr:
    """Returns whether a decision is of one of these kinds."""
    return pl.col("kind").is_in([each.value for each in kinds])


def newest_of(
    table: pl.DataFrame, most: int, by: str | pl.Expr, keys: Sequence[str], within: Sequence[str] = ()
) -> pl.DataFrame:
    """Keeps the newest rows, so that a table stays bounded.

    Args:
        keys: What tells rows apart: of those that are equally new, all parts and their whole keep the same.
        within: Columns; so many rows are kept for each of their values.
    """
    if table.height <= most:
        return table
    ordered = table.sort(by, *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
    kept = ordered.group_by(within, maintain_order=True).head(most) if within else ordered.head(most)
    return kept.select(table.columns)
