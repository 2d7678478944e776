"""Whether the records of each key are read in the order in which they were written: for the demo and `make try`.

Each key's records are numbered 0, 1, 2, … by the one who writes them. `testing/order` judges far more, from histories
on disk; this one counts while clients are at work.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Breach:
    """The first record that came behind a later one of its key."""

    key: str
    numbers: tuple[int, ...]
    """Of the key's records as they were read, the one that came too late last."""

    def __str__(self) -> str:
        return f"{self.key}: {', '.join(f'#{number}' for number in self.numbers)}"


@dataclass(slots=True)
class _Key:
    read: set[int] = field(default_factory=set[int])
    unread: set[int] = field(default_factory=set[int])
    """Acknowledged, and not read so far."""
    highest: int = -1
    last: deque[int] = field(default_factory=lambda: deque(maxlen=_SHOWN))


class KeyOrder:
    """Counts what a group reads against what was acknowledged.

    Not safe for threads: callers hold a lock.
    """

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._places: set[tuple[int, int]] = set()
        self.acknowledged = 0
        self.read = 0
        """Records, each counted once."""
        self.out_of_order = 0
        """Records read after a later one of their key."""
        self.doubled = 0
        """Records that stand twice in the topic."""
        self.again = 0
        """Records delivered once more because a member had not committed them when it lost its partition."""
        self.missing = 0
        """Acknowledged records that the group has not read so far; they are lost if nothing is left to be read."""
        self.first_breach: Breach | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing is out of order, missing or doubled."""
        return not (self.out_of_order or self.missing or self.doubled)

    def wrote(self, key: str, number: int) -> None:
        """Takes note that the broker acknowledged a record."""
        self.acknowledged += 1
        mine = self._of(key)
        if number not in mine.read:
            mine.unread.add(number)
            self.missing += 1

    def took(self, key: str, number: int, place: tuple[int, int]) -> None:
        """Takes note that the group has read a record.

        Args:
            place: Its partition and offset.
        """
        if place in self._places:
            self.again += 1
            return
        self._places.add(place)
        mine = self._of(key)
        if number in mine.read:
            self.doubled += 1
            return
        self.read += 1
        mine.read.add(number)
        if number in mine.unread:
            mine.unread.remove(number)
            self.missing -= 1
        mine.last.append(number)
        if number < mine.highest:
            self.out_of_order += 1
            self.first_breach = self.first_breach or Breach(key, tuple(mine.last))
        mine.highest = max(mine.highest, number)

    def _of(self, key: str) -> _Key:
        return self._keys.setdefault(key, _Key())
