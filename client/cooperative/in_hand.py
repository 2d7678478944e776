"""Which records a member has in hand, which it may start, and which are finished. No I/O, no clock.

A partition is fetched in the order of offsets, and everything that it holds is fetched. So what is finished needs no
list of its own: it is what was fetched and is not in hand any more. Offsets that no record has (compacted, of
transaction markers, aborted) are finished as soon as the position has passed them.

Records with one chain key stand in a chain, and only its first may be started. Where a record comes to wait (a retry,
a handler that does not return), its chain waits and no other one.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from kordon.client.cooperative.ranges import Range, between, settled

R = TypeVar("R")
"""The record of the application."""
P = TypeVar("P", bound=Hashable)
"""What names a partition."""
Order: TypeAlias = Literal["key", "partition"] | None
"""Whose records follow one another: those of a key, of a partition, or nobody's."""

_ALL: Final = b""
"""The one chain of a partition."""


class State(Enum):
    """What becomes of a record in hand."""

    QUEUED = auto()
    """It is not the first of its chain."""
    READY = auto()
    RUNNING = auto()
    WAITING = auto()
    """It is to be tried again later."""
    GONE = auto()
    """It is finished, or this member's no more."""


@dataclass(slots=True, eq=False)
class Entry(Generic[P, R]):
    """A record in hand."""

    partition: P
    home: _Partition[P, R] = field(repr=False)
    """Where it is in hand."""
    offset: int
    size: int
    chain: bytes | None
    """None: it follows nobody."""
    record: R
    attempts: int = 0
    """How often it was started."""
    state: State = State.QUEUED
    next: Entry[P, R] | None = None


@dataclass(slots=True)
class _Partition(Generic[P, R]):
    position: int
    """The next offset to be fetched."""
    ahead: deque[Range]
    """What was finished before, behind the position."""
    entries: dict[int, Entry[P, R]] = field(default_factory=dict[int, Entry[P, R]])
    """By offset, ascending."""
    last: dict[bytes, Entry[P, R]] = field(default_factory=dict[bytes, Entry[P, R]])
    """The last record of each chain."""
    size: int = 0
    changes: int = 0
    """Grows with everything that changes what is finished."""

    def was_finished(self, offset: int) -> bool:
        """Whether a record was finished before this member had the partition; ask in the order of offsets."""
        while self.ahead and self.ahead[0][1] <= offset:
            self.ahead.popleft()
        return bool(self.ahead) and self.ahead[0][0] <= offset


@dataclass(frozen=True, slots=True)
class Progress:
    """What is finished of a partition."""

    stable: int
    """All before it."""
    ranges: tuple[Range, ...]
    """And these behind it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a member has in hand at most."""

    records: int = 20_000
    size: int = 64 << 20
    """In bytes of keys, values and headers; a single fetch may go beyond it."""
    running: int = 100


class InHand(Generic[P, R]):
    """The records of one member.

    Args:
        order: Whose records follow one another.
        limits: How much is fetched and started.
    """

    def __init__(self, order: Order, limits: Limits) -> None:
        self.running = 0
        """How many records are started and not finished."""
        self._order = order
        self._limits = limits
        self._partitions: dict[P, _Partition[P, R]] = {}
        self._ready: deque[Entry[P, R]] = deque()
        self._waiting: list[tuple[float, int, Entry[P, R]]] = []
        self._numbers = itertools.count()

    @property
    def partitions(self) -> Collection[P]:
        """The member's partitions."""
        return self._partitions.keys()

    def assign(self, partition: P, position: int, ranges: Iterable[Range] = ()) -> None:
        """Takes a partition, from a position on.

        Args:
            partition: One that the member does not have.
            position: The committed offset.
            ranges: What is finished behind it, in order.
        """
        assert partition not in self._partitions
        self._partitions[partition] = _Partition(position, deque(ranges))

    def revoke(self, partitions: Iterable[P]) -> list[Entry[P, R]]:
        """Gives partitions up, with all that is in hand of them.

        Returns:
            The records that are started and not finished: whatever becomes of them counts no more.
        """
        started: list[Entry[P, R]] = []
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
                self._add(held, Entry(partition, held, offset, size, self._chain(key), record))
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

    def start(self, now: float) -> Entry[P, R] | None:
        """Starts the next record that may be started; None: there is none now."""
        if self.running >= self._limits.running:
            return None
        self._awake(now)
        while self._ready:
            entry = self._ready.popleft()
            if entry.state is State.READY:
                entry.state = State.RUNNING
                entry.attempts += 1
                self.running += 1
                return entry
        return None

    def can_start(self, now: float) -> bool:
        """Whether `start` may return a record."""
        self._awake(now)
        return bool(self._ready) and self.running < self._limits.running

    def next_due(self) -> float | None:
        """Returns when the next record that waits may be started again."""
        return self._waiting[0][0] if self._waiting else None

    def find(self, partition: P, offset: int) -> Entry[P, R] | None:
        """Returns the record in hand at an offset."""
        held = self._partitions.get(partition)
        return held.entries.get(offset) if held is not None else None

    def finish(self, entry: Entry[P, R]) -> bool:
        """A record is done with.

        Returns:
            Whether that counts: not so of a record that is finished already, or was given up.
        """
        if entry.state is State.GONE:
            return False
        held = entry.home
        del held.entries[entry.offset]
        held.size -= entry.size
        held.changes += 1
        before, entry.state = entry.state, State.GONE
        if before is State.RUNNING:
            self.running -= 1
        if before is not State.QUEUED:
            self._go_on(held, entry)
        return True

    def release(self, entry: Entry[P, R], due: float) -> bool:
        """A record is to be started again, before all that follows it.

        Args:
            entry: One that is started.
            due: Not before this time.

        Returns:
            Whether that counts.
        """
        if entry.state is not State.RUNNING:
            return False
        entry.state = State.WAITING
        self.running -= 1
        heapq.heappush(self._waiting, (due, next(self._numbers), entry))
        return True

    def progress(self, partition: P) -> Progress:
        """Returns what is finished of a partition."""
        held = self._partitions[partition]
        stable = next(iter(held.entries), held.position)
        ranges = list(between(held.entries, held.position))
        if held.ahead:
            stable, ranges = settled(stable, [*ranges, *(each for each in held.ahead if each[1] > held.position)])
        return Progress(stable, tuple(ranges))

    def changes(self, partition: P) -> int:
        """Returns a number that grows with everything that changes what is finished."""
        return self._partitions[partition].changes

    def oldest(self, partition: P) -> Entry[P, R] | None:
        """Returns the record at the stable offset; None: all that was fetched is finished."""
        return next(iter(self._partitions[partition].entries.values()), None)

    def counts(self) -> Mapping[P, int]:
        """Returns how many records are in hand of each partition."""
        return {partition: len(held.entries) for partition, held in self._partitions.items()}

    def _chain(self, key: bytes | None) -> bytes | None:
        match self._order:
            case "key":
                return key
            case "partition":
                return _ALL
            case None:
                return None

    def _add(self, held: _Partition[P, R], entry: Entry[P, R]) -> None:
        held.entries[entry.offset] = entry
        held.size += entry.size
        if entry.chain is None:
            self._make_ready(entry)
            return
        before = held.last.get(entry.chain)
        held.last[entry.chain] = entry
        if before is None:
            self._make_ready(entry)
        else:
            before.next = entry

    def _go_on(self, held: _Partition[P, R], entry: Entry[P, R]) -> None:
        """Lets the next of a chain start."""
        if entry.chain is None:
            return
        following = entry.next
        while following is not None and following.state is State.GONE:
            following = following.next
        if following is not None:
            self._make_ready(following)
        else:
            held.last.pop(entry.chain)

    def _make_ready(self, entry: Entry[P, R]) -> None:
        entry.state = State.READY
        self._ready.append(entry)

    def _awake(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            entry = heapq.heappop(self._waiting)[2]
            if entry.state is State.WAITING:
                self._make_ready(entry)
