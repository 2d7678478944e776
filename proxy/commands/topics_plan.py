"""What a change of a managed topic's partitions would do, worked out without asking for it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kordon.proxy.commands.topics_tables import ranges
from kordon.proxy.ordering.hashing import homes, why_not

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kordon.proxy.commands.topics_client import PartitionCounts


class ImpossibleCount(ValueError):  # noqa: N818 - what the count is
    """Raised when a topic cannot have so many partitions; the message says how many it can have."""


def plan(topic: str, counts: PartitionCounts, count: int) -> str:
    """Says which virtual partitions move where when a topic gets another number of partitions.

    Args:
        count: U, the partitions that it is to have.

    Raises:
        ImpossibleCount: It cannot have so many.
    """
    n, v_count, before = counts.initial, counts.virtual, counts.physical
    if problem := why_not(n, count, v_count):
        raise ImpossibleCount(f"{topic} cannot have {count} partitions: {problem}")
    if count == before:
        return f"{topic} has {count} partitions already"
    moves = list(_moves(homes(n, before, v_count), homes(n, count, v_count)))
    moving = sum(len(run) for run, _, _ in moves)
    lines = [
        f"{topic}: {before} → {count} partitions; clients go on seeing {v_count}",
        f"{moving} of {v_count} virtual partitions move, {round(100 * moving / v_count)} % of the keys:",
        *(f"  {_named(run)} from partition {old} to {new}" for run, old, new in moves),
        f"Writes to {_partitions(moves, before)} are held for some milliseconds; others are not touched, and no group"
        " rebalances.",
    ]
    if count > before:
        lines.append(f"The brokers get partitions {_named(range(before, count))} of {topic}, unless they are there.")
    else:
        retired = _named(range(count, before))
        lines.append(f"Partitions {retired} are retired: their records stay readable until retention takes them.")
    do = "grow" if count > before else "shrink"
    return "\n".join([*lines, f"Nothing was changed. To do it: kordon topics {do} {topic} {count}"])


def _moves(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[range, int, int]]:
    """Yields neighbours among the virtual partitions that move together, with their old and their new partition."""
    ways = zip(before, after, strict=True)
    for (old, new), run in groupby(enumerate(ways), key=lambda each: each[1]):
        if old != new:
            numbers = [v for v, _ in run]
            yield range(numbers[0], numbers[-1] + 1), old, new


def _partitions(moves: Iterable[tuple[range, int, int]], before: int) -> str:
    """Names the present partitions that virtual ones leave or come to: a fence holds all that is written there."""
    held = ranges(q for _, *both in moves for q in both if q < before)
    return f"partition{'' if held.isdigit() else 's'} {held}"


def _named(run: range) -> str:
    return str(run.start) if len(run) == 1 else f"{run.start}-{run.stop - 1}"
