"""One connection that carries writes to a broker, merged over clients and virtual partitions (SHARED-LANES).

A broker takes one batch per partition in a request, and works on one request of a connection at a time. So each request
takes one write from each physical partition that has one, and a few requests are under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.produce import WriteOutcome, look_outcomes
from kordon.codecs.retag import retag
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.producer import produce_version, send_batches
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.ordering.under_way import Partition
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.writes.client_writes import ClientWrite
from kordon.proxy.writes.leader_lookup import LeaderLookup
from kordon.proxy.writes.stream_queue import Sent, StreamQueue, WriterId
from kordon.proxy.writes.unsent_writes import UnsentWrites
from kordon.proxy.writes.write_answers import WriteAnswers
from kordon.proxy.writes.write_outcomes import LEADER_ERRORS

REQUESTS_UNDER_WAY: Final = 2
"""One that the broker works on, and one behind it; what comes meanwhile is merged into fewer requests."""
BYTES_UNDER_WAY: Final = 16 * 1024 * 1024
REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Writes are merged up to this size; a larger one goes alone."""
_LONGEST_TIMEOUT_MS: Final = 30_000
_MARGIN_SECONDS: Final = 5.0
"""How much longer than the broker may wait for copies its answer is waited for."""


@dataclass(frozen=True, slots=True, eq=False)
class _SentRequest:
    sent: list[Sent]
    size: int
    version: int
    since: float


class BrokerWriter:
    """One connection of a worker to a broker, which carries writes.

    Args:
        name: The broker, and the connection's number.
        answers: Takes in what the broker answers.
        leader_lookup: Finds another way where the broker cannot be reached.
    """

    def __init__(
        self,
        links: BrokerConnections,
        name: WriterId,
        unsent: UnsentWrites,
        answers: WriteAnswers,
        leader_lookup: LeaderLookup,
        *,
        tasks: Tasks,
    ) -> None:
        self.name = name
        self._links = links
        self._purpose = f"lane {name.number}"
        self._unsent = unsent
        self._answers = answers
        self._leader_lookup = leader_lookup
        self._tasks = tasks
        self._client: UpstreamClient | None = None
        self._version = 0
        """The version of Produce that both sides speak."""
        self._dialing = False
        self._scheduled = False
        self._turns: dict[Partition, deque[StreamQueue]] = {}
        """The queues that have something to send; the partition that has waited longest comes first."""
        self._again: list[Sent] = []
        """Sent before, and to be sent once more as they are; they go first."""
        self._unanswered: dict[_SentRequest, None] = {}
        """Oldest first."""

    @property
    def waits_since(self) -> float | None:
        """Since when the oldest request is unanswered, in seconds of the loop's clock; None: nothing is."""
        return next((request.since for request in self._unanswered), None)

    @property
    def under_way(self) -> Iterable[Partition]:
        """The partitions that unanswered requests are about."""
        return dict.fromkeys(sent.place for request in self._unanswered for sent in request.sent)

    def hand_back(self) -> list[StreamQueue]:
        """Takes their turns from all queues that have not sent, and returns these."""
        handed = [queue for queues in self._turns.values() for queue in queues]
        self._turns.clear()
        for queue in handed:
            queue.has_turn = False
        return handed

    @property
    def connected(self) -> bool:
        """Whether writes can be sent now."""
        return self._client is not None and not self._client.closed

    def add(self, partition: Partition, queue: StreamQueue) -> None:
        """Gives a queue its turn, once; it is not added again while `StreamQueue.has_turn` holds."""
        queues = self._turns.get(partition)
        if queues is None:
            queues = self._turns[partition] = deque()
        queues.append(queue)
        self._schedule()

    def send_again(self, sent: Sent) -> None:
        """Sends a write with acks=all once more, under its identity; if it is in the log, brokers only say where."""
        self._again.append(sent)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:  # what comes in one turn of the loop goes in one request
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if not (self._turns or self._again):
            return
        client = self._client
        if client is None or client.closed:
            self.dial()
            return
        while (self._again or self._turns) and self._has_room:
            taken = self._gather_again() if self._again else self._gather()
            if not taken:
                break
            self._send(client, taken)

    @property
    def _has_room(self) -> bool:
        under_way = self._unanswered
        return len(under_way) < REQUESTS_UNDER_WAY and sum(each.size for each in under_way) < BYTES_UNDER_WAY

    def _gather_again(self) -> list[Sent]:
        """Takes the first of each partition that is to be sent once more, as far as they go into one request."""
        taken: list[Sent] = []
        left: list[Sent] = []
        seen: set[Partition] = set()
        size = 0
        for sent in self._again:
            fits = not taken or size + sent.write.size <= REQUEST_BYTES
            if fits and sent.place not in seen:
                taken.append(sent)
                size += sent.write.size
            else:
                left.append(sent)
            seen.add(sent.place)
        self._again = left
        return taken

    def _gather(self) -> list[Sent]:
        """Takes a write of each partition, as far as they go into one request."""
        taken: list[Sent] = []
        size = 0

        def fits(write: ClientWrite) -> bool:
            return not taken or (write.acks == taken[0].write.acks and size + write.size <= REQUEST_BYTES)

        turns, self._turns = self._turns, {}
        served: dict[Partition, deque[StreamQueue]] = {}
        for partition, queues in turns.items():
            write = None
            for _ in range(len(queues)):
                queue = queues.popleft()
                write, more = self._unsent.take(queue, partition[1], fits)
                if more:
                    queues.append(queue)
                if write is not None:
                    self._answers.under_way.sent(partition)
                    taken.append(Sent(queue, write))
                    size += write.size
                    break
            if queues:
                (self._turns if write is None else served)[partition] = queues
        self._turns |= served
        return taken

    def _send(self, client: UpstreamClient, taken: list[Sent]) -> None:
        topics: dict[str, list[tuple[int, Buffer]]] = {}
        timeout_ms, patience_ms = 0, _LONGEST_TIMEOUT_MS
        for queue, write in taken:
            bound = write.bound
            assert bound is not None
            retag(write.batch, 0, bound.producer_id, bound.epoch, bound.sequence)
            topics.setdefault(queue.topic.name, []).append((bound.partition, write.batch))
            timeout_ms, patience_ms = max(timeout_ms, write.timeout_ms), min(patience_ms, write.patience_ms)
        timeout_ms = min(timeout_ms, patience_ms)
        version = self._version
        since = asyncio.get_running_loop().time()
        request = _SentRequest(taken, sum(write.size for _, write in taken), version, since)
        self._unanswered[request] = None
        seconds = timeout_ms / 1000 + _MARGIN_SECONDS
        future = send_batches(client, version, taken[0].write.acks, timeout_ms, topics.items(), seconds=seconds)
        future.add_done_callback(partial(self._on_answer, request))

    def _on_answer(self, request: _SentRequest, future: asyncio.Future[memoryview]) -> None:
        del self._unanswered[request]
        outcomes: dict[Partition, WriteOutcome] = {}
        if not future.cancelled() and future.exception() is None:
            try:
                answer = look_outcomes(request.version, future.result())
            except WireError:
                answer = []
            outcomes = {(name, outcome.partition): outcome for name, rows in answer for outcome in rows}
        self._answers.take_in([(sent, outcomes.get(sent.place)) for sent in request.sent])
        self._turn_away([place for place, outcome in outcomes.items() if outcome.error_code in LEADER_ERRORS])
        self._schedule()

    def _turn_away(self, partitions: Iterable[Partition]) -> None:
        """Has what waits for partitions that this broker does not lead go to the leader.

        A queue keeps its turn while something waits in it. If its clients send again at once, that is for good.
        """
        for partition in partitions:
            for queue in self._turns.pop(partition, ()):
                queue.has_turn = False
                queue.go_on()

    def dial(self) -> None:
        """Connects, if it is not connected: whoever is about to write need not wait for that."""
        if not (self._dialing or self.connected):
            self._dialing = True
            self._tasks.start(self._connect(), name=f"{self._purpose} to broker {self.name.node_id}")

    async def _connect(self) -> None:
        try:
            client = await self._links.to(self.name.node_id, self._purpose)
            self._version = produce_version(client)
            self._client = client
        except UpstreamUnavailable:
            lost, self._again = self._again, []
            self._answers.take_in([(sent, None) for sent in lost])
            self._leader_lookup.on_unreachable(self.hand_back())
        finally:
            self._dialing = False
        self._schedule()
