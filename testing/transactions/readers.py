"""A read_committed reader of one virtual or physical partition, which begins anywhere and has read nothing before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.absences import Absence, Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.outcome import Outcome, outcome_of
from kordon.proxy.ordering.transactions.stable_offset import StableOffset
from kordon.testing.transactions.cluster import Cluster
from kordon.testing.transactions.logs import Entry, Log, Record
from kordon.testing.transactions.world import Activity


class Read(NamedTuple):
    """A record that a reader has passed."""

    partition: int
    offset: int
    record: Record
    is_shown: bool


class _Place:
    """Where a reader is in one physical log."""

    def __init__(self, log: Log, offset: int, most: int) -> None:
        self.log = log
        self.index = EventIndex(offset, log.leader_epoch, most)
        self.absences = Absences()
        self.stable = StableOffset()
        self.found = deque[tuple[int, Entry]]()
        """Batches of the stream that are not passed yet."""
        self.read_to = offset
        """Up to where batches were looked for; the index has read further."""
        self._shortened = len(log.shortened)
        self._most = most

    def catch_up(self, stream: Stream, stay: Stay) -> None:
        """Reads the log to its high watermark: events beyond the cut, batches only in the stay."""
        self._follow_elections()
        log = self.log
        self.read_events(log.high_watermark)
        end = log.high_watermark if stay.end is None else min(stay.end, log.high_watermark)
        for offset in range(max(self.read_to, log.log_start), end):
            entry = log.entries[offset]
            if isinstance(entry.what, Batch) and (entry.stream, entry.move) == (stream, stay.move):
                self.found.append((offset, entry))
                self.stable.take(entry.what)
        self.read_to = max(self.read_to, end)

    def read_events(self, end: int) -> None:
        """Reads witnesses and markers up to an offset."""
        for offset in range(self.index.end, end):
            what = self.log.entries[offset].what
            if not isinstance(what, Batch):
                self.index.take(what)
        self.index.read_to(end)

    def decide(self, batch: Batch) -> Outcome:
        """Returns a batch's outcome; reads again what the index has forgotten."""
        while not self.index.knows_behind(batch.offset):
            read_to, self._most = self.index.end, self._most * 2
            self.index = EventIndex(batch.offset, self.index.leader_epoch, self._most)
            self.read_events(read_to)
        return outcome_of(batch, self.index, self.absences)

    def _follow_elections(self) -> None:
        log = self.log
        if self.index.leader_epoch == log.leader_epoch:
            return
        end = min(log.shortened[self._shortened :], default=self.index.end)
        self._shortened = len(log.shortened)
        self.index.adopt(log.leader_epoch, end)
        self.stable.trim_back(end)
        self.found = deque(each for each in self.found if each[0] < end)
        self.read_to = min(self.read_to, end)


class Reader:
    """A reader, in a worker that has just started.

    Args:
        stay: The number of the stay in which it begins.
        offset: Of the physical partition.
    """

    def __init__(self, cluster: Cluster, stream: Stream, stay: int, offset: int) -> None:
        self.stream = stream
        self.is_over = False
        """Whether it has read everything, once nothing is written any more."""
        self.reads: list[Read] = []
        self._cluster, self._world = cluster, cluster.world
        self._stay = stay
        self._place = self._at(offset)
        self._told = -1

    def live(self) -> Activity[None]:
        """Reads until everything is read."""
        while not self.is_over:
            rest = self._world.now + (0 if self._world.is_healing else self._world.below(40))
            yield lambda: self._world.now >= rest  # noqa: B023 - until it goes on
            self._read()
            if self._place.found and self._world.happens(0.3):
                yield from self._ask(self._place, self._place.found[0][1].what.producer_id)

    def _at(self, offset: int) -> _Place:
        log = self._cluster.logs[self._cluster.layout.chain(self.stream).stays[self._stay].partition]
        return _Place(log, offset, 2 + self._world.below(30))

    def _read(self) -> None:
        stays = self._cluster.layout.chain(self.stream).stays
        stay, place = stays[self._stay], self._place
        if self._world.happens(0.6):
            place.catch_up(self.stream, stay)
        self._tell(place)
        self._give(place)
        if place.found:
            return
        has_next, end = self._stay + 1 < len(stays), place.log.end if stay.end is None else stay.end
        if has_next and stay.end is not None and place.read_to >= end:
            self._stay, self._told = self._stay + 1, -1
            self._place = self._at(stays[self._stay].start)
        elif self._world.is_healing and not has_next and place.read_to >= end:
            self.is_over = True

    def _give(self, place: _Place) -> None:
        limit = place.stable.first_undecided(place.decide)
        while place.found and (limit is None or place.found[0][0] < limit):
            offset, entry = place.found.popleft()
            assert isinstance(entry.what, Batch)
            assert entry.record is not None
            is_shown = place.decide(entry.what) is Outcome.COMMITTED
            self.reads.append(Read(place.log.partition, offset, entry.record, is_shown))
        if place.read_to > place.index.start and not place.found and self._world.happens(0.2):
            place.index.trim_front(min(place.read_to, place.index.end))

    def _tell(self, place: _Place) -> None:
        """Tells the last stable offset: no batch before it is open, and it never falls."""
        told = place.stable.tell(place.decide, place.index.end, place.log.high_watermark)
        if told is None:
            return
        first = next(self._open_ones(place, told), told)
        if told > first:
            self._world.break_promise(f"a last stable offset {told} was told though {first} is open")
        if told < self._told and not place.log.shortened:
            self._world.break_promise(f"a last stable offset fell from {self._told} to {told}")
        self._told = told

    def _open_ones(self, place: _Place, end: int) -> Iterator[int]:
        """Returns the offsets of batches below an end that may still be committed."""
        log, stay = place.log, self._cluster.layout.chain(self.stream).stays[self._stay]
        unread = (
            (offset, log.entries[offset]) for offset in range(max(place.read_to, log.log_start), min(end, log.end))
        )
        for offset, entry in chain(place.found, unread):
            record, is_own = entry.record, (entry.stream, entry.move) == (self.stream, stay.move) and stay.holds(offset)
            is_open = record is not None and record.txn.outcome is None and not record.is_forged
            if is_own and is_open and not (record is not None and record.is_doubtful):
                yield offset

    def _ask(self, place: _Place, producer_id: int) -> Activity[None]:
        """Asks coordinators whether a marker is still to come."""
        log = place.log
        asked_at, leader_epoch = log.high_watermark, log.leader_epoch
        yield None
        is_known = (log.partition, producer_id) in self._cluster.known()
        yield None
        if not is_known and log.leader_epoch == leader_epoch:
            place.absences.prove(producer_id, Absence(asked_at, log.high_watermark, leader_epoch))
