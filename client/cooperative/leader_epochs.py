"""The leader epochs of what a member has read, by which a log shows that it was cut and has grown again. No I/O.

A leader that comes up with less than was acknowledged cuts the log (an unclean election), and its own records take the
offsets that are free again. Who goes by offsets alone would take them for those that it has finished. The leader epoch
of a batch says under which leader it was written, and a broker says where an epoch ends (OffsetForLeaderEpoch,
KIP-320): what was read of it from there on is not in the log any more.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

NO_EPOCH: Final = -1
"""Of records whose leader epoch is not known."""
_BATCH: Final = struct.Struct(">qiib6xi")
"""Base offset, length, leader epoch, magic; checksum and attributes; last offset delta."""
_OVERHEAD: Final = 12
"""What the length of a batch does not count."""
_MAGIC: Final = 2
"""Of batches that have a leader epoch."""
_MOST_EPOCHS: Final = 100
"""Of a partition: of what was read before, the epoch is not known any more."""

P = TypeVar("P", bound=Hashable)
"""What names a partition."""


class EpochCheck(NamedTuple):
    """A question to the leader of a partition: does the log still have what was read of an epoch?"""

    epoch: int
    reach: int
    """How far it was read: it must not end before."""


@dataclass(slots=True)
class _ReadSpan:
    """What was read of a partition."""

    begins: list[tuple[int, int]]
    """The first offset of each epoch, and the epoch; both ascend."""
    reach: int
    """Up to where the newest epoch was read."""
    doubts: list[EpochCheck] = field(default_factory=list[EpochCheck])
    """Where the epoch has risen since somebody asked."""

    def take(self, begin: int, end: int, epoch: int) -> EpochCheck | None:
        """Takes a batch in; returns what there is to ask, if its epoch is newer."""
        newest, reach = self.begins[-1][1], self.reach
        if epoch < newest:
            return None
        if epoch == newest:
            self.reach = max(reach, end)
            return None
        self.begins = [*self.begins[-_MOST_EPOCHS:], (begin, epoch)]
        self.reach = end
        return EpochCheck(newest, reach) if newest != NO_EPOCH else None

    def note(self, doubt: EpochCheck | None) -> None:
        """Remembers what is to be asked."""
        if doubt is not None and len(self.doubts) < _MOST_EPOCHS:
            self.doubts.append(doubt)


class ReadEpochs(Generic[P]):
    """The leader epochs of the records that a member has read."""

    def __init__(self) -> None:
        self.assignment = 0
        """Grows with each one: what is fetched is told with the number from when it was asked for."""
        self._read: dict[P, _ReadSpan] = {}

    def forget(self) -> None:
        """All partitions are given up."""
        self.assignment += 1
        self._read.clear()

    def begin(self, partition: P, reach: int, epoch: int) -> None:
        """Takes in what a partition's commit says; some of it may have been fetched already.

        Args:
            partition: A newly assigned partition.
            reach: Up to where some of it was finished before.
            epoch: The leader epoch of the last record before that; -1: it is not known.
        """
        fetched = self._read.pop(partition, None)
        read = self._read[partition] = _ReadSpan([(0, epoch)], reach)
        begins = fetched.begins[1:] if fetched is not None else []
        for begin, newer in begins:
            read.note(read.take(begin, begin + 1, newer))
        if fetched is not None and begins and read.begins[-1] == begins[-1]:
            read.reach = fetched.reach

    def fetched(self, partition: P, records: bytes | memoryview, assignment: int) -> None:
        """Takes in what a Fetch has brought: whole batches, and the beginning of one more.

        Args:
            partition: The partition of the records.
            records: The records, in the order of the Fetch answer.
            assignment: The assignment at the time of the Fetch request.
        """
        if assignment != self.assignment:
            return
        read = self._read.setdefault(partition, _ReadSpan([(0, NO_EPOCH)], 0))
        at = 0
        doubt: EpochCheck | None = None
        while at + _BATCH.size <= len(records):
            base, length, epoch, magic, last = _BATCH.unpack_from(records, at)
            at += max(length, 0) + _OVERHEAD
            if magic == _MAGIC and at <= len(records):
                found = read.take(base, base + max(last, 0) + 1, epoch)
                doubt = doubt or found  # of one answer the first suffices: it is of one log
        read.note(doubt)

    def at(self, partition: P, reach: int) -> int:
        """Returns the leader epoch of the record before an offset; -1: it is not known.

        What there is a doubt about does not count: it is not handled before that is settled.
        """
        read = self._read.get(partition)
        if read is None:
            return NO_EPOCH
        newest = read.doubts[0].epoch if read.doubts else read.begins[-1][1]
        return next((epoch for begin, epoch in reversed(read.begins) if begin < reach and epoch <= newest), NO_EPOCH)

    def doubts(self, partitions: Collection[P]) -> dict[P, list[EpochCheck]]:
        """Returns what is to be asked before more of these partitions is handled."""
        return {each: read.doubts for each in partitions if (read := self._read.get(each)) is not None and read.doubts}

    def settle(self, partition: P) -> None:
        """The first question about a partition was answered: the log has what was read."""
        if read := self._read.get(partition):
            del read.doubts[:1]
