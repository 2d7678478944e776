"""A log gets shorter by a real unclean election while its topic is taken over (BEYOND-LOSS, TAKEOVER-SHARES)."""

from collections.abc import Generator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.proxy.ordering.hashing import home
from kordon.proxy.ordering.takeover import NEAR_RECORDS
from kordon.testing.broker_config import UNCLEAN_ELECTIONS
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, manage, resize, set_configs
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.deep, pytest.mark.timeout(600)]

SHORT: Final = 0
"""The partition whose log gets shorter; its copies are on brokers 1 and 2."""
WHOLE: Final = 1
N: Final = 3
FILLER: Final = -1
"""What records without a key hold."""
KEYS: Final = 40
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
    """Writes numbers, and keeps the virtual partition of each."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._partitions: dict[int, int] = {}
        self._bootstrap, self._topic = bootstrap, topic
        self._next = 0

    def write(self, count: int = ROUND, only_in: int | None = None) -> list[int]:
        """Writes a round by an idempotent producer; returns its numbers, all acknowledged.

        Args:
            count: How many records.
            only_in: An old partition, whose keys alone are written.
        """
        keys = [key for key in range(KEYS) if only_in in (None, self._partitions.get(key, 0) % N)]
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        numbers = list(range(self._next, self._next + count))
        self._next += count
        for number in numbers:  # the first numbers are keys
            key = keys[number % len(keys)]
            producer.produce(self._topic, str(number), f"key-{key}", on_delivery=self._delivered)
            producer.poll(0)
        assert producer.flush(90) == 0
        assert set(numbers) <= self._partitions.keys()
        return numbers

    def left(self, numbers: list[int], cut: int) -> list[int]:
        """Returns those that are not lost; what comes from `cut` on was written behind the cut."""
        return [number for number in numbers if self._stands(number, is_cut=number >= cut) != SHORT]

    def _stands(self, number: int, *, is_cut: bool) -> int:
        v = self._partitions[number]
        return home(v, N, N, VIRTUAL_PARTITIONS) if is_cut else v % N

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self._partitions[int(message.value())] = message.partition()


class Reader:
    """A group of one consumer that commits what it reads."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.got: list[tuple[bytes, int]] = []
        config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**config, "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 1000})
        self._consumer.subscribe([topic])

    def read_until(self, numbers: list[int]) -> None:
        """Reads and commits until all of these have come."""

        def has_all() -> bool:
            messages = [each for each in self._consumer.consume(500, 0.2) if each.error() is None]
            self.got += [(message.key() or b"", int(message.value() or b"")) for message in messages]
            if messages:
                self._consumer.commit(asynchronous=False)
            return set(numbers) <= {number for _, number in self.got}

        wait_until(f"{len(numbers)} records are read", has_all)

    def assert_in_order_and_once(self) -> None:
        for key in {key for key, number in self.got if number != FILLER}:
            numbers = [number for each, number in self.got if each == key]
            assert numbers == sorted(set(numbers)), f"{key!r} is out of order or doubled"

    def close(self) -> None:
        self._consumer.close()


class Takeover:
    """A topic that is taken over as soon as no group is far behind, and a group that reads it."""

    def __init__(self, proxy: ProxyProcess, admin: AdminClient, topic: str) -> None:
        self._proxy, self._admin, self._topic = proxy, admin, topic
        assignment = [[1, 2], [3, 1], [3, 1]]
        config = {"unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic(topic, N, replica_assignment=assignment, config=config)])[topic].result(60)
        self.writer, self.reader = Writer(proxy.bootstrap, topic), Reader(proxy.bootstrap, topic, f"stays-{topic}")

    def leave_one_far_behind(self) -> None:
        """A group reads a record, and is further behind than a cut allows for; it is on a log that stays whole."""
        producer = Producer({"bootstrap.servers": self._proxy.bootstrap, "linger.ms": 20})
        for _ in range(NEAR_RECORDS + 2_000):
            producer.produce(self._topic, str(FILLER), partition=WHOLE)
            producer.poll(0)
        assert producer.flush(90) == 0
        reader = Reader(self._proxy.bootstrap, self._topic, "nightly")
        reader.read_until([FILLER])
        reader.close()

    def begin(self) -> None:
        """The takeover begins; clients need no time to see the new partitions."""
        manage(self._admin, self._topic, "delivering", transition_ms="0").result(60)

    def cut(self) -> None:
        """Waits until all have moved to their homes, and the group is waited for."""
        wait_until("it is cut", lambda: self.placement() == "linear")
        wait_until("the group is waited for", lambda: "group stays" in self.waits_for())

    def placement(self) -> str:
        placement: str = self._proxy.topic(self._topic)["epochs"][-1]["placement"]
        return placement

    def waits_for(self) -> str:
        return " ".join(each["why"] for each in self._proxy.topic(self._topic)["held"])

    def wait_told(self) -> None:
        """Waits until the loss is a finding, and the topic goes on behind it."""
        wait_until("the loss is told", lambda: ("records_lost", self._topic) in self._findings())

    def _findings(self) -> list[tuple[str, str]]:
        return [(each["kind"], each["topic"]) for each in self._proxy.topics()["findings"]]

    def check(self, left: list[int]) -> None:
        """All that is left is read, by the group in order, and by another one that begins later; the topic grows."""
        self.reader.read_until(left)
        wait_until("all is delivered", lambda: not self.waits_for())
        fresh = Reader(self._proxy.bootstrap, self._topic, f"begins-late-{self._topic}")
        fresh.read_until(left)
        assert sorted(number for _, number in fresh.got if number != FILLER) == sorted(left)
        resize(self._admin, self._topic, N + 1).result(90)
        last = self.writer.write()
        for each in (self.reader, fresh):
            each.read_until(last)
            each.close()
        self.reader.assert_in_order_and_once()


def wait_for_copies(brokers: Cluster, nodes: set[int]) -> None:
    """Waits until these brokers have all of the partitions that get shorter, and no others."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap()})

    def are_there() -> bool:
        topics = admin.list_topics(timeout=90).topics
        return all(set(topics[topic].partitions[SHORT].isrs) == nodes for topic in ("shared", "linear"))

    wait_until(f"all is on {nodes}", are_there)


def wait_named(admin: AdminClient, gone: int) -> None:
    """Waits until an admin client takes another broker for the controller: it would wait for a dead one."""
    wait_until("a living broker is named", lambda: admin.list_topics(timeout=60).controller_id != gone)


def test_all_that_a_shortened_log_still_has_is_read_in_order_over_the_cut_of_a_takeover(brokers: Cluster) -> None:
    """One topic is cut behind the loss, one before it; what the stale copy never had is lost and told."""
    with ProxyProcess.start(brokers.bootstrap()) as proxy:
        admin = create_managed(proxy.bootstrap, "earlier")  # the layouts have their copies before a broker is gone
        shared, linear = Takeover(proxy, admin, "shared"), Takeover(proxy, admin, "linear")
        of_shared, of_linear = shared.writer.write(), linear.writer.write()
        shared.leave_one_far_behind()
        linear.reader.read_until(of_linear[:1])
        wait_for_copies(brokers, {1, 2})
        brokers.brokers[1].kill()
        wait_for_copies(brokers, {1})
        wait_named(admin, gone=2)
        lost = shared.writer.write(), linear.writer.write()
        for play in (shared, linear):
            play.begin()
        linear.cut()
        lost = lost[0] + shared.writer.write(), lost[1] + linear.writer.write()
        shared.reader.read_until(of_shared + lost[0])

        brokers.brokers[0].kill()
        brokers.brokers[1].start()
        for play in (shared, linear):
            play.wait_told()
        wait_named(admin, gone=1)
        assert shared.placement() == "shared"
        of_shared += shared.writer.left(lost[0], cut=lost[0][-1] + 1) + shared.writer.write(ROUND // 2, only_in=SHORT)
        of_linear += linear.writer.left(lost[1], cut=lost[1][ROUND]) + linear.writer.write()
        set_configs(admin, "shared", {"kordon.takeover.left.out": "nightly"}).result(60)
        shared.cut()
        of_shared += shared.writer.write()
        brokers.brokers[0].start()
        shared.check(of_shared)
        linear.check(of_linear)
