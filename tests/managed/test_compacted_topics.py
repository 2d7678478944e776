"""Compacted managed topics with their janitor, in front of a real broker whose cleaner is in a hurry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.steps import wait_until

PATIENCE_SECONDS = 90
HASTY = {
    "cleanup.policy": "compact",
    "kordon.janitor": "true",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "100",
}
"""Topic configs by which brokers compact at once, and forget tombstones at once."""


@pytest.fixture(scope="module")
def brokers() -> Generator[Cluster, None, None]:
    """One broker that looks for something to compact all the time."""
    with Cluster.start(config={"authorizer.class.name": "", "log.cleaner.backoff.ms": "100"}) as started:
        yield started


@pytest.fixture(scope="module")
def proxies(brokers: Cluster) -> Generator[list[ProxyProcess], None, None]:
    """Two proxies that let topics be compacted at once."""
    config = {"ordering": {"janitor_lag_ms": 0}}
    bootstrap = brokers.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, config=config) as first, ProxyProcess.start(bootstrap, config=config) as second:
        yield [first, second]


class Writer:
    """Writes keys and deletes them; keeps what must be there."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.truth: dict[bytes, bytes] = {}
        self.deleted: set[bytes] = set()
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._rolls = 0

    def put(self, numbers: range, value: bytes | None) -> None:
        """Gives keys a value, or none; returns when that is acknowledged."""
        for number in numbers:
            key = b"key-%d" % number
            self._producer.produce(self._topic, value, key)
            self.truth.pop(key, None)
            if value is None:
                self.deleted.add(key)
            else:
                self.truth[key] = value
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def close(self) -> None:
        """Ends the client, which else goes on dialling when its proxy has gone."""
        self._producer.close()

    def roll(self) -> None:
        """Writes something to all partitions, so that brokers begin another file and compact those before."""
        self._rolls += 1
        for v in range(VIRTUAL_PARTITIONS):
            self._producer.produce(self._topic, b"%d" % self._rolls, b"roll-%d" % v, partition=v)
        assert self._producer.flush(PATIENCE_SECONDS) == 0


def read_from_0(bootstrap: str, topic: str, partitions: int = VIRTUAL_PARTITIONS) -> list[tuple[bytes, bytes | None]]:
    """Reads all there is of a topic, partition by partition to its end."""
    config = {"bootstrap.servers": bootstrap, "group.id": f"group-{time.time_ns()}", "enable.partition.eof": True}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, q, 0) for q in range(partitions)])
    got: list[tuple[bytes, bytes | None]] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, f"{sorted(at_end)} of {partitions} partitions read to their end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            at_end.add(message.partition() or 0)
        elif not (key := message.key() or b"").startswith((b"roll-", b"__kordon")):
            got.append((key, message.value()))
    consumer.close()
    return got


def test_a_compacted_topic_read_from_0_gives_the_latest_value_of_each_key(
    brokers: Cluster, proxies: list[ProxyProcess]
) -> None:
    """Growths, shrinks, deletes, compaction all the while: in the end nothing else is left, and no key comes back."""
    admin = create_managed(proxies[0].bootstrap, "prices", configs=HASTY)
    writer = Writer(proxies[1].bootstrap, "prices")
    writer.put(range(60), b"first")
    resize(admin, "prices", 6).result(PATIENCE_SECONDS)
    writer.put(range(40), b"second")
    writer.put(range(0, 40, 4), None)
    resize(admin, "prices", 4).result(PATIENCE_SECONDS)
    writer.put(range(1, 60, 3), b"third")
    writer.put(range(1, 60, 6), None)
    resize(admin, "prices", 12).result(PATIENCE_SECONDS)
    writer.put(range(2, 60, 7), b"fourth")

    got = read_from_0(proxies[0].bootstrap, "prices")
    assert dict(got).items() >= writer.truth.items()
    assert {key for key, value in got if value is None} <= writer.deleted  # a marker would be one of another key

    def is_compacted() -> bool:
        writer.roll()
        left = [each for each in read_from_0(brokers.bootstrap(), "prices") if each[1] is not None]
        return Counter(left) == Counter(writer.truth.items())

    wait_until("only the latest values are left", is_compacted, PATIENCE_SECONDS)
    assert Counter(read_from_0(proxies[1].bootstrap, "prices")) == Counter(writer.truth.items())
    writer.close()
