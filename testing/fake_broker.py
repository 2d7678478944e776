"""Brokers in memory, for whatever asks brokers through Kordon's own connections.

`BrokerConnections` in front of them, the connections, their frames and all tables are the product's; no socket is
needed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from struct import pack
from typing import Any

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.headers import build_response_header, parse_request_header
from kordon.codecs.look import Buffer
from kordon.codecs.messages import request, response
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.answer_frames import AnswerFrames
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import Leader
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.kafka.upstream import UpstreamClient

ADDRESS = ("fake", 9092)


@dataclass(frozen=True)
class Asked:
    """A request as a broker reads it."""

    node_id: int
    purpose: str
    """Of the connection on which it came."""
    api_key: int
    version: int
    correlation_id: int
    body: Any
    seconds: float
    """How long the sender waits for the answer."""


Answer = Mapping[str, Any] | Buffer
"""The fields of an answer's body, or its bytes."""
Handler = Callable[[Asked], Answer | Awaitable[Answer]]


class CutError(Exception):
    """A handler raises it to have the connection end without an answer."""


class Held:
    """A request that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.come = asyncio.Event()
        """Set when the broker has the request."""
        self.released = asyncio.Event()

    def let_go(self) -> None:
        self.released.set()


class FakeBroker(BrokerConnections):
    """Brokers, with an open connection to each for every purpose.

    A connection's requests are handled one after the other, as brokers handle them.

    Attributes:
        handlers: What answers requests, by api key.
        topics: The leaders by topic and partition, as Metadata tells them.
        connections: All that were opened, by node id and purpose; those that ended are replaced by later ones.
        is_away: Whether no connection can be opened.

    Args:
        topics: The number of partitions of each topic; the first broker leads them, in leader epoch 0, and it
            coordinates all groups.
        handlers: As the attribute; Metadata and FindCoordinator have theirs unless others are given.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        handlers: Mapping[int, Handler] | None = None,
        nodes: Collection[int] = (1,),
    ) -> None:
        super().__init__(Topology(Upstream(bootstrap=(HostPort(*ADDRESS),)), lambda _: None, lambda _: None))
        self.topology.learn(dict.fromkeys(nodes, ADDRESS))
        self.handlers: dict[int, Handler] = {
            apis.METADATA: self._tell_topics,
            apis.FIND_COORDINATOR: self._tell_coordinator,
            **(handlers or {}),
        }
        self.topics = {name: led(range(count), min(nodes)) for name, count in (topics or {}).items()}
        self.connections: dict[tuple[int, str], UpstreamClient] = {}
        self.is_away = False
        self._hooks: defaultdict[int, deque[Handler]] = defaultdict(deque)

    async def to(self, node_id: int, purpose: str) -> UpstreamClient:
        """Returns the connection of a purpose to a broker; raises UpstreamUnavailable."""
        if self.is_away:
            raise UpstreamUnavailable("nobody answers")
        client = self.connections.get((node_id, purpose))
        if client is None or client.closed:
            client = self.connections[node_id, purpose] = _Client(self, node_id, purpose)
        return client

    async def close(self) -> None:
        for client in self.connections.values():
            client.close()

    def hook(self, api_key: int, handler: Handler) -> None:
        """Has the next request of an api key handled otherwise; several hooks take a request each, in their order.

        `await broker.handle(asked)` does in a hook what is done without it: a hook that waits before it delays the
        request, one that waits behind it delays the answer. Raising `CutError` before it loses the request, behind it
        only the answer.
        """
        self._hooks[api_key].append(handler)

    def hold(self, api_key: int) -> Held:
        """Has the next request of an api key wait until it is let go; so wait those behind it on its connection."""
        held = Held()

        async def wait(asked: Asked) -> Answer:
            held.come.set()
            await held.released.wait()
            return await self.handle(asked)

        self.hook(api_key, wait)
        return held

    async def handle(self, asked: Asked) -> Answer:
        """Handles a request as it is without a hook."""
        return await _told(self.handlers[asked.api_key], asked)

    async def answer(self, asked: Asked) -> bytes:
        """Handles a request as its hook or its handler does; returns the body of the answer."""
        hooks = self._hooks[asked.api_key]
        told = await _told(hooks.popleft() if hooks else self.handlers[asked.api_key], asked)
        return response(asked.api_key).build(asked.version, told) if isinstance(told, Mapping) else bytes(told)

    def _tell_topics(self, asked: Asked) -> Answer:
        wanted = asked.body.topics
        names = self.topics if wanted is None else [row.name for row in wanted]
        nodes = [{"node_id": node, "host": ADDRESS[0], "port": ADDRESS[1]} for node in self.topology.nodes]
        return {"brokers": nodes, "controller_id": -1, "topics": [self._topic(name) for name in names]}

    def _tell_coordinator(self, asked: Asked) -> Answer:
        fields = {"node_id": min(self.topology.nodes), "host": ADDRESS[0], "port": ADDRESS[1], "error_code": 0}
        return fields | {"coordinators": [fields | {"key": key} for key in asked.body.get("coordinator_keys", ())]}

    def _topic(self, name: str) -> dict[str, Any]:
        known = self.topics.get(name)
        if known is None:
            return {"name": name, "error_code": Code.UNKNOWN_TOPIC_OR_PARTITION}
        rows = [
            {
                "partition_index": q,
                "leader_id": leader.node_id,
                "leader_epoch": leader.epoch,
                "replica_nodes": leader.replicas,
                "isr_nodes": leader.replicas,
                "offline_replicas": [],
            }
            for q, leader in known.items()
        ]
        return {"name": name, "error_code": 0, "partitions": rows}


def led(partitions: Iterable[int], node_id: int = 1, epoch: int = 0) -> dict[int, Leader]:
    """Has partitions led by a broker, which has the only copy."""
    return dict.fromkeys(partitions, Leader(node_id, epoch, (node_id,)))


async def _told(handler: Handler, asked: Asked) -> Answer:
    answer = handler(asked)
    return await answer if inspect.isawaitable(answer) else answer


class _Client(UpstreamClient):
    """A connection that has been opened."""

    def __init__(self, broker: FakeBroker, node_id: int, purpose: str) -> None:
        super().__init__(HostPort(*ADDRESS), broker.topology.config, None)
        self.versions = {key: request(key).versions for key in broker.handlers}
        self._broker, self._node_id, self._purpose = broker, node_id, purpose
        self._pipeline.open(_Wire(self._read, self._answer, self._pipeline.receiver()))

    def _read(self, frame: bytes) -> Asked:
        header, end = parse_request_header(frame)
        body = request(header.api_key).parse(header.api_version, frame[end:])
        seconds = self._pipeline.unanswered[-1].deadline - asyncio.get_running_loop().time()
        return Asked(
            self._node_id, self._purpose, header.api_key, header.api_version, header.correlation_id, body, seconds
        )

    async def _answer(self, asked: Asked) -> bytes:
        header = build_response_header(asked.api_key, asked.version, asked.correlation_id)
        return header + await self._broker.answer(asked)


class _Wire(asyncio.Transport):
    """Takes one request with each call, and has one after the other answered."""

    def __init__(
        self, read: Callable[[bytes], Asked], answer: Callable[[Asked], Awaitable[bytes]], frames: AnswerFrames
    ) -> None:
        super().__init__()
        self._read = read
        self._answer = answer
        self._frames = frames
        self._asked: deque[Asked] = deque()
        self._work: asyncio.Task[None] | None = None

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self._asked.append(self._read(b"".join(list_of_data)[4:]))
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._run())

    def abort(self) -> None:
        self._asked.clear()
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        try:
            while self._asked:
                told = await self._answer(self._asked.popleft())
                self._give(pack(">i", len(told)) + told)
        except CutError:
            self._frames.connection_lost(None)
        except Exception as error:
            self._frames.connection_lost(error)
            raise

    def _give(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            room = self._frames.get_buffer(-1)
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self._frames.buffer_updated(size)
