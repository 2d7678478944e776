"""Groups of every kind keep their places on managed topics."""

from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer

from kordon.testing.broker_features import GROUP_PROTOCOLS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, read, resize, write
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    numbers = range(first, first + count)
    write(settings, topic, ({"key": f"key-{number % 40}", "value": str(number)} for number in numbers))


def consume(bootstrap: str, topic: str, count: int, group: str, **config: str) -> list[int]:
    """Reads so many records as a group, commits, and leaves."""
    got = read({"bootstrap.servers": bootstrap, "group.id": group, **config}, topic, count, commits=True)
    return [int(message.value() or b"-1") for message in got]


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_a_group_goes_on_where_it_was_after_a_growth(proxy: ProxyProcess, protocol: str) -> None:
    """Commits of a group outlive its members and a change of partitions: nothing is read twice, nothing left out."""
    topic, group = f"kept-{protocol}", f"keepers-{protocol}"
    admin = create_managed(proxy.bootstrap, topic)
    produce(proxy.bootstrap, topic, 0, 3000)
    first = consume(proxy.bootstrap, topic, 3000, group, **{"group.protocol": protocol})
    resize(admin, topic, 6).result(60)
    produce(proxy.bootstrap, topic, 3000, 2000)

    second = consume(proxy.bootstrap, topic, 2000, group, **{"group.protocol": protocol})

    assert sorted(first) == list(range(3000))
    assert sorted(second) == list(range(3000, 5000))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_assignors_of_librdkafka_share_out_all_virtual_partitions(proxy: ProxyProcess, strategy: str) -> None:
    """Two members have all of them between them, none twice, before and after a growth and a shrink."""
    topic = f"shared-out-{strategy}"
    admin = create_managed(proxy.bootstrap, topic)
    config = {"group.id": f"sharers-{strategy}", "partition.assignment.strategy": strategy}
    config |= {"bootstrap.servers": proxy.bootstrap, "auto.offset.reset": "earliest"}
    got: list[int] = []
    with ExitStack() as stack:
        members = [stack.enter_context(closing(Consumer(config))) for _ in range(2)]

        def poll() -> list[int]:
            for member in members:
                for message in member.consume(100, 0.2):
                    assert message.error() is None, message.error()
                    got.append(int(message.value() or b"-1"))
            return got

        def are_shared_out() -> bool:
            poll()
            held = [{each.partition for each in member.assignment()} for member in members]
            return all(held) and sorted(v for each in held for v in each) == list(range(VIRTUAL_PARTITIONS))

        for member in members:
            member.subscribe([topic])
        for round_number, partitions in enumerate((None, 6, 3)):
            if partitions is not None:
                resize(admin, topic, partitions).result(60)
            wait_until("all virtual partitions are shared out", are_shared_out, 60)
            produce(proxy.bootstrap, topic, 300 * round_number, 300)
            wait_until("all is read", lambda: len(poll()) >= 300 * (round_number + 1), 60)  # noqa: B023  ends in its round
    assert sorted(got) == list(range(900))


def test_the_lag_of_a_group_that_has_read_all_is_0(proxy: ProxyProcess, open_cluster: Cluster) -> None:
    """Kafka's own tool shows each virtual partition once, by the topic's name, without lag."""
    create_managed(proxy.bootstrap, "lag")
    produce(proxy.bootstrap, "lag", 0, 2000)
    assert len(consume(proxy.bootstrap, "lag", 2000, "lagging")) == 2000

    told = open_cluster.tool(
        "kafka-consumer-groups", "--bootstrap-server", proxy.bootstrap, "--describe", "--group", "lagging"
    ).stdout
    rows = [line.split() for line in told.splitlines() if line.startswith("lagging")]

    assert {row[1] for row in rows} == {"lag"}
    assert sum(int(row[5]) for row in rows) == 0
    assert sum(int(row[3]) for row in rows) >= 2000
