"""The gate of one Fetch request of a client of the dialect: each key in order for its group (KIP-253 8).

A partition whose keys lived elsewhere before is *held* until the group has read them there: its row is empty, with the
true end, and goes when the request has waited long enough, or with the others when these have something. Whoever
believes in another number of undeleted partitions is refused, so that its group assigns what there is now (8.6).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import NamedTuple

from kordon.codecs.bodies import FetchRequest, FetchRequestTopic
from kordon.codecs.dialect import INVALID_PARTITION_METADATA
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.events import NOTHING, Given
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.layout import NO_COUNT, Layout
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.fetch_rows import asked_topic
from kordon.proxy.reads.gating import Gates, Reader
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

_NOTHING = Evidence()


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

    def opened_by(self) -> dict[str, object]:
        """Returns the group's positions in the partitions that held these keys earlier, and where those logs begin."""
        needs = self.gate.needs(self.partition, self.position)
        told: dict[str, object] = {"positions": {q: at for q, at in self.evidence.positions.items() if q in needs}}
        starts = {q: at for q, at in self.evidence.log_starts.items() if needs.get(q, at + 1) <= at}
        if starts:
            told["log_starts"] = starts
        return told if self.gate.ordered_delivery else {"ordered_delivery": False}


class RequestGate:
    """The gate of all partitions of one request: what is known of its reader, and what that lets it have.

    Args:
        request: The request. Its tags name the reader and the number of partitions that the client assumes.
    """

    def __init__(self, reads: WorkerReads, gates: Gates, request: FetchRequest, client: Client) -> None:
        self.gates = gates
        self._reads = reads
        self._client = client
        self._reader = Reader(request, gates.positions)
        self._rows: dict[ManagedTopic, FetchRequestTopic] = {}
        for row in request.topics:
            if (topic := asked_topic(reads.topics, row)) is not None:
                self._rows[topic] = row
        self._positions: dict[ManagedTopic, dict[int, int]] = {}
        """By topic, where the group stood when that was last asked for."""
        self._partitions: list[PartitionGate] = []

    def of(self, topic: ManagedTopic, stream: Stream) -> PartitionGate:
        """Returns the gate of one partition."""
        gate = PartitionGate(self, topic, stream)
        self._partitions.append(gate)
        return gate

    def count(self, topic: ManagedTopic) -> int:
        """Returns the undeleted_partition_count that the client believes in; -1: it says none."""
        return self._rows[topic].get("undeleted_partition_count", NO_COUNT)

    def look_again(self) -> None:
        """Forgets where the group stood: partitions are carried on once more."""
        self._positions.clear()

    def evidence(self, topic: ManagedTopic) -> Evidence:
        """Returns what is known of the reader in a topic; the same until `look_again`."""
        if topic not in self._positions:
            self._positions[topic] = self._reader.stands_at(topic.name, self._rows[topic])
        return self.gates.evidence(topic, self._positions[topic])

    def moves(self) -> list[Awaitable[object]]:
        """Returns what ends when the positions of the group change."""
        if not self._reader.has_group:
            return []
        return [self._reader.moved(topic.name, known) for topic, known in self._positions.items()]

    def start(self, learning: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Asks brokers for what the gate has to know."""
        return self._reads.tasks.start(learning, name="ask where logs begin")

    def note(self, topic: ManagedTopic, stream: Stream, stay: Stay, judged: _Judged) -> None:
        """Notes what the gate says of a partition, where that has changed."""
        decisions, group = self._reads.decisions, self._reader.group
        if not decisions.is_on:
            return
        if asks := judged.asks():
            decisions.held(self._client, topic, stream, stay=stay, group=group, asks=asks)
        elif self._client.held:
            by = judged.opened_by()
            decisions.released(self._client, topic, stream, stay=stay, group=group, by=by)

    def note_given(self, topic: ManagedTopic, stream: Stream, given: Given, judged: _Judged | None) -> None:
        """Notes what a partition gives, and where a stretch of it begins also by what it may."""
        decisions = self._reads.decisions
        begins = decisions.begins(self._client, topic, stream, given)
        evidence = judged.opened_by() if begins and judged is not None else NOTHING
        decisions.gave(self._client, topic, stream, given, group=self._reader.group, evidence=evidence)

    def end(self) -> None:
        """Holds nothing any longer: the request is answered, or given up."""
        for each in self._partitions:
            each.release()


class PartitionGate:
    """The gate of one partition of one request.

    Args:
        request: The gate of the request, which knows the reader.
        stream: The physical partition as such.
    """

    def __init__(self, request: RequestGate, topic: ManagedTopic, stream: Stream) -> None:
        self._request = request
        self._gates = request.gates
        self._topic = topic
        self._stream = stream
        self._held_since: float | None = None
        self._judged: _Judged | None = None
        """What the gate has said last."""
        self.learning: asyncio.Task[None] | None = None
        """What is asked of brokers to judge better; None: nothing."""

    @property
    def is_held(self) -> bool:
        """Whether the partition waits for what its keys were in earlier."""
        return self._held_since is not None

    def refusal(self, layout: Layout) -> int:
        """Returns the error for a client that believes in another count of partitions, else 0."""
        if self._request.count(self._topic) == layout.count_in_force:
            return Code.NONE
        self._gates.tally.refused[layout.topic] += 1
        return INVALID_PARTITION_METADATA

    def judge(self, stay: Stay, position: int) -> bool:
        """Holds the partition, or lets its reader continue from a position of a stay; returns whether it holds it."""
        is_held = self._asks(stay, position)
        if is_held:
            self._hold()
        else:
            self.release()
        return is_held

    def note_given(self, given: Given) -> None:
        """Notes what its partition gives."""
        self._request.note_given(self._topic, self._stream, given, self._judged)

    def release(self) -> None:
        """Holds the partition no longer."""
        if self._held_since is not None:
            tally = self._gates.tally
            tally.held -= 1
            tally.held_seconds[self._topic.name] += time.monotonic() - self._held_since
            self._held_since = None

    def _hold(self) -> None:
        if self._held_since is None:
            tally = self._gates.tally
            tally.holds[self._topic.name] += 1
            tally.held += 1
            self._held_since = time.monotonic()

    def _asks(self, stay: Stay, position: int) -> bool:
        """Returns whether something must be read first, and has found out what that rests on."""
        topic, gate, q = self._topic, self._gates.of(self._topic), stay.partition
        has_needs = bool(gate.asks(q, position, _NOTHING))
        evidence = self._request.evidence(topic) if has_needs else _NOTHING
        self._judged, self.learning = _Judged(gate, q, position, evidence), None
        self._request.note(topic, self._stream, stay, self._judged)
        if not has_needs:
            return False
        asks = gate.asks(q, position, evidence)
        learning = self._gates.to_learn(topic, asks)
        if learning is not None:
            self.learning = self._request.start(learning)
        return bool(asks)
