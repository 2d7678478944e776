"""How much of what stands in a log lies within ranges of offsets: by running sums, not by a row for each pair.

Rows of one key follow on each other in a log. So what a range [first, last] meets is all that begins up to `last`,
without what ends before `first`; and what lies wholly inside is all that ends up to `last`, without what begins before
`first`. Where rows of a key overlap, the latter is the least that may be inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

_Numbers: TypeAlias = npt.NDArray[np.int64]
_MOST: Final = 1 << 62


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
    first, last, before, up_to = _packed(rows, ranges)
    values = [rows.get_column(name).cast(pl.Int64).to_numpy() for name in of]
    begun, ended = _Sums(first, values), _Sums(last, values)
    met = begun.up_to(up_to) - ended.up_to(before)
    inside = np.maximum(ended.up_to(up_to) - begun.up_to(before), 0)
    return pl.DataFrame(dict(zip(names, [*met, *inside], strict=True)))


class _Sums:
    """Running sums over rows in the order of some numbers.

    Args:
        values: Columns that are summed.
    """

    def __init__(self, at: _Numbers, values: Sequence[_Numbers]) -> None:
        order = np.argsort(at, kind="stable")  # it is the faster the more is in order already
        self._at = at[order]
        self._sums = np.zeros((len(values), len(at) + 1), dtype=np.int64)
        for sums, column in zip(self._sums, values, strict=True):
            np.cumsum(column[order], out=sums[1:])

    def up_to(self, asked: _Numbers) -> _Numbers:
        """Returns the sums of what lies at most there. What other keys have is in it, whatever the offset."""
        return self._sums[:, np.searchsorted(self._at, asked, side="right")]


def _packed(rows: pl.DataFrame, ranges: pl.DataFrame) -> Iterator[_Numbers]:
    """Yields key and offset as one number: of the rows' first and last offsets, and of what ranges ask for.

    Both are counted from the smallest on. Where they are too large together, they are numbered instead.
    """
    keys = [each.get_column("key").to_numpy() for each in (rows, ranges)]
    first, last, asked, up_to = (
        each.get_column(name).to_numpy() for each in (rows, ranges) for name in ("first_offset", "last_offset")
    )
    offsets = [first, last, asked - 1, up_to]
    (lowest, count), (smallest, width) = _span(keys), _span(offsets)
    if count * width > _MOST:
        keys, offsets = _numbered(keys), _numbered(offsets)
        (lowest, _), (smallest, width) = _span(keys), _span(offsets)
    for key, at in zip((keys[0], keys[0], keys[1], keys[1]), offsets, strict=True):
        yield (key - lowest) * width + (at - smallest)


def _span(numbers: Sequence[_Numbers]) -> tuple[int, int]:
    """Returns the smallest of some numbers, and how many there are from it up to the largest."""
    smallest = min(int(each.min()) for each in numbers)
    return smallest, max(int(each.max()) for each in numbers) - smallest + 1


def _numbered(numbers: Sequence[_Numbers]) -> list[_Numbers]:
    """Returns numbers as their places among all of them."""
    every = np.unique(np.concatenate(numbers))
    return [np.searchsorted(every, each).astype(np.int64) for each in numbers]
