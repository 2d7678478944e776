"""Where the streams of the made-up day live, and how far its logs get.

A topic has phases, in each of which a log goes on in the same way, round by round: a batch of each of its streams, and
so once more, until all runs are whole. A phase may begin with strays: batches that came too late for the former one.
Batches of all logs are of one size, so that an offset tells which batch it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np

from kordon.bench.audit_day import Day, Numbers
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import Stream, physical_stream

STRAYS: Final = 2
"""At each change."""
LAYOUT_AT: Final = 6
"""Place, among the records of the layouts topic that a change writes, of the layout."""
PER_CHANGE: Final = 10


class Stray(NamedTuple):
    """A batch of a stream that stands behind the end of the home it was written for."""

    stream: Stream
    home: Stay
    producer: int
    sequence: int


class Written(NamedTuple):
    """The streams that are written in a phase, a value for each."""

    stream: Numbers
    partition: Numbers
    move: Numbers
    rank: Numbers
    """Its place among the streams of its partition."""
    since: Numbers
    """The first round in which it was written in its home."""
    born: Numbers
    """The first round in which it was written at all."""


@dataclass(frozen=True)
class Phase:
    """Rounds [first, end) of a topic, under one layout."""

    topic: int
    first: int
    end: int
    layout: Layout
    layouts_offset: int
    written: Written
    peers: Numbers
    """By physical partition, how many streams are written there."""
    base: Numbers
    """By physical partition, where its log ended before."""
    strays: Mapping[int, Sequence[Stray]]
    """By physical partition, what comes first."""
    run_records: int
    records: int

    @cached_property
    def stray_records(self) -> Numbers:
        """By physical partition."""
        return np.array([len(self.strays.get(q, ())) * self.records for q in range(len(self.base))])

    @cached_property
    def by_rank(self) -> Mapping[int, Numbers]:
        """By physical partition, places in `written` of its streams."""
        order = np.argsort(self.written.partition, kind="stable")
        ends = np.cumsum(self.peers)
        return {q: order[end - count : end] for q, (end, count) in enumerate(zip(ends, self.peers, strict=True))}

    @cached_property
    def read(self) -> Written:
        """The streams of its physical partitions, as clients of the dialect read them."""
        partitions = np.flatnonzero(self.peers)
        homes = [self.layout.chain(physical_stream(int(q))).stays[-1] for q in partitions]
        none = np.zeros_like(partitions)
        return Written(-1 - partitions, partitions, np.array([each.move for each in homes]), none, none, none)

    def begin(self, partition: Numbers | int, rounds: Numbers | int) -> Numbers:
        """Returns where partitions stand before a round of the phase, or behind its last one."""
        gone = np.asarray(rounds) - self.first
        grown = gone * self.peers[partition] * self.run_records
        return self.base[partition] + grown + np.where(gone > 0, self.stray_records[partition], 0)


class Topic:
    """All phases of a topic."""

    def __init__(self, day: Day, number: int) -> None:
        self._day = day
        self.number = number
        self.name = day.names[number]
        self.is_dialects = number == day.topics
        """Whether clients of the dialect write it, and nobody else reads it."""
        self._since: dict[tuple[Stream, int, int], int] = {}
        self._born: dict[Stream, int] = {}
        self.phases = tuple(self._phases())

    def phase(self, at: int) -> Phase:
        """Returns the phase of a round; behind the last round, the last one."""
        return next((each for each in self.phases if at < each.end), self.phases[-1])

    def phases_of(self, first: int, end: int) -> Iterator[tuple[Phase, int, int]]:
        """Yields the phases of rounds [first, end), each with those that it has of them."""
        for phase in self.phases:
            begin, stop = max(first, phase.first), min(end, phase.end)
            if begin < stop:
                yield phase, begin, stop

    def ends(self, at: int) -> Numbers:
        """Returns how far the logs of all partitions have got before a round."""
        phase = self.phase(at)
        return phase.begin(np.arange(len(phase.base)), at)

    def _phases(self) -> Iterator[Phase]:
        day, number = self._day, self.number
        ends = [day.changed_at(number, each) for each in range(len(day.counts))]
        layout = Layout.created(self.name, UUID(int=number + 1), day.partitions, day.virtual)
        phase = self._phase(layout, 0, ends[0], np.zeros(day.virtual, dtype=np.int64), {})
        yield phase
        for count, end in zip(day.counts, [*ends[1:], day.rounds], strict=True):
            base = phase.begin(np.arange(day.virtual), phase.end)
            following = layout.next_epoch(count)
            movers = layout.change_to(following).movers[:STRAYS]
            strays = {} if self.is_dialects else self._strays(phase, movers)
            layout = layout.changed(following, dict(enumerate(base.tolist())))
            phase = self._phase(layout, phase.end, end, base, strays)
            yield phase
        if day.quiet:
            base = phase.begin(np.arange(day.virtual), phase.end)
            yield self._phase(layout, phase.end, day.all_rounds, base, {}, is_quiet=True)

    def _phase(
        self,
        layout: Layout,
        first: int,
        end: int,
        base: Numbers,
        strays: Mapping[int, Sequence[Stray]],
        *,
        is_quiet: bool = False,
    ) -> Phase:
        streams = [each for each in layout.residence.streams if (each < 0) is self.is_dialects]
        homes = [(each, home) for each in streams if (home := layout.open_home(each)) is not None]
        if is_quiet:
            homes = homes[: self.number == 0]
        written = self._written(homes, first)
        peers = np.bincount(written.partition, minlength=len(base))
        offset = PER_CHANGE * (layout.epoch * len(self._day.names) + self.number) + LAYOUT_AT
        sizes = self._day.run_records, self._day.records
        return Phase(self.number, first, end, layout, offset, written, peers, base, strays, *sizes)

    def _written(self, homes: Sequence[tuple[Stream, Stay]], first: int) -> Written:
        ranks: dict[int, int] = {}
        rows: list[tuple[int, ...]] = []
        for stream, home in homes:
            rank = ranks[home.partition] = ranks.get(home.partition, -1) + 1
            since = self._since.setdefault((stream, home.partition, home.move), first)
            rows.append((stream, home.partition, home.move, rank, since, self._born.setdefault(stream, first)))
        return Written(*np.array(rows, dtype=np.int64).reshape(-1, len(Written._fields)).T)

    def _strays(self, before: Phase, movers: Sequence[int]) -> Mapping[int, Sequence[Stray]]:
        """Returns what producers had on its way to the homes of streams that move now."""
        strays: dict[int, list[Stray]] = {}
        for v in movers:
            home, at = before.layout.chains[v].stays[-1], before.end
            producer = int(self._day.producer(v, self.number, at))
            turns = (at - self._since[v, home.partition, home.move]) // self._day.producers
            stray = Stray(v, home, producer, turns * self._day.run_records)
            strays.setdefault(home.partition, []).append(stray)
        return strays


@lru_cache(8)
def topics_of(day: Day) -> tuple[Topic, ...]:
    """Returns the topics of a day, in the order of their numbers."""
    return tuple(Topic(day, number) for number in range(len(day.names)))
