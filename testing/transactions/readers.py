"""A read_committed reader of one virtual or physical partition, which begins anywhere and has read nothing before.

It reads through one worker, by the layout, the lease and the fence that this has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.reading import end_told
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.absences import Absence, Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.outcome import Outcome, outcome_of
from kordon.proxy.ordering.transactions.stable_offset import StableOffset
from kordon.testing.transactions.cluster import Cluster
from kordon.testing.transactions.logs import Entry, Log, Record
from kordon.testing.transactions.workers import Worker
from kordon.testing.transactions.world import Activity


class Read(NamedTuple):
    """A record that a reader has passed."""

    partition: int
    offset: int
    record: Record
    is_shown: bool


class _Place:
    """Where a reader is in one physical log, under one layout."""

    def __init__(self, log: Log, stay: Stay, offset: int, most: int) -> None:
        self.log, self.stay = log, stay
        self.index = EventIndex(offset, log.leader_epoch, most)
        self.absences = Absences()
        self.stable = StableOffset()
        self.position = offset
        """Up to where the reader has everything."""
        self.found = deque[tuple[int, Entry]]()
        """Batches of the stream that are not passed yet."""
        self.read_to = offset
        """Up to where batches were looked for; the index has read further."""
        self._shortened = len(log.shortened)
        self._most = most

    def catch_up(self, stream: Stream) -> None:
        """Reads the log to its high watermark: events beyond the cut, batches only in the stay."""
        self._follow_elections()
        log, kept_end = self.log, self.stay.kept_end
        self.read_events(log.high_watermark)
        end = log.high_watermark if kept_end is None else min(kept_end, log.high_watermark)
        for offset in range(max(self.read_to, log.log_start), end):
            entry = log.entries[offset]
            if isinstance(entry.what, Batch) and (entry.stream, entry.move) == (stream, self.stay.move):
                self.found.append((offset, entry))
                self.stable.take(entry.what)
        self.read_to = max(self.read_to, end)

    def pass_over(self, limit: int | None) -> Iterator[tuple[int, Entry]]:
        """Returns the batches that stand before a limit and before all that is undecided; the reader has them then."""
        limits = [each for each in (limit, self.stable.first_undecided(self.decide)) if each is not None]
        while self.found and all(self.found[0][0] < each for each in limits):
            yield self.found.popleft()
        self.position = max(self.position, min([self.read_to, *limits, *(offset for offset, _ in self.found)]))

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
        self.read_to, self.position = min(self.read_to, end), min(self.position, end)


class Reader:
    """A reader, in a worker that has read nothing of its log before.

    Args:
        stay: The number of the stay in which it begins.
        offset: Of the physical partition.
    """

    def __init__(self, cluster: Cluster, worker: Worker, stream: Stream, stay: int, offset: int) -> None:
        self.stream = stream
        self.is_over = False
        """Whether it has read everything, once nothing is written any more."""
        self.reads: list[Read] = []
        self._cluster, self._world, self._worker = cluster, cluster.world, worker
        self._layout, self._number = worker.layout, stay
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

    def _at(self, offset: int | None = None) -> _Place:
        stay = self._layout.chain(self.stream).stays[self._number]
        log = self._cluster.logs[stay.partition]
        return _Place(log, stay, stay.start if offset is None else offset, 2 + self._world.below(30))

    def _read(self) -> None:
        worker, place = self._worker, self._follow_layout()
        limit = worker.limits.in_stay(worker.topic, place.stay)
        if self._world.happens(0.6):
            place.catch_up(self.stream)
            worker.note_shown(place.log.partition, place.index.leader_epoch, place.index.end)
        if limit != 0:
            self._tell(place, limit)
        self._give(place, limit)
        kept_end = place.stay.kept_end
        if place.position < (place.log.end if kept_end is None else kept_end):
            return
        if self._number + 1 < len(self._layout.chain(self.stream).stays):
            self._number, self._told = self._number + 1, -1
            self._place = self._at()
        elif self._world.is_healing:
            self.is_over = self._layout is self._cluster.layout

    def _follow_layout(self) -> _Place:
        """Reads anew from where it is when its worker has another layout: strays of that are none of the former one."""
        if self._layout is not self._worker.layout:
            self._layout = self._worker.layout
            self._place = self._at(self._place.position)
        return self._place

    def _give(self, place: _Place, limit: int | None) -> None:
        for offset, entry in place.pass_over(limit):
            assert isinstance(entry.what, Batch)
            assert entry.record is not None
            is_shown = place.decide(entry.what) is Outcome.COMMITTED
            self.reads.append(Read(place.log.partition, offset, entry.record, is_shown))
        if place.read_to > place.index.start and not place.found and self._world.happens(0.2):
            place.index.trim_front(min(place.read_to, place.index.end))

    def _tell(self, place: _Place, limit: int | None) -> None:
        """Tells the last stable offset: no batch before it is open, and it never falls."""
        stable, stay = place.stable.tell(place.decide, place.index.end, place.log.high_watermark), place.stay
        if stable is None:
            return
        told = end_told(stay, stable, limit, position=None, after=stay.virtual_start) - stay.delta
        first = next(self._open_ones(place, told), told)
        if told > first:
            self._world.break_promise(f"a last stable offset {told} was told though {first} is open")
        if told < self._told and not place.log.shortened:
            self._world.break_promise(f"a last stable offset fell from {self._told} to {told}")
        self._told = told

    def _open_ones(self, place: _Place, end: int) -> Iterator[int]:
        """Returns the offsets of batches below an end that may still be committed."""
        log, stay = place.log, place.stay
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
