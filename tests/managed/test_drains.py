"""What a fence learns of the writes that were under way when it was raised (FROZEN-READS)."""

from __future__ import annotations

import asyncio
from uuid import UUID

from kordon.codecs.produce import PartitionData, ProduceRequest, TopicData
from kordon.proxy import apis
from kordon.proxy.decisions.journal import Client
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.leaders import Leaders
from kordon.proxy.managed.produce import ProduceService
from kordon.proxy.managed.topics import ManagedTopic, ManagedTopics
from kordon.proxy.ordering.layout import Layout
from kordon.testing.fake_broker import FakeBroker
from kordon.testing.managed_writes import a_batch

NAME = "orders"
PATIENCE_SECONDS = 60


async def test_a_second_fence_learns_of_the_writes_that_the_first_one_waited_for_too() -> None:
    """A fence that is cancelled and raised again while a write is under way: both know where that write landed."""
    row = {"index": 0, "error_code": 0, "base_offset": 40}
    written_at_40 = {"responses": [{"name": NAME, "partition_responses": [row]}]}
    broker = FakeBroker({NAME: 1}, {apis.PRODUCE: lambda _: written_at_40})
    held = broker.hold(apis.PRODUCE)
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.created(NAME, UUID(int=1), 1, 4), UUID(int=2)))
    lanes = Lanes(topics, broker, Leaders(broker), lambda: True)
    records = memoryview(bytearray(a_batch("a", "b", producer_id=7, epoch=0, sequence=0)))
    asked = ProduceRequest(None, -1, 10_000, [TopicData(NAME, None, [PartitionData(0, records)])])
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            written = asyncio.ensure_future(ProduceService(topics, lanes).write(9, asked, Client(1)))
            await held.come.wait()
            drains = [asyncio.ensure_future(lanes.drain(NAME, frozenset({0}))) for _ in range(2)]
            await asyncio.sleep(0)
            held.let_go()
            await written
            assert [await drain for drain in drains] == [{0: 42}, {0: 42}]
    finally:
        await lanes.close()
