"""What an audit itself keeps between micro-batches, besides the rules' states: small, so it is kept on the driver.

Bounded by the topics that are managed, by the partitions that are read, and by `MOST_WORKERS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from kordon.spark_jobs.brokers import PartitionKey

MOST_WORKERS: Final = 10_000
"""Of older ones a decision that stands in the log twice counts twice."""


class Told(NamedTuple):
    """A layout as a decision told it."""

    topic: str
    layouts_offset: int
    """The offset in `__kordon.layouts`; it orders layouts."""
    layout_epoch: int
    layout: str | None
    """Its JSON; None: the topic is managed no more."""
    let_go: int | None = None
    """The offset of the newest record by which a topic of this name was let go; None: there is none."""


class Seen(NamedTuple):
    """How far a worker's decisions were read."""

    number: int
    at_ms: int


class Read(NamedTuple):
    """How far a partition was read."""

    topic: str
    partition: int
    log_start: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What was read so far."""

    newest_ms: int = 0
    """The time of decisions."""
    decisions: int = 0
    batches: int = 0
    bytes: int = 0
    unreadable: int = 0
    """Records of the decision log that are no decisions."""

    def as_dict(self) -> dict[str, int]:
        """Returns the numbers by their names."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """All that is kept behind a micro-batch."""

    layouts: Mapping[str, Told] = field(default_factory=dict[str, Told])
    workers: Mapping[str, Seen] = field(default_factory=dict[str, Seen])
    read_to: tuple[Read, ...] = ()
    totals: Totals = field(default_factory=Totals)

    def with_layouts(self, told: Iterable[Told]) -> dict[str, Told]:
        """Returns the newest layout of each topic."""
        found = dict(self.layouts)
        for each in told:
            both = [each] if (before := found.get(each.topic)) is None else [before, each]
            newest = max(reversed(both), key=lambda one: (one.layouts_offset, one.layout_epoch))
            let_go = max((one.let_go for one in both if one.let_go is not None), default=None)
            found[each.topic] = newest._replace(let_go=let_go)
        return found

    def with_workers(self, told: Mapping[str, Seen]) -> dict[str, Seen]:
        """Returns how far each worker's decisions were read, the newest workers only."""
        both = {**self.workers, **{name: max(seen, self.workers.get(name, seen)) for name, seen in told.items()}}
        newest = sorted(both.items(), key=lambda each: each[1].at_ms, reverse=True)
        return dict(newest[:MOST_WORKERS])

    def with_read(self, told: Iterable[Read]) -> tuple[Read, ...]:
        """Returns how far each partition was read."""
        found = {PartitionKey(each.topic, each.partition): each for each in self.read_to}
        for each in told:
            place = PartitionKey(each.topic, each.partition)
            before = found.get(place, each)
            log_start, next_offset = max(each.log_start, before.log_start), max(each.next_offset, before.next_offset)
            found[place] = Read(*place, log_start, next_offset)
        return tuple(found[place] for place in sorted(found))

    @property
    def managed(self) -> frozenset[str]:
        """Topics that are managed, as far as decisions tell."""
        return frozenset(each.topic for each in self.layouts.values() if each.layout is not None)

    def without(self, topics: Collection[str]) -> KnownState:
        """Returns it as if nothing had been read of some topics."""
        return replace(self, read_to=tuple(each for each in self.read_to if each.topic not in topics))

    @property
    def let_go(self) -> dict[str, int]:
        """The offset of the newest record by which a topic of a name was let go."""
        return {name: each.let_go for name, each in self.layouts.items() if each.let_go is not None}

    def dump(self) -> dict[str, Any]:
        """Returns it as what JSON has."""
        told: dict[str, Any] = _KNOWN.dump_python(self, mode="json")
        return told

    @staticmethod
    def load(told: str) -> KnownState:
        """Reads what `dump` has returned.

        Raises:
            ValueError: It is half of it: the job died while it was written.
        """
        return _KNOWN.validate_json(told)


_KNOWN: Final = TypeAdapter(KnownState)
