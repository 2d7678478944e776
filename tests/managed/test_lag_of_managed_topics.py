"""The lag of whoever has read all is 0, whatever offsets he commits and however busy the neighbours are (OWN-END)."""

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]
from prometheus_client.parser import text_string_to_metric_families

from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, committed, create_managed, lags, resize, write
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

QUIET, NEIGHBOUR = 0, 1
"""Virtual partitions that share a partition of the brokers while there are 3 or 6 of those."""


@pytest.fixture(scope="module")
def open_cluster(spare_cluster: Cluster) -> Cluster:
    """One that nobody leads yet: the controller tells the lag of groups, and that is the module's proxy."""
    return emptied(spare_cluster)


@pytest.fixture(scope="module")
def proxy(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    """A proxy in front of one broker."""
    with ProxyProcess.start(open_cluster.bootstrap(), config={"ordering": {"group_lag_ms": 200}}) as started:
        yield started


def write_to(bootstrap: str, topic: str, *partitions: int) -> None:
    """Writes a record to each of these, in turn."""
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 1}
    write(settings, topic, ({"value": b"value", "partition": partition} for partition in partitions))


def commit_behind_the_last_records(bootstrap: str, topic: str, count: int) -> Mapping[int, int]:
    """Reads so many records and commits the offset behind the last of each partition, as most who commit by hand."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    behind: dict[int, int] = {}
    read = 0
    while read < count:
        (message,) = consumer.consume(1, 90)
        behind[message.partition() or 0] = (message.offset() or 0) + 1
        read += 1
    commits = [TopicPartition(topic, v, offset) for v, offset in behind.items()]
    consumer.commit(offsets=commits, asynchronous=False)
    consumer.close()
    return behind


@pytest.fixture
def topic(proxy: ProxyProcess, request: pytest.FixtureRequest) -> str:
    """A managed topic of which each partition of the brokers has four virtual ones."""
    name: str = request.node.name.replace("_", "-")
    create_managed(proxy.bootstrap, name)
    return name


def test_lag_is_0_behind_the_last_record_though_the_neighbours_go_on(proxy: ProxyProcess, topic: str) -> None:
    """The group stands behind its last record; what follows in the broker's log is not its own."""
    write_to(proxy.bootstrap, topic, QUIET, NEIGHBOUR, QUIET, NEIGHBOUR)
    behind = commit_behind_the_last_records(proxy.bootstrap, topic, 4)
    write_to(proxy.bootstrap, topic, *[NEIGHBOUR] * 5)

    assert lags(proxy.bootstrap, topic, topic)[QUIET] == 0
    assert lags(proxy.bootstrap, topic, topic)[NEIGHBOUR] >= 5
    assert committed(proxy.bootstrap, topic)[NEIGHBOUR] == behind[NEIGHBOUR], "whoever has something to read stays"


def test_lag_is_0_on_former_homes_and_by_a_proxy_that_has_read_nothing(
    proxy: ProxyProcess, open_cluster: Cluster, topic: str
) -> None:
    """A commit in a partition that was left at a growth and a shrink since then, told by a proxy that is new."""
    everywhere = range(VIRTUAL_PARTITIONS)
    write_to(proxy.bootstrap, topic, *everywhere, *everywhere)
    commit_behind_the_last_records(proxy.bootstrap, topic, 2 * VIRTUAL_PARTITIONS)
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    for count in (6, 3):
        resize(admin, topic, count).result(60)
    # A proxy that has not joined the others yet has no lease, and tells commits as they were made.
    with ProxyProcess.start(open_cluster.bootstrap()) as other:
        wait_until("no lag", lambda: lags(other.bootstrap, topic, topic) == dict.fromkeys(everywhere, 0))
        write_to(other.bootstrap, topic, QUIET)
        assert lags(other.bootstrap, topic, topic)[QUIET] >= 1


def test_a_group_goes_on_from_a_raised_commit_without_loss(proxy: ProxyProcess, topic: str) -> None:
    """It begins where nothing was left to read, and gets the next record."""
    write_to(proxy.bootstrap, topic, QUIET, NEIGHBOUR, NEIGHBOUR)
    commit_behind_the_last_records(proxy.bootstrap, topic, 3)
    write_to(proxy.bootstrap, topic, NEIGHBOUR, NEIGHBOUR)
    assert committed(proxy.bootstrap, topic)[QUIET] > 1, "raised"
    write_to(proxy.bootstrap, topic, QUIET)
    assert len(commit_behind_the_last_records(proxy.bootstrap, topic, 3)) == 2


def told(proxy: ProxyProcess, topic: str) -> Mapping[int, int]:
    """Returns by partition the lag of the group that is called like the topic, as the proxy's metric tells it."""
    return {
        int(sample.labels["partition"]): int(sample.value)
        for family in text_string_to_metric_families(proxy.metrics())
        for sample in family.samples
        if sample.name == "kordon_managed_lag_records" and sample.labels["topic"] == sample.labels["group"] == topic
    }


def test_the_metric_tells_the_lag_that_exporters_reckon_before_and_after_a_growth(
    proxy: ProxyProcess, topic: str
) -> None:
    """It rises while nobody reads, counts what is left in a former home, falls to 0, and goes with its group."""
    everywhere = range(VIRTUAL_PARTITIONS)
    none = dict.fromkeys(everywhere, 0)
    write_to(proxy.bootstrap, topic, *everywhere)
    commit_behind_the_last_records(proxy.bootstrap, topic, VIRTUAL_PARTITIONS)
    wait_until("no lag", lambda: told(proxy, topic) == none)

    write_to(proxy.bootstrap, topic, QUIET, QUIET)
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    resize(admin, topic, 6).result(60)
    write_to(proxy.bootstrap, topic, QUIET)
    reckoned = lags(proxy.bootstrap, topic, topic)[QUIET]
    assert reckoned >= 3
    wait_until("the lag of exporters", lambda: told(proxy, topic) == {**none, QUIET: reckoned})

    commit_behind_the_last_records(proxy.bootstrap, topic, 3)
    wait_until("no lag any more", lambda: told(proxy, topic) == none)
    admin.delete_consumer_groups([topic])[topic].result(60)
    wait_until("no series", lambda: not told(proxy, topic))
