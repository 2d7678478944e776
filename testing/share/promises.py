"""What a group is promised, held against what its members are given; the first broken promise is kept in words.

skipped      nothing is done but what a member has handled, or what was given as often as it may be
overtaken    a record is given only when all earlier ones of its key are done
two hands    nobody is given a record of a key while a member has one in hand, within the time of its lock
redone       what was acknowledged is not given again
counts       a record is given no more often than it may be, and its member is told how often it was
stuck        in calm everything is done
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kordon.codecs.ranges import Ranges
from kordon.proxy.ordering.claims import NO_INCARNATION, Start, counts
from kordon.proxy.ordering.share.acquiring import GivenRecord
from kordon.proxy.ordering.share.locks import Lock, LockOutcome
from kordon.proxy.ordering.share.state import Said

if TYPE_CHECKING:
    from kordon.testing.share.world import Data, Record
    from kordon.testing.timeline import Timeline

LOCK_SECONDS: Final = 5.0
"""As members are told."""
MOST_TRIES: Final = 3
_NOT_AFTER_A_LOSS: Final = ("two hands", "counts")
"""What was in hand is lost then, and what a worker writes late may end the lock of somebody else."""


@dataclass
class Hand:
    """A record that a member has in hand."""

    member: str
    record: Record
    until: float


class Promises:
    """Of one run."""

    def __init__(self, data: Data, clock: Timeline) -> None:
        self.broken: list[str] = []
        self.incarnation = NO_INCARNATION
        """The newest by what was written."""
        self.begin = 0
        """Where the group has begun."""
        self.lost_at = -1.0
        """When the log lost records. What is answered to who asked before is not judged."""
        self.done: set[int] = set()
        """Offsets that the log says are done."""
        self._handled: set[int] = set()
        self._acknowledged: set[int] = set()
        self._given: Counter[int] = Counter()
        self._tries: dict[int, int] = defaultdict(int)
        """By what was written; not all of it is given."""
        self._hands: dict[tuple[str, int], Hand] = {}
        self._wishes: set[int] = set()
        """Starts that an operator has asked for: what stands before them need not be done."""
        self._since_wish: set[int] = set()
        """Incarnations since the last of them: what was handled in one of these is handled."""
        self._may_begin_anywhere = True
        """Whether the group has read nothing yet."""
        self._data = data
        self._clock = clock

    @property
    def left(self) -> list[Record]:
        """Records that are not done."""
        return [each for each in self._data.between(self.begin, self._data.end) if each.number not in self.done]

    def on_wish(self, start: int) -> None:
        """A start is to be written for an operator."""
        self._wishes.add(start)

    def on_deleted(self) -> None:
        """The group was deleted without Kordon: it may go on, and it may begin anew."""
        self._may_begin_anywhere = True

    def on_loss(self, left: Sequence[Said]) -> None:
        """The log has lost records: what is acknowledged may be given again, and nothing is skipped.

        Args:
            left: What it still says.
        """
        self._forget()
        self.incarnation, self.lost_at = NO_INCARNATION, self._clock.now
        for said in left:
            if isinstance(said, Start) and counts(said.ends, self.incarnation):
                if said.name != self.incarnation:
                    self.done.clear()
                    self.incarnation, self.begin = said.name, said.done.stable
                self._goes_on(said)
            elif isinstance(said, LockOutcome) and said.incarnation == self.incarnation:
                self._add(said.done)

    def _goes_on(self, start: Start) -> None:
        self.done.update(range(self.begin, start.done.stable))
        self._add(start.done.ranges)

    def _add(self, done: Ranges) -> None:
        self.done.update(offset for begin, end in done for offset in range(begin, end))

    def _forget(self) -> None:
        """Nothing is done or in hand any more."""
        self.done.clear()
        self._acknowledged.clear()
        self._given.clear()
        self._hands.clear()

    def _begins(self, start: Start) -> None:
        """A start counts: it says where the group begins, for an operator, for the first time, or after a loss."""
        begin, is_wish = start.done.stable, start.name in self._wishes
        if not is_wish and not self._may_begin_anywhere:
            for record in self._data.between(self.begin, begin):
                if record.number not in self._handled and self._tries[record.number] < MOST_TRIES:
                    self._break("skipped", f"the group begins at {begin}, and nobody has handled {record.number}")
        self._forget()
        if is_wish:
            self._handled.clear()
            self._tries.clear()
            self._since_wish.clear()
        self._since_wish.add(start.name)
        self.incarnation, self.begin = start.name, begin
        self._may_begin_anywhere = False

    def on_written(self, said: Said | None) -> None:
        """Something was written to the log."""
        if isinstance(said, Start):
            if said.name != self.incarnation and counts(said.ends, self.incarnation):
                self._begins(said)
            elif said.name == self.incarnation and self.lost_at >= 0:
                self._goes_on(said)  # its writer may know what the log has lost
        elif isinstance(said, Lock) and said.incarnation == self.incarnation:
            for begin, end in said.offsets:
                for offset in range(begin, end):
                    self._tries[offset] = max(self._tries[offset], said.tries)
        elif isinstance(said, LockOutcome) and said.incarnation == self.incarnation:
            self._add(said.done)
            for record in self._data.between(self.begin, self._data.end):
                is_spent = self._tries[record.number] >= MOST_TRIES
                if record.number in self.done and record.number not in self._handled and not is_spent:
                    self._break("skipped", f"{record.number} counts as done, and nobody has handled it")

    def on_given(self, member: str, given: GivenRecord, incarnation: int) -> None:
        """A member has got a record."""
        if incarnation != self.incarnation:
            return
        record = self._data.records[given.offset]
        assert record is not None, "there is a record"
        number = record.number
        if number in self._acknowledged:
            self._break("redone", f"{number} was acknowledged, and is given again")
        if given.tries <= self._given[number] or self._given[number] >= MOST_TRIES:
            self._break("counts", f"{number} is told as given {given.tries} times, and was {self._given[number]} times")
        self._given[number] += 1
        for hand in self._hands.values():
            is_other = (hand.member, hand.record.number) != (member, number)
            of_one_key = hand.record.key == record.key and record.key is not None
            if hand.until > self._clock.now and is_other and (of_one_key or hand.record.number == number):
                self._break("two hands", f"{member} is given {number}; {hand.member} has {hand.record.number} in hand")
        self._hands[member, number] = Hand(member, record, self._clock.now + LOCK_SECONDS)
        for earlier in self._data.between(self.begin, number):
            if earlier.key == record.key is not None and earlier.number not in self.done:
                self._break("overtaken", f"{number} is given, and {earlier.number} is not done")

    def on_handled(self, member: str, offset: int, incarnation: int, *, is_done: bool) -> None:
        """A member has made up its mind about a record, and works on it no longer."""
        self._hands.pop((member, offset), None)
        if is_done and incarnation in self._since_wish:
            self._handled.add(offset)

    def on_renewed(self, member: str, offset: int, since: float) -> None:
        """A member was told that it may have a record for longer."""
        hand = self._hands.get((member, offset))
        if hand is not None:
            hand.until = max(hand.until, since + LOCK_SECONDS)

    def on_acknowledged(self, offset: int, incarnation: int) -> None:
        """A member was told that a record is done."""
        if incarnation == self.incarnation:
            self._acknowledged.add(offset)

    def on_gone(self, member: str) -> None:
        """A member's process has ended."""
        self._hands = {each: hand for each, hand in self._hands.items() if hand.member != member}

    def _break(self, name: str, what: str) -> None:
        if self.lost_at < 0 or name not in _NOT_AFTER_A_LOSS:
            self.broken.append(f"{name}: {what}")
