"""What a fence learns of the writes that were under way when it was raised (rule C5)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from kordon.codecs.produce import Outcome, PartitionData, ProduceRequest, TopicData, build_outcomes
from kordon.codecs.schema import Buffer
from kordon.proxy.decisions.journal import Client
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.leaders import Leader
from kordon.proxy.managed.produce import ProduceService
from kordon.proxy.managed.topics import ManagedTopic, ManagedTopics
from kordon.proxy.ordering.layout import Layout
from kordon.testing.managed_writes import a_batch

NAME = "orders"
PATIENCE_SECONDS = 60


class Broker:
    """Leads everything and answers when it is told to; links, leaders and connection at once."""

    closed = False

    def __init__(self) -> None:
        self.asked: list[tuple[int, asyncio.Future[memoryview]]] = []

    async def to(self, node_id: int, purpose: str) -> Broker:
        """Connects."""
        return self

    def version(self, api_key: int, wanted: range) -> int:
        """Speaks everything."""
        return wanted[-1]

    def known(self, topic: str) -> dict[int, Leader]:
        """Leads everything."""
        return {0: Leader(1, 0, (1,), (1,), ())}

    def send_body(self, api_key: int, version: int, pieces: list[Buffer], timeout: float) -> asyncio.Future[memoryview]:
        """Takes a Produce request."""
        future = asyncio.get_running_loop().create_future()
        self.asked.append((version, future))
        return future

    def answer(self, base_offset: int) -> None:
        """Answers the oldest request."""
        version, future = self.asked.pop(0)
        outcome = Outcome(0, 0, base_offset, -1, 0)
        future.set_result(memoryview(build_outcomes(version, [(NAME, None, [outcome])])))


async def test_a_second_fence_learns_of_the_writes_that_the_first_one_waited_for_too() -> None:
    """A fence that is cancelled and raised again while a write is under way: both know where that write landed."""
    broker: Any = Broker()
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.created(NAME, UUID(int=1), 1, 4), UUID(int=2)))
    lanes = Lanes(topics, broker, broker, lambda: True)
    records = memoryview(bytearray(a_batch("a", "b", producer_id=7, epoch=0, sequence=0)))
    asked = ProduceRequest(None, -1, 10_000, [TopicData(NAME, None, [PartitionData(0, records)])])
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            written = asyncio.ensure_future(ProduceService(topics, lanes).write(9, asked, Client(1)))
            while not broker.asked:  # noqa: ASYNC110 - the lane dials first
                await asyncio.sleep(0)
            drains = [asyncio.ensure_future(lanes.drain(NAME, frozenset({0}))) for _ in range(2)]
            await asyncio.sleep(0)
            broker.answer(base_offset=40)
            await written
            assert [await drain for drain in drains] == [{0: 42}, {0: 42}]
    finally:
        await lanes.close()
