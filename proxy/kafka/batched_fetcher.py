"""Kordon's own fetches: what many readers want of one broker goes into few requests.

A broker works on one request of a connection at a time, and one that waits for data holds back what is behind it. So
there are a few connections per broker, and each request takes along all that is wanted when it leaves. Only those hear
of its answer for whom it has news; what is idle is asked for again with no more work than that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kordon.codecs.error_codes import Code
from kordon.codecs.fetched import Fetched, build_fetch
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.fetch_requests import fetch_logs
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.runtime.tasks import Tasks

WAIT_MS: Final = 5_000
"""How long a broker holds a request that it has nothing for: what is idle is asked for seldom."""
QUIET_MS: Final = 30_000
"""How long whoever waits at the end of a log hears nothing while nothing comes: wanting it again costs more than asking
for it again with all others."""
_BUSY_WAIT_MS: Final = 500
"""How long, where few connections are left: what is wanted next may have to wait for this one."""
_PARTITION_BYTES: Final = 1024 * 1024
"""Most bytes of one partition at once; a larger batch comes whole all the same."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_PARTITIONS: Final = 200
_CONNECTIONS: Final = 8
"""Per broker."""
_SPARE_CONNECTIONS: Final = 4
"""When no more are left, none of them waits for long."""
_ANSWER_SECONDS: Final = 10.0
_NOTHING: Final = memoryview(b"")
_MOVED: Final = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.KAFKA_STORAGE_ERROR,
        Code.REPLICA_NOT_AVAILABLE,
    }
)


class Want(NamedTuple):
    """What is to be read: a physical partition from an offset on."""

    topic: str
    partition: int
    offset: int
    max_wait_ms: int = WAIT_MS
    """How long the broker may wait for something to come; the least of what goes into one request."""
    log_start: int = -1
    """Where the log begins, as far as is known; that it begins elsewhere is news."""
    is_alone: bool = False
    """Nothing else may be in its request: from a full answer, or behind another's batches, brokers leave out what there
    is (KIP-74)."""
    quiet_ms: int = 0
    """How long nothing is told of it while there is no news; at least `max_wait_ms`."""

    def is_news(self, fetched: Fetched) -> bool:
        """Whether an answer says more than that nothing has come."""
        if fetched.error_code or fetched.records:
            return True
        return fetched.high_watermark != self.offset or fetched.log_start_offset != self.log_start


class _OpenWant(NamedTuple):
    """A want under way."""

    want: Want
    outcome: asyncio.Future[Fetched]
    until: float
    """When the answer is told though there is no news, by the loop's clock."""


@dataclass(slots=True)
class _Node:
    """What is wanted of one broker."""

    waiting: deque[_OpenWant] = field(default_factory=deque[_OpenWant])
    free: list[int] = field(default_factory=lambda: list(reversed(range(_CONNECTIONS))))
    is_due: bool = False


class BatchedFetcher:
    """Reads physical partitions for all readers of a worker."""

    def __init__(self, links: BrokerConnections, leaders: Leaders) -> None:
        self._links = links
        self._leaders = leaders
        self._nodes: dict[int, _Node] = {}
        self._tasks = Tasks()

    async def fetch(self, want: Want) -> Fetched:
        """Reads; waits up to `want.max_wait_ms` where there is nothing yet.

        Returns:
            What the leader says; NOT_LEADER_OR_FOLLOWER where nobody can be asked now.
        """
        try:
            leader = await self._leaders.leader(want.topic, want.partition)
        except UpstreamUnavailable:
            return _failed(Code.NOT_LEADER_OR_FOLLOWER)
        node = self._nodes.setdefault(leader.node_id, _Node())
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Fetched] = loop.create_future()
        quiet_seconds = max(want.quiet_ms, want.max_wait_ms) / 1000
        node.waiting.append(_OpenWant(want, outcome, loop.time() + quiet_seconds))
        if not node.is_due:
            node.is_due = True
            loop.call_soon(self._leave, leader.node_id)  # with what else is wanted just now
        fetched = await outcome
        if fetched.error_code in _MOVED:
            self._leaders.forget(want.topic)
        return fetched

    async def close(self) -> None:
        """Ends what is under way."""
        await self._tasks.stop()

    def _leave(self, node_id: int) -> None:
        node = self._nodes[node_id]
        node.is_due = False
        while node.waiting and node.free:
            taken = _take(node.waiting)
            most_ms = WAIT_MS if len(node.free) > _SPARE_CONNECTIONS else _BUSY_WAIT_MS
            wait_ms = min(most_ms, *(wanted.want.max_wait_ms for wanted in taken.values()))
            connection = node.free.pop()
            self._tasks.start(self._ask(node_id, connection, taken, wait_ms), name=f"read from broker {node_id}")

    async def _ask(
        self,
        node_id: int,
        connection: int,
        taken: dict[tuple[str, int], _OpenWant],
        wait_ms: int,
    ) -> None:
        found: Mapping[tuple[str, int], Fetched] = {}
        missing = _failed(Code.NOT_LEADER_OR_FOLLOWER)
        seconds = _ANSWER_SECONDS + wait_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                client = await self._links.to(node_id, f"read {connection}")
                await client.room()
                found = await fetch_logs(client, _request([each.want for each in taken.values()], wait_ms), seconds)
        except (UpstreamUnavailable, TimeoutError):
            for topic in {wanted.want.topic for wanted in taken.values()}:
                self._leaders.forget(topic)
        finally:
            node, now = self._nodes[node_id], asyncio.get_running_loop().time()
            for name, wanted in taken.items():
                fetched = found.get(name, missing)
                if wanted.outcome.done():
                    continue
                if now < wanted.until and not wanted.want.is_news(fetched):
                    node.waiting.append(wanted)
                else:
                    wanted.outcome.set_result(fetched)
            node.free.append(connection)
            self._leave(node_id)


def _take(waiting: deque[_OpenWant]) -> dict[tuple[str, int], _OpenWant]:
    """Takes what fits into one request: a partition can be named once."""
    taken: dict[tuple[str, int], _OpenWant] = {}
    left: list[_OpenWant] = []
    while waiting and len(taken) < _MOST_PARTITIONS:
        wanted = waiting.popleft()
        name = (wanted.want.topic, wanted.want.partition)
        if name in taken or (taken and wanted.want.is_alone):
            left.append(wanted)
            continue
        taken[name] = wanted
        if wanted.want.is_alone:
            break
    waiting.extendleft(reversed(left))
    return taken


def _request(wants: list[Want], wait_ms: int) -> bytes:
    topics: dict[str, list[tuple[int, int, int]]] = {}
    for want in wants:
        topics.setdefault(want.topic, []).append((want.partition, -1, want.offset))
    return build_fetch(topics, max_wait_ms=wait_ms, max_bytes=_MOST_BYTES, partition_bytes=_PARTITION_BYTES)


def _failed(code: Code) -> Fetched:
    return Fetched(code, -1, -1, _NOTHING)
