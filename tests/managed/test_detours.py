"""A physical partition that does not answer holds up nobody else for long (SHARED-LANES): with a broker in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

from kordon.codecs.produce import PartitionData, ProduceRequest, TopicData
from kordon.proxy import apis
from kordon.proxy.decisions.journal import Client
from kordon.proxy.managed.detours import LANES_PER_BROKER
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.leaders import Leaders
from kordon.proxy.managed.produce import ProduceService
from kordon.proxy.managed.topics import ManagedTopic, ManagedTopics
from kordon.proxy.ordering.layout import Layout
from kordon.testing.fake_broker import Answer, Asked, FakeBroker
from kordon.testing.managed_writes import a_batch
from kordon.testing.waiting import until

NAME = "orders"
REQUEST_TIMED_OUT = 7
PARTITIONS, V_COUNT = 4, 16
PATIENCE_SECONDS = 60


class Stage:
    """A worker's lanes to a broker, and clients that write one record each.

    The broker waits with a request for a partition that is stuck as long as it may, and with all behind it.
    """

    def __init__(self) -> None:
        self.stuck: set[int] = set()
        self.healed = asyncio.Event()
        self.written: dict[int, list[bytes]] = {q: [] for q in range(PARTITIONS)}
        """By physical partition, batches of one record."""
        self.broker = FakeBroker({NAME: PARTITIONS}, {apis.PRODUCE: self._produce})
        topics = ManagedTopics()
        self.topic = ManagedTopic(Layout.created(NAME, UUID(int=1), PARTITIONS, V_COUNT), UUID(int=2))
        topics.add(self.topic)
        self.lanes = Lanes(topics, self.broker, Leaders(self.broker), lambda: True)
        self._service = ProduceService(topics, self.lanes)
        self.sent: Counter[int] = Counter()
        """Records by virtual partition."""

    @property
    def ends(self) -> dict[int, int]:
        """The number of records by physical partition."""
        return {q: len(batches) for q, batches in self.written.items()}

    async def _produce(self, asked: Asked) -> Answer:
        rows = [row for topic in asked.body.topic_data for row in topic.partition_data]
        offsets = [self._append(row.index, bytes(row.records)) for row in rows]
        with suppress(TimeoutError):
            async with asyncio.timeout(asked.body.timeout_ms / 1000):
                while self.stuck & {row.index for row in rows}:
                    await self.healed.wait()
        answers = [
            {"index": row.index, "error_code": REQUEST_TIMED_OUT, "base_offset": -1}
            if row.index in self.stuck
            else {"index": row.index, "error_code": 0, "base_offset": offset}
            for row, offset in zip(rows, offsets, strict=True)
        ]
        return {"responses": [{"name": NAME, "partition_responses": answers}]}

    def _append(self, partition: int, batch: bytes) -> int:
        """Writes a batch, if it is not there yet; returns its offset."""
        written = self.written[partition]
        if batch not in written:
            written.append(batch)
        return written.index(batch)

    def heal(self) -> None:
        """Has the broker answer for all partitions again."""
        self.stuck.clear()
        self.healed.set()

    def write(self, v: int, timeout_ms: int = 10_000) -> asyncio.Future[list[Any]]:
        """Has an idempotent client of its own write its next record to a virtual partition."""
        sequence = self.sent[v]
        self.sent[v] += 1
        records = memoryview(bytearray(a_batch(f"{v}-{sequence}", producer_id=v, epoch=0, sequence=sequence)))
        asked = ProduceRequest(None, -1, timeout_ms, [TopicData(NAME, None, [PartitionData(v, records)])])
        return asyncio.ensure_future(self._service.write(9, asked, Client(1)))

    async def until_apart(self, partitions: int) -> None:
        """Waits until so many partitions go apart."""
        await until(f"{partitions} partitions go apart", lambda: self.lanes.detours.apart >= partitions)

    def living_on(self, partition: int) -> list[int]:
        """The virtual partitions of a physical one."""
        return list(self.topic.layout.residents(partition))


async def test_writes_go_round_a_partition_that_does_not_answer() -> None:
    """Those that would share a lane with it are written meanwhile; when it answers, nothing is lost or doubled."""
    stage = Stage()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(stage.write(v) for v in range(V_COUNT)))
            stage.stuck = {0}
            waiting = [stage.write(v) for v in stage.living_on(0)]
            others = [v for q in range(1, PARTITIONS) for v in stage.living_on(q)]
            assert {v % LANES_PER_BROKER for v in others} == {v % LANES_PER_BROKER for v in stage.living_on(0)}
            await stage.until_apart(1)  # what is sent on the same connections before that waits, too
            for _ in range(3):
                await asyncio.gather(*(stage.write(v) for v in others))
            waiting += [stage.write(v) for v in stage.living_on(0)]
            await asyncio.gather(*(stage.write(v) for v in others))
            assert stage.lanes.detours.stalls > 0
            assert not any(each.done() for each in waiting)
            stage.heal()
            await asyncio.gather(*waiting)
        for batches in stage.written.values():
            assert len(batches) == len(set(batches))
        assert stage.ends == {q: sum(stage.sent[v] for v in stage.living_on(q)) for q in range(PARTITIONS)}
    finally:
        await stage.lanes.close()


async def test_what_shares_a_connection_with_a_partition_that_does_not_answer_is_answered_too() -> None:
    """The broker may not keep it back for as long as its client would wait: it is asked again about what is late."""
    stage = Stage()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(stage.write(v) for v in range(V_COUNT)))
            stage.stuck = {0}
            writes = {v: stage.write(v) for v in range(V_COUNT)}  # sent together, merged by lane
            await asyncio.gather(*(writes[v] for v in range(V_COUNT) if v not in stage.living_on(0)))
            waiting = [writes[v] for v in stage.living_on(0)]
            assert not any(each.done() for each in waiting)
            stage.heal()
            rows = await asyncio.gather(*waiting)
        assert {outcome.error_code for answer in rows for _, _, outcomes in answer for outcome in outcomes} == {0}
        assert stage.ends == {q: sum(stage.sent[v] for v in stage.living_on(q)) for q in range(PARTITIONS)}
    finally:
        await stage.lanes.close()


async def test_a_partition_that_does_not_answer_is_told_when_its_client_has_waited_for_long() -> None:
    """The client's own time limit counts, and the error is one that it retries."""
    stage = Stage()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            stage.stuck = {0}
            (_, _, (outcome,)), *_ = await stage.write(stage.living_on(0)[0], timeout_ms=2_500)
        assert outcome.error_code == REQUEST_TIMED_OUT
    finally:
        await stage.lanes.close()


async def test_connections_apart_are_few_however_many_partitions_wait() -> None:
    """All partitions of a broker may wait at once, as when it has no other copy in sync."""
    stage = Stage()
    try:
        stage.stuck = set(range(PARTITIONS))
        async with asyncio.timeout(PATIENCE_SECONDS):
            waiting = [stage.write(v) for v in range(V_COUNT)]
            for _ in range(3):
                waiting += [stage.write(v) for v in range(V_COUNT)]
            await stage.until_apart(PARTITIONS)
            waiting += [stage.write(v) for v in range(V_COUNT)]
            await asyncio.sleep(0.1)
            assert len(stage.broker.connections) <= 5 * LANES_PER_BROKER
            stage.heal()
            await asyncio.gather(*waiting)
    finally:
        await stage.lanes.close()
