"""What a group is promised, held against what its members are told; the first broken promise is kept in words.

skipped      nobody is told that a record is done which nobody has done since the group's operator wished for it
ahead        the coordinator's offset is behind no such record: members and tools without ranges count by it
redone       what was acknowledged is told to whoever has the partition next
overtaken    a record of a key is told as done only together with all earlier ones of its key
stuck        in calm everything is done, and all of it is acknowledged
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kordon.proxy.ordering.claims import NO_OFFSET, Done, Told

if TYPE_CHECKING:
    from kordon.testing.claims.world import Data

KEYS: Final = 3


def key_of(number: int) -> int:
    """Returns the key of a record."""
    return number % KEYS


class Promises:
    """Of one run."""

    def __init__(self, data: Data) -> None:
        self.broken: list[str] = []
        self.wish = 0
        """How often the operator has had the group begin anew."""
        self.owed: set[int] = set()
        """Records that are to be done, by number."""
        self.acknowledged: set[int] = set()
        self.has_lost = False
        self._forestalled: set[int] = set()
        self._has_begun = False
        self._data = data

    def on_written(self, numbers: list[int]) -> None:
        """Records were written."""
        self.owed.update(numbers)

    def on_wish(self, offset: int) -> None:
        """The group is to begin at an offset, whatever it has done; -1: where its members begin without commits."""
        self.wish += 1
        self._has_begun = offset != NO_OFFSET
        self.owed = self._data.numbered(offset, self._data.end)
        self.acknowledged.clear()

    def on_begun(self, offset: int) -> None:
        """A group without commits has begun at an offset: what stands before it is not asked for, once."""
        if not self._has_begun:
            self._has_begun = True
            self.owed -= self._data.numbered(0, offset)

    def on_loss(self) -> None:
        """The log of claims has lost records: what is acknowledged may be done again."""
        self.has_lost = True

    def on_forestalled(self, incarnation: int) -> None:
        """An incarnation was ended for a commit that its first member has overwritten meanwhile.

        Whoever asked had been told of that commit and was slow. What was acknowledged since is done again.
        """
        self.acknowledged.clear()
        self._forestalled.add(incarnation)

    def on_done(self, number: int, wish: int) -> None:
        """A member that came after so many wishes has done a record."""
        if wish == self.wish:
            self.owed.discard(number)

    def on_push(self, offset: int) -> None:
        """The coordinator has taken an offset."""
        self._hold("ahead", "the coordinator's offset", self._data.numbered(0, offset))

    def on_acknowledged(self, done: Done, wish: int, incarnation: int) -> None:
        """A member's commit is answered."""
        if wish == self.wish and incarnation not in self._forestalled:
            self.acknowledged |= self._numbers(done)

    def on_told(self, told: Told, acknowledged: set[int], wish: int) -> None:
        """A member is told what is done.

        Args:
            acknowledged: What had been when it asked.
            wish: How many wishes there had been.
        """
        numbers = self._numbers(told.done)
        self._hold("skipped", "what is told as done", numbers)
        if wish == self.wish and not self.has_lost and (missing := (acknowledged & self.acknowledged) - numbers):
            self.broken.append(f"redone: {sorted(missing)[:5]} were acknowledged, and are not told")
        for number in numbers:
            earlier = {each for each in self.owed if each < number and key_of(each) == key_of(number)}
            if earlier:
                self.broken.append(f"overtaken: {number} is told as done, and {sorted(earlier)[:5]} are not")
                return

    def _hold(self, name: str, what: str, numbers: set[int]) -> None:
        if undone := numbers & self.owed:
            self.broken.append(f"{name}: {what} has {sorted(undone)[:5]}, which nobody has done")

    def _numbers(self, done: Done) -> set[int]:
        numbers = self._data.numbered(0, done.stable)
        for begin, end in done.ranges:
            numbers |= self._data.numbered(begin, end)
        return numbers
