"""The dialect is brought to a cluster by two rolling bounces of its proxies, under clients that go on (KIP-253)."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from kordon.client.consumer import OrderedConsumer
from kordon.codecs.dialect import ORDERED
from kordon.codecs.error_codes import Code
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.dialect.writer import DialectWriter
from kordon.testing.managed_clients import (
    VIRTUAL_PARTITIONS,
    Sender,
    assert_all_once_and_in_order,
    create_managed,
    read_all,
    resize,
)
from kordon.testing.managed_writes import a_batch
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]
WITHOUT = {"ordering": {"dialect": False}}


@pytest.fixture(scope="module")
def silent_proxies(open_cluster: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies after the first bounce: they know the dialect, and do not speak it yet."""
    bootstrap = open_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, config=WITHOUT) as one, ProxyProcess.start(bootstrap, config=WITHOUT) as two:
        yield [one, two]


def let_speak(proxy: ProxyProcess) -> None:
    """Bounces a proxy for the second time."""
    proxy.stop()
    proxy.config_file.write_text(json.dumps({"ordering": {"dialect": True}}))
    proxy.start_again()


def read_one_of_the_dialect(bootstrap: str, topic: str) -> None:
    """Reads as a stock client until there is a record of a client of the dialect."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        wait_until(
            "a record of the dialect is read",
            lambda: [each for each in consumer.consume(1000, 1.0) if (each.key() or b"").startswith(b"dialect")],
            90,
        )
    finally:
        consumer.close()


def test_a_proxy_that_does_not_speak_the_dialect_is_as_one_that_does_not_know_it(
    silent_proxies: list[ProxyProcess],
) -> None:
    """Nothing is announced; a client that speaks it nevertheless is shown virtual partitions as everybody is."""
    create_managed(silent_proxies[0].bootstrap, "silent")
    with DialectConnection(silent_proxies[1].bootstrap) as dialect:
        assert ORDERED not in dialect.features
        row = dialect.metadata("silent")
        assert len(row.partitions) == VIRTUAL_PARTITIONS
        assert row.undeleted_partition_count == -1
        with pytest.raises((EOFError, ConnectionError)):
            dialect.leader_epochs("silent")


def test_a_count_is_not_taken_by_who_does_not_know_what_it_counts(silent_proxies: list[ProxyProcess]) -> None:
    """A client that has met another proxy before means physical partitions: its keys would go where nobody looks."""
    create_managed(silent_proxies[0].bootstrap, "counted-by-mistake")
    with DialectConnection(silent_proxies[1].bootstrap) as dialect:
        written = dialect.produce("counted-by-mistake", 0, a_batch("one"), count=3)
        assert (written.error_code, written.base_offset) == (Code.INVALID_REQUEST, -1)
        assert dialect.produce("counted-by-mistake", 0, a_batch("one")).error_code == Code.NONE
        read = dialect.fetch("counted-by-mistake", {0: 0, 1: 0}, count=3)
        assert [(row.error_code, row.records) for row in read.values()] == [(Code.INVALID_REQUEST, b"")] * 2
        assert dialect.fetch("counted-by-mistake", {0: 0})[0].records


def test_no_key_loses_its_order_while_proxies_begin_to_speak_the_dialect(silent_proxies: list[ProxyProcess]) -> None:
    """Both kinds of proxies and of clients at once, each read by the other, a growth and a shrink: all is read once."""
    one, two = silent_proxies
    admin = create_managed(two.bootstrap, "bounced")
    stock = Sender(two.bootstrap, "bounced")
    stock.send_for(0.5)
    let_speak(one)
    dialect = DialectWriter([one.bootstrap], "bounced", "dialect")
    dialect.start()
    for count in (5, 4):
        done = resize(admin, "bounced", count)
        stock.send_for(0.5, done)
        done.result(60)
    read_one_of_the_dialect(two.bootstrap, "bounced")
    assert dialect.layout_epoch >= 0
    let_speak(two)
    done = resize(admin, "bounced", 6)
    stock.send_for(0.5, done)
    done.result(60)
    dialect.finish()
    stock.finish()
    stock.acknowledged += dialect.acknowledged
    assert_all_once_and_in_order(stock, read_all(two.bootstrap, "bounced", len(stock.acknowledged)))


def read_half_and_commit(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, int]]:
    """Reads as a stock member of the group `topic`, commits, and leaves."""
    config = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **config})
    consumer.subscribe([topic])
    got: list[tuple[bytes, int]] = []

    def half() -> bool:
        messages = consumer.consume(50, 1.0)
        assert not [message.error() for message in messages if message.error()]
        got.extend((message.key() or b"", int(message.value() or b"")) for message in messages)
        return len(got) >= count // 2

    wait_until("half of it is read", half, 90)
    consumer.commit(asynchronous=False)
    consumer.close()
    return got


async def read_with_sdk(bootstrap: str, topic: str, wanted: set[tuple[bytes, int]]) -> None:
    """Reads as a member of the same group with the SDK until all that is wanted has come."""
    consumer = OrderedConsumer(
        bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="latest", enable_auto_commit=False
    )
    consumer.subscribe([topic])
    got: set[tuple[bytes, int]] = set()
    async with consumer, asyncio.timeout(90):
        while not wanted <= got:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                got |= {(record.key, int(record.value)) for record in records}


def test_a_group_that_comes_back_with_the_sdk_misses_nothing(silent_proxies: list[ProxyProcess]) -> None:
    """Its members stop and begin as OrderedConsumers: what they had not read is read, though "latest" is the reset."""
    proxy = silent_proxies[0]
    with DialectConnection(proxy.bootstrap) as dialect:
        speaks = ORDERED in dialect.features
    if not speaks:
        let_speak(proxy)
    admin = create_managed(proxy.bootstrap, "comes-back")
    sender = Sender(proxy.bootstrap, "comes-back")
    sender.send_for(0.1)
    resize(admin, "comes-back", 4).result(60)
    sender.send_for(0.1)
    sender.finish()
    first = read_half_and_commit(proxy.bootstrap, "comes-back", sender.sent)
    asyncio.run(read_with_sdk(proxy.bootstrap, "comes-back", set(sender.acknowledged) - set(first)))
    sender.close()
