"""How keys move: what may be read now, what the group is told, and when the application is called.

A key moves where a partition's segment ends and another begins. KIP-253 promises that whoever had the key
has returned from `on_partition_key_maybe_revoked` before the one who has it next is called in
`on_partition_key_assigned`, and gets its next record. So of each partition of a member

    what was delivered ──> handled ──> flushed ──────────────> told ───────────> evidence for all
                          (by then)   (maybe_revoked returned)  (ConsumerGroupPosition)

and a segment that got keys from elsewhere is

    held ─────────────────────────────> loading ──────────────────────> open, up to its end
        (evidence: predecessors done)           (assigned returned)

Events in, commands out: no I/O and no clock here. One call of the application and one report are under way at a time
(`position_reports.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokafka.structs import TopicPartition

from kordon.client.moves_events import (
    Answered,
    Assigned,
    CallAssigned,
    CallFailed,
    CallMaybeRevoked,
    CallReturned,
    Command,
    Event,
    Leaving,
    Left,
    ReportFailed,
    Resume,
    Stood,
    Ticked,
    TopicGate,
    Withhold,
)
from kordon.client.owned import NOWHERE, Owned
from kordon.client.position_reports import PositionReports

_FOR_EVER: Final = 2**63 - 1


class KeyMoves:
    """What one member knows and does, from assignment to assignment.

    Args:
        heartbeat_seconds: heartbeat.interval.ms: how often the group is told and asked, and what failed is tried again.
        hurry_seconds: The same while something of the member is held, or others may wait for it.
    """

    def __init__(self, heartbeat_seconds: float, hurry_seconds: float = 0.2) -> None:
        self._heartbeat = heartbeat_seconds
        self._topics: dict[str, TopicGate] = {}
        self._owned: dict[TopicPartition, Owned] = {}
        self._call: CallMaybeRevoked | CallAssigned | None = None
        self._reports = PositionReports(heartbeat_seconds, hurry_seconds)
        self._seen_at = 0.0
        self._is_leaving = False
        self._is_to_look = True
        """Whether anything has changed since the last look that opens or holds partitions: most of what happens, as a
        poll that brings nothing, does not."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions whose keys can move: those of managed topics with ordered delivery."""
        return frozenset(self._owned)

    @property
    def held(self) -> frozenset[TopicPartition]:
        """Partitions that may not be read now."""
        return frozenset(tp for tp, owned in self._owned.items() if owned.window == NOWHERE)

    @property
    def told(self) -> Mapping[TopicPartition, int]:
        """What the group was told of each partition, and knows."""
        return {tp: owned.known for tp, owned in self._owned.items() if owned.known >= 0}

    def admits(self, tp: TopicPartition, position: int) -> bool:
        """Whether a partition may be fetched from a position now.

        Not so below what the group was told, before that is taken back: others may have gone on by it. Nor before it
        is known here that the application went back.
        """
        owned = self._owned.get(tp)
        if owned is None:
            return True
        begin, end = owned.window
        return begin <= position < end and max(owned.told, owned.position) <= position

    def next_tick(self) -> float | None:
        """Returns when `Ticked` is due; None: nothing here depends on time."""
        return self._reports.due_at(self._owned.values(), self._seen_at) if self._owned else None

    @property
    def unflushed(self) -> frozenset[TopicPartition]:
        """Partitions of which something was handled that the application has not flushed."""
        return frozenset(tp for tp, owned in self._owned.items() if owned.is_dirty or owned.flushing is not None)

    def handle(self, event: Event) -> list[Command]:
        """Takes an event in.

        Returns:
            What is to be done now, in this order.
        """
        self._seen_at = event.now
        self._take(event)
        return self._last_call(event.now) if self._is_leaving else self._commands(event.now)

    def _take(self, event: Event) -> None:
        match event:
            case Stood():
                self._is_to_look |= self._stood(event)
                return
            case Ticked():
                return
            case ReportFailed():
                self._reports.failed(event.now)
                return
            case Assigned():
                self._assigned(event)
            case Answered():
                self._answered(event)
            case CallReturned() | CallFailed():
                self._call_ended(event)
            case Leaving() | Left():
                self._leave(is_over=isinstance(event, Left))
        self._is_to_look = True

    def _assigned(self, event: Assigned) -> None:
        if not event.goes_on:
            self._forget()
            self._reports.begin(event.now)
        self._is_leaving = False
        self._topics = dict(event.topics)
        managed = [tp for tp in event.partitions if tp.topic in self._topics]
        self._owned = {tp: self._owned.get(tp) or Owned(tp) for tp in managed}

    def _leave(self, *, is_over: bool) -> None:
        self._is_leaving = True
        for owned in self._owned.values():
            owned.retry_at = 0.0  # it is the last time to try
        if is_over:
            self._forget()

    def _forget(self) -> None:
        self._owned.clear()
        self._topics.clear()
        self._reports.forget()
        self._call = None

    def _stood(self, event: Stood) -> bool:
        """Returns whether any partition stands elsewhere now."""
        is_elsewhere = False
        for tp, place in event.places.items():
            owned = self._owned.get(tp)
            if owned is not None:
                before = owned.position, owned.handled
                owned.stand(place)
                is_elsewhere |= before != (owned.position, owned.handled)
        return is_elsewhere

    def _answered(self, event: Answered) -> None:
        report = self._reports.answered()
        if report is None:
            return
        heard: dict[str, dict[int, int]] = {topic: {} for topic in self._topics}
        for tp, position in event.positions.items():
            heard.setdefault(tp.topic, {})[tp.partition] = position
        for row in report.rows:
            owned, topic = self._owned.get(row.partition), row.partition.topic
            if owned is not None:
                owned.answered(row.position, heard[topic], self._topics[topic].gate)
                if event.positions.get(row.partition, row.position) < 0 <= row.position:
                    self._reports.got_lost()
        needed = {*event.needed, *(tp for owned in self._owned.values() for tp in owned.asks)}
        for tp, owned in self._owned.items():
            owned.is_needed = tp in needed

    def _call_ended(self, event: CallReturned | CallFailed) -> None:
        call, self._call = self._call, None
        found = (self._owned.get(tp) for tp in call.partitions) if call is not None else ()
        for owned in [each for each in found if each is not None]:
            if isinstance(event, CallFailed):
                owned.call_failed(event.now + self._heartbeat)
            elif isinstance(call, CallMaybeRevoked):
                owned.flushed()
            else:
                owned.loaded()

    def _commands(self, now: float) -> list[Command]:
        """Looks at everything that may have changed; what follows from it."""
        commands = self._look() if self._is_to_look else []
        begun: list[Command] = []
        if self._call is None:
            self._call = self._flushing(now) or self._loading(now)
            if self._call is not None:
                begun.append(self._call)
        report = self._reports.next(self._owned.values(), now)
        if report is not None:
            begun.append(report)
        self._is_to_look |= bool(begun)
        return commands + begun

    def _look(self) -> list[Command]:
        """Opens and holds partitions by what is known now."""
        self._is_to_look = False
        opened: list[TopicPartition] = []
        closed: list[TopicPartition] = []
        # what brokers no longer show has been emptied, and nobody owns it
        mine = {topic: dict.fromkeys(gate.gone, _FOR_EVER) for topic, gate in self._topics.items()}
        told: dict[str, dict[int, int]] = {topic: {} for topic in self._topics}
        for tp, owned in self._owned.items():
            told[tp.topic][tp.partition] = owned.known
            mine[tp.topic][tp.partition] = owned.evidence
        asked: set[TopicPartition] = set()
        for tp, owned in self._owned.items():
            before = owned.window
            owned.look(self._topics[tp.topic], mine[tp.topic], told[tp.topic])
            asked.update(owned.asks)
            if owned.window != before:
                (closed if owned.window == NOWHERE else opened).append(tp)
        for owned in (self._owned[tp] for tp in asked & self._owned.keys()):
            self._is_to_look |= not owned.is_needed
            owned.is_needed = True
        commands: list[Command] = [Resume(tuple(opened))] if opened else []
        return [*commands, Withhold(tuple(closed))] if closed else commands

    def _flushing(self, now: float) -> CallMaybeRevoked | None:
        due = [o for tp, o in self._owned.items() if o.is_due(self._topics[tp.topic].gate) and o.retry_at <= now]
        calling = [owned.tp for owned in due if owned.begin_flush()]
        return CallMaybeRevoked(tuple(calling)) if calling else None

    def _loading(self, now: float) -> CallAssigned | None:
        due = [owned for owned in self._owned.values() if owned.wants_load and owned.retry_at <= now]
        for owned in due:
            owned.begin_load()
        return CallAssigned(tuple(owned.tp for owned in due)) if due else None

    def _last_call(self, now: float) -> list[Command]:
        """Asks for a flush of all that the member hands over. A call that is under way ends first."""
        if self._call is not None:
            return []
        due = [owned for owned in self._owned.values() if owned.is_dirty and owned.retry_at <= now]
        calling = tuple(owned.tp for owned in due if owned.begin_flush())
        self._call = CallMaybeRevoked(calling) if calling else None
        return [self._call] if self._call is not None else []
