"""When writes go out, when they wait, and what their clients are told: one worker's lanes and a broker in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.images import ImageParts, ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic
from kordon.proxy.writes import unsent_writes, write_answers
from kordon.proxy.writes.broker_writer import REQUESTS_UNDER_WAY
from kordon.proxy.writes.stall_avoidance import WRITERS_PER_BROKER
from kordon.testing.fake_broker import Answer, Asked, led
from kordon.testing.managed_writes import a_batch
from kordon.testing.random_logs import LEADER_EPOCH, NAME
from kordon.testing.writes_in_memory import WritesInMemory

PARTITIONS, V_COUNT = 4, 2 * WRITERS_PER_BROKER


class Stage(WritesInMemory):
    """A worker's lanes in front of two brokers, of which the first leads all partitions of a topic."""

    def __init__(self) -> None:
        super().__init__(Layout.created(NAME, UUID(int=1), 1, V_COUNT), PARTITIONS, nodes=(1, 2))
        self.deposed = 0
        """The node that leads nothing any more."""

    async def produce(self, asked: Asked) -> Answer:
        """Answers as brokers do."""
        self.error_code = Code.NOT_LEADER_OR_FOLLOWER if asked.node_id == self.deposed else Code.NONE
        return await super().produce(asked)

    def send(
        self, value: str, *, v: int = 0, sequence: int = 0, producer_id: int = 7, acks: int = -1
    ) -> asyncio.Task[int]:
        """Has a client write a record; returns what becomes the error code it is told."""
        return self.write(v, a_batch(value, producer_id=producer_id, epoch=0, sequence=sequence), acks=acks)

    def mover(self) -> int:
        """Returns a virtual partition that leaves partition 0 when the topic grows to two."""
        return self.topic.layout.change_to(self.topic.layout.next_epoch(2)).movers[0]


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    """A stage whose lanes have written once, so that they are connected and know who leads."""
    async with Stage() as stage:
        for v in range(V_COUNT):
            assert await stage.send(f"a-{v}", v=v, producer_id=100 + v) == 0
        ready = stage.send("b-0", producer_id=99)
        await stage.rest()
        assert ready.done(), "so many turns are enough"
        stage.requests.clear()
        for log in stage.logs.values():
            log.batches, log.end = [], 0
        yield stage


def partitions_of(asked: Asked) -> list[int]:
    """Returns the physical partitions of a Produce request."""
    return [row.index for row in asked.body.topic_data[0].partition_data]


async def test_nothing_goes_out_without_a_lease() -> None:
    """A write waits, however ready its broker is; it goes when the lease has been renewed (LIVE-LEASE)."""
    async with a_stage() as stage:
        stage.alive = False
        writing = stage.send("c-0")
        await stage.rest()
        assert stage.requests == []
        stage.renew_lease()
        assert await writing == 0
        assert stage.logs[0].values == ["c-0"]


async def test_nothing_goes_out_to_a_sealed_partition() -> None:
    """It goes under the next layout, to where its stream lives then (FENCE-BARRIER)."""
    async with a_stage() as stage:
        stage.fence()
        writing = stage.send("c-0", v=1)
        await stage.rest()
        assert stage.requests == []
        stage.change(2, {0: 5, 1: 0})
        assert await writing == 0
        assert {q: log.values for q, log in stage.logs.items() if log.values} == {stage.topic.layout.homes[1]: ["c-0"]}


async def test_nothing_goes_out_to_a_topic_that_is_let_go() -> None:
    """Its client would go on past the lanes, as when a takeover is cancelled, and could stand in front of this."""
    async with a_stage() as stage:
        stage.fence()
        writing = stage.send("c-0")
        await stage.rest()
        stage.topic.cancel_fence()
        stage.topics.remove(NAME)
        assert await writing == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.requests == []


async def test_a_takeover_that_begins_anew_ends_what_waits_for_the_former_one() -> None:
    """No layout reaches the former one any more; and what follows is held by the new one."""
    async with a_stage() as stage:
        stage.topics.remove(NAME)
        coming = [ManagedTopic(Layout.unmanaged(NAME, UUID(int=1), 2, V_COUNT), UUID(int=2)) for _ in range(2)]
        for topic in coming:
            topic.raise_fence(Fence("takeover", frozenset({0, 1})))
        stage.topics.begin(coming[0])
        stage.topic = coming[0]
        writing = stage.send("c-0")
        await stage.rest()
        stage.topics.begin(coming[1])
        assert [topic.is_let_go for topic in coming] == [True, False]
        assert await writing == Code.NOT_LEADER_OR_FOLLOWER
        assert stage.requests == []
        assert stage.topics.served(NAME) is coming[1]


@pytest.mark.parametrize(("cut", "told"), [(1, Code.NONE), (0, Code.NOT_LEADER_OR_FOLLOWER)])
async def test_an_answer_behind_the_end_of_the_lease_is_kept_until_the_layouts_are_read(cut: int, told: Code) -> None:
    """What stands in its segment is a success then; what has landed behind a cut is none (LATE-ANSWER)."""
    async with a_stage() as stage:
        held = stage.broker.hold(apis.PRODUCE)
        writing = stage.send("c-0", v=stage.mover())
        await held.come.wait()
        stage.alive = False
        held.let_go()
        await stage.rest()
        assert (stage.dispatcher.under_way, writing.done()) == (0, False)
        stage.change(2, {0: cut, 1: 0})
        stage.renew_lease()
        assert await writing == told


@pytest.mark.parametrize(("cut", "told"), [(1, Code.NONE), (0, Code.NOT_LEADER_OR_FOLLOWER)])
@pytest.mark.parametrize("is_late", [False, True], ids=["kept", "on its way"])
async def test_an_answer_from_before_a_lease_that_ended_waits_for_the_fence_that_stands(
    cut: int, told: Code, *, is_late: bool
) -> None:
    """That fence was raised without this worker, and its cut perhaps read before the write landed (LATE-ANSWER)."""
    async with a_stage() as stage:
        held = stage.broker.hold(apis.PRODUCE)
        writing = stage.send("c-0", v=stage.mover())
        await held.come.wait()
        stage.alive = False
        if not is_late:
            held.let_go()
            await stage.rest()
        stage.fence()
        stage.renew_lease()
        if is_late:
            held.let_go()
        await stage.rest()
        assert (stage.dispatcher.under_way, writing.done()) == (0, False)
        stage.change(2, {0: cut, 1: 0})
        assert await writing == told


async def test_an_answer_under_this_lease_does_not_wait_for_a_fence() -> None:
    """Its cut is read when this worker has nothing under way there any more."""
    async with a_stage() as stage:
        stage.renew_lease()
        held = stage.broker.hold(apis.PRODUCE)
        writing = stage.send("c-0", v=stage.mover())
        await held.come.wait()
        stage.fence()
        held.let_go()
        assert await writing == Code.NONE


async def test_what_is_kept_behind_a_lease_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what comes above it nothing is known to its client, which asks once more."""
    monkeypatch.setattr(write_answers, "_MOST_KEPT", 1)
    async with a_stage() as stage:
        held = stage.broker.hold(apis.PRODUCE)
        first = stage.send("c-0", producer_id=201)
        await held.come.wait()
        second = stage.send("c-1", v=0, producer_id=202)
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
        first = stage.send("c-0", sequence=0)
        await held.come.wait()
        stage.broker.topics[NAME] = led(range(PARTITIONS), node_id=2, epoch=LEADER_EPOCH + 1)
        await stage.leaders.renew(NAME)
        second = stage.send("c-1", v=0, producer_id=8)
        await stage.rest()
        assert stage.logs[0].values == []
        held.let_go()
        assert (await first, await second) == (0, 0)
        assert stage.logs[0].values == ["c-0", "c-1"]
        assert [asked.node_id for asked in stage.requests] == [1, 2]


async def test_what_waits_for_a_broker_that_does_not_lead_goes_to_the_leader() -> None:
    """Or else a stream of which something waits all the time would stay with a broker that refuses everything."""
    async with a_stage() as stage:
        held = stage.broker.hold(apis.PRODUCE)
        under_way: list[asyncio.Task[int]] = []
        for number in range(REQUESTS_UNDER_WAY):
            under_way.append(stage.send(f"c-{number}", producer_id=20 + number))
            await stage.rest()
        waiting = [stage.send(f"d-{number}", producer_id=30 + number) for number in range(3)]
        await stage.rest()
        stage.broker.topics[NAME] = led(range(PARTITIONS), node_id=2, epoch=LEADER_EPOCH + 1)
        stage.deposed = 1
        held.let_go()
        assert await asyncio.gather(*under_way) == [Code.NOT_LEADER_OR_FOLLOWER] * REQUESTS_UNDER_WAY
        assert await asyncio.gather(*waiting) == [Code.NONE] * 3
        assert [asked.node_id for asked in stage.requests] == [1] * REQUESTS_UNDER_WAY + [2] * 3
        assert stage.logs[0].values == ["d-0", "d-1", "d-2"]


async def test_a_write_that_has_a_turn_goes_to_where_its_stream_lives_when_it_is_sent() -> None:
    """A layout may come in between; the turn was on a lane to a broker that is not concerned then (LATE-BINDING)."""
    async with a_stage() as stage:
        stage.broker.topics[NAME] = led([0]) | led([1, 2, 3], node_id=2, epoch=LEADER_EPOCH + 1)
        await stage.leaders.renew(NAME)
        writing = stage.send("c-0", v=stage.mover())
        await asyncio.sleep(0)
        assert stage.requests == []
        stage.change(2, {0: 5, 1: 0})
        assert await writing == 0
        assert (stage.logs[1].values, [asked.node_id for asked in stage.requests]) == (["c-0"], [2])


async def test_what_was_given_its_turn_under_a_lease_is_not_sent_behind_it() -> None:
    """It is judged when it is sent (LATE-BINDING), not when it came."""
    async with a_stage() as stage:
        writing = stage.send("c-0")
        await asyncio.sleep(0)  # it is in its line, and the lane has its turn
        stage.alive = False
        await stage.rest()
        assert stage.requests == []
        stage.renew_lease()
        assert await writing == 0


async def test_what_is_not_sent_dies_with_its_connection() -> None:
    """Its client sends it again by another one, perhaps behind others (LATE-BINDING)."""
    async with a_stage() as stage:
        stage.fence()
        gone, stays = stage.send("c-0", producer_id=7), stage.send("c-1", producer_id=8)
        await stage.rest()
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        stage.topic.cancel_fence()
        assert await stays == 0
        await stage.rest()
        assert stage.logs[0].values == ["c-1"]


async def test_a_gap_behind_an_image_has_the_client_send_what_is_missing() -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER; an unknown producer id would have it begin anew and keep the gap (OPENER-ALONE)."""
    async with a_stage() as stage:
        image = ImageParts({1: ImageRecord({7: Written(0, 5)}, 0)})
        stage.change(2, {0: 5, 1: 0}, dict.fromkeys(range(V_COUNT), image))
        v = stage.topic.layout.homes.index(1)
        assert await stage.send("c-0", v=v, sequence=8) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await stage.send("c-1", v=v, sequence=8, producer_id=9) == Code.UNKNOWN_PRODUCER_ID
        assert await stage.send("c-2", v=v, sequence=6) == 0


async def test_a_drain_waits_for_what_kordon_itself_writes() -> None:
    """A janitor's marker behind the cut would take away what its key has got since."""
    async with a_stage() as stage:
        with stage.dispatcher.counted(NAME, 0):
            draining = asyncio.ensure_future(stage.dispatcher.drain(NAME, frozenset({0})))
            await stage.rest()
            assert not draining.done()
        assert await draining == {0: 0}


async def test_a_second_fence_learns_of_the_writes_that_the_first_one_waited_for_too() -> None:
    """One that is cancelled and raised again while a write is under way: both know where it landed (FROZEN-READS)."""
    async with a_stage() as stage:
        stage.logs[0].end = 40
        held = stage.broker.hold(apis.PRODUCE)
        writing = stage.write(0, a_batch("a", "b", producer_id=7, epoch=0, sequence=0))
        await held.come.wait()
        drains = [asyncio.ensure_future(stage.dispatcher.drain(NAME, frozenset({0}))) for _ in range(2)]
        await asyncio.sleep(0)
        held.let_go()
        assert await writing == 0
        assert [await drain for drain in drains] == [{0: 42}] * 2


async def test_what_waits_has_a_bound_in_bytes_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a fence that lasts a write is refused, and all behind it; too much is refused at once (SHORT-FENCE)."""
    async with a_stage() as stage:
        monkeypatch.setattr(unsent_writes, "HOLD_SECONDS", 0.0)
        stage.fence()
        assert await stage.send("c-0") == Code.NOT_LEADER_OR_FOLLOWER
        monkeypatch.setattr(unsent_writes, "HOLD_SECONDS", 1e9)
        behind = stage.send("c-1", sequence=1)
        await stage.rest()
        assert behind.done()
        assert await behind == Code.NOT_LEADER_OR_FOLLOWER
        stage.topic.cancel_fence()
        assert await stage.send("c-2") == 0
        stage.fence()
        monkeypatch.setattr(unsent_writes, "UNSENT_BYTES", len(a_batch("c-3")) + 1)
        held, too_much = stage.send("c-3", sequence=1), stage.send("c-4", producer_id=8)
        await stage.rest()
        assert (held.done(), too_much.done()) == (False, True)
        assert await too_much == Code.NOT_LEADER_OR_FOLLOWER
        held.cancel()


async def test_a_request_is_answered_as_a_whole_though_a_batch_of_it_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer waits for the other batch, which waits for the fence."""
    async with a_stage() as stage:
        monkeypatch.setattr(unsent_writes, "HOLD_SECONDS", 0.0)
        stage.fence()
        assert await stage.send("c-0") == Code.NOT_LEADER_OR_FOLLOWER
        monkeypatch.setattr(unsent_writes, "HOLD_SECONDS", 1e9)
        batches = {v: a_batch(f"d-{v}", producer_id=7, epoch=0, sequence=0) for v in (0, 1)}
        written = stage.write_all(batches)
        await stage.rest()
        assert not written.done()
        stage.topic.cancel_fence()
        assert await written == [Code.NOT_LEADER_OR_FOLLOWER, 0]


async def test_few_requests_are_under_way_and_each_has_one_batch_of_a_partition() -> None:
    """Brokers take no more; what comes meanwhile waits, so that it can be merged with others (SHARED-LANES)."""
    async with a_stage() as stage:
        streams = [0, WRITERS_PER_BROKER]  # of one lane, and of one partition
        assert [stage.topic.layout.homes[v] for v in streams] == [0, 0]
        holds = [stage.broker.hold(apis.PRODUCE) for _ in range(REQUESTS_UNDER_WAY)]
        writes = [stage.send(f"c-{n}", v=v, producer_id=300 + n) for n, v in enumerate(streams * 3)]
        await stage.rest()
        assert stage.dispatcher.under_way == REQUESTS_UNDER_WAY
        for held in holds:
            held.let_go()
        assert set(await asyncio.gather(*writes)) == {0}
        assert [partitions_of(asked) for asked in stage.requests] == [[0]] * len(writes)
        assert sorted(stage.logs[0].values) == [f"c-{n}" for n in range(len(writes))]


async def test_writes_share_a_request_only_with_those_that_want_the_same_acks() -> None:
    """A client that waits for all copies would be told before they are made."""
    async with a_stage() as stage:
        stage.change(4, {0: 5, 1: 0, 2: 0, 3: 0})
        holds = [stage.broker.hold(apis.PRODUCE) for _ in range(REQUESTS_UNDER_WAY)]
        first = [stage.send(f"c-{n}", v=0, producer_id=300 + n) for n in range(REQUESTS_UNDER_WAY)]
        await stage.rest()
        wanted = {0: 1, WRITERS_PER_BROKER: -1}  # both of one lane
        behind = [stage.send(f"d-{v}", v=v, acks=acks) for v, acks in wanted.items()]
        await stage.rest()
        for held in holds:
            held.let_go()
        assert set(await asyncio.gather(*first, *behind)) == {0}
        homes = stage.topic.layout.homes
        asked_for = [(partitions_of(asked), asked.body.acks) for asked in stage.requests[-2:]]
        assert sorted(asked_for) == sorted(([homes[v]], acks) for v, acks in wanted.items())
        assert homes[0] != homes[WRITERS_PER_BROKER]
