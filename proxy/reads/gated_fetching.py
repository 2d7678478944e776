"""Fetch of clients of the dialect: physical partitions as such, each key in order for the group (KIP-253 8).

A partition whose keys lived elsewhere before is *held* until the group has read them there: its row is empty, with the
true end, and goes when the request has waited long enough, or with the others when these have something. Whoever
believes in another number of undeleted partitions is refused, so that its group assigns what there is now (8.6).
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, NamedTuple

from kordon.codecs.dialect import INVALID_PARTITION_METADATA
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import Stream, physical_stream
from kordon.proxy.reads.fetching import AskedPartition, Fetching, RequestReaders
from kordon.proxy.reads.gating import Gates, Reader
from kordon.proxy.reads.portions import Portion
from kordon.proxy.reads.read_decisions import Given
from kordon.proxy.topics.managed_topics import ManagedTopic

_NOTHING = Evidence()


class GatedFetch:
    """Answers Fetch on connections that speak the dialect.

    Args:
        readers: Of the worker.
        gates: Of the worker.
    """

    def __init__(self, readers: RequestReaders, gates: Gates) -> None:
        self._readers = readers
        self._gates = gates

    async def serve(self, version: int, request: Any, client: Client) -> dict[str, Any]:
        """Answers a request that names managed topics only; returns the response's fields."""
        return await _GatedFetching(self._readers, version, request, client, self._gates).run()


class _Judged(NamedTuple):
    """What a gate was asked, and by what it judged."""

    gate: Gate
    partition: int
    position: int
    evidence: Evidence

    def asks(self) -> dict[int, int]:
        """Returns up to where other partitions must be read first; nothing: the gate is open."""
        asked = self.gate.asks(self.partition, self.position, self.evidence)
        needs = self.gate.needs(self.partition, self.position)
        return {q: needs[q] for q in asked}

    def opened_by(self) -> dict[str, Any]:
        """Returns where the group stands in what the partition's keys were in earlier, and where those logs begin."""
        needs = self.gate.needs(self.partition, self.position)
        told: dict[str, Any] = {"positions": {q: at for q, at in self.evidence.positions.items() if q in needs}}
        starts = {q: at for q, at in self.evidence.log_starts.items() if needs.get(q, at + 1) <= at}
        if starts:
            told["log_starts"] = starts
        return told if self.gate.ordered_delivery else {"ordered_delivery": False}


class _GatedFetching(Fetching):
    """What is under way for one request."""

    _sees_physical = True

    def __init__(self, readers: RequestReaders, version: int, request: Any, client: Client, gates: Gates) -> None:
        self._gates = gates
        self._reader = Reader(request, gates.positions)
        self._rows: dict[ManagedTopic, Any] = {}
        for row in request["topics"]:
            if (topic := readers.find(row)) is not None:
                self._rows[topic] = row
        self._positions: dict[ManagedTopic, dict[int, int]] = {}
        """By topic, where the group stood when that was last asked for."""
        self._gated: list[_GatedPortion] = []
        super().__init__(readers, version, request, client)

    async def run(self) -> dict[str, Any]:
        """Waits as long as a broker would; what is held goes on as soon as it may."""
        try:
            return await super().run()
        finally:
            for portion in self._gated:
                portion.is_held = False

    def evidence(self, topic: ManagedTopic) -> Evidence:
        """Returns what is known of the reader in a topic; the same while partitions are carried on once."""
        if topic not in self._positions:
            self._positions[topic] = self._reader.stands_at(topic.name, self._rows[topic])
        return self._gates.evidence(topic, self._positions[topic])

    def note_gate(self, topic: ManagedTopic, stream: Stream, stay: Stay, judged: _Judged) -> None:
        """Notes what the gate says of a partition, where that has changed."""
        decisions, group = self._readers.decisions, self._reader.group
        if not decisions.is_on:
            return
        if asks := judged.asks():
            decisions.held(self._client, topic, stream, stay=stay, group=group, asks=asks)
        elif self._client.held:
            by = judged.opened_by()
            decisions.released(self._client, topic, stream, stay=stay, group=group, by=by)

    def _note_given(self, portion: Portion, topic: ManagedTopic, given: Given) -> None:
        assert isinstance(portion, _GatedPortion), "there are no others here"
        decisions, stream = self._readers.decisions, portion.stream
        begins = decisions.begins(self._client, topic, stream, given)
        evidence = portion.judged.opened_by() if begins and portion.judged is not None else None
        decisions.gave(self._client, topic, stream, given, group=self._reader.group, evidence=evidence)

    def _carry_on(self) -> set[Any] | None:
        self._positions.clear()
        return super()._carry_on()

    def _lay_to_rest(self, asked: AskedPartition, topic: ManagedTopic) -> bool:
        """Lets a partition rest: held or not, there is nothing that its reader could have now."""
        return self._count(asked) == topic.layout.count_in_force and super()._lay_to_rest(asked, topic)

    def _portion(self, asked: AskedPartition) -> Portion:
        portion = _GatedPortion(self, self._readers, asked, self._version, self._count(asked))
        self._gated.append(portion)
        return portion

    def _count(self, asked: AskedPartition) -> int:
        """Returns the undeleted_partition_count that the client believes in; -1: it says none."""
        return self._rows[asked.topic].get("undeleted_partition_count", -1) if asked.topic is not None else -1

    def _changes(self) -> list[Coroutine[Any, Any, object]]:
        waiting = {portion.topic for portion in self._gated if portion.topic and portion.waits_for_others}
        changes = [*super()._changes(), *(_changed(topic, topic.layout) for topic in waiting)]
        if self._reader.has_group:
            changes += [self._reader.moved(topic.name, known) for topic, known in self._positions.items()]
        return changes

    @property
    def gates(self) -> Gates:
        """Of the worker."""
        return self._gates


class _GatedPortion(Portion):
    """What one request gets of one physical partition.

    Args:
        fetching: The request.
        readers: Of the worker.
        asked: The row.
        version: Of the request.
        count: The undeleted_partition_count that the client believes in; -1: it says none.
    """

    def __init__(
        self, fetching: _GatedFetching, readers: RequestReaders, asked: AskedPartition, version: int, count: int
    ) -> None:
        super().__init__(readers, asked.topic, asked.row, version, physical_stream(asked.row.partition))
        self._fetching = fetching
        self._gates = fetching.gates
        self._count = count
        self._held_since: float | None = None
        self.judged: _Judged | None = None
        """What the gate has said last."""
        if asked.topic is not None:
            self._error = self._refusal(asked.topic.layout) or self._error

    @property
    def is_held(self) -> bool:
        """Whether it waits for what its keys were in earlier."""
        return self._held_since is not None

    @is_held.setter
    def is_held(self, is_held: bool) -> None:
        tally, now = self._gates.tally, time.monotonic()
        if is_held and self._held_since is None:
            tally.holds[self._known.name] += 1
            tally.held += 1
            self._held_since = now
        elif not is_held and self._held_since is not None:
            tally.held -= 1
            tally.held_seconds[self._known.name] += now - self._held_since
            self._held_since = None

    @property
    def waits_for_others(self) -> bool:
        """Whether nothing comes before the group, or the layout, has changed."""
        return self.is_held or self._is_read_out

    @property
    def is_behind(self) -> bool:
        """Whether a broker that had the partition's log would have something to look at."""
        return super().is_behind and not self.waits_for_others

    @property
    def _is_read_out(self) -> bool:
        """Whether it is retired, and the client has all of it."""
        end = self._place.stay.end if self._place is not None else None
        return end is not None and self.offset >= end  # behind the end of a segment begins the next, if there is one

    @property
    def _is_through(self) -> bool:
        return super()._is_through and not self._is_read_out

    @property
    def _rests_elsewhere(self) -> bool:
        return self.is_held or super()._rests_elsewhere

    def _begin(self, topic: ManagedTopic) -> None:
        self.is_held = False
        self._error = self._refusal(topic.layout)
        if not self._error:
            super()._begin(topic)

    def _refusal(self, layout: Layout) -> int:
        if self._count == layout.count_in_force:
            return Code.NONE
        self._gates.tally.refused[layout.topic] += 1
        return INVALID_PARTITION_METADATA

    def _take(self, room_bytes: int) -> None:
        self.is_held = not self._is_read_out and self._is_gated()
        if not (self.is_held or self._is_read_out):
            super()._take(room_bytes)

    def _is_gated(self) -> bool:
        """Judges by the gate, and has found out what it asks for."""
        assert self._place is not None
        topic, stay, position = self._known, self._place.stay, self._taken.position
        gate, q = self._gates.of(topic), stay.partition
        has_needs = bool(gate.asks(q, position, _NOTHING))
        evidence = self._fetching.evidence(topic) if has_needs else _NOTHING
        self.judged = _Judged(gate, q, position, evidence)
        self._fetching.note_gate(topic, self.stream, stay, self.judged)
        if not has_needs:
            return False
        asks = gate.asks(q, position, evidence)
        learning = self._gates.to_learn(topic, asks)
        if learning is not None:
            self.waits_for = self._worker.start(learning, name="ask where logs begin")
        return bool(asks)


async def _changed(topic: ManagedTopic, layout: Layout) -> None:
    while topic.layout is layout:
        await topic.wait_for_change()
