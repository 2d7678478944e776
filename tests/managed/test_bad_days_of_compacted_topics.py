"""Compacted managed topics while proxies die: in the end there is the latest value of each key, once."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.client import OrderedConsumer
from kordon.testing.change_steps import ChangeSteps
from kordon.testing.cluster import Cluster
from kordon.testing.compacted_topics import HASTY, PATIENCE_SECONDS, Writer, configure, land_strays, read_from_0
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, create_ordinary, resize, watermarks
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

SLOW = {**HASTY, "min.compaction.lag.ms": "600000"}
"""Brokers compact nothing yet."""
AT_ONCE = {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100"}
PROXY = {"ordering": {"janitor_lag_ms": 0}}


@contextmanager
def proxies_of(cluster: Cluster, count: int = 2) -> Iterator[list[ProxyProcess]]:
    """Proxies of which the first is the controller as soon as there is a managed topic."""
    with ExitStack() as stack:
        yield [stack.enter_context(ProxyProcess.start(cluster.bootstrap(), config=PROXY)) for _ in range(count)]


def led(proxies: list[ProxyProcess]) -> list[ProxyProcess]:
    """Puts the one first that is the controller."""
    wait_until("one leads", lambda: any(proxy.leads() for proxy in proxies), PATIENCE_SECONDS)
    return sorted(proxies, key=lambda proxy: not proxy.leads())


def assert_only_latest_values(cluster: Cluster, bootstrap: str, topic: str, writer: Writer, partitions: int) -> None:
    """Waits for compaction; then brokers, clients and the SDK's have the latest value of each key and no other."""
    configure(cluster.bootstrap(), topic, AT_ONCE)
    expected = Counter(writer.truth.items())

    def values(read: Callable[[], list[tuple[bytes, bytes | None]]]) -> Counter[tuple[bytes, bytes | None]]:
        return Counter(each for each in read() if each[1] is not None)

    def is_compacted() -> bool:
        writer.roll()
        return values(partial(read_from_0, cluster.bootstrap(), topic, partitions)) == expected

    wait_until("only the latest values are left", is_compacted, PATIENCE_SECONDS)
    assert values(partial(read_from_0, bootstrap, topic)) == expected
    assert values(partial(read_by_dialect, bootstrap, topic)) == expected


def read_by_dialect(bootstrap: str, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Reads all there is as a client of the dialect does."""

    async def read() -> list[tuple[bytes, bytes | None]]:
        got: list[tuple[bytes, bytes | None]] = []
        options: dict[str, Any] = {
            "group_id": f"{topic}-sdk",
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 500,
        }
        async with OrderedConsumer(topic, bootstrap_servers=bootstrap, **options) as consumer:
            quiet = 0
            while quiet < 6 or not got:
                found = await consumer.getmany(timeout_ms=500)
                quiet = 0 if found else quiet + 1
                got += [(record.key or b"", record.value) for records in found.values() for record in records]
        return [each for each in got if not each[0].startswith((b"roll-", b"__kordon"))]

    return asyncio.run(asyncio.wait_for(read(), PATIENCE_SECONDS))


def wait_for_record(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    """Returns when something is written to a physical partition at an offset."""
    config = {"bootstrap.servers": bootstrap, "group.id": "watch", "fetch.wait.max.ms": "5"}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, partition, offset)])
    wait_until("a record", lambda: consumer.poll(1.0) is not None, PATIENCE_SECONDS)
    consumer.close()


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["markers", "fence", "ack", "topic"])
def test_a_controller_that_dies_while_its_janitor_works_is_carried_on(compacting_cluster: Cluster, moment: str) -> None:
    """Kill -9 at the first marker, and before and behind the cut of a growth."""
    topic = f"janitor-killed-at-{moment}"
    with proxies_of(compacting_cluster) as started:
        create_managed(started[0].bootstrap, topic, configs=SLOW)
        controller, other = led(started)
        writer = Writer(other.bootstrap, topic)
        admin = AdminClient({"bootstrap.servers": other.bootstrap})
        writer.put(range(3000), b"first")
        resize(admin, topic, 6).result(PATIENCE_SECONDS)
        with ChangeSteps(compacting_cluster.bootstrap()) as steps:
            if moment == "markers":
                _, first = watermarks(compacting_cluster.bootstrap(), topic, [0])[0]
                writer.put(range(1500), b"second")
                wait_for_record(compacting_cluster.bootstrap(), topic, 0, first + 1)
                controller.kill()
            else:
                writer.put(range(1500), b"second")
                growth = resize(admin, topic, 12)
                steps.wait_for(moment)
                controller.kill()
                growth.result(PATIENCE_SECONDS)
            writer.put(range(1000, 2000), b"third")
            writer.put(range(0, 3000, 7), None)
            wait_until("the other leads", other.leads, PATIENCE_SECONDS)
            resize(admin, topic, 3).result(PATIENCE_SECONDS)
            writer.put(range(0, 3000, 5), b"fourth")
        assert_only_latest_values(compacting_cluster, other.bootstrap, topic, writer, 6 if moment == "markers" else 12)
        writer.close()


@pytest.mark.deep
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_a_compacted_topic_with_records_is_taken_over_and_resized(compacting_cluster: Cluster, codec: str) -> None:
    """Values and tombstones in batches of each codec from before; then a growth and a shrink between writes."""
    topic = f"takes-over-{codec}"
    configs = {name: value for name, value in SLOW.items() if not name.startswith("kordon.")}
    create_ordinary(compacting_cluster.bootstrap(), topic, config=configs)
    old = Writer(compacting_cluster.bootstrap(), topic, **{"compression.codec": codec, "linger.ms": "20"})
    old.put(range(2000), b"from before " * 20)
    old.put(range(0, 2000, 9), None)
    old.close()
    with proxies_of(compacting_cluster, 1) as (proxy,):
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        configure(
            proxy.bootstrap,
            topic,
            {
                "kordon.virtual.partitions": str(VIRTUAL_PARTITIONS),
                "kordon.janitor": "true",
                "kordon.takeover": "quiesced",
            },
        )
        writer = Writer(proxy.bootstrap, topic, **{"compression.codec": codec, "linger.ms": "20"})
        writer.truth, writer.deleted = old.truth, old.deleted
        writer.put(range(1000), b"second " * 20)
        resize(admin, topic, 6).result(PATIENCE_SECONDS)
        writer.put(range(500), None)
        writer.put(range(250, 1500), b"third " * 20)
        resize(admin, topic, 3).result(PATIENCE_SECONDS)
        writer.put(range(2000), b"last " * 20)  # what nobody has written since stays where it was
        writer.put(range(0, 2000, 3), None)
        assert_only_latest_values(compacting_cluster, proxy.bootstrap, topic, writer, 6)
        writer.close()


@pytest.mark.deep
def test_a_value_comes_back_that_only_compressed_is_small_enough(compacting_cluster: Cluster) -> None:
    """max.message.bytes is about compressed batches; what no broker takes any more is given up, and holds nobody up."""
    topic = "large-values"
    with proxies_of(compacting_cluster, 1) as (proxy,):
        admin = create_managed(proxy.bootstrap, topic, configs=SLOW)
        writer = Writer(proxy.bootstrap, topic, **{"compression.codec": "gzip", "message.max.bytes": "9000000"})
        writer.put(range(8), b"large " * 400_000)
        noisy = Writer(proxy.bootstrap, topic)
        noisy.put(range(8, 16), Random(1).randbytes(600_000))
        keys = sorted(key for key, _ in read_from_0(compacting_cluster.bootstrap(), topic, partitions=1))
        large, random = ([key for key in keys if key in each.truth] for each in (writer, noisy))
        assert large
        assert random
        configure(compacting_cluster.bootstrap(), topic, {"max.message.bytes": "500000"})
        land_strays(compacting_cluster, topic, keys)
        brought_back = partial(proxy.metric, "kordon_janitor_values_brought_back_total", topic=topic)
        given_up = partial(proxy.metric, "kordon_janitor_values_given_up_total", topic=topic)
        wait_until("some come back", lambda: brought_back() >= len(large), PATIENCE_SECONDS)
        wait_until("some are given up", lambda: given_up() == len(random), PATIENCE_SECONDS)
        wait_until("no key is in doubt", lambda: not proxy.metric("kordon_janitor_doubtful_keys", topic=topic), 60)
        assert "value_given_up" in proxy.log()
        got = Counter(key for key, _ in read_from_0(proxy.bootstrap, topic))
        assert all(got[key] == 2 for key in large)
        resize(admin, topic, 6).result(PATIENCE_SECONDS)
        writer.close()
        noisy.close()
