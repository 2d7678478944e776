"""BrokerConnections and Leaders with real brokers: shared dials, broken connections, leaders that move."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kordon.codecs import apis
from kordon.codecs.messages import response
from kordon.codecs.schema import Api
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka import leaders as leaders_of_topics
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import Leader, Leaders
from kordon.proxy.kafka.topology import Topology
from kordon.testing.broker_config import QUICK_DEATH
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import create_topic, links_to
from kordon.testing.messages.as_read import as_read

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]


async def create(links: BrokerConnections, topic: str, replicas: dict[int, list[int]]) -> None:
    """Creates a topic; `replicas` are node ids by partition."""
    assignments = [{"partition_index": q, "broker_ids": nodes} for q, nodes in replicas.items()]
    row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    await create_topic(links, row)


async def all_led(leaders: Leaders, topic: str, count: int) -> dict[int, Leader]:
    """Returns the leaders when all partitions have one."""
    while True:
        known = await leaders.of(topic)
        if len(known) == count and all(leader.node_id >= 0 for leader in known.values()):
            return dict(known)
        leaders.forget(topic)


def counted_questions(links: BrokerConnections, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that grows by the api key of each question to any broker."""
    questions: list[int] = []
    ask_any = links.ask_any

    async def counted(purpose: str, asked: Api[Any, Any], versions: range, body: Any) -> object:
        questions.append(asked.key)
        return await ask_any(purpose, asked, versions, body)

    monkeypatch.setattr(links, "ask_any", counted)
    return questions


async def test_callers_share_one_connection_for_each_purpose(cluster: Cluster) -> None:
    """Concurrent callers get the same connection; another purpose gets its own."""
    async with links_to(cluster) as links:
        first, second, other = await asyncio.gather(links.to(1, "a"), links.to(1, "a"), links.to(1, "b"))
        assert first is second
        assert other is not first
        assert await links.to(1, "a") is first


async def test_a_caller_that_leaves_does_not_take_the_dial_along(cluster: Cluster) -> None:
    """A cancelled caller leaves the connection to those who wait for it too."""
    async with links_to(cluster) as links:
        leaver = asyncio.ensure_future(links.to(1, "a"))
        stayer = asyncio.ensure_future(links.to(1, "a"))
        await asyncio.sleep(0)
        leaver.cancel()
        assert not (await stayer).closed


async def test_a_broken_connection_is_replaced(cluster: Cluster) -> None:
    """Who asks after a connection broke gets a new one."""
    async with links_to(cluster) as links:
        broken = await links.to(1, "a")
        broken.close()
        again = await links.to(1, "a")
        assert again is not broken
        assert not again.closed


async def test_a_dead_broker_is_not_dialled_without_pause(cluster: Cluster) -> None:
    """However often callers ask, a broker that refuses is dialled a few times a second at most, and again later."""
    async with links_to(cluster) as links:
        node = links.topology.nodes[1]
        alive, node.address = node.address, HostPort("127.0.0.1", 1)
        begin = asyncio.get_running_loop().time()
        with capture_logs() as logs:
            for _ in range(4):
                with pytest.raises(UpstreamUnavailable):
                    await links.to(1, "a")
        assert [line["event"] for line in logs if line["log_level"] == "error"] == []  # its callers were told
        assert asyncio.get_running_loop().time() - begin >= 0.05 + 0.1 + 0.2
        node.address = alive
        assert not (await links.to(1, "a")).closed


async def test_an_unknown_broker_and_closed_links_are_refused(cluster: Cluster) -> None:
    """What cannot be dialled says why, and closed links dial nothing."""
    async with links_to(cluster) as links:
        with pytest.raises(UpstreamUnavailable, match="broker 99 is not known"):
            await links.to(99, "a")
        client = await links.to(1, "a")
        await links.close()
        assert client.closed
        with pytest.raises(UpstreamUnavailable, match="closed"):
            await links.to(1, "a")


async def test_leaders_and_topic_ids_are_known_and_kept(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One question serves all callers until it is forgotten; what does not exist is empty."""
    async with links_to(cluster) as links:
        await create(links, "leaders-kept", {q: [1] for q in range(3)})
        leaders = Leaders(links)
        known = await all_led(leaders, "leaders-kept", 3)
        assert {leader.node_id for leader in known.values()} == {1}
        assert all(leader.epoch >= 0 and leader.replicas == (1,) for leader in known.values())
        questions = counted_questions(links, monkeypatch)
        topic_id = await leaders.topic_id("leaders-kept")
        assert topic_id is not None
        assert topic_id.int
        assert questions == []
        leaders.forget("leaders-kept")
        await asyncio.gather(*(leaders.of("leaders-kept") for _ in range(10)))
        assert questions == [apis.METADATA]
        assert await leaders.of("no-such-topic") == {}
        assert await leaders.topic_id("no-such-topic") is None


async def test_what_is_known_grows_old(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders are asked for anew after upstream.refresh_ms, unasked."""
    async with links_to(cluster, refresh_ms=200) as links:
        leaders = Leaders(links)
        await create(links, "leaders-old", {0: [1]})
        await all_led(leaders, "leaders-old", 1)
        questions = counted_questions(links, monkeypatch)
        while not questions:
            await leaders.of("leaders-old")
            await asyncio.sleep(0.01)


async def test_a_slow_brokers_news_do_not_undo_a_later_election(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers hear of elections one after the other: the higher leader epoch counts, unless the topic is a new one."""
    address = HostPort("127.0.0.1", 1)
    links = BrokerConnections(Topology(Upstream(bootstrap=(address,)), lambda _: None, lambda _: None))
    told: list[tuple[int, int, int]] = []

    async def tell(*_: object) -> object:
        topic_id, node_id, epoch = told.pop(0)
        row = {"partition_index": 0, "leader_id": node_id, "leader_epoch": epoch}
        topic = {"name": "orders", "topic_id": UUID(int=topic_id), "partitions": [row]}
        return as_read(response(apis.METADATA), 12, {"topics": [topic]})

    monkeypatch.setattr(links, "ask_any", tell)
    leaders, seen = Leaders(links), list[int]()
    for news in ((7, 2, 5), (7, 1, 4), (7, 3, 6), (8, 1, 0)):
        told.append(news)
        leaders.forget("orders")
        seen.append((await leaders.of("orders"))[0].node_id)
    assert seen == [2, 2, 3, 1]


async def test_an_answer_counts_if_it_was_asked_for_since_the_topic_was_forgotten_by_whatever_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clocks may tell one time for all that happens in a turn of the loop."""
    monkeypatch.setattr(leaders_of_topics, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    links = BrokerConnections(Topology(Upstream(bootstrap=(HostPort("127.0.0.1", 1),)), lambda _: None, lambda _: None))
    forgotten = False

    async def tell(*_: object) -> object:
        if forgotten:
            leaders.forget("orders")
        topic = {"name": "orders", "partitions": [{"partition_index": 0, "leader_id": 1, "leader_epoch": 0}]}
        return as_read(response(apis.METADATA), 12, {"topics": [topic]})

    monkeypatch.setattr(links, "ask_any", tell)
    leaders = Leaders(links)
    leaders.forget("orders")
    await leaders.of("orders")
    assert leaders.known("orders") is not None
    forgotten = True
    await leaders.renew("orders")
    assert leaders.known("orders") is None


async def test_leaders_are_found_without_the_broker_that_died() -> None:
    """When the leader dies, forgetting leads to the next one, with a higher epoch, by way of the living brokers."""
    with Cluster.start(brokers=3, config=QUICK_DEATH) as own:
        async with links_to(own) as links:
            leaders = Leaders(links)
            await create(links, "leaders-move", {0: [1, 2], 1: [2, 1]})
            before = await all_led(leaders, "leaders-move", 2)
            assert {q: leader.node_id for q, leader in before.items()} == {0: 1, 1: 2}
            connection = await links.to(1, "lane")
            own.brokers[0].kill()
            while (after := (await leaders.of("leaders-move")).get(0, before[0])).node_id in {1, -1}:
                leaders.forget("leaders-move")
                await asyncio.sleep(0.1)
            assert after.node_id == 2
            assert after.epoch > before[0].epoch
            assert connection.closed
