"""Ranges of offsets, half open: sorted, not empty, and neither overlapping nor adjacent. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""Offsets [begin, end)."""


def united(ranges: Iterable[Range]) -> list[Range]:
    """Returns the same offsets as ranges in order; empty ones are left out."""
    found: list[Range] = []
    for begin, end in sorted(each for each in ranges if each[0] < each[1]):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def settled(stable: int, ranges: Iterable[Range]) -> tuple[int, list[Range]]:
    """Returns how far everything is finished, and the ranges behind that.

    Args:
        stable: All offsets before it are finished.
        ranges: Further offsets that are finished.
    """
    rest = united(ranges)
    while rest and rest[0][0] <= stable:
        stable = max(stable, rest.pop(0)[1])
    return stable, rest


def between(gaps: Iterable[int], end: int) -> Iterator[Range]:
    """Yields the ranges between gaps, from the first gap to the end.

    Args:
        gaps: Single offsets, ascending, all below `end`.
    """
    begin: int | None = None
    for gap in gaps:
        if begin is not None and begin < gap:
            yield begin, gap
        begin = gap + 1
    if begin is not None and begin < end:
        yield begin, end


def is_in_order(ranges: Sequence[Range]) -> bool:
    """Whether ranges are sorted, not empty, and neither overlap nor touch."""
    return all(begin < end for begin, end in ranges) and all(
        before[1] < after[0] for before, after in itertools.pairwise(ranges)
    )
