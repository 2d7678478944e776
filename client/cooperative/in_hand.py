"""Which records a member has in hand, which it may start, and which are finished. No I/O, no clock.

A partition is fetched in the order of offsets, and everything that it holds is fetched. So what is finished needs no
list of its own: it is what was fetched and is not in hand any more. Offsets that no record has (compacted, of
transaction markers, aborted) are finished as soon as the position has passed them.

Records with one chain key stand in a chain, and only its first may be started. Where a record comes to wait (a retry,
a handler that does not return), its chain waits and no other one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias

from kordon.client.cooperative.entry import P, PartitionInHand, Progress, R, RecordInHand, State
from kordon.client.cooperative.turns import StartQueue
from kordon.codecs.ranges import Range

Order: TypeAlias = Literal["key", "partition"] | None
"""Whose records follow one another: those of a key, of a partition, or nobody's."""

_ALL: Final = b""
"""The one chain of a partition."""


@dataclass(frozen=True, slots=True)
class HandLimits:
    """How much a member has in hand at most."""

    records: int = 20_000
    size: int = 64 << 20
    """In bytes of keys, values and headers; a single fetch may go beyond it."""
    running: int = 100


class InHand(Generic[P, R]):
    """The records of one member.

    Args:
        order: Says which records follow one another.
        limits: How much is fetched and started.
    """

    def __init__(self, order: Order, limits: HandLimits) -> None:
        self.running = 0
        """How many records are started and not finished."""
        self._order: Order = order
        self._limits = limits
        self._partitions: dict[P, PartitionInHand[P, R]] = {}
        self._turns: StartQueue[P, R] = StartQueue()

    @property
    def partitions(self) -> Collection[P]:
        """The member's partitions."""
        return self._partitions.keys()

    def assign(self, partition: P, position: int, ranges: Iterable[Range] = ()) -> None:
        """Takes a partition, from a position on.

        Args:
            partition: One that the member does not have.
            position: The committed offset.
            ranges: The finished ranges after it, in order.
        """
        assert partition not in self._partitions
        self._partitions[partition] = PartitionInHand(position, deque(ranges))

    def revoke(self, partitions: Iterable[P]) -> list[RecordInHand[P, R]]:
        """Gives partitions up, with all that is in hand of them.

        Returns:
            The records that are started and not finished: whatever becomes of them counts no more.
        """
        started: list[RecordInHand[P, R]] = []
        for partition in partitions:
            given_up = self._partitions.pop(partition, None)
            for entry in given_up.entries.values() if given_up is not None else ():
                if entry.state is State.RUNNING:
                    started.append(entry)
                entry.state = State.GONE
        self.running -= len(started)
        return started

    def position(self, partition: P) -> int:
        """Returns the next offset to be fetched."""
        return self._partitions[partition].position

    def take(self, partition: P, records: Iterable[tuple[int, bytes | None, int, R]], position: int) -> None:
        """Takes what was fetched from the position on.

        Args:
            partition: One of the member's.
            records: Offset, key, size in bytes, and the record, in the order of offsets.
            position: The next offset to be fetched.
        """
        held = self._partitions[partition]
        for offset, key, size, record in records:
            assert offset >= held.position
            held.position = offset + 1
            if not held.was_finished(offset):
                entry = RecordInHand(partition, held, offset, size, _chain(self._order, key), record)
                if held.add(entry):
                    self._turns.add(entry)
        held.position = max(held.position, position)
        held.changes += 1

    def has_gone_back(self, partition: P, offset: int) -> bool:
        """Whether the log is another one than it was: a position or record is before the position."""
        return offset < self._partitions[partition].position

    def wanted(self) -> list[P]:
        """Returns the partitions of which more is to be fetched; each has an equal share of the limits."""
        share = max(1, len(self._partitions))
        records, size = max(1, self._limits.records // share), max(1, self._limits.size // share)
        return [p for p, held in self._partitions.items() if len(held.entries) < records and held.size < size]

    @property
    def room(self) -> int:
        """How many records more may be fetched for all partitions together."""
        return max(0, self._limits.records - sum(len(held.entries) for held in self._partitions.values()))

    def start(self, now: float) -> RecordInHand[P, R] | None:
        """Starts the next record that may be started; None: there is none now."""
        if self.running >= self._limits.running:
            return None
        entry = self._turns.next(now)
        if entry is not None:
            self.running += 1
        return entry

    def can_start(self, now: float) -> bool:
        """Whether `start` may return a record."""
        return self.running < self._limits.running and self._turns.is_any(now)

    def next_due(self) -> float | None:
        """Returns when the next record that waits may be started again."""
        return self._turns.next_due()

    def find(self, partition: P, offset: int) -> RecordInHand[P, R] | None:
        """Returns the record in hand at an offset."""
        held = self._partitions.get(partition)
        return held.entries.get(offset) if held is not None else None

    def finish(self, entry: RecordInHand[P, R]) -> bool:
        """A record is done with.

        Returns:
            Whether that counts: not so of a record that is finished already, or was given up.
        """
        if entry.state is State.GONE:
            return False
        before, entry.state = entry.state, State.GONE
        held = entry.home
        held.drop(entry)
        if before is State.RUNNING:
            self.running -= 1
        if before is not State.QUEUED:
            following = held.following(entry)
            if following is not None:
                self._turns.add(following)
        return True

    def release(self, entry: RecordInHand[P, R], due: float) -> bool:
        """A record is to be started again, before all that follows it.

        Args:
            entry: One that is started.
            due: Not before this time.

        Returns:
            Whether that counts.
        """
        if entry.state is not State.RUNNING:
            return False
        self.running -= 1
        self._turns.wait(entry, due)
        return True

    def progress(self, partition: P) -> Progress:
        """Returns what is finished of a partition."""
        return self._partitions[partition].progress()

    def changes(self, partition: P) -> int:
        """Returns a number that grows with everything that changes what is finished."""
        return self._partitions[partition].changes

    def oldest(self, partition: P) -> RecordInHand[P, R] | None:
        """Returns the record at the stable offset; None: all that was fetched is finished."""
        return next(iter(self._partitions[partition].entries.values()), None)

    def counts(self) -> Mapping[P, int]:
        """Returns how many records are in hand of each partition."""
        return {partition: len(held.entries) for partition, held in self._partitions.items()}


def _chain(order: Order, key: bytes | None) -> bytes | None:
    match order:
        case "key":
            return key
        case "partition":
            return _ALL
        case None:
            return None
