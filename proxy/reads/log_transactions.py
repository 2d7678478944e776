"""What is known of transactions in one physical log, while a worker reads it: who of its batches is committed.

Readers begin anywhere, so the log is known in *stretches*, each without a gap. One that meets the next continues with
what that knows. If a stretch has forgotten its oldest events, who reads there has the log read again for one producer.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.absences import Absence, Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Protocol
from kordon.proxy.ordering.transactions.open_batches import OpenBatches, OwnBatch, Seen, StableEnd
from kordon.proxy.ordering.transactions.outcome import Outcome, deciding_event, outcome_by

MOST_EVENTS: Final = 10_000
"""Of one stretch: some 2 MB."""
_STRETCHES: Final = 4
"""As many places as a log is read at."""
_ALONE: Final = 1_000
"""Batches for whose producers the log has been read again."""
_DECISIONS: Final = 10_000
_DOUBTS: Final = 10_000
_FIRST_DOUBT_SECONDS: Final = 1.0
_LONGEST_DOUBT_SECONDS: Final = 30.0
_STALE_SECONDS: Final = 10.0
"""After which nobody waits any more."""

_Kind = tuple[int, int, Protocol]
"""Producer id, epoch and protocol of a batch."""


class _Decision(NamedTuple):
    """The outcome of all batches of a kind in [start, end)."""

    start: int
    end: int
    outcome: Outcome


class _Awaited(NamedTuple):
    """A producer that readers wait for, with nothing behind its batch up to the log's end; in monotonic seconds."""

    since: float
    next_at: float
    """When coordinators are to be asked, again in time."""
    noted: float
    """When a reader waited for it last."""


@dataclass(slots=True)
class _Alone:
    """The part of a log that is read again from a batch on, for its producer alone."""

    index: EventIndex
    """The index of the producer's events only."""
    asked: float
    """The time when a reader last waited for it, in monotonic seconds."""
    asked_to: int = -1
    """The offset up to which it had been read by then."""
    is_done: bool = False
    """Whether it has decided what it was made for."""


class LogTransactions:
    """Kept with the log of a physical partition, under one leader.

    Args:
        leader_epoch: Returns the leader epoch; -1: it is not known.
    """

    def __init__(self, leader_epoch: Callable[[], int], most_events: int = MOST_EVENTS) -> None:
        self._ask_leader_epoch = leader_epoch
        self._leader_epoch = -1
        self._most_events = most_events
        self._absences = Absences()
        self._open = OpenBatches()
        self._stretches: list[EventIndex] = []
        """By their starts; the one that has been extended last is the last to go."""
        self._alone: dict[tuple[int, int], _Alone] = {}
        """By producer, and the offset of the batch that it was made for."""
        self._farthest = 0
        """The offset up to which the log has been read, anywhere."""
        self._decisions: OrderedDict[_Kind, _Decision] = OrderedDict()
        self._doubts: OrderedDict[int, _Awaited] = OrderedDict()

    @property
    def events(self) -> int:
        """Events that are kept."""
        return sum(map(len, self._indexes()))

    @property
    def undecided_since(self) -> float | None:
        """Since when the reader has waited that waits for longest, in seconds of the monotonic clock; None: none."""
        until = time.monotonic() - _STALE_SECONDS
        return min((each.since for each in self._doubts.values() if each.noted > until), default=None)

    def take(self, start: int, end: int, seen: Sequence[Seen]) -> None:
        """Takes in a stretch of the log, as it is read.

        Args:
            start: The offset from which on all has been looked at.
            end: The offset behind the stretch.
            seen: The events of transactions in the stretch, in order.
        """
        if self._leader_epoch < 0:
            self._learn_leader_epoch()
        self._farthest = max(self._farthest, end)
        self._extend(start, end, seen)
        if self._alone:
            by_producer = defaultdict[int, list[Event]](list)
            for event in _events(seen):
                by_producer[event.producer_id].append(event)
            for (producer_id, _), alone in self._alone.items():
                _feed(alone.index, start, end, by_producer.get(producer_id, ()))
        self._open_on(start, end, seen)

    def begin_open(self, last_stable_offset: int) -> None:
        """Notes what a broker says of the log's last stable offset: from there on, ends of streams are looked for."""
        if last_stable_offset >= 0:
            self._open.begin(last_stable_offset)

    @property
    def open_from(self) -> int | None:
        """The offset from which on the log is to be read for the ends of its streams; None: not known yet."""
        return self._open.end

    def stable_end(self, stream: Stream, high_watermark: int) -> StableEnd | None:
        """Returns how far a stream is stable, as `OpenBatches.stable_end`."""
        return self._open.stable_end(stream, self.decide, high_watermark)

    def decide(self, batch: Batch) -> Outcome:
        """Returns the outcome of a batch by what has been read; undecided, `needs` says what is to be read."""
        kind = batch.producer_id, batch.epoch, batch.protocol
        known = self._decisions.get(kind)
        if known is not None and known.start <= batch.offset < known.end:
            return known.outcome
        index = self._index_of(batch)
        event = deciding_event(batch, index) if index is not None else None
        if event is not None:
            if (alone := self._alone.get((batch.producer_id, batch.offset))) is not None:
                alone.is_done = True
            return self._remember(kind, _Decision(batch.offset, event.offset, outcome_by(batch, event)))
        if index is not None and self._absences.cover(batch, index):
            self._doubts.pop(batch.producer_id, None)
            return Outcome.LATE
        return Outcome.UNDECIDED

    def needs(self, batch: Batch) -> int:
        """Returns the offset from which on the log is to be read to decide about a batch."""
        index = self._index_of(batch)
        return (self._begin_alone(batch) if index is None else index).end

    def doubt(self, producer_id: int) -> bool:
        """Notes that a reader waits for a producer without later records in the log; returns whether to ask now."""
        now = time.monotonic()
        doubt = self._doubts.get(producer_id)
        if doubt is None:
            self._doubts[producer_id] = _Awaited(now, now + _FIRST_DOUBT_SECONDS, now)
            if len(self._doubts) > _DOUBTS:
                self._doubts.popitem(last=False)
            return False
        is_due = now >= doubt.next_at
        next_at = now + min(now - doubt.since, _LONGEST_DOUBT_SECONDS) if is_due else doubt.next_at
        self._doubts[producer_id] = _Awaited(doubt.since, next_at, now)
        return is_due

    def prove(self, producer_id: int, absence: Absence) -> None:
        """Takes in that no coordinator has a transaction of a producer open here (PROVEN-ABSENCE)."""
        self._absences.prove(producer_id, absence)

    def _learn_leader_epoch(self) -> None:
        self._leader_epoch = self._ask_leader_epoch()
        for index in self._indexes():
            index.leader_epoch = self._leader_epoch

    def _indexes(self) -> Iterator[EventIndex]:
        yield from self._stretches
        yield from (each.index for each in self._alone.values())

    def _remember(self, kind: _Kind, decision: _Decision) -> Outcome:
        self._doubts.pop(kind[0], None)
        self._decisions.pop(kind, None)
        self._decisions[kind] = decision
        if len(self._decisions) > _DECISIONS:
            self._decisions.popitem(last=False)
        return decision.outcome

    def _index_of(self, batch: Batch) -> EventIndex | None:
        """Returns an index that knows what stands behind a batch, as far as that has been read; None: there is none."""
        for index in self._stretches:
            if index.knows_behind(batch.offset) and batch.offset < index.end:
                return index
        for (producer_id, _), alone in self._alone.items():
            index = alone.index
            if producer_id == batch.producer_id and index.knows_behind(batch.offset) and batch.offset <= index.end:
                alone.asked, alone.asked_to = time.monotonic(), index.end
                return index
        return None

    def _begin_alone(self, batch: Batch) -> EventIndex:
        """Returns an index that reads the log again for a batch; where too many do, that of one that waits longer."""
        if len(self._alone) >= _ALONE and not self._end_alone():
            return next(iter(self._alone.values())).index
        begun = _Alone(EventIndex(batch.offset, self._leader_epoch, self._most_events), time.monotonic())
        self._alone[batch.producer_id, batch.offset] = begun
        return begun.index

    def _end_alone(self) -> bool:
        """Makes room for another one; False: all are read on for readers that wait."""
        stale = time.monotonic() - _STALE_SECONDS
        out = [key for key, each in self._alone.items() if each.is_done or each.asked < stale]
        out = out or [key for key, each in self._alone.items() if each.asked_to >= self._farthest]
        if out:
            del self._alone[out[0]]
        return bool(out)

    def _extend(self, start: int, end: int, seen: Sequence[Seen]) -> None:
        index = next((each for each in self._stretches if each.start <= start <= each.end), None)
        if index is None:
            index = EventIndex(start, self._leader_epoch, self._most_events)
        else:
            self._stretches.remove(index)
        _feed(index, start, end, _events(seen))
        for other in sorted(self._stretches, key=_start):
            if index.start <= other.start <= index.end:
                index.absorb(other)
                self._stretches.remove(other)
        self._stretches.append(index)
        del self._stretches[:-_STRETCHES]

    def _open_on(self, start: int, end: int, seen: Sequence[Seen]) -> None:
        if (begin := self._open.end) is not None and start <= begin < end:
            self._open.read(end, seen, self.decide)


def _start(index: EventIndex) -> int:
    return index.start


def _feed(index: EventIndex, start: int, end: int, events: Iterable[Event]) -> None:
    """Takes into an index what follows its end."""
    begin = index.end
    if not start <= begin < end:
        return
    for event in events:
        if event.offset >= begin:
            index.take(event)
    index.read_to(end)


def _events(seen: Iterable[Seen]) -> Iterator[Event]:
    return (each for each in seen if not isinstance(each, OwnBatch))
