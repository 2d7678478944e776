"""A physical log gets shorter than the layout that stands on it, by a real unclean election (BEYOND-LOSS)."""

from collections.abc import Generator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.proxy.ordering.hashing import home
from kordon.testing.broker_config import UNCLEAN_ELECTIONS
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.deep, pytest.mark.timeout(600)]

TOPIC: Final = "shortened"
V_COUNT: Final = 8
ROUND: Final = 200
"""Records that are written between two events."""


@pytest.fixture(scope="module")
def brokers() -> Generator[Cluster, None, None]:
    """Three brokers, of which two may be gone at the same time for a moment."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Cluster.start(brokers=3, config=UNCLEAN_ELECTIONS) as started:
        yield started


class Writer:
    """Writes numbers through Kordon, and keeps where they were written: virtual partition and offset."""

    def __init__(self, bootstrap: str) -> None:
        self.placed: dict[int, tuple[int, int]] = {}
        self._bootstrap = bootstrap
        self._next = 0

    def write(self) -> list[int]:
        """Writes a round by an idempotent producer; returns its numbers, all acknowledged."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        numbers = list(range(self._next, self._next + ROUND))
        self._next += ROUND
        for number in numbers:
            key = f"key-{number % 40}"
            producer.produce(TOPIC, key=key, value=str(number), on_delivery=self._delivered)
            producer.poll(0)
        assert producer.flush(90) == 0
        assert set(numbers) <= self.placed.keys()
        return numbers

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.placed[int(message.value())] = (message.partition(), message.offset())


class Reader:
    """A consumer of a group that stays, and what it has got: number, virtual partition, offset."""

    def __init__(self, bootstrap: str, group: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        self.got: list[tuple[int, int, int]] = []
        self._consumer = Consumer(config)
        self._consumer.subscribe([TOPIC])

    def read_until(self, numbers: list[int]) -> None:
        """Reads until all of these have come."""

        def has_all() -> bool:
            for message in self._consumer.consume(500, 1.0):
                if message.error() is None:
                    self.got.append((int(message.value() or b""), message.partition() or 0, message.offset() or 0))
            return set(numbers) <= {number for number, _, _ in self.got}

        wait_until(f"{len(numbers)} records are read", has_all, 90)

    def close(self) -> None:
        self._consumer.close()


def in_sync(brokers: Cluster, partition: int) -> set[int]:
    """The copies of a physical partition that are in sync."""
    found = AdminClient({"bootstrap.servers": brokers.bootstrap()}).list_topics(TOPIC, 30).topics[TOPIC]
    return set(found.partitions[partition].isrs)


def losses(proxy: ProxyProcess) -> list[str]:
    """What Kordon says was lost of the topic."""
    findings = proxy.topics()["findings"]
    return [each["text"] for each in findings if each["kind"] == "records_lost" and each["topic"] == TOPIC]


def test_a_topic_works_on_behind_what_an_unclean_election_took(brokers: Cluster) -> None:
    """The stale copy is elected: what it never had is lost and told, all else is read, and offsets do not fall."""
    with ProxyProcess.start(brokers.bootstrap()) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        config = {"kordon.virtual.partitions": str(V_COUNT), "unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=config)])[TOPIC].result(60)
        writer, reader = Writer(proxy.bootstrap), Reader(proxy.bootstrap, "stays")
        copied = writer.write()
        wait_until("both copies are in sync", lambda: in_sync(brokers, 0) == {1, 2}, 60)

        brokers.brokers[1].kill()
        wait_until("one copy is stale", lambda: in_sync(brokers, 0) == {1}, 60)
        # librdkafka takes any broker for the controller, and would wait for a dead one for a minute
        wait_until("a living broker is named", lambda: admin.list_topics(timeout=60).controller_id != 2, 60)
        before_cut = writer.write()
        copies = [NewPartitions(TOPIC, 2, replica_assignment=[[3, 1]])]  # what the growth takes: nothing is lost there
        direct = AdminClient({"bootstrap.servers": brokers.bootstrap()})
        direct.create_partitions(copies)[TOPIC].result(60)
        resize(admin, TOPIC, 2).result(60)
        behind_cut = writer.write()
        reader.read_until(copied + before_cut + behind_cut)
        told = {v: max(offset for _, each, offset in reader.got if each == v) for _, v, _ in reader.got}

        brokers.brokers[0].kill()
        brokers.brokers[1].start()
        wait_until("the stale copy leads", lambda: brokers.leader(TOPIC, 0) == 2, 90)
        wait_until("the loss is told", lambda: losses(proxy), 60)
        after = writer.write()
        reader.read_until(after)
        placed = [writer.placed[number] for number in after]
        assert [(v, offset) for v, offset in placed if offset <= told[v]] == [], "offsets fell"

        kept = [number for number in behind_cut if home(writer.placed[number][0], 1, 2, V_COUNT) == 1]
        fresh = Reader(proxy.bootstrap, "fresh")
        fresh.read_until(copied + kept + after)
        assert sorted(number for number, _, _ in fresh.got) == sorted(copied + kept + after)
        for v in range(V_COUNT):
            numbers = [number for number, each, _ in fresh.got if each == v]
            assert numbers == sorted(numbers), f"{v} is out of order"

        brokers.brokers[0].start()
        wait_until("all copies are in sync", lambda: in_sync(brokers, 0) == {1, 2}, 90)
        resize(admin, TOPIC, 4).result(90)
        last = writer.write()
        reader.read_until(last)
        fresh.read_until(last)
        fresh.close()
        reader.close()
