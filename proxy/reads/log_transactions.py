"""What is known of transactions in one physical log, while a worker reads it: who of its batches is committed.

Readers begin anywhere, so the log is known in *stretches*, each without a gap. One that meets the next goes on with
what that knows. If a stretch has forgotten its oldest events, who reads there has the log read again for one producer.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_ALONE: Final = 100
"""Producers for whom the log has been read again."""
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


class _Doubt(NamedTuple):
    """A producer that readers wait for, with nothing behind its batch up to the log's end; in monotonic seconds."""

    since: float
    next_at: float
    """When coordinators are to be asked, again in time."""
    noted: float
    """When a reader waited for it last."""


class LogTransactions:
    """Kept with the log of a physical partition, under one leader.

    Args:
        leader_epoch: Returns the leader epoch, as far as it is known; -1: it is not.
    """

    def __init__(self, leader_epoch: Callable[[], int], most_events: int = MOST_EVENTS) -> None:
        self._ask_leader_epoch = leader_epoch
        self._leader_epoch = -1
        self._most_events = most_events
        self._absences = Absences()
        self._open = OpenBatches()
        self._stretches: list[EventIndex] = []
        """By their starts; the one that has been extended last is the last to go."""
        self._alone: OrderedDict[int, EventIndex] = OrderedDict()
        """By producer, an index of its events only."""
        self._decisions: OrderedDict[_Kind, _Decision] = OrderedDict()
        self._doubts: OrderedDict[int, _Doubt] = OrderedDict()

    @property
    def events(self) -> int:
        """Events that are kept."""
        return sum(map(len, (*self._stretches, *self._alone.values())))

    @property
    def undecided_since(self) -> float | None:
        """Since when the reader has waited that waits for longest, in seconds of the monotonic clock; None: none."""
        until = time.monotonic() - _STALE_SECONDS
        return min((each.since for each in self._doubts.values() if each.noted > until), default=None)

    def take(self, start: int, end: int, seen: Sequence[Seen]) -> None:
        """Takes in a stretch of the log, as it is read.

        Args:
            start: The offset from which on all has been looked at.
            end: The offset behind it.
            seen: What concerns transactions there, in its order.
        """
        if self._leader_epoch < 0:
            self._learn_leader_epoch()
        self._extend(start, end, seen)
        for producer_id, index in self._alone.items():
            _feed(index, start, end, seen, producer_id)
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
            return self._remember(kind, _Decision(batch.offset, event.offset, outcome_by(batch, event)))
        if index is not None and self._absences.cover(batch, index):
            self._doubts.pop(batch.producer_id, None)
            return Outcome.LATE
        return Outcome.UNDECIDED

    def needs(self, batch: Batch) -> int:
        """Returns the offset from which on the log is to be read to decide about a batch."""
        index = self._index_of(batch)
        if index is None:
            index = self._alone[batch.producer_id] = EventIndex(batch.offset, self._leader_epoch, self._most_events)
            if len(self._alone) > _ALONE:
                self._alone.popitem(last=False)
        return index.end

    def doubt(self, producer_id: int) -> bool:
        """Notes that somebody waits for a producer of whom nothing more is in the log; returns whether to ask now."""
        now = time.monotonic()
        doubt = self._doubts.get(producer_id)
        if doubt is None:
            self._doubts[producer_id] = _Doubt(now, now + _FIRST_DOUBT_SECONDS, now)
            if len(self._doubts) > _DOUBTS:
                self._doubts.popitem(last=False)
            return False
        is_due = now >= doubt.next_at
        next_at = now + min(now - doubt.since, _LONGEST_DOUBT_SECONDS) if is_due else doubt.next_at
        self._doubts[producer_id] = _Doubt(doubt.since, next_at, now)
        return is_due

    def prove(self, producer_id: int, absence: Absence) -> None:
        """Takes in that no coordinator has a transaction of a producer open here (PROVEN-ABSENCE)."""
        self._absences.prove(producer_id, absence)

    def _learn_leader_epoch(self) -> None:
        self._leader_epoch = self._ask_leader_epoch()
        for index in (*self._stretches, *self._alone.values()):
            index.leader_epoch = self._leader_epoch

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
        alone = self._alone.get(batch.producer_id)
        if alone is not None and alone.knows_behind(batch.offset) and batch.offset <= alone.end:
            self._alone.move_to_end(batch.producer_id)
            return alone
        return None

    def _extend(self, start: int, end: int, seen: Sequence[Seen]) -> None:
        index = next((each for each in self._stretches if each.start <= start <= each.end), None)
        if index is None:
            index = EventIndex(start, self._leader_epoch, self._most_events)
        else:
            self._stretches.remove(index)
        _feed(index, start, end, seen)
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


def _feed(index: EventIndex, start: int, end: int, seen: Iterable[Seen], producer_id: int | None = None) -> None:
    """Takes into an index what follows its end; of one producer only, or of all."""
    begin = index.end
    if not start <= begin < end:
        return
    for event in _events(seen):
        if event.offset >= begin and producer_id in (None, event.producer_id):
            index.take(event)
    index.read_to(end)


def _events(seen: Iterable[Seen]) -> Iterator[Event]:
    return (each for each in seen if not isinstance(each, OwnBatch))
