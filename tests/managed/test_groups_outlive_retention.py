"""What groups have committed on managed topics expires as on others: not while somebody reads it (FACE-COMMITS)."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kordon.testing.broker_features import GROUP_PROTOCOLS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, committed, create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.deep, pytest.mark.timeout(600)]

TOPIC, BUSY = "kept", 0
PATIENCE = 240


@pytest.fixture
def proxy() -> Iterator[ProxyProcess]:
    """A proxy in front of a broker that keeps commits for a minute, the least that there is."""
    config = {
        "authorizer.class.name": "",
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "1000",
    }
    with Cluster.start(config=config) as cluster, ProxyProcess.start(cluster.bootstrap()) as started:
        yield started


def join(bootstrap: str, group: str, protocol: str) -> Consumer:
    """Reads a record of each virtual partition as a group, and commits them."""
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    consumer.subscribe([TOPIC])
    read = 0
    while read < VIRTUAL_PARTITIONS:
        messages = consumer.consume(VIRTUAL_PARTITIONS, 60)
        assert messages
        read += len(messages)
    consumer.commit(asynchronous=False)
    return consumer


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_commits_of_quiet_partitions_live_as_long_as_the_group(proxy: ProxyProcess, protocol: str) -> None:
    """A group that goes on with one partition keeps its place in the others; one that has left loses all."""
    admin = create_managed(proxy.bootstrap, TOPIC)
    producer = Producer({"bootstrap.servers": proxy.bootstrap})
    for v in range(VIRTUAL_PARTITIONS):
        producer.produce(TOPIC, b"value", partition=v)
    assert producer.flush(60) == 0
    living = join(proxy.bootstrap, "living", protocol)
    join(proxy.bootstrap, "left", protocol).close()
    resize(admin, TOPIC, 6).result(60)

    def goes_on_until(holds: Callable[[], bool]) -> bool:
        producer.produce(TOPIC, b"value", partition=BUSY)
        for message in living.consume(10, 1.0):
            offset = TopicPartition(TOPIC, message.partition() or 0, (message.offset() or 0) + 1)
            living.commit(offsets=[offset], asynchronous=False)
        return holds()

    assert len(committed(proxy.bootstrap, "left")) == VIRTUAL_PARTITIONS
    wait_until("commits expire", lambda: goes_on_until(lambda: committed(proxy.bootstrap, "left") == {}), PATIENCE)
    assert len(committed(proxy.bootstrap, "living")) == VIRTUAL_PARTITIONS
    living.close()
