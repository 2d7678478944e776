"""A partition, and the log that says what a group has done of it and who has what in hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, TypeAlias

from kordon.proxy.ordering.share.state import Said, ShareState
from kordon.proxy.ordering.share.window import WindowRecord

KEYS: Final = 3
_GAPS: Final = 0.2
"""Part of the offsets that no record has."""
_POISON: Final = 0.02
_NO_KEY: Final = 0.1

Entry: TypeAlias = tuple[str, Said | None]


class Record(NamedTuple):
    """A record of the partition."""

    number: int
    """That no other record has."""
    key: int | None
    is_poison: bool
    """Whether the process of a member dies of it."""


@dataclass
class Data:
    """The partition."""

    rng: Random
    records: list[Record | None] = field(default_factory=list[Record | None])
    """By offset; None: no record."""

    def append(self, count: int) -> None:
        """Writes records."""
        for _ in range(count):
            if self.rng.random() < _GAPS:
                self.records.append(None)
                continue
            key = None if self.rng.random() < _NO_KEY else self.rng.randrange(KEYS)
            self.records.append(Record(len(self.records), key, self.rng.random() < _POISON))

    @property
    def end(self) -> int:
        """The end of the partition."""
        return len(self.records)

    def between(self, begin: int, end: int) -> list[Record]:
        """Returns the records at offsets."""
        return [each for each in self.records[max(0, begin) : max(0, end)] if each is not None]

    def ahead(self, begin: int, end: int) -> list[WindowRecord]:
        """Returns what a worker sees of them."""
        return [WindowRecord(each.number, each.key) for each in self.between(begin, end)]


@dataclass
class Log:
    """The log of the group."""

    rng: Random
    entries: list[Entry | None] = field(default_factory=list[Entry | None])
    """By offset; None: compaction has taken it."""

    def append(self, entries: list[Entry]) -> int:
        """Writes a batch; returns the offset of its last record."""
        self.entries += entries
        return self.end - 1

    @property
    def end(self) -> int:
        """The end of the log."""
        return len(self.entries)

    def compact(self) -> None:
        """Takes out what has a later record with the same key, up to a place where the cleaner stops or dies."""
        last = {entry[0]: offset for offset, entry in enumerate(self.entries) if entry is not None}
        for offset in range(self.rng.randint(0, self.end)):
            entry = self.entries[offset]
            if entry is not None and last[entry[0]] > offset:
                self.entries[offset] = None


class Reader:
    """What one worker has read of the log."""

    def __init__(self, log: Log) -> None:
        self.state = ShareState()
        self.position = 0
        self._log = log

    def read(self, end: int, now: float) -> None:
        """Reads on to an offset."""
        for offset in range(self.position, min(end, self._log.end)):
            entry = self._log.entries[offset]
            if entry is not None:
                self.state.apply(entry[0], offset, entry[1], now)
        self.position = max(self.position, min(end, self._log.end))
