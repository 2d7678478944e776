"""A record in hand, and a partition with its records: their chains, and what is finished. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from kordon.codecs.ranges import NONE, Range, Ranges

R = TypeVar("R")
"""The record of the application."""
P = TypeVar("P", bound=Hashable)
"""What names a partition."""


class State(Enum):
    """What becomes of a record in hand."""

    QUEUED = auto()
    """The record is not the first of its chain."""
    READY = auto()
    RUNNING = auto()
    WAITING = auto()
    """The record is to be tried again later."""
    GONE = auto()
    """The record is finished, or no longer this member's."""


@dataclass(slots=True, eq=False)
class RecordInHand(Generic[P, R]):
    """A record in hand."""

    partition: P
    home: PartitionInHand[P, R] = field(repr=False)
    """Where it is in hand."""
    offset: int
    size: int
    chain: bytes | None
    """None: it follows nobody."""
    record: R
    attempts: int = 0
    """How often it was started."""
    state: State = State.QUEUED
    next: RecordInHand[P, R] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What is finished of a partition."""

    stable: int
    """The offset before which all records are finished."""
    ranges: Ranges = NONE
    """And these behind it."""


@dataclass(slots=True)
class PartitionInHand(Generic[P, R]):
    """What a member has in hand of a partition."""

    position: int
    """The next offset to be fetched."""
    ahead: deque[Range]
    """What was finished before, behind the position."""
    entries: dict[int, RecordInHand[P, R]] = field(default_factory=dict[int, RecordInHand[P, R]])
    """The records in hand by offset, ascending."""
    last: dict[bytes, RecordInHand[P, R]] = field(default_factory=dict[bytes, RecordInHand[P, R]])
    """The last record of each chain."""
    size: int = 0
    changes: int = 0
    """Grows with everything that changes what is finished."""

    def was_finished(self, offset: int) -> bool:
        """Whether a record was finished before this member had the partition; ask in the order of offsets."""
        while self.ahead and self.ahead[0][1] <= offset:
            self.ahead.popleft()
        return bool(self.ahead) and self.ahead[0][0] <= offset

    def add(self, entry: RecordInHand[P, R]) -> bool:
        """Takes a record in; returns whether it may be started, as the first of its chain."""
        self.entries[entry.offset] = entry
        self.size += entry.size
        if entry.chain is None:
            return True
        before = self.last.get(entry.chain)
        self.last[entry.chain] = entry
        if before is not None:
            before.next = entry
        return before is None

    def drop(self, entry: RecordInHand[P, R]) -> None:
        """Takes a finished record out."""
        del self.entries[entry.offset]
        self.size -= entry.size
        self.changes += 1

    def following(self, entry: RecordInHand[P, R]) -> RecordInHand[P, R] | None:
        """Returns the record that may be started when the first of its chain is finished."""
        if entry.chain is None:
            return None
        found = entry.next
        while found is not None and found.state is State.GONE:
            found = found.next
        if found is None:
            self.last.pop(entry.chain)
        return found

    def progress(self) -> Progress:
        """Returns what is finished."""
        stable = next(iter(self.entries), self.position)
        ranges = Ranges.between(self.entries, self.position)
        if self.ahead:
            stable, ranges = ranges.joined(Ranges(each for each in self.ahead if each[1] > self.position)).above(stable)
        return Progress(stable, ranges)
