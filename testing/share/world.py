"""A partition, and the log that says what a group has done of it and who has what in hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, TypeAlias

from kordon.proxy.ordering.claims import Start
from kordon.proxy.ordering.share.opening import Opening, Openings
from kordon.proxy.ordering.share.state import Said, ShareState
from kordon.proxy.ordering.share.window import WindowRecord

KEYS: Final = 3
_GAPS: Final = 0.2
"""Part of the offsets that no record has."""
_POISON: Final = 0.02
_NO_KEY: Final = 0.1

Entry: TypeAlias = tuple[str, Said | None]
"""A key, and what is said under it; None: what was said is taken out."""


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
    life: int = 1
    """Of the topic: it is deleted and made anew."""

    def make_anew(self) -> None:
        """Deletes the topic and makes another one of its name."""
        self.life += 1
        self.records = []

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
    entries: list[tuple[int, Entry] | None] = field(default_factory=list[tuple[int, Entry] | None])
    """By offset, the life of the topic and what is said of it; None: compaction has taken it."""
    cuts: int = 0
    """How often it has lost records."""
    topics: int = 1
    """How often it has been made; who writes names the one that was read, by its id."""
    openings: list[Opening] = field(default_factory=list[Opening])
    """They stand before all else."""
    _kept: int = 0
    """Up to where nothing is lost: starts, and what made compaction take others out."""
    _batches: list[int] = field(default_factory=list[int])
    """Where each batch begins."""

    def append(self, life: int, entries: list[Entry]) -> int:
        """Writes a batch; returns the offset of its last record."""
        self._batches.append(self.end)
        self.entries += [(life, entry) for entry in entries]
        if any(isinstance(said, Start) for _, said in entries):
            self._kept = self.end
        return self.end - 1

    @property
    def end(self) -> int:
        """The end of the log."""
        return len(self.entries)

    def compact(self) -> None:
        """Takes out what has a later record with the same key, up to a place where the cleaner stops or dies."""
        last = {entry[1][0]: offset for offset, entry in enumerate(self.entries) if entry is not None}
        for offset in range(self.rng.randint(0, self.end)):
            entry = self.entries[offset]
            if entry is not None and last[entry[1][0]] > offset:
                self.entries[offset] = None
                self._kept = max(self._kept, last[entry[1][0]] + 1)

    def lose(self, *, whole: bool) -> None:
        """Loses all records, as if it was deleted, or the last ones, as by an unclean election.

        A start is not among the last ones: whoever is told that a group was reset has to say it again after such a day.
        """
        self.cuts += 1
        if whole:
            self.topics += 1
            self.openings.clear()
        last = [each for each in self._batches[-5:] if each >= self._kept]
        cut = 0 if whole else self.rng.choice(last) if last else self.end
        del self.entries[cut:]
        self._batches = [each for each in self._batches if each < cut]
        self._kept = min(self._kept, cut)


class Reader:
    """What one worker has read of the log."""

    def __init__(self, log: Log) -> None:
        self.life = 0
        """Rises when all is forgotten."""
        self._log = log
        self._forget()

    def _forget(self) -> None:
        self.position = 0
        self.topic = self._log.topics
        """Which of those that the log has been it has read."""
        self._cuts = self._log.cuts
        self._states: dict[int, ShareState] = {}
        """By life of the topic."""
        self.openings = Openings()
        self._open()

    def _open(self) -> None:
        for opening in self._log.openings:
            self.openings.apply(opening)

    def of(self, life: int) -> ShareState:
        """Returns what is known of the group and a topic."""
        return self._states.setdefault(life, ShareState())

    def read(self, end: int, now: float) -> None:
        """Reads on to an offset; whoever finds that the log has lost records begins anew."""
        if self._cuts != self._log.cuts:
            self.life += 1
            self._forget()
        self._open()
        for offset in range(self.position, min(end, self._log.end)):
            entry = self._log.entries[offset]
            if entry is not None:
                life, (key, said) = entry
                self.of(life).apply(key, offset, said, now)
        self.position = max(self.position, min(end, self._log.end))
