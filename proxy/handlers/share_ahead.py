"""The records ahead of share groups, with their bytes: what a worker has read, and will give to some member.

A group's window (`ordering/share/window.py`) has which records there are. The batches they are in are kept here as long
as they have a record that is not done, as far as the memory for all groups of the worker goes. What is not kept is read
again when it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final
from weakref import WeakKeyDictionary

from kordon.codecs.bodies import FetchResponsePartition
from kordon.codecs.error_codes import Code
from kordon.codecs.picked import PickableBatch
from kordon.proxy.ordering.share.policy import DEFAULT, SharePolicy
from kordon.proxy.ordering.share.window import ShareWindow, WindowRecord
from kordon.proxy.own_topics.share_partition import SharePartition
from kordon.proxy.reads.share_reads import ShareReads, pick

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Of batches, of all groups and partitions of a worker."""


class AheadRecords:
    """What stands ahead of one group in one virtual partition.

    Args:
        most_bytes: Returns how many bytes of batches it may keep now.
    """

    def __init__(self, partition: SharePartition, most_bytes: Callable[[], int]) -> None:
        self.error = Code.NONE
        """Why it was looked no further; NONE: there is no more."""
        self.start = 0
        """Where the partition begins, if the error is OFFSET_OUT_OF_RANGE."""
        self._partition = partition
        self._most_bytes = most_bytes
        self._window = partition.window
        """The window to which the batches belong."""
        self._policy = DEFAULT
        self._kept: list[PickableBatch] = []
        self._kept_bytes = 0
        self._widest_bytes = 1
        """The largest average size of a record among the batches, in bytes."""

    def follow(self, policy: SharePolicy) -> None:
        """Notes what its topic promises now; in another order all is looked at again."""
        if policy.order != self._policy.order:
            self._partition.window = ShareWindow(-1)  # which no group stands at
        self._policy = policy

    def look_from(self) -> int | None:
        """Returns the offset from which on more is to be read; None: it has seen enough."""
        ahead = self._partition.ahead()
        self._drop()
        return ahead.begin if ahead.most else None

    def take_in(self, begin: int, row: FetchResponsePartition, reads: ShareReads) -> None:
        """Takes in records that were read from an offset on, unless another read has done so."""
        ahead = self._partition.ahead()
        self._drop()
        if begin != ahead.begin or not ahead.most:
            return
        found = reads.opened(row, begin, ahead.most)
        self.error = found.error
        self._partition.look(begin, found.end, self._in_order(found.batches))
        for batch in found.batches:
            self._widest_bytes = max(self._widest_bytes, len(batch.data) // max(1, len(batch.records)))
            if self._kept_bytes + batch.size_bytes <= self._most_bytes():
                self._kept.append(batch)
                self._kept_bytes += batch.size_bytes

    def fitting(self, most_bytes: int) -> int:
        """Returns how many records fit into some bytes, at least one."""
        return max(1, most_bytes // self._widest_bytes)

    def pick(self, offsets: Collection[int]) -> tuple[list[bytes], set[int]]:
        """Returns batches with some records only, and the offsets of those that are not kept."""
        return pick(self._kept, offsets)

    def _in_order(self, batches: Iterable[PickableBatch]) -> Iterable[WindowRecord]:
        key_of = self._policy.key_of
        return (WindowRecord(each.offset, key_of(each.key)) for batch in batches for each in batch.records)

    def _drop(self) -> None:
        """Forgets what is done, and all if the group was reset."""
        window = self._partition.window
        if window is not self._window:
            self._window = window
            self._kept, self._widest_bytes = [], 1
        begin = window.begin
        self._kept = [each for each in self._kept if each.records and each.records[-1].offset >= begin]
        self._kept_bytes = sum(each.size_bytes for each in self._kept)


class AllAhead:
    """The records ahead of all groups of a worker."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._of: WeakKeyDictionary[SharePartition, AheadRecords] = WeakKeyDictionary()
        self._most_bytes = most_bytes

    def of(self, partition: SharePartition) -> AheadRecords:
        """Returns what stands ahead of a group in a partition."""
        found = self._of.get(partition)
        if found is None:
            found = self._of[partition] = AheadRecords(partition, self._share)
        return found

    def _share(self) -> int:
        return self._most_bytes // max(1, len(self._of))
