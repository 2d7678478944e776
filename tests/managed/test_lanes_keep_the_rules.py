"""When writes go out, when they wait, and what their clients are told: one worker's lanes and a broker in memory."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs.produce import PartitionData, ProduceRequest, TopicData
from kordon.proxy import apis
from kordon.proxy.control.codes import Code
from kordon.proxy.decisions.journal import Client
from kordon.proxy.managed import lanes as lanes_of_a_worker
from kordon.proxy.managed.detours import LANES_PER_BROKER
from kordon.proxy.managed.lane import REQUESTS_UNDER_WAY
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.leaders import Leaders
from kordon.proxy.managed.produce import ProduceService
from kordon.proxy.managed.topics import Fence, ManagedTopic, ManagedTopics
from kordon.proxy.ordering.images import ImageRecord, Parts, Written
from kordon.proxy.ordering.layout import Layout
from kordon.testing.fake_broker import Answer, Asked, FakeBroker, led
from kordon.testing.managed_writes import a_batch

NAME = "orders"
PARTITIONS, V_COUNT = 4, 2 * LANES_PER_BROKER
PATIENCE_SECONDS = 60
TURNS = 60
"""Of the loop: in far fewer a write that may go out is answered; `Stage.rest` counts on it, and a test shows it."""


class Stage:
    """A worker's lanes in front of two brokers, of which the first leads all partitions of a topic."""

    def __init__(self) -> None:
        self.alive = True
        """Whether the worker's lease lives."""
        self.log: defaultdict[int, list[str]] = defaultdict(list)
        """By physical partition, the values that were written."""
        self.by_node: dict[str, int] = {}
        """By value, the broker that was asked to write it."""
        self.requests: list[list[int]] = []
        """Of each Produce request, the physical partitions."""
        self.acks_of: dict[str, int] = {}
        """By value, what its request asked for."""
        self.broker = FakeBroker(
            {NAME: PARTITIONS}, {apis.PRODUCE: self._produce, apis.DESCRIBE_PRODUCERS: self._nobody}, nodes=(1, 2)
        )
        self.leaders = Leaders(self.broker)
        self.topic = ManagedTopic(Layout.created(NAME, UUID(int=1), 1, V_COUNT), UUID(int=2))
        topics = ManagedTopics()
        topics.add(self.topic)
        self.lanes = Lanes(topics, self.broker, self.leaders, lambda: self.alive)
        self._service = ProduceService(topics, self.lanes)

    def _produce(self, asked: Asked) -> Answer:
        (topic,) = asked.body.topic_data
        self.requests.append([row.index for row in topic.partition_data])
        return {
            "responses": [
                {"name": NAME, "partition_responses": [self._append(asked, row) for row in topic.partition_data]}
            ]
        }

    def _append(self, asked: Asked, row: Any) -> dict[str, int]:
        partition, records = int(row.index), bytes(row.records)
        value = records[-4:-1].decode()  # of the last record, before its count of headers
        self.log[partition].append(value)
        self.by_node[value] = asked.node_id
        self.acks_of[value] = asked.body.acks
        return {"index": partition, "error_code": 0, "base_offset": len(self.log[partition]) - 1}

    def _nobody(self, asked: Asked) -> Answer:
        """Remembers no producer."""
        rows = [
            {"partition_index": q, "error_code": 0, "active_producers": []}
            for topic in asked.body.topics
            for q in topic.partition_indexes
        ]
        return {"topics": [{"name": NAME, "partitions": rows}]}

    def write(
        self, value: str, *, v: int = 0, sequence: int = 0, producer_id: int = 7, acks: int = -1
    ) -> asyncio.Task[int]:
        """Has a client write a record of three characters; returns what becomes the error code it is told."""
        batch = memoryview(bytearray(a_batch(value, producer_id=producer_id, epoch=0, sequence=sequence)))
        asked = ProduceRequest(None, acks, 10_000, [TopicData(NAME, None, [PartitionData(v, batch)])])
        return asyncio.ensure_future(self._written(asked))

    async def _written(self, asked: ProduceRequest) -> int:
        ((_, _, (outcome,)),) = await self._service.write(9, asked, Client(1))
        return outcome.error_code

    async def rest(self) -> None:
        """Lets everything happen that waits for nothing but its turn."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def fence(self) -> None:
        """Seals the partition that all live on."""
        self.topic.raise_fence(Fence("f1", frozenset({0})))

    def change(self, u: int, cuts: dict[int, int], images: dict[int, Parts] | None = None) -> None:
        """Goes on under another layout."""
        layout = self.topic.layout
        self.topic.adopt(layout.changed(layout.next_epoch(u), cuts), images or {})


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    """A stage whose lanes have written once, so that they are connected and know who leads."""
    stage = Stage()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for v in range(V_COUNT):
                assert await stage.write(f"a-{v}", v=v, producer_id=100 + v) == 0
            before = len(stage.log[0])
            ready = stage.write("b-0", producer_id=99)
            await stage.rest()
            assert ready.done(), "so many turns are enough"
            assert len(stage.log[0]) == before + 1
            stage.log.clear()
            stage.requests.clear()
            yield stage
    finally:
        await stage.lanes.close()
        await stage.broker.close()


async def test_nothing_goes_out_without_a_lease() -> None:
    """A write waits, however ready its broker is; it goes when the lease has been renewed (LIVE-LEASE)."""
    async with a_stage() as stage:
        stage.alive = False
        writing = stage.write("c-0")
        await stage.rest()
        assert stage.requests == []
        stage.alive = True
        stage.lanes.lease_renewed()
        assert await writing == 0
        assert stage.log[0] == ["c-0"]


async def test_nothing_goes_out_to_a_sealed_partition() -> None:
    """It goes under the next layout, to where its stream lives then."""
    async with a_stage() as stage:
        stage.fence()
        writing = stage.write("c-0", v=1)
        await stage.rest()
        assert stage.requests == []
        stage.change(2, {0: 5, 1: 0})
        assert await writing == 0
        assert {q: values for q, values in stage.log.items() if values} == {stage.topic.layout.homes[1]: ["c-0"]}


@pytest.mark.parametrize(("cut", "told"), [(1, Code.NONE), (0, Code.NOT_LEADER_OR_FOLLOWER)])
async def test_an_answer_behind_the_end_of_the_lease_is_kept_until_the_layouts_are_read(cut: int, told: Code) -> None:
    """What stands in its segment is a success then; what has landed behind a cut is none (LATE-ANSWER)."""
    async with a_stage() as stage:
        mover = stage.topic.layout.movers(stage.topic.layout.next_epoch(2))[0]
        held = stage.broker.hold(apis.PRODUCE)
        writing = stage.write("c-0", v=mover)
        await held.come.wait()
        stage.alive = False
        held.let_go()
        await stage.rest()
        assert (stage.lanes.under_way, writing.done()) == (0, False)
        stage.change(2, {0: cut, 1: 0})
        stage.alive = True
        stage.lanes.lease_renewed()
        assert await writing == told


async def test_what_is_kept_behind_a_lease_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what comes above it nothing is known to its client, which asks once more."""
    monkeypatch.setattr(lanes_of_a_worker, "MOST_KEPT", 1)
    async with a_stage() as stage:
        held = stage.broker.hold(apis.PRODUCE)
        first = stage.write("c-0", producer_id=201)
        await held.come.wait()
        second = stage.write("c-1", v=0, producer_id=202)
        await stage.rest()
        stage.alive = False
        held.let_go()
        assert await second == Code.REQUEST_TIMED_OUT
        assert not first.done()
        first.cancel()


async def test_a_leader_that_moves_is_written_to_when_the_former_one_has_answered() -> None:
    """Or else the second of two writes could stand in front of the first (NO-OVERTAKING)."""
    async with a_stage() as stage:
        held = stage.broker.hold(apis.PRODUCE)
        first = stage.write("c-0", sequence=0)
        await held.come.wait()
        stage.broker.topics[NAME] = led(range(PARTITIONS), node_id=2, epoch=1)
        await stage.leaders.renew(NAME)
        second = stage.write("c-1", v=0, producer_id=8)
        await stage.rest()
        assert stage.log[0] == []
        held.let_go()
        assert (await first, await second) == (0, 0)
        assert stage.log[0] == ["c-0", "c-1"]
        assert (stage.by_node["c-0"], stage.by_node["c-1"]) == (1, 2)


async def test_a_write_that_has_a_turn_goes_to_where_its_stream_lives_when_it_is_sent() -> None:
    """A layout may come in between; the turn was on a lane to a broker that is not concerned then (LATE-BINDING)."""
    async with a_stage() as stage:
        stage.broker.topics[NAME] = led([0]) | led([1, 2, 3], node_id=2)
        await stage.leaders.renew(NAME)
        mover = stage.topic.layout.movers(stage.topic.layout.next_epoch(2))[0]
        writing = stage.write("c-0", v=mover)
        await asyncio.sleep(0)
        assert stage.requests == []
        stage.change(2, {0: 5, 1: 0})
        assert await writing == 0
        assert (stage.log[1], stage.by_node["c-0"]) == (["c-0"], 2)


async def test_what_is_not_sent_dies_with_its_connection() -> None:
    """Its client sends it again by another one, perhaps behind others (LATE-BINDING)."""
    async with a_stage() as stage:
        stage.fence()
        gone, stays = stage.write("c-0", producer_id=7), stage.write("c-1", producer_id=8)
        await stage.rest()
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        stage.topic.cancel_fence()
        assert await stays == 0
        await stage.rest()
        assert stage.log[0] == ["c-1"]


async def test_a_gap_behind_an_image_has_the_client_send_what_is_missing() -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER; an unknown producer id would have it begin anew and keep the gap (OPENER-ALONE)."""
    async with a_stage() as stage:
        image = Parts({1: ImageRecord({7: Written(0, 5)}, 0)})
        stage.change(2, {0: 5, 1: 0}, dict.fromkeys(range(V_COUNT), image))
        v = stage.topic.layout.homes.index(1)
        assert await stage.write("c-0", v=v, sequence=8) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await stage.write("c-1", v=v, sequence=8, producer_id=9) == Code.UNKNOWN_PRODUCER_ID
        assert await stage.write("c-2", v=v, sequence=6) == 0


async def test_a_drain_waits_for_what_kordon_itself_writes() -> None:
    """A janitor's marker behind the cut would take away what its key has got since."""
    async with a_stage() as stage:
        with stage.lanes.counted(NAME, 0):
            draining = asyncio.ensure_future(stage.lanes.drain(NAME, frozenset({0})))
            await stage.rest()
            assert not draining.done()
        assert await draining == {0: 0}


async def test_what_waits_has_a_bound_in_bytes_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a fence that lasts a write is refused, and all behind it; too much is refused at once (SHORT-FENCE)."""
    async with a_stage() as stage:
        monkeypatch.setattr(lanes_of_a_worker, "HOLD_SECONDS", 0.0)
        stage.fence()
        assert await stage.write("c-0") == Code.NOT_LEADER_OR_FOLLOWER
        monkeypatch.setattr(lanes_of_a_worker, "HOLD_SECONDS", 1e9)
        behind = stage.write("c-1", sequence=1)
        await stage.rest()
        assert behind.done()
        assert await behind == Code.NOT_LEADER_OR_FOLLOWER
        stage.topic.cancel_fence()
        assert await stage.write("c-2") == 0
        stage.fence()
        monkeypatch.setattr(lanes_of_a_worker, "UNSENT_BYTES", len(a_batch("c-3")) + 1)
        held, too_much = stage.write("c-3", sequence=1), stage.write("c-4", producer_id=8)
        await stage.rest()
        assert (held.done(), too_much.done()) == (False, True)
        assert await too_much == Code.NOT_LEADER_OR_FOLLOWER
        held.cancel()


async def test_few_requests_are_under_way_and_each_has_one_batch_of_a_partition() -> None:
    """Brokers take no more; what comes meanwhile waits, so that it can be merged with others (SHARED-LANES)."""
    async with a_stage() as stage:
        streams = [0, LANES_PER_BROKER]  # of one lane, and of one partition
        assert [stage.topic.layout.homes[v] for v in streams] == [0, 0]
        holds = [stage.broker.hold(apis.PRODUCE) for _ in range(REQUESTS_UNDER_WAY)]
        writes = [stage.write(f"c-{n}", v=v, producer_id=300 + n) for n, v in enumerate(streams * 3)]
        await stage.rest()
        assert stage.lanes.under_way == REQUESTS_UNDER_WAY
        for held in holds:
            held.let_go()
        assert set(await asyncio.gather(*writes)) == {0}
        assert stage.requests == [[0]] * len(writes)
        assert sorted(stage.log[0]) == [f"c-{n}" for n in range(len(writes))]


async def test_writes_share_a_request_only_with_those_that_want_the_same_acks() -> None:
    """A client that waits for all copies would be told before they are made."""
    async with a_stage() as stage:
        stage.change(4, {0: 5, 1: 0, 2: 0, 3: 0})
        holds = [stage.broker.hold(apis.PRODUCE) for _ in range(REQUESTS_UNDER_WAY)]
        first = [stage.write(f"c-{n}", v=0, producer_id=300 + n) for n in range(REQUESTS_UNDER_WAY)]
        await stage.rest()
        wanted = {"d-0": 1, "d-1": -1}
        behind = [
            stage.write(value, v=v, acks=wanted[value]) for v, value in zip((0, LANES_PER_BROKER), wanted, strict=True)
        ]
        await stage.rest()
        for held in holds:
            held.let_go()
        assert set(await asyncio.gather(*first, *behind)) == {0}
        assert {value: stage.acks_of[value] for value in wanted} == wanted
        assert stage.topic.layout.homes[0] != stage.topic.layout.homes[LANES_PER_BROKER]
