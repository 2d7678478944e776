"""The transactions that a fence waits for: they began before all workers knew of the change (OLDER-FIRST).

Their AddPartitionsToTxn added the old homes alone, so their data have no witness in the new ones. All open transactions
count, since the log does not say by which protocol their partitions were added.

    all have acknowledged ──> log ends asked for ──> leaders asked who is open ──> coordinators asked ──> … until nobody
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple


class OpenAt(NamedTuple):
    """A producer that is open on a physical partition, as its leader tells it."""

    partition: int
    producer_id: int
    start_offset: int
    """The start of its open transaction there."""


class OlderTransactions:
    """Kept by the controller while an announced change waits.

    Args:
        ends: By physical partition that something leaves, the log end that was asked for when all workers had
            acknowledged the announcement. A fence that moves nothing has none, and does not wait.
    """

    def __init__(self, ends: Mapping[int, int]) -> None:
        self._ends = ends
        self._waited: set[tuple[int, int]] = set()

    def left(self, open_at: Iterable[OpenAt], known: Collection[tuple[int, int]]) -> frozenset[tuple[int, int]]:
        """Returns what is still waited for, as partitions and producer ids.

        A transaction that an operator has aborted in one partition is still waited for. Its coordinator does not know
        of that, and its client continues.

        Args:
            open_at: The leaders' answers for the partitions in `ends`.
            known: Partitions and producer ids of the transactions that coordinators have open, prepared ones included.
                They were asked after the leaders. What no coordinator knows hangs, and is not waited for.
        """
        for each in open_at:
            where = each.partition, each.producer_id
            if is_older(each, self._ends):
                self._waited.add(where)
            else:
                self._waited.discard(where)
        self._waited = {each for each in self._waited if not is_over(each, known)}
        return frozenset(self._waited)


def is_older(each: OpenAt, ends: Mapping[int, int]) -> bool:
    """Whether a transaction began before all workers had acknowledged the announcement."""
    return each.start_offset < ends.get(each.partition, 0)


def is_over(where: tuple[int, int], known: Collection[tuple[int, int]]) -> bool:
    """Whether a transaction has ended, as its coordinator tells it: its marker stands by then, or is never to come."""
    return where not in known
