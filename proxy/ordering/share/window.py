"""The records ahead of what a group has done of a partition, as far as a worker has looked at them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from kordon.codecs.ranges import NONE, Range, Ranges
from kordon.proxy.ordering.claims import Done


class WindowRecord(NamedTuple):
    """A record."""

    offset: int
    key: int | None
    """What records in order have in common: a hash of their key. None: nothing, it has no key."""


class ShareWindow:
    """All records between two offsets.

    Args:
        begin: The first offset that is looked at.
    """

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.end = begin
        """All before it has been looked at."""
        self.left: list[WindowRecord] = []
        """The records in order; some that are done may be left out (`prune`)."""
        self._offsets: list[int] = []
        self._keys: dict[int, int | None] = {}

    def __len__(self) -> int:
        """Returns the number of records."""
        return len(self._offsets)

    def has(self, offset: int) -> bool:
        """Whether a record stands at an offset."""
        return offset in self._keys

    def key_of(self, offset: int) -> int | None:
        """Returns the key of a record that it has."""
        return self._keys[offset]

    def look(self, end: int, records: Iterable[WindowRecord]) -> None:
        """Continues.

        Args:
            end: All before it has been looked at now.
            records: The records between the present end and this one, in order.
        """
        for each in records:
            self._offsets.append(each.offset)
            self._keys[each.offset] = each.key
            self.left.append(each)
        self.end = end

    def prune(self, done: Done) -> None:
        """Leaves out what is done, so that nobody has to pass it over each time."""
        self.left = [each for each in self.left if not done.has(each.offset)]

    def drop_before(self, offset: int) -> None:
        """Forgets what is done."""
        count = bisect_left(self._offsets, offset)
        for each in self._offsets[:count]:
            del self._keys[each]
        del self._offsets[:count]
        del self.left[: bisect_left(self.left, (offset,))]
        self.begin = max(self.begin, min(offset, self.end))

    def covered(self, offsets: Iterable[int]) -> Ranges:
        """Returns what is done when records are: these, and the offsets before each that no record has (SEEN-GAPS).

        Args:
            offsets: Offsets of records. Nothing after an unexamined record counts as done.
        """
        return Ranges(self._covered(offset) for offset in offsets)

    def _covered(self, offset: int) -> Range:
        if offset not in self._keys:
            return offset, offset + 1
        place = bisect_left(self._offsets, offset)
        return (self._offsets[place - 1] + 1 if place else self.begin), offset + 1

    def gap_at(self, offset: int) -> Ranges:
        """Returns the offsets from one on that no record has, as far as it has looked."""
        if offset < self.begin:
            return NONE
        place = bisect_left(self._offsets, offset)
        return Ranges([(offset, self._offsets[place] if place < len(self._offsets) else self.end)])
