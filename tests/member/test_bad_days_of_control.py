"""What control lives through: a broker that dies and comes back, and a cluster that lets nobody in without a log-in."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group import About
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.member.membership import Membership, new_incarnation
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_writer import LayoutsWriter
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import topology_over_tls
from kordon.testing.waiting import until

pytestmark = pytest.mark.broker

SECONDS = 60.0


async def test_control_goes_on_when_the_broker_is_back(worker_of: Callable[[Cluster], Awaitable[Brokers]]) -> None:
    """Nothing is lost and nothing has to be started again: layouts, group and lease come back with the broker."""
    with Cluster.start(brokers=1) as cluster:
        brokers = await worker_of(cluster)
        records: list[Record] = []
        log = LayoutsLog(brokers)
        member = Membership(brokers, About(new_incarnation(), "a", None, "test"), lambda: log.position)
        renewals: list[float] = []
        heard = SimpleNamespace(on_generation=lambda _: None, on_renewed=renewals.append, on_lost=lambda: None)
        controller = LayoutsWriter(brokers)
        await log.create()
        running = [asyncio.ensure_future(log.follow(records.append)), asyncio.ensure_future(member.run(heard))]
        await controller.open()
        await controller.commit([NewRecord("orders", b"1")])
        await log.read_to_end()
        await until("a lease", lambda: bool(renewals))

        cluster.brokers[0].kill()
        with pytest.raises(UpstreamUnavailable):
            await log.read_to_end(timeout=1)
        with pytest.raises(UpstreamUnavailable):
            await controller.commit([NewRecord("orders", b"never")], timeout=1)
        cluster.brokers[0].start()

        await controller.open()
        await controller.commit([NewRecord("orders", b"2")])
        await log.read_to_end(SECONDS)
        assert [record.value for record in records] == [b"1", b"2"]
        renewed = len(renewals)
        await until("another lease", lambda: len(renewals) > renewed)
        assert await member.confirm()
        await member.stop()
        await controller.close()
        running[0].cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_control_logs_in_and_goes_on_beyond_the_end_of_a_session(secure_cluster: Cluster) -> None:
    """Over TLS and SASL layouts are written and read, longer than the 8 seconds that a session lasts here."""
    links = BrokerConnections(await topology_over_tls(secure_cluster, "alice"))
    brokers = Brokers(links)
    log, records = LayoutsLog(brokers, "secure-layouts"), list[Record]()
    await log.create()
    following = asyncio.ensure_future(log.follow(records.append))
    controller = LayoutsWriter(brokers, "secure-layouts", "secure-layouts")
    await controller.open()
    deadline = asyncio.get_running_loop().time() + 10
    number = 0
    while asyncio.get_running_loop().time() < deadline:
        await controller.commit([NewRecord("orders", b"%d" % number)])
        await log.read_to_end()
        number += 1
        assert [record.value for record in records] == [b"%d" % each for each in range(number)]
        await asyncio.sleep(0.5)
    assert (await TopicsAdmin(brokers).ends.snapshot("secure-layouts", 0)).is_cut
    await controller.close()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await links.close()
