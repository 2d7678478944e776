"""A managed topic grows and shrinks under real clients, through two proxies in front of a real broker."""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    NewPartitions,
    NewTopic,
)

from kordon.testing.cluster import Cluster
from kordon.testing.proxy_process import ProxyProcess

V = 12
KEYS = 50


@pytest.fixture(scope="module")
def proxies(open_cluster: Cluster) -> Generator[list[ProxyProcess], None, None]:
    """Two proxies in front of one broker without ACLs."""
    bootstrap = open_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap) as first, ProxyProcess.start(bootstrap) as second:
        yield [first, second]


@dataclass
class Sender:
    """An idempotent librdkafka producer that numbers its records by key, and keeps what was acknowledged."""

    bootstrap: str
    topic: str
    sent: int = 0
    acknowledged: list[tuple[bytes, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    longest_pause: float = 0.0

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._last = time.monotonic()

    def send_for(self, seconds: float, until: Future[None] | None = None) -> None:
        """Sends without a break for so long, and until something else is done."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or (until is not None and not until.done() and time.monotonic() < end + 60):
            for _ in range(20):
                key = f"key-{self.sent % KEYS}"
                self._producer.produce(self.topic, key=key, value=str(self.sent), on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0.01)

    def finish(self) -> None:
        """Waits for the last acknowledgement."""
        assert self._producer.flush(60) == 0
        assert self.errors == []
        assert len(self.acknowledged) == self.sent

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._last)
        self._last = now
        self.acknowledged.append((message.key(), int(message.value())))


def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, int]]:
    """Reads a topic from its beginning with a new group, until `count` records are there and nothing more comes."""
    config = {"bootstrap.servers": bootstrap, "group.id": f"group-{time.time_ns()}", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe([topic])
    got: list[tuple[bytes, int]] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        messages = consumer.consume(1000, 1.0)
        if not messages and len(got) >= count:
            break
        for message in messages:
            assert message.error() is None, message.error()
            got.append((message.key() or b"", int(message.value() or b"")))
    consumer.close()
    return got


def create(bootstrap: str, topic: str) -> AdminClient:
    """Creates a topic with 3 partitions and 12 virtual ones, as any admin client does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"kordon.virtual.partitions": str(V)}
    admin.create_topics([NewTopic(topic, 3, 1, config=config)])[topic].result(60)
    return admin


def test_no_key_loses_its_order_while_a_topic_grows_and_shrinks(proxies: list[ProxyProcess]) -> None:
    """3 -> 4 -> 6 -> 12 -> 5 -> 3 under an idempotent producer: all read once, each key in order, no error seen."""
    admin = create(proxies[0].bootstrap, "orders")
    sender = Sender(proxies[1].bootstrap, "orders")
    sender.send_for(1.0)
    for count in (4, 6, 12, 5, 3):
        done = admin.create_partitions([NewPartitions("orders", count)])["orders"]
        sender.send_for(0.5, done)
        done.result(60)
    sender.finish()

    got = read_all(proxies[0].bootstrap, "orders", sender.sent)

    assert len(got) == len(set(got)) == sender.sent
    for key in {key for key, _ in got}:
        numbers = [number for each, number in got if each == key]
        assert numbers == sorted(numbers)


def test_clients_see_virtual_partitions_and_nothing_of_kordons_own(proxies: list[ProxyProcess]) -> None:
    """Every client sees the same 12 partitions whatever changes underneath; faces and layouts are hidden."""
    admin = create(proxies[0].bootstrap, "seen")
    for count in (3, 5):
        if count != 3:
            admin.create_partitions([NewPartitions("seen", count)])["seen"].result(60)
        for proxy in proxies:
            topics = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=30).topics
            assert len(topics["seen"].partitions) == V
            assert not [name for name in topics if name.startswith("__kordon")]


@pytest.mark.parametrize(("count", "says"), [(2, "the least there can be"), (13, "some would stay empty")])
def test_impossible_counts_are_refused_with_what_would_work(proxies: list[ProxyProcess], count: int, says: str) -> None:
    """Kafka's own error code, and a message that helps."""
    topic = f"impossible-{count}"
    admin = create(proxies[0].bootstrap, topic)
    error = admin.create_partitions([NewPartitions(topic, count)])[topic].exception(60)
    assert "INVALID_PARTITIONS" in str(error)
    assert says in str(error)
