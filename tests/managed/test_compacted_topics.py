"""Compacted managed topics with their janitor, in front of a real broker whose cleaner is in a hurry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kordon.proxy import apis
from kordon.proxy.ordering.identity import tag
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, resize
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.steps import wait_until

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

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
    got = read_from_0(proxies[1].bootstrap, "prices")
    assert Counter(each for each in got if each[1] is not None) == Counter(writer.truth.items())
    assert {key for key, value in got if value is None} <= writer.deleted
    writer.close()


def test_a_value_that_a_hidden_record_stands_behind_comes_back(brokers: Cluster, proxies: list[ProxyProcess]) -> None:
    """Tombstones that landed late: no reader sees them, but brokers compact by them. What they take is repeated."""
    configs = {**HASTY, "min.compaction.lag.ms": "600000"}
    create_managed(proxies[0].bootstrap, "quotes", configs=configs)
    writer = Writer(proxies[1].bootstrap, "quotes")
    writer.put(range(30), b"first")
    shadowed = sorted(key for key, _ in read_from_0(brokers.bootstrap(), "quotes", partitions=1))
    assert shadowed
    land_strays(brokers, "quotes", shadowed)

    def are_back() -> bool:
        got = Counter(key for key, _ in read_from_0(proxies[0].bootstrap, "quotes"))
        return all(got[key] == 1 + (key in shadowed) for key in writer.truth)

    wait_until("values are written again", are_back, PATIENCE_SECONDS)
    configure(brokers.bootstrap(), "quotes", {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100"})

    def is_compacted() -> bool:
        writer.roll()
        left = read_from_0(brokers.bootstrap(), "quotes", partitions=3)
        return Counter(left) == Counter(writer.truth.items())

    wait_until("only the latest values are left", is_compacted, PATIENCE_SECONDS)
    assert Counter(read_from_0(proxies[1].bootstrap, "quotes")) == Counter(writer.truth.items())
    writer.close()


def test_a_managed_topic_is_compacted_only_with_its_janitor(proxies: list[ProxyProcess]) -> None:
    """Compaction waits for the janitor to be switched on, and the janitor stays as long as the topic is compacted."""
    bootstrap = proxies[0].bootstrap
    create_managed(bootstrap, "rates")
    with pytest.raises(KafkaException, match=r"kordon\.janitor=true"):
        configure(bootstrap, "rates", {"cleanup.policy": "compact"})
    configure(bootstrap, "rates", {"kordon.janitor": "true"})
    configure(bootstrap, "rates", {"cleanup.policy": "compact"})
    with pytest.raises(KafkaException, match="is compacted"):
        configure(bootstrap, "rates", {"kordon.janitor": "false"})
    configure(bootstrap, "rates", {"cleanup.policy": "delete"})
    configure(bootstrap, "rates", {"kordon.janitor": "false"})


def land_strays(brokers: Cluster, topic: str, keys: list[bytes]) -> None:
    """Has tombstones land on partition 0 with an identity that nobody has there: as those of a proxy that woke late."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, tag(0, 7, 5), 0, 0, 16_000_000)
    for offset, key in enumerate(keys):
        builder.append(offset, timestamp=time.time_ns() // 1_000_000, key=key, value=None, headers=[])
    row = {"name": topic, "partition_data": [{"index": 0, "records": bytes(builder.build())}]}
    with PlainConnection(brokers.bootstrap()) as broker:
        written = broker.ask(apis.PRODUCE, 9, {"acks": -1, "timeout_ms": 9_000, "topic_data": [row]})
        assert written.responses[0].partition_responses[0].error_code == 0


def configure(bootstrap: str, topic: str, values: dict[str, str]) -> None:
    """Sets configs of a topic."""
    set_ = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in values.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)
