"""A worker's writes to a managed topic in front of brokers in memory, for tests of what is written when."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Final, Self

from kordon.codecs import apis
from kordon.codecs.produce import PartitionData, ProduceRequest, TopicData
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.handlers.produce import Produce
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.images import Image
from kordon.proxy.ordering.layout import NO_COUNT, Layout
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.proxy.topics.views import VIRTUAL, View
from kordon.proxy.writes.write_dispatcher import WriteDispatcher
from kordon.testing.fake_broker import ADDRESS, Answer, Asked
from kordon.testing.random_logs import FACE_ID, NAME, Log, LogBroker
from kordon.testing.waiting import turns

_PATIENCE_SECONDS: Final = 60
_TURNS: Final = 60
"""Of the loop: in far fewer a write that may go out is answered, where its broker is connected."""


class WritesInMemory:
    """A worker that writes to `orders`, and clients that write a batch at a time; as a context manager it ends them.

    Attributes:
        alive: Whether the worker's lease lives.
        error_code: With which brokers answer all writes.
        requests: The Produce requests that have come to brokers.

    Args:
        layout: Of the topic.
        partitions: How many brokers have of it; the first node leads them.
        nodes: The ids of the brokers.
        journal: What is on record.
        view: Of the clients.
    """

    def __init__(
        self,
        layout: Layout,
        partitions: int = 4,
        nodes: Collection[int] = (1,),
        journal: Journal = NO_JOURNAL,
        view: View = VIRTUAL,
    ) -> None:
        self.alive = True
        self.error_code = 0
        self.requests: list[Asked] = []
        self.logs = {q: Log() for q in range(partitions)}
        self.broker = LogBroker(self.logs, 1 << 20)
        self.broker.topology.learn(dict.fromkeys(nodes, ADDRESS))
        self.broker.handlers |= {apis.PRODUCE: self.produce, apis.DESCRIBE_PRODUCERS: self._tell_no_producers}
        self.leaders = Leaders(self.broker)
        self.topic = ManagedTopic(layout, FACE_ID)
        self.topics = ManagedTopics()
        self.topics.add(self.topic)
        self.dispatcher = WriteDispatcher(self.broker, self.leaders, lambda: self.alive, journal)
        self.client = journal.connected()
        self.produces = Produce(self.topics, self.dispatcher, view)
        self._patience = asyncio.timeout(_PATIENCE_SECONDS)
        self._written: dict[tuple[int, bytes], int] = {}

    async def __aenter__(self) -> Self:
        await self._patience.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._patience.__aexit__(kind, error, traceback)
        finally:
            await self.dispatcher.close()
            await self.broker.close()

    def write(
        self,
        v: int,
        batch: bytes,
        *,
        acks: int = -1,
        timeout_ms: int = 10_000,
        count: int = NO_COUNT,
        layout_epoch: int = -1,
    ) -> asyncio.Task[int]:
        """Has the client write a batch; returns what becomes the error code that it is told."""
        asked = self._asked({v: batch}, acks, timeout_ms)
        topic = asked.topic_data[0]._replace(undeleted_partition_count=count, layout_epoch=layout_epoch)
        return asyncio.ensure_future(self._code_of(asked._replace(topic_data=[topic])))

    def write_all(self, batches: Mapping[int, bytes]) -> asyncio.Task[list[int]]:
        """Has the client write batches in one request; returns what become the error codes that it is told."""
        return asyncio.ensure_future(self._codes_of(self._asked(batches, -1, 10_000)))

    async def rest(self) -> None:
        """Lets everything happen that waits for nothing but its turn."""
        await turns(_TURNS)

    def renew_lease(self) -> None:
        """Has the lease live again."""
        self.alive = True
        self.dispatcher.lease_renewed()

    def fence(self) -> None:
        """Seals partition 0."""
        self.topic.raise_fence(Fence("f1", frozenset({0})))

    def change(self, u: int, cuts: dict[int, int], images: Mapping[int, Image] | None = None) -> None:
        """Goes on under another layout, which stands 5 records on in the layouts."""
        layout = self.topic.layout
        self.topic.adopt(layout.changed(layout.next_epoch(u), cuts), images or {}, self.topic.layouts_offset + 5)

    async def produce(self, asked: Asked) -> Answer:
        """Answers a Produce request as brokers do."""
        self.requests.append(asked)
        rows = [self._append(row.index, bytes(row.records)) for row in asked.body.topic_data[0].partition_data]
        return {"responses": [{"name": NAME, "partition_responses": rows}]}

    def _asked(self, batches: Mapping[int, bytes], acks: int, timeout_ms: int) -> ProduceRequest:
        parts = [PartitionData(v, memoryview(bytearray(batch))) for v, batch in batches.items()]
        return ProduceRequest(None, acks, timeout_ms, [TopicData(NAME, None, parts)])

    async def _code_of(self, asked: ProduceRequest) -> int:
        (code,) = await self._codes_of(asked)
        return code

    async def _codes_of(self, asked: ProduceRequest) -> list[int]:
        ((_, _, outcomes),) = await self.produces.write(9, asked, self.client)
        return [int(outcome.error_code) for outcome in outcomes]

    def _append(self, q: int, batch: bytes) -> dict[str, int]:
        if self.error_code:
            return {"index": q, "error_code": self.error_code, "base_offset": -1}
        if (q, batch) not in self._written:  # or else it came again
            self._written[q, batch] = self.logs[q].write(batch)
        return {"index": q, "error_code": 0, "base_offset": self._written[q, batch]}

    def _tell_no_producers(self, asked: Asked) -> Answer:
        rows = [
            {"partition_index": q, "error_code": 0, "active_producers": []}
            for q in asked.body.topics[0].partition_indexes
        ]
        return {"topics": [{"name": NAME, "partitions": rows}]}
