"""The log of groups' positions on real brokers: made on demand, read by all alike, and what it lives through."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import api
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.position_records import MemberKey
from kordon.proxy.ordering.positions import MemberReport, TopicReport
from kordon.proxy.own_topics.compacted_topic import GROUPS, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import WRITE_SECONDS
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.testing.cluster import Cluster
from kordon.testing.waiting import until

pytestmark = pytest.mark.broker

SECONDS = 60.0
TICK_SECONDS = 0.05
A = MemberKey("readers", "a")


def report(position: int, sequence: int = 1) -> MemberReport:
    """Says where its member stands in partition 0."""
    return MemberReport(1, sequence, {"orders": TopicReport({0: position}, array("i"))})


@pytest.fixture
def topic() -> str:
    """The name of a log that no other test uses."""
    return f"groups-{uuid4().hex[:8]}"


@asynccontextmanager
async def worker(brokers: Brokers, topic: str) -> AsyncIterator[GroupPositions]:
    made = GroupPositions(brokers, topic)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def ticking() -> AsyncIterator[list[None]]:
    """Grows while the loop runs, by one in `TICK_SECONDS` at most: time that others take from it is no tick."""
    ticks: list[None] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            ticks.append(None)

    ticker = asyncio.get_running_loop().create_task(tick())
    try:
        yield ticks
    finally:
        ticker.cancel()


async def test_what_one_worker_has_written_all_know(new_worker: Callable[[], Awaitable[Brokers]], topic: str) -> None:
    """The log is made when it is first needed; what was answered is known at once here, soon elsewhere, and later."""
    brokers = await new_worker()
    async with worker(brokers, topic) as one, worker(await new_worker(), topic) as other:
        assert one.of("readers", 1, "orders", "a") == {}
        await one.ready(SECONDS)
        await other.ready(SECONDS)
        changed = asyncio.ensure_future(other.changed("readers"))
        await asyncio.sleep(0)
        await one.say({A: report(40)}, SECONDS)
        assert one.of("readers", 1, "orders", "a") == {0: 40}
        await asyncio.wait_for(changed, SECONDS)
        assert other.of("readers", 1, "orders", "a") == {0: 40}
        assert other.of("readers", 2, "orders", "a") == {}
        assert other.of("readers", 1, "orders", "b") == {}
    async with worker(brokers, topic) as later:
        await later.ready(SECONDS)
        assert later.of("readers", 1, "orders", "a") == {0: 40}
    configs = await TopicsAdmin(brokers).topic_configs(topic)
    assert configs["cleanup.policy"] == "compact,delete"
    assert configs["retention.ms"] == str(7 * 24 * 3_600_000)


async def test_reports_that_come_together_are_written_together(brokers: Brokers, topic: str) -> None:
    """1,000 members that report at once take a few writes, and each is told when its own has been read back."""
    async with worker(brokers, topic) as one:
        await one.ready(SECONDS)
        places = [MemberKey("readers", f"member {number}") for number in range(1_000)]
        await asyncio.gather(*(one.say({place: report(1)}, SECONDS) for place in places))
        assert one.positions.member_count == one.log.tally.written == 1_000
        assert one.log.tally.batches <= 10


async def test_a_log_that_was_deleted_is_made_anew_and_all_is_reported_again(brokers: Brokers, topic: str) -> None:
    """What was known is forgotten, so that readers wait; then members are believed again."""
    async with worker(brokers, topic) as one:
        await one.ready(SECONDS)
        await one.say({A: report(40)}, SECONDS)
        await TopicsAdmin(brokers).delete_topic(topic)
        await until("the log is read anew", lambda: one.log.tally.lost == 1)
        assert one.of("readers", 1, "orders", "a") == {}
        await one.ready(SECONDS)
        await one.say({A: report(41, sequence=2)}, SECONDS)
        assert one.of("readers", 1, "orders", "a") == {0: 41}


async def test_a_log_whose_beginning_was_deleted_is_read_from_where_it_begins(brokers: Brokers, topic: str) -> None:
    """Records are kept for seven days: a worker that starts later begins with what is left."""
    async with worker(brokers, topic) as one:
        await one.ready(SECONDS)
        await one.say({A: report(40)}, SECONDS)
        await one.say({MemberKey("readers", "b"): report(7)}, SECONDS)
        client = await brokers.leader(topic, 0, "test")
        partitions = [{"partition_index": 0, "offset": 2}]  # behind the mark and the first report
        fields = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 10_000}
        await client.ask(api(apis.DELETE_RECORDS), client.version(apis.DELETE_RECORDS, range(2)), fields)
    async with worker(brokers, topic) as later:
        await later.ready(SECONDS)
        assert set(later.positions.members("readers")) == {"b"}


async def test_a_topic_that_is_not_fit_is_refused_with_what_to_change(brokers: Brokers, topic: str) -> None:
    """Somebody has made it with two partitions."""
    await TopicsAdmin(brokers).create_topic(topic, partitions=2, replicas=1, configs={"cleanup.policy": "compact"})
    with pytest.raises(OwnTopicUnfit, match="has 2 partitions"):
        await replace(GROUPS, name=topic).ensure(brokers)
    async with worker(brokers, topic) as one:
        with pytest.raises(UpstreamUnavailable):
            await one.ready(3.0)
        await until("it has been tried", lambda: one.log.tally.failed > 0)


@pytest.mark.deep
async def test_a_leader_that_is_killed_costs_seconds_and_no_report(
    worker_of: Callable[[Cluster], Awaitable[Brokers]], topic: str
) -> None:
    """Three brokers: what was answered is known after its leader's death, and soon members can report again."""
    with Cluster.start(brokers=3) as cluster:
        brokers = await worker_of(cluster)
        async with worker(brokers, topic) as one:
            await one.ready(SECONDS)
            await one.say({A: report(40)}, SECONDS)
            leader = await asyncio.to_thread(cluster.leader, topic, 0)
            (broker,) = (each for each in cluster.brokers if each.node_id == leader)
            await asyncio.to_thread(broker.kill)
            loop = asyncio.get_running_loop()
            began, sequence = loop.time(), 1
            while one.of("readers", 1, "orders", "a") != {0: 41}:
                assert loop.time() - began < SECONDS
                sequence += 1
                async with ticking() as ticks:
                    try:
                        await one.say({A: report(41, sequence)})
                    except UpstreamUnavailable:
                        assert len(ticks) < (WRITE_SECONDS + 2) / TICK_SECONDS  # whoever reports is told in time
                        await asyncio.sleep(0.1)
            assert one.log.tally.lost == 0


@pytest.mark.deep
async def test_without_brokers_nothing_is_known_and_with_them_all_again(
    worker_of: Callable[[Cluster], Awaitable[Brokers]], topic: str
) -> None:
    """What may be out of date is no evidence: readers wait until the log can be read again."""
    with Cluster.start(brokers=1) as cluster:
        brokers = await worker_of(cluster)
        async with worker(brokers, topic) as one:
            await one.ready(SECONDS)
            await one.say({A: report(40)}, SECONDS)
            await asyncio.to_thread(cluster.brokers[0].kill)
            await until("nothing is known", lambda: one.of("readers", 1, "orders", "a") == {})
            with pytest.raises(UpstreamUnavailable):
                await one.say({A: report(41, 2)}, timeout=2.0)
            await asyncio.to_thread(cluster.brokers[0].start)
            await until("it is known again", lambda: one.of("readers", 1, "orders", "a") != {})
            await one.say({A: report(42, 3)}, SECONDS)
            assert one.of("readers", 1, "orders", "a") == {0: 42}
