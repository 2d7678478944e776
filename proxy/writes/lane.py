"""One connection that carries writes to a broker, merged over clients and virtual partitions (SHARED-LANES).

A broker takes one batch per partition in a request, and works on one request of a connection at a time. So each request
takes one write from each physical partition that has one, and a few requests are under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from kordon.codecs import apis
from kordon.codecs.errors import WireError
from kordon.codecs.produce import Outcome, build_produce, look_outcomes
from kordon.codecs.retag import retag
from kordon.codecs.schema import Buffer
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.links import Links
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.ordering.line import Line, Write
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.under_way import Partition
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.tickets import Ticket

_VERSIONS: Final = range(3, 13)
"""From the first with batches of magic 2 to the last with names of topics."""
REQUESTS_UNDER_WAY: Final = 2
"""One that the broker works on, and one behind it; what comes meanwhile is merged into fewer requests."""
BYTES_UNDER_WAY: Final = 16 * 1024 * 1024
REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Writes are merged up to this size; a larger one goes alone."""
_LONGEST_TIMEOUT_MS: Final = 30_000
_MARGIN_SECONDS: Final = 5.0
"""For an answer, beyond what the broker may wait for copies."""


class Sent(NamedTuple):
    """A write that was sent."""

    course: Course
    write: Write

    @property
    def place(self) -> Partition:
        """Where it was sent to."""
        assert self.write.bound is not None
        return self.course.topic.name, self.write.bound.partition


@dataclass(slots=True, eq=False)
class Course:
    """A stream's line, and where it is being sent."""

    topic: ManagedTopic
    stream: Stream
    line: Line
    lane: Lane | None = None
    """By which it was sent last; it changes when nothing is under way."""
    queued: bool = False
    """Whether it has a turn on the lane."""
    held_since: float | None = None
    """Since when nothing may be sent, in seconds of the loop's clock."""
    held_for: Why | None = None
    """What was waited for when that began."""
    refusing: bool = False
    """Whether it was held for too long, or too much was: all is refused until it goes on (SHORT-FENCE)."""


class Shipper(Protocol):
    """Who knows what may be sent."""

    def take(self, course: Course, partition: int, fits: Callable[[Write], bool]) -> tuple[Write | None, bool]:
        """Takes out what is next; also returns whether there is more for the same partition."""
        ...

    def on_answers(self, answers: list[tuple[Sent, Outcome | None]]) -> None:
        """Answers came; None: there will be none."""
        ...

    def on_unreachable(self, courses: list[Course]) -> None:
        """The broker cannot be reached; these wait for another way."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _SentRequest:
    sent: list[Sent]
    size: int
    version: int
    since: float


class Lane:
    """One connection of a worker to a broker.

    Args:
        links: Dials.
        node_id: Of the broker.
        number: Tells the lanes to one broker apart.
        shipper: Knows what may be sent, and is told what came of it.
        tasks: Own the dial.
    """

    def __init__(self, links: Links, node_id: int, number: int, shipper: Shipper, tasks: Tasks) -> None:
        self.node_id = node_id
        self._links = links
        self._purpose = f"lane {number}"
        self._shipper = shipper
        self._tasks = tasks
        self._client: UpstreamClient | None = None
        self._version = 0
        """Of Produce, as both sides speak it."""
        self._dialing = False
        self._scheduled = False
        self._turns: dict[Partition, deque[Course]] = {}
        """Who has something to send; the partition that has waited longest comes first."""
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

    def hand_back(self) -> list[Course]:
        """Returns, and forgets, all that have a turn and have not sent."""
        courses = [course for courses in self._turns.values() for course in courses]
        self._turns.clear()
        return courses

    @property
    def connected(self) -> bool:
        """Whether writes can be sent now."""
        return self._client is not None and not self._client.closed

    def add(self, partition: Partition, course: Course) -> None:
        """Gives a course its turn, once; it is not added again before `take` has said that it has no more."""
        courses = self._turns.get(partition)
        if courses is None:
            courses = self._turns[partition] = deque()
        courses.append(course)
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

        def fits(write: Write) -> bool:
            return not taken or (write.acks == taken[0].write.acks and size + write.size <= REQUEST_BYTES)

        turns, self._turns = self._turns, {}
        served: dict[Partition, deque[Course]] = {}
        for partition, courses in turns.items():
            write = None
            for _ in range(len(courses)):
                course = courses.popleft()
                write, more = self._shipper.take(course, partition[1], fits)
                if more:
                    courses.append(course)
                if write is not None:
                    taken.append(Sent(course, write))
                    size += write.size
                    break
            if courses:
                (self._turns if write is None else served)[partition] = courses
        self._turns |= served
        return taken

    def _send(self, client: UpstreamClient, taken: list[Sent]) -> None:
        topics: dict[str, list[tuple[int, Buffer]]] = {}
        timeout_ms, patience_ms = 0, _LONGEST_TIMEOUT_MS
        for course, write in taken:
            bound, ticket = write.bound, write.payload
            assert bound is not None
            assert isinstance(ticket, Ticket)
            retag(ticket.records, 0, bound.producer_id, bound.epoch, bound.sequence)
            topics.setdefault(course.topic.name, []).append((bound.partition, ticket.records))
            timeout_ms, patience_ms = max(timeout_ms, ticket.timeout_ms), min(patience_ms, ticket.patience_ms)
        timeout_ms = min(timeout_ms, patience_ms)
        version = self._version
        body = build_produce(version, taken[0].write.acks, timeout_ms, topics.items())
        since = asyncio.get_running_loop().time()
        request = _SentRequest(taken, sum(write.size for _, write in taken), version, since)
        self._unanswered[request] = None
        future = client.send_body(apis.PRODUCE, version, body, timeout_ms / 1000 + _MARGIN_SECONDS)
        future.add_done_callback(partial(self._on_answer, request))

    def _on_answer(self, request: _SentRequest, future: asyncio.Future[memoryview]) -> None:
        del self._unanswered[request]
        outcomes: dict[Partition, Outcome] = {}
        if not future.cancelled() and future.exception() is None:
            try:
                answer = look_outcomes(request.version, future.result())
            except WireError:
                answer = []
            outcomes = {(name, outcome.partition): outcome for name, rows in answer for outcome in rows}
        self._shipper.on_answers([(sent, outcomes.get(sent.place)) for sent in request.sent])
        self._schedule()

    def dial(self) -> None:
        """Connects, if it is not connected: whoever is about to write need not wait for that."""
        if not (self._dialing or self.connected):
            self._dialing = True
            self._tasks.start(self._connect(), name=f"{self._purpose} to broker {self.node_id}")

    async def _connect(self) -> None:
        try:
            client = await self._links.to(self.node_id, self._purpose)
            self._version = client.version(apis.PRODUCE, _VERSIONS)
            self._client = client
        except UpstreamUnavailable:
            lost, self._again = self._again, []
            self._shipper.on_answers([(sent, None) for sent in lost])
            self._shipper.on_unreachable(self.hand_back())
        finally:
            self._dialing = False
        self._schedule()
