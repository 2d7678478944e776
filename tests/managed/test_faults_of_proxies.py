"""Proxies are cut off, sleep and die all together across a fence, and the only broker dies under them."""

from collections.abc import Generator
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing import short_leases
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.change_steps import ChangeSteps
from kordon.testing.cluster import Cluster
from kordon.testing.cuttable_link import CuttableLink
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, manage, read_all, resize
from kordon.testing.managed_traffic import Traffic
from kordon.testing.ports import free_ports
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def linked() -> Generator[tuple[Cluster, CuttableLink, str], None, None]:
    """A broker, a link to it that can be cut, and the address of the link."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    port = free_ports(1)
    with (
        Cluster.start(config={"authorizer.class.name": ""}, extra_listeners={"LINK": port}) as cluster,
        CuttableLink(port, cluster.brokers[0].port("LINK")) as link,
    ):
        yield cluster, link, f"127.0.0.1:{port}"


def has_partitions(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether a managed topic has so many (U); False, too, while nobody can say it."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        configs = admin.describe_configs([resource], request_timeout=30)[resource].result(60)
    except KafkaException:
        return False
    return int(configs["kordon.undeleted.partition.count"].value) == partitions


def test_what_was_under_way_when_a_proxy_was_cut_off_arrives_behind_the_fence_and_counts_for_nothing(
    linked: tuple[Cluster, CuttableLink, str],
) -> None:
    """All clients use the proxy that is cut off; the other one grows the topic once that one's lease has run out.

    When the cut is healed, writes sent before it reach brokers behind the cut of their partitions: readers never see
    them, and their producers send them again. Then the answers to writes are kept back across a shrink.
    """
    cluster, link, address = linked
    cut_off_across_a_growth_and_a_shrink(cluster, [link], address, "cut-off")


@pytest.mark.deep
def test_the_same_holds_when_a_proxy_is_cut_off_from_three_brokers() -> None:
    """From all of them, coordinators and leaders among them, while another proxy reaches them all."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    port = free_ports(3)
    config = {"authorizer.class.name": "", "default.replication.factor": "3", "min.insync.replicas": "2"}
    with Cluster.start(brokers=3, config=config, extra_listeners={"LINK": port}) as cluster, ExitStack() as stack:
        ports = [broker.port("LINK") for broker in cluster.brokers]
        links = [stack.enter_context(CuttableLink(port + n, target)) for n, target in enumerate(ports)]
        cut_off_across_a_growth_and_a_shrink(cluster, links, f"127.0.0.1:{port}", "cut-off-from-three", replicas=3)


def cut_off_across_a_growth_and_a_shrink(
    cluster: Cluster, links: list[CuttableLink], address: str, topic: str, *, replicas: int = 1
) -> None:
    """Cuts the proxy that all clients use off, and sees that nothing is lost, doubled or out of order.

    Args:
        cluster: Which another proxy reaches at all times.
        links: One to each broker.
        address: Of the first link.
        topic: A name that is free.
        replicas: Copies of each of its partitions.
    """
    with (
        ProxyProcess.start(cluster.bootstrap(), program=short_leases.PROGRAM) as near,
        ProxyProcess.start(address, program=short_leases.PROGRAM) as far,
    ):
        admin = create_managed(near.bootstrap, topic, replicas=replicas)
        with Traffic([far.bootstrap], topic) as traffic:
            traffic.wait_flowing()
            with ExitStack() as cut:
                for link in links:
                    cut.enter_context(link.cut_requests())
                resize(admin, topic, 6).result(CHANGE_SECONDS)
            traffic.wait_flowing()
            with ExitStack() as cut:
                for link in links:
                    cut.enter_context(link.cut_answers())
                shrink = resize(admin, topic, 4)
                traffic.wait_still(1.0)
            shrink.result(CHANGE_SECONDS)
            traffic.wait_flowing()
            shown = traffic.finish()
    written = read_all(cluster.bootstrap(), topic, shown)
    assert len(written) > shown, "nothing has arrived behind a cut"


@pytest.mark.deep
def test_nobody_who_has_seen_more_partitions_sees_less_again(linked: tuple[Cluster, CuttableLink, str]) -> None:
    """A client asks two proxies in turn; one comes to know a second late that the topic has been taken over."""
    cluster, link, address = linked
    topic = "seen-by-turns"
    link.late = f"topic/{topic}".encode()
    with ProxyProcess.start(cluster.bootstrap()) as near:
        create_managed(near.bootstrap, "managed-before")
        wait_until("it leads, and reads nothing late by that", near.leads, 60)
        with ProxyProcess.start(address) as far:
            asked = [AdminClient({"bootstrap.servers": proxy.bootstrap}) for proxy in (near, far)]
            asked[0].create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
            producer = Producer({"bootstrap.servers": near.bootstrap})
            producer.produce(topic, "a record")
            assert producer.flush(60) == 0
            wisher = AdminClient({"bootstrap.servers": near.bootstrap})
            done = manage(wisher, topic)
            seen: list[int] = []
            while not done.done() or seen[-1:] != [12]:
                found = [each.list_topics(topic, timeout=60).topics[topic] for each in asked]
                seen += [len(each.partitions) for each in found if each.error is None]
            done.result(60)
    link.late = b""
    assert seen[0] == 3, "all was done before anybody looked"
    assert seen == sorted(seen)


@pytest.mark.deep
@pytest.mark.parametrize("role", ["controller", "follower"])
@pytest.mark.parametrize("moment", ["before", "at"])
def test_a_proxy_that_sleeps_across_a_fence_wakes_to_another_layout(
    linked: tuple[Cluster, CuttableLink, str], role: str, moment: str
) -> None:
    """SIGSTOP of the proxy that all clients use, before a growth is asked for or at its fence, until it is done."""
    cluster, _, _ = linked
    topic = f"slept-{role}-{moment}"
    with ProxyProcess.start(cluster.bootstrap()) as first, ProxyProcess.start(cluster.bootstrap()) as second:
        create_managed(first.bootstrap, topic)
        wait_until("one leads", lambda: first.leads() or second.leads(), 60)
        sleeper, other = (first, second) if first.leads() == (role == "controller") else (second, first)
        admin = AdminClient({"bootstrap.servers": other.bootstrap})
        with ChangeSteps(cluster.bootstrap()) as steps, Traffic([sleeper.bootstrap], topic) as traffic:
            traffic.wait_flowing()
            if moment == "before":
                with sleeper.asleep():
                    resize(admin, topic, 6).result(CHANGE_SECONDS)
            else:
                growth = resize(admin, topic, 6)
                steps.wait_for("fence")
                with sleeper.asleep():
                    growth.result(CHANGE_SECONDS)
            traffic.wait_flowing()
            resize(admin, topic, 3).result(CHANGE_SECONDS)
            traffic.wait_flowing()
            traffic.finish()


@pytest.mark.deep
@pytest.mark.parametrize("step", ["fence", "image"])
def test_proxies_that_die_all_together_during_a_change_end_it_when_they_are_back(
    linked: tuple[Cluster, CuttableLink, str], step: str
) -> None:
    """Kill -9 of every proxy: the change that nobody was left for comes true, or can be asked for again."""
    cluster, _, _ = linked
    topic = f"all-killed-at-{step}"
    with ProxyProcess.start(cluster.bootstrap()) as first, ProxyProcess.start(cluster.bootstrap()) as second:
        admin = create_managed(first.bootstrap, topic)
        with (
            ChangeSteps(cluster.bootstrap()) as steps,
            Traffic([first.bootstrap, second.bootstrap], topic) as traffic,
        ):
            traffic.wait_flowing()
            resize(admin, topic, 6)
            steps.wait_for(step)
            for proxy in (first, second):
                proxy.kill()
            for proxy in (first, second):
                proxy.start_again()
            wait_until("the growth has come true", lambda: has_partitions(admin, topic, 6), 90)
            traffic.wait_flowing()
            resize(admin, topic, 3).result(CHANGE_SECONDS)
            traffic.wait_flowing()
            traffic.finish()


@pytest.mark.deep
def test_the_only_broker_dies_during_a_growth_and_comes_back(linked: tuple[Cluster, CuttableLink, str]) -> None:
    """Kill -9 of it right after a growth was asked for: traffic, layouts, leases and the growth go on with it."""
    cluster, _, _ = linked
    with ProxyProcess.start(cluster.bootstrap()) as proxy:
        admin = create_managed(proxy.bootstrap, "broker-back")
        with ChangeSteps(cluster.bootstrap()) as steps, Traffic([proxy.bootstrap], "broker-back") as traffic:
            traffic.wait_flowing()
            resize(admin, "broker-back", 6)
            steps.wait_for("fence")
            cluster.brokers[0].kill()
            cluster.brokers[0].start()
            wait_until("the growth has come true", lambda: has_partitions(admin, "broker-back", 6), 90)
            traffic.wait_flowing()
            resize(admin, "broker-back", 3).result(CHANGE_SECONDS)
            traffic.wait_flowing()
            traffic.finish()
