"""Brokers die, come back and hand over their partitions while a managed topic of three copies grows and shrinks."""

import itertools
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.proxy.ordering.hashing import home
from kordon.testing.broker_config import QUICK_DEATH
from kordon.testing.broker_features import DESCRIBED_PRODUCERS, GROUP_PROTOCOLS
from kordon.testing.cluster import Broker, Cluster
from kordon.testing.managed_clients import (
    CHANGE_SECONDS,
    VIRTUAL_PARTITIONS,
    Sender,
    assert_all_once_and_in_order,
    create_managed,
    read_all,
    resize,
)
from kordon.testing.managed_traffic import Traffic
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

LAYOUTS = "__kordon.layouts"
_COPIES = {"default.replication.factor": "3", "min.insync.replicas": "2", "authorizer.class.name": ""}


@pytest.fixture(scope="module")
def brokers() -> Generator[Cluster, None, None]:
    """Three brokers, of which each may die: everything has three copies."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Cluster.start(brokers=3, config=_COPIES | QUICK_DEATH) as started:
        yield started


@pytest.fixture(scope="module")
def proxies(brokers: Cluster) -> Generator[list[ProxyProcess], None, None]:
    bootstrap = brokers.bootstrap()
    with ProxyProcess.start(bootstrap) as first, ProxyProcess.start(bootstrap) as second:
        yield [first, second]


def ways(proxies: list[ProxyProcess]) -> list[str]:
    return [proxy.bootstrap for proxy in proxies]


def leads(brokers: Cluster, topic: str, partition: int = 0) -> int:
    partitions = AdminClient({"bootstrap.servers": brokers.bootstrap()}).list_topics(topic, 60).topics[topic].partitions
    return int(partitions[partition].leader)


def has_all_copies(brokers: Cluster) -> bool:
    """Whether each partition has as many copies in sync as it shall have."""
    topics = AdminClient({"bootstrap.servers": brokers.bootstrap()}).list_topics(timeout=60).topics.values()
    return all(len(each.isrs) == len(each.replicas) for topic in topics for each in topic.partitions.values())


def bring_back(brokers: Cluster, broker: Broker) -> None:
    """Starts a killed broker, and waits until it has caught up."""
    broker.start()
    wait_until("all copies are in sync", lambda: has_all_copies(brokers))


def ask_other_than(admin: AdminClient, broker: Broker) -> None:
    """Has an admin client take another broker for the controller: librdkafka would wait for a dead one for a minute.

    Brokers that use KRaft name any of them that lives, another one each time.
    """
    wait_until("another broker is named", lambda: admin.list_topics(timeout=60).controller_id != broker.node_id)


@pytest.mark.parametrize(
    "role",
    [
        "layouts",
        pytest.param("group", marks=pytest.mark.deep),
        pytest.param("transactions", marks=pytest.mark.deep),
    ],
)
def test_a_killed_broker_stops_no_growth(brokers: Cluster, proxies: list[ProxyProcess], role: str) -> None:
    """Kill -9 of whoever coordinates Kordon, right after a growth was asked for: it comes true, and traffic goes on."""
    topic = f"broker-{role}"
    admin = create_managed(proxies[0].bootstrap, topic, replicas=3)
    with Traffic(ways(proxies), topic) as traffic:
        traffic.wait_flowing()
        victim = brokers.brokers[coordinates(brokers, role) - 1]
        ask_other_than(admin, victim)
        growth = resize(admin, topic, 6)
        victim.kill()
        growth.result(CHANGE_SECONDS)
        traffic.wait_flowing()
        wait_until("the dead broker is named no more", lambda: victim.node_id not in admin.list_topics().brokers)
        shrink = resize(admin, topic, 4)
        bring_back(brokers, victim)
        shrink.result(CHANGE_SECONDS)
        brokers.elect_preferred()
        traffic.wait_flowing()
        traffic.finish()


def coordinates(brokers: Cluster, role: str) -> int:
    """The broker that keeps the layouts, the proxies' group, or the controller's transactions."""
    if role == "layouts":
        return leads(brokers, LAYOUTS)
    topic, key = ("__consumer_offsets", "kordon") if role == "group" else ("__transaction_state", "kordon.layouts")
    return leads(brokers, topic, place(brokers, topic, key))


def place(brokers: Cluster, topic: str, key: str) -> int:
    """The partition of a coordinators' topic that a group or a transactional id belongs to."""
    topics = AdminClient({"bootstrap.servers": brokers.bootstrap()}).list_topics(topic, 60).topics
    return java_hash(key) % len(topics[topic].partitions)


def java_hash(text: str) -> int:
    """String.hashCode, by which a coordinator is found (Utils.abs keeps the lower 31 bits)."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


@pytest.mark.deep
def test_a_leader_that_slept_and_leaders_that_move_neither_lose_nor_double(
    brokers: Cluster, proxies: list[ProxyProcess]
) -> None:
    """SIGSTOP of a broker until others lead its partitions, all handed back to it during the next change."""
    topic = "leaders-move"
    admin = create_managed(proxies[0].bootstrap, topic, replicas=3)
    with Traffic(ways(proxies), topic) as traffic:
        traffic.wait_flowing()
        sleeper = brokers.brokers[leads(brokers, topic) - 1]
        ask_other_than(admin, sleeper)
        growth = resize(admin, topic, 6)
        sleeper.pause()
        try:
            growth.result(CHANGE_SECONDS)
            traffic.wait_flowing()
        finally:
            sleeper.resume()
        wait_until("all copies are in sync", lambda: has_all_copies(brokers))
        shrink = resize(admin, topic, 3)
        brokers.elect_preferred()
        shrink.result(CHANGE_SECONDS)
        traffic.wait_flowing()
        traffic.finish()


@pytest.mark.deep
def test_coordinators_that_move_stop_no_change(brokers: Cluster, proxies: list[ProxyProcess]) -> None:
    """Those of the proxies' group, of the controller's transactions and of the readers go to other brokers.

    The topic grows and shrinks meanwhile, again and again.
    """
    topic = "coordinators-move"
    admin = create_managed(proxies[0].bootstrap, topic, replicas=3)
    keys = [("__transaction_state", "kordon.layouts"), ("__consumer_offsets", "kordon")]
    keys += [("__consumer_offsets", f"{topic}-{protocol}") for protocol in GROUP_PROTOCOLS]
    with Traffic(ways(proxies), topic) as traffic, ThreadPoolExecutor(1) as beside:
        traffic.wait_flowing()
        moved = beside.submit(
            move_leaders, brokers, {(internal, place(brokers, internal, key)) for internal, key in keys}
        )
        for partitions in itertools.cycle((6, 3)):
            resize(admin, topic, partitions).result(CHANGE_SECONDS)
            if moved.done():
                break
        moved.result()
        traffic.wait_flowing()
        traffic.finish()


def move_leaders(brokers: Cluster, partitions: set[tuple[str, int]]) -> None:
    """Makes another broker the leader of each of these, which all brokers have copies of."""
    to = {each: leads(brokers, *each) % 3 + 1 for each in partitions}
    plan = [
        {"topic": topic, "partition": number, "replicas": [leader, *({1, 2, 3} - {leader})]}
        for (topic, number), leader in to.items()
    ]
    file = brokers.folder / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    at = ("--bootstrap-server", brokers.bootstrap())
    brokers.tool("kafka-reassign-partitions", *at, "--reassignment-json-file", str(file), "--execute")

    def lead() -> bool:
        brokers.elect_preferred()  # again, as a copy that is not in sync yet is passed over
        return all(leads(brokers, *each) == leader for each, leader in to.items())

    wait_until("others lead", lead)


def test_writes_wait_while_copies_are_missing(brokers: Cluster, proxies: list[ProxyProcess]) -> None:
    """NOT_ENOUGH_REPLICAS: producers try until the copies are there; nothing is lost or doubled, nor by a growth."""
    topic = "copies-missing"
    admin = create_managed(proxies[0].bootstrap, topic, replicas=3, configs={"min.insync.replicas": "3"})
    with Traffic(ways(proxies), topic) as traffic:
        traffic.wait_flowing()
        victim = brokers.brokers[leads(brokers, LAYOUTS) % 3]
        ask_other_than(admin, victim)
        victim.kill()
        growth = resize(admin, topic, 6)
        traffic.wait_still(3.0)
        bring_back(brokers, victim)
        growth.result(CHANGE_SECONDS)
        traffic.wait_flowing()
        traffic.finish()


def test_a_partition_whose_copies_are_missing_holds_up_no_other(brokers: Cluster, proxies: list[ProxyProcess]) -> None:
    """Its writes are held for a moment and then refused, as by a broker; others, on the same connections, go on.

    First the broker keeps back its answers, as the copy that sleeps still counts as in sync; then it refuses at once.
    """
    topic, at = "one-copy-missing", proxies[0].bootstrap
    admin = AdminClient({"bootstrap.servers": at})
    copies = [[1, 2], [1, 3], [3, 1]]
    config = {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)}
    wanted = NewTopic(topic, 3, replica_assignment=copies, config=config)
    admin.create_topics([wanted])[topic].result(60)
    virtual = {q: [v for v in range(VIRTUAL_PARTITIONS) if home(v, 3, 3, VIRTUAL_PARTITIONS) == q] for q in range(3)}
    short, whole = Sender(at, topic, virtual[0]), Sender(at, topic, virtual[1] + virtual[2])
    for sender in (short, whole):
        sender.send_for(0.2)
        sender.finish()
    brokers.brokers[1].pause()
    try:
        short.send_for(0.2)
        whole.send_for(0.2)
        whole.finish()
        wait_until("one copy is left", lambda: in_sync(brokers, topic) == {1})
        assert error_of_a_write(at, topic, virtual[0][0]) == "NOT_ENOUGH_REPLICAS"
        short.send_for(0.2)
        acknowledged = len(short.acknowledged)
        whole.send_for(0.2)
        whole.finish()
        short.send_for(0.2)
        assert len(short.acknowledged) == acknowledged
    finally:
        brokers.brokers[1].resume()
    short.finish()
    got = read_all(at, topic, short.sent + whole.sent)
    for sender in (short, whole):
        keys = {key for key, _ in sender.acknowledged}
        assert_all_once_and_in_order(sender, [each for each in got if each[0] in keys])
    assert len(got) == short.sent + whole.sent
    assert proxies[0].metric("kordon_managed_stalls_total") > 0
    wait_until("all copies are in sync", lambda: has_all_copies(brokers))


def in_sync(brokers: Cluster, topic: str) -> set[int]:
    """The brokers whose copies of a topic's first partition are in sync."""
    found = AdminClient({"bootstrap.servers": brokers.bootstrap()}).list_topics(topic, 60).topics[topic]
    return set(found.partitions[0].isrs)


def error_of_a_write(bootstrap: str, topic: str, partition: int) -> str:
    """Writes once, without another try; returns the name of the error."""
    outcomes: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0})
    producer.produce(
        topic, "once", partition=partition, on_delivery=lambda error, _: outcomes.append(error.name() if error else "")
    )
    assert producer.flush(90) == 0
    return outcomes[0]
