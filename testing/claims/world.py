"""Models of a partition's data, of its group's coordinator, and of one partition of the log of claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from kordon.proxy.ordering.claims import NO_OFFSET, Claims, PlaceKey, Said

GROUP: Final = "readers"
_GAPS: Final = 0.15
"""Part of the offsets that no record has: of transaction markers, or compacted."""


@dataclass
class Data:
    """A partition of a topic."""

    rng: Random
    life: int = 1
    """Of the topic: it is deleted and made anew."""
    records: list[int | None] = field(default_factory=list[int | None])
    """By offset, a number that no other record ever has; None: no record."""
    numbers: int = 0

    def append(self, count: int) -> list[int]:
        """Writes records; returns their numbers."""
        before = self.numbers
        for _ in range(count):
            if self.rng.random() < _GAPS:
                self.records.append(None)
            else:
                self.numbers += 1
                self.records.append(self.numbers)
        return list(range(before + 1, self.numbers + 1))

    def make_anew(self) -> None:
        """Deletes the topic and makes another one of its name."""
        self.life += 1
        self.records = []

    @property
    def place(self) -> PlaceKey:
        """Whose claims a member's are now."""
        return PlaceKey(GROUP, UUID(int=self.life), 0)

    @property
    def end(self) -> int:
        """The end of the log."""
        return len(self.records)

    def numbered(self, begin: int, end: int) -> set[int]:
        """Returns the records at offsets."""
        return {each for each in self.records[max(0, begin) : max(0, end)] if each is not None}


class Primary(NamedTuple):
    """What a coordinator has of a group and partition."""

    offset: int = NO_OFFSET
    mark: int | None = None


@dataclass
class Coordinator:
    """Of the group."""

    generation: int = 0
    owners: tuple[object, ...] = ()
    """Who have the partition: one, or several that each have some of its keys; in an empty group nobody."""
    primary: Primary = field(default_factory=Primary)
    pushes: int = 0
    """How often a commit with a mark has followed one without."""

    def commit(self, member: object, generation: int, primary: Primary) -> bool:
        """Takes a commit from an owner in its generation, and from anybody in an empty group (generation -1)."""
        is_owner = member in self.owners and generation == self.generation
        if not is_owner and not (generation == -1 and not self.owners):
            return False
        self.pushes += self.primary.mark is None and primary.mark is not None
        self.primary = primary
        return True


@dataclass
class Log:
    """One partition of the log of claims."""

    rng: Random
    entries: list[tuple[PlaceKey, str, Said | None] | None] = field(
        default_factory=list[tuple[PlaceKey, str, Said | None] | None]
    )
    """By offset; None: compaction has taken it."""
    cuts: int = 0
    """How often it has lost records."""

    def append(self, place: PlaceKey, entries: list[tuple[str, Said | None]]) -> int:
        """Writes a batch; returns the offset of its last record."""
        self.entries += [(place, key, said) for key, said in entries]
        return len(self.entries) - 1

    @property
    def end(self) -> int:
        """The end of the log."""
        return len(self.entries)

    def compact(self) -> None:
        """Takes out what has a later record with the same key, up to a place where the cleaner stops or dies."""
        last = {entry[1]: offset for offset, entry in enumerate(self.entries) if entry is not None}
        for offset in range(self.rng.randint(0, self.end)):
            entry = self.entries[offset]
            if entry is not None and last[entry[1]] > offset:
                self.entries[offset] = None

    def cut(self) -> None:
        """Loses its last records, as by an unclean election."""
        self.cuts += 1
        del self.entries[self.rng.randint(max(0, self.end - 6), self.end) :]


class Reader:
    """What one proxy has read of the log."""

    def __init__(self, log: Log) -> None:
        self.claims = Claims()
        self.position = 0
        self._log = log
        self._cuts = log.cuts

    def read(self, end: int) -> None:
        """Reads on to an offset; whoever finds that the log has lost records begins anew."""
        if self._cuts != self._log.cuts:
            self._cuts, self.claims, self.position = self._log.cuts, Claims(), 0
        for offset in range(self.position, min(end, self._log.end)):
            entry = self._log.entries[offset]
            if entry is not None:
                place, key, said = entry
                self.claims.apply(place, key, offset, said)
        self.position = max(self.position, min(end, self._log.end))
