"""How much of what stands in a log lies within ranges of offsets: by running sums, not by a row for each pair.

Rows of one key follow on each other in a log. So what a range [first, last] meets is all that begins up to `last`,
without what ends before `first`; and what lies wholly inside is all that ends up to `last`, without what begins before
`first`. Where rows of a key overlap, the latter is the least that may be inside.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def sums_within(ranges: pl.DataFrame, rows: pl.DataFrame, of: Sequence[str]) -> pl.DataFrame:
    """Sums up columns of the rows that each range meets, and of those that lie inside.

    Args:
        ranges: With `key`, a number; `first_offset` and `last_offset`.
        rows: The same, and the columns that are summed.

    Returns:
        `<column>_met` and `<column>_inside` of each range, in their order.
    """
    names = [f"{name}_{which}" for which in ("met", "inside") for name in of]
    if ranges.is_empty() or rows.is_empty():
        return ranges.select(pl.repeat(0, pl.len(), dtype=pl.Int64).alias(name) for name in names)
    begun = _Sums(rows.select("key", "first_offset", "last_offset", *of), "first_offset", of)
    ended = _Sums(begun.rows, "last_offset", of)
    before, last = _packed(ranges, pl.col("first_offset") - 1), _packed(ranges, pl.col("last_offset"))
    met = begun.up_to(last) - ended.up_to(before)
    inside = (ended.up_to(last) - begun.up_to(before)).select(pl.all().clip(lower_bound=0))
    return pl.concat(
        [met.select(pl.all().name.suffix("_met")), inside.select(pl.all().name.suffix("_inside"))], how="horizontal"
    )


class _Sums:
    """Running sums over rows in the order of their keys, and of an offset within these."""

    def __init__(self, rows: pl.DataFrame, at: str, of: Sequence[str]) -> None:
        places = _packed(rows, pl.col(at)).arg_sort()
        self.rows = rows[places]
        self._at = _packed(self.rows, pl.col(at)).set_sorted()
        running = self.rows.select(pl.col(of).cast(pl.Int64).cum_sum())
        self._sums = pl.concat([running.clear(1).fill_null(0), running])

    def up_to(self, asked: pl.Series) -> pl.DataFrame:
        """Returns the sums of what lies at most there. What other keys have is in it, whatever the offset."""
        return self._sums[self._at.search_sorted(asked, side="right")]


def _packed(rows: pl.DataFrame, at: pl.Expr) -> pl.Series:
    """Returns key and offset as one number, in whose order they are sorted and found."""
    return rows.select(pl.col("key").cast(pl.Int128) * (1 << 64) + at).to_series()
