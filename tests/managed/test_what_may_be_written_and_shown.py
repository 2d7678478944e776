"""What a worker writes and shows of a topic now: by its lease, the layout and the fence."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs.produce import PartitionData, ProduceRequest, TopicData
from kordon.proxy import apis
from kordon.proxy.control.codes import Code
from kordon.proxy.decisions.journal import Client
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.leaders import Leaders
from kordon.proxy.managed.produce import ProduceService
from kordon.proxy.managed.readers import Readers
from kordon.proxy.managed.topics import Fence, ManagedTopic, ManagedTopics, Why
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.testing.fake_broker import Answer, Asked, FakeBroker
from kordon.testing.managed_writes import a_batch
from kordon.testing.random_logs import FACE_ID, NAME, Log, LogBroker, fetch

LAYOUT = Layout.created(NAME, UUID(int=1), 2, 4)
TURNS = 50
"""Of the event loop, in which all that nothing holds up has happened: no socket is needed."""


def managed(layout: Layout = LAYOUT) -> ManagedTopic:
    """Makes a topic."""
    return ManagedTopic(layout, FACE_ID)


def test_a_stream_is_written_to_at_its_home_under_a_lease_and_outside_of_fences() -> None:
    """Whatever else stands in the way is named, the lease last: the fence goes on when that is there again."""
    topic = managed()
    assert topic.open_home(3, may_serve=True) is LAYOUT.chain(3).home
    assert topic.open_home(3, may_serve=False) is Why.LEASE
    topic.raise_fence(Fence("f", frozenset({1})))
    assert topic.open_home(3, may_serve=True) is Why.FENCE
    assert topic.open_home(3, may_serve=False) is Why.FENCE
    assert topic.open_home(1, may_serve=True) is LAYOUT.chain(1).home
    topic.cancel_fence()
    topic.serve("a record of it cannot be read")
    assert topic.open_home(2, may_serve=True) is Why.FENCE
    before = Layout.unmanaged(NAME, UUID(int=1), 2, 4)
    assert managed(before).open_home(3, may_serve=True) is Why.UNBORN


def test_all_is_shown_under_a_lease_and_outside_of_fences() -> None:
    """Nothing without a lease, or of what cannot be served."""
    topic = managed()
    assert topic.limit(0, may_serve=True) is None
    assert topic.limit(0, may_serve=False) == 0
    topic.serve("a record of it cannot be read")
    assert topic.limit(0, may_serve=True) == 0


def test_a_fence_shows_what_was_shown_then_what_leaders_say_then_what_clients_were_told() -> None:
    """FROZEN-READS: reading goes on until leaders are asked, stops where readers are, goes on to the marks at most."""
    topic = managed()
    topic.raise_fence(Fence("f", frozenset({0, 1})))
    fence = topic.fence
    assert fence is not None
    assert (topic.limit(0, may_serve=True), fence.may_tell_end(0)) == (None, False)
    topic.fence = fence = fence.freezing({0: 7})
    assert [topic.limit(q, may_serve=True) for q in (0, 1)] == [7, 0]
    topic.fence = fence = fence.freezing({0: 5, 1: 3})
    assert [topic.limit(q, may_serve=True) for q in (0, 1)] == [7, 3], "never below what readers have seen"
    assert not fence.may_tell_end(0), "clients may be told of a write behind it yet"
    topic.fence = fence = fence.frozen({0: 9, 1: 3}, {0: 0, 1: 4})
    assert [topic.limit(q, may_serve=True) for q in (0, 1)] == [9, 4]
    assert topic.limit(0, may_serve=False) == 0
    assert fence.may_tell_end(0)


def test_a_fence_shows_nothing_of_a_partition_of_which_nothing_is_known() -> None:
    """Its leader did not say where it ends, and nobody here has read of it; what is not sealed goes on."""
    fence = Fence("f", frozenset({0})).freezing({}).frozen({}, {0: 12})
    assert (fence.limit(0), fence.may_tell_end(0)) == (0, False)
    assert (fence.limit(1), fence.may_tell_end(1)) == (None, True)


class Stage:
    """A worker's lanes to a broker in memory, to which it has written one record already."""

    def __init__(self) -> None:
        self.serves = True
        self.written: list[int] = []
        """The physical partitions written to, in order."""
        self.broker = FakeBroker({NAME: 3}, {apis.PRODUCE: self._produce})
        self.topic = managed()
        topics = ManagedTopics()
        topics.add(self.topic)
        self.lanes = Lanes(topics, self.broker, Leaders(self.broker), lambda: self.serves)
        self._service = ProduceService(topics, self.lanes)
        self._sent: Counter[int] = Counter()
        """Records by virtual partition."""

    def _produce(self, asked: Asked) -> Answer:
        rows = [row.index for topic in asked.body.topic_data for row in topic.partition_data]
        self.written += rows
        answers = [{"index": q, "error_code": 0, "base_offset": self.written.count(q) - 1} for q in rows]
        return {"responses": [{"name": NAME, "partition_responses": answers}]}

    def write(self, v: int) -> asyncio.Future[list[Any]]:
        """Has an idempotent client write its next record."""
        batch = a_batch("a", producer_id=v, epoch=0, sequence=self._sent[v])
        self._sent[v] += 1
        records = memoryview(bytearray(batch))
        asked = ProduceRequest(None, -1, 10_000, [TopicData(NAME, None, [PartitionData(v, records)])])
        return asyncio.ensure_future(self._service.write(9, asked, Client(1)))


def code_of(rows: list[Any]) -> int:
    """Returns what a client was told of its one record."""
    ((_, _, (outcome,)),) = rows
    return int(outcome.error_code)


async def turns() -> None:
    """Lets all happen that nothing holds up."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Lanes that are connected."""
    made = Stage()
    try:
        async with asyncio.timeout(60):
            assert code_of(await made.write(0)) == Code.NONE
            yield made
    finally:
        await made.lanes.close()


async def test_nothing_is_sent_without_a_lease(stage: Stage) -> None:
    """LIVE-LEASE: a write waits, and goes when the lease lives again."""
    stage.serves = False
    held = stage.write(0)
    await turns()
    assert stage.written == [0]
    stage.serves = True
    stage.lanes.lease_renewed()
    assert code_of(await held) == Code.NONE
    assert stage.written == [0, 0]


async def test_nothing_is_sent_behind_a_fence(stage: Stage) -> None:
    """FENCE-BARRIER: what is sealed waits for the next layout, what is not goes on."""
    stage.topic.raise_fence(Fence("f", frozenset({0})))
    held, free = stage.write(1), stage.write(2)
    assert code_of(await free) == Code.NONE
    await turns()
    assert stage.written == [0, 1]
    stage.topic.cancel_fence()
    assert code_of(await held) == Code.NONE


async def test_what_was_given_its_turn_under_a_lease_is_not_sent_behind_it(stage: Stage) -> None:
    """A write that waits for its turn on a lane is judged when it is sent (LATE-BINDING), not when it came."""
    write = stage.write(0)
    await asyncio.sleep(0)  # it is in its line, and the lane has its turn
    stage.serves = False
    await turns()
    assert stage.written == [0]
    stage.serves = True
    stage.lanes.lease_renewed()
    assert code_of(await write) == Code.NONE


async def test_a_success_that_comes_behind_the_lease_is_told_when_the_layouts_are_known(stage: Stage) -> None:
    """LATE-ANSWER: it may stand behind a cut that this worker has not heard of; then its client sends it again."""
    for grown, told in ((False, Code.NONE), (True, Code.NOT_LEADER_OR_FOLLOWER)):
        sent = stage.broker.hold(apis.PRODUCE)
        write = stage.write(1)
        await sent.come.wait()
        stage.serves = False
        sent.let_go()
        await turns()
        assert not write.done()
        assert stage.lanes.counts.kept == 1 + grown
        if grown:
            cut = stage.written.count(0) - 1
            stage.topic.adopt(LAYOUT.changed(LAYOUT.next_epoch(3), {0: cut, 2: 0}), {})
        stage.serves = True
        stage.lanes.lease_renewed()
        assert code_of(await write) == told


class Reading:
    """A worker's readers of a topic that lives in one log."""

    def __init__(self) -> None:
        self.serves = True
        self.offset = 0
        """Where somebody reads."""
        layout = Layout.created(NAME, UUID(int=1), 1, 1)
        self.topic = managed(layout)
        self.log = Log()
        self.append()
        self.broker = LogBroker({0: self.log}, 1 << 20)
        topics = ManagedTopics()
        topics.add(self.topic)
        self.readers = Readers(topics, self.broker, Leaders(self.broker), may_serve=lambda: self.serves)

    def append(self) -> None:
        """A record is written."""
        self.log.append(tag(0, 0, 3), ["a"])

    async def row(self) -> tuple[bool, int]:
        """Returns whether there is something to be read, and the end that is told."""
        row = (await fetch(self.readers, {0: self.offset}))[0]
        return bool(row.records), row.high_watermark


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    """Readers of one record, which somebody has read."""
    made = Reading()
    try:
        async with asyncio.timeout(60):
            assert await made.row() == (True, 1)
            made.offset = 1
            yield made
    finally:
        await made.readers.close()


async def test_nothing_is_shown_without_a_lease(reading: Reading) -> None:
    """LIVE-LEASE: what came meanwhile may stand behind a cut."""
    reading.append()
    reading.serves = False
    assert await reading.row() == (False, 1)
    reading.serves = True
    assert await reading.row() == (True, 2)


async def test_nothing_more_is_shown_while_leaders_are_asked_where_a_fence_freezes(reading: Reading) -> None:
    """FROZEN-READS: what is shown then may be more than they say, and stand behind the cut."""
    reading.topic.raise_fence(Fence("f", frozenset({0})))
    asked = reading.broker.hold(apis.LIST_OFFSETS)
    freezing = asyncio.ensure_future(reading.readers.freeze(NAME, frozenset({0})))
    await asked.come.wait()
    reading.append()
    await reading.row()  # has it read from the broker, at the latest
    await turns()
    assert await reading.row() == (False, 1)
    asked.let_go()
    assert await freezing == {0: 2}
    assert await reading.row() == (True, 2)
    reading.append()
    reading.offset = 2
    assert await reading.row() == (False, 2)
