"""Who has which records of a partition in hand, as far as a log says.

A *lock* says that a member is to have records. Any worker may write one, and gives the records away once it has read
the lock back. Each record counts its locks: a lock has a *turn*, one more than the lock of the same record before it.
Of two workers that lock a record for the same turn, the first in the log has it (FIRST-LOCK). A lock of a later turn
ends the one before, so no record says that a lock has expired: whoever finds that writes the next turn. To renew a lock
is to write the next turn for the same member, so who renews and who takes over cannot both have it.

What counts follows from the records that stand in the log: the highest turn has a record, whatever becomes of the lower
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kordon.codecs.ranges import Ranges
from kordon.proxy.ordering.claims import Done

NO_TURN: Final = 0
"""Of what was never given."""
_BYTES: Final = 150
"""Of a lock's record beside its offsets."""
MOST_TURNS: Final = 2**31 - 1
"""No lock has a later turn."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A record that says that a member is to have records."""

    incarnation: int
    """The incarnation of the group's progress (`claims.py`)."""
    member: str
    """A name of its share session: what it says late in the session before is not meant for this lock."""
    turn: int
    """The turn of each of its records, from 1."""
    tries: int
    """How often each of them has been given, this time included; a renewal is no further time."""
    offsets: Ranges


@dataclass(frozen=True, slots=True)
class LockOutcome:
    """A record that says what has become of a lock's records."""

    incarnation: int
    turn: int
    """The turn of the locks that end. A lock of a later turn does not end."""
    done: Ranges
    """What is accepted or rejected, and offsets before each that no record has."""
    ended: Ranges
    """The records whose locks end: those that are done, and those that are to be given again."""


@dataclass(slots=True)
class Held:
    """The lock that a record has."""

    key: str
    """The key of the lock's record in the log."""
    member: str
    turn: int
    tries: int
    since: float
    """When this worker has read it, by its own clock."""
    is_over: bool = False
    """Whether it has ended."""


class Locks:
    """The locks of one group and partition, in one incarnation of its progress."""

    def __init__(self) -> None:
        self.in_hand = 0
        """Records whose locks have not ended; of some of them the time may be over."""
        self._held: dict[int, Held] = {}
        self._standing: dict[str, Lock] = {}

    def __iter__(self) -> Iterator[tuple[int, Held]]:
        """Yields offsets, and the lock of each."""
        return iter(self._held.items())

    def __len__(self) -> int:
        """Returns how many records of locks stand in the log."""
        return len(self._standing)

    @property
    def held(self) -> int:
        """How many records have a lock, ended ones included."""
        return len(self._held)

    @property
    def keys(self) -> Iterable[str]:
        """Their keys."""
        return self._standing

    def of(self, offset: int) -> Held | None:
        """Returns the lock of a record, also if it has ended; None: it has none."""
        return self._held.get(offset)

    @property
    def size(self) -> int:
        """How many bytes the records of locks have, about."""
        return sum(_BYTES + 2 * len(each.offsets) for each in self._standing.values())

    def take(self, key: str, lock: Lock, done: Done, now: float) -> None:
        """Takes in a lock.

        Args:
            key: The key of the lock's record in the log.
            done: The set of done offsets before it in the log. Their records are given to no member any more.
            now: The worker's own clock, in seconds; it does not stop while the machine sleeps.
        """
        self._standing[key] = lock
        for begin, end in lock.offsets:
            for offset in range(begin, end):
                before = self._held.get(offset)
                if not done.has(offset) and (before is None or is_later(lock.turn, before.turn)):
                    self.in_hand += before is None or before.is_over
                    self._held[offset] = Held(key, lock.member, lock.turn, lock.tries, now)

    def end(self, outcome: LockOutcome) -> None:
        """Ends locks."""
        for begin, end in outcome.ended:
            for offset in range(begin, end):
                held = self._held.get(offset)
                if held is not None and ends(outcome.turn, held.turn):
                    self.in_hand -= not held.is_over
                    held.is_over = True

    def void(self, member: str, offsets: Iterable[int]) -> None:
        """Ends locks whose records never reached their member: these may be given at once, and the try does not count.

        Only this worker knows that. Others wait until the lock has expired, and count the try.
        """
        for offset in offsets:
            held = self._held.get(offset)
            if held is not None and held.member == member and not held.is_over:
                self.in_hand -= 1
                held.is_over, held.tries = True, held.tries - 1

    def take_out(self, key: str) -> None:
        """A lock has been taken out of the log."""
        lock = self._standing.pop(key, None)
        if lock is None:
            return
        for begin, end in lock.offsets:
            for offset in range(begin, end):
                held = self._held.get(offset)
                if held is not None and held.key == key:
                    self.in_hand -= not held.is_over
                    del self._held[offset]

    def outlived(self, done: Done, read_before: float) -> list[str]:
        """Returns the keys of locks that may be taken out of the log: they have no record that is not done.

        The lock of a record that was given back stays. It is what says how often the record was given (TRIES-KEPT).

        Args:
            read_before: Locks that were read before this time of the worker's own clock have expired.
        """
        return [key for key, lock in self._standing.items() if not self._is_needed(key, lock, done, read_before)]

    def _is_needed(self, key: str, lock: Lock, done: Done, read_before: float) -> bool:
        for begin, end in lock.offsets:
            for offset in range(begin, end):
                held = self._held.get(offset)
                if held is None or held.key != key:
                    continue
                if not done.has(offset) or not (held.is_over or held.since < read_before):
                    return True
        return False


def is_later(turn: int, held: int) -> bool:
    """Whether a lock takes a record from another: of those of one turn the first has it (FIRST-LOCK)."""
    return turn > held


def ends(turn: int, held: int) -> bool:
    """Whether what is said of one turn ends a lock: another member may have the next turn already (OWN-TURN)."""
    return turn == held
