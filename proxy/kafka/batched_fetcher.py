"""Kordon's own fetches: what many readers want of one broker goes into few requests.

A broker works on one request of a connection at a time, and one that waits for data holds back what is behind it. So
there are a few connections per broker, and each request takes along all that is wanted when it leaves. Only those hear
of its answer for whom it has news; what is idle is asked for again with no more work than that.

News make many small requests of one large one, for whoever has heard of them wants what is next a moment later. So
what is idle of an answer with news *pauses* for that moment, and goes with what is wanted next, in one request. Where
that comes later, a request that waits *adopts* what smaller ones wait for, and these are over soon: the shorter, the
fewer connections are left. For that moment two requests name the same, and who waits takes what comes first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

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
_SMALL_WAIT_MS: Final = 1_000
"""How long, if it names little beside another one and all other connections are free; less if fewer are."""
_LEAST_WAIT_MS: Final = 20
"""How long on the last connection, for which others wait."""
_PARTITION_BYTES: Final = 1024 * 1024
"""Most bytes of one partition at once; a larger batch comes whole all the same."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_PARTITIONS: Final = 200
_FEW: Final = 24
"""Partitions that are not shared out among requests: each of these is answered by itself."""
_SHARES: Final = 4
"""Requests among which more are shared out: news of one of them have its own request made again, and not all."""
_CONNECTIONS: Final = 8
"""Per broker."""
_SPARE_CONNECTIONS: Final = 4
"""When no more are left, none of them waits for long."""
_PAUSE_TURNS: Final = 8
"""Turns of the event loop in which what is idle is named in no request: whoever has heard of news takes five or six
until it wants what is next."""
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


@dataclass(slots=True)
class _OpenWant:
    """A want under way."""

    want: Want
    outcome: asyncio.Future[Fetched]
    until: float
    """When the answer is told though there is no news, by the loop's clock."""
    requests: int = 0
    """How many name it now."""

    @property
    def name(self) -> tuple[str, int]:
        return self.want.topic, self.want.partition


_Taken: TypeAlias = dict[tuple[str, int], _OpenWant]
"""What one request names."""


@dataclass(slots=True)
class _Node:
    """What is wanted of one broker."""

    waiting: deque[_OpenWant] = field(default_factory=deque[_OpenWant])
    free: list[int] = field(default_factory=lambda: list(reversed(range(_CONNECTIONS))))
    is_due: bool = False
    pauses: bool = False
    """Whether what waits is asked for in a moment, or with what is wanted before that."""
    asked: dict[int, _Taken] = field(default_factory=dict[int, _Taken])
    """By connection, what its request names."""
    wanted: int = 0
    """How many wants there are."""

    @property
    def share(self) -> int:
        """How many partitions a request names that may wait."""
        return min(max(_FEW, self.wanted // _SHARES), _MOST_PARTITIONS)

    def adopt(self, taken: _Taken) -> None:
        """Adds to a request that may wait what others wait for that name no more."""
        most = self.share
        for each in [each for each in self.asked.values() if len(each) <= len(taken)]:
            for name, wanted in each.items():
                if len(taken) >= most:
                    return
                is_done = wanted.want.is_alone or wanted.outcome.done() or wanted.requests > 1
                if wanted.want.max_wait_ms and not is_done:
                    taken.setdefault(name, wanted)

    def wait_ms(self, taken: _Taken) -> int:
        """Returns how long the broker may hold a request whose connection is still free."""
        is_small = len(taken) < min(max(map(len, self.asked.values()), default=0), self.share // 2)
        if is_small:
            return max(_SMALL_WAIT_MS * (len(self.free) - 1) // _CONNECTIONS, _LEAST_WAIT_MS)
        return WAIT_MS if len(self.free) > _SPARE_CONNECTIONS else _BUSY_WAIT_MS


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
        node.wanted += 1
        if not node.is_due:
            node.is_due = True
            loop.call_soon(self._leave, leader.node_id)  # with what else is wanted just now
        try:
            fetched = await outcome
        finally:
            node.wanted -= 1
        if fetched.error_code in _MOVED:
            self._leaders.forget(want.topic)
        return fetched

    async def close(self) -> None:
        """Ends what is under way."""
        for node in self._nodes.values():
            node.pauses = False
        await self._tasks.stop()

    def _leave(self, node_id: int) -> None:
        node = self._nodes[node_id]
        node.is_due = node.pauses = False
        while node.waiting and node.free:
            taken = _take(node.waiting, node.share)
            if all(wanted.want.max_wait_ms and not wanted.want.is_alone for wanted in taken.values()):
                node.adopt(taken)
            wait_ms = min(node.wait_ms(taken), *(wanted.want.max_wait_ms for wanted in taken.values()))
            connection = node.free.pop()
            node.asked[connection] = taken
            for wanted in taken.values():
                wanted.requests += 1
            self._tasks.start(self._ask(node_id, connection, taken, wait_ms), name=f"read from broker {node_id}")

    async def _ask(
        self,
        node_id: int,
        connection: int,
        taken: _Taken,
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
            del node.asked[connection]
            is_alone, has_news = not node.waiting, False
            for name, wanted in taken.items():
                fetched = found.get(name, missing)
                wanted.requests -= 1
                if wanted.outcome.done():
                    continue
                if now >= wanted.until or wanted.want.is_news(fetched):
                    wanted.outcome.set_result(fetched)
                    has_news = True
                elif not wanted.requests:
                    node.waiting.append(wanted)
            node.free.append(connection)
            node.pauses = is_alone and has_news and len(node.waiting) > 0
            self._pause(node_id, _PAUSE_TURNS if node.pauses else 0)

    def _pause(self, node_id: int, turns: int) -> None:
        """Has what waits asked for after so many turns of the loop, unless that is done before."""
        if not turns:
            self._leave(node_id)
        elif self._nodes[node_id].pauses:
            asyncio.get_running_loop().call_soon(self._pause, node_id, turns - 1)


def _take(waiting: deque[_OpenWant], most_idle: int) -> _Taken:
    """Takes what fits into one request: a partition can be named once, and nothing waits with what is there already."""
    taken: _Taken = {}
    left: list[_OpenWant] = []
    waits = bool(waiting[0].want.max_wait_ms)
    most = most_idle if waits else _MOST_PARTITIONS
    while waiting and len(taken) < most:
        wanted = waiting.popleft()
        name, is_alone = wanted.name, wanted.want.is_alone
        if name in taken or (taken and is_alone) or bool(wanted.want.max_wait_ms) is not waits:
            left.append(wanted)
            continue
        taken[name] = wanted
        if is_alone:
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
