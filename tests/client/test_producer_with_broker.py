"""OrderedProducer on real brokers: through Kordons while a topic grows and shrinks, and without any."""

import asyncio
import logging
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnknownTopicOrPartitionError
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.client import OrderedProducer, TransactionRefusedError
from kordon.client.partitioning import key_hash
from kordon.proxy.ordering.hashing import homes
from kordon.testing.broker_config import USERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import KEYS, VIRTUAL_PARTITIONS, create_managed, read, read_all, resize
from kordon.testing.proxy_process import ProxyProcess

PATIENCE_SECONDS: Final = 90.0


@pytest.fixture(scope="module")
def pair(open_cluster: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of one broker."""
    with (
        ProxyProcess.start(bootstrap=open_cluster.bootstrap()) as first,
        ProxyProcess.start(bootstrap=open_cluster.bootstrap()) as second,
    ):
        yield [first, second]


class Traffic:
    """Numbered records of 50 keys, sent without a break."""

    def __init__(self, producer: OrderedProducer, topic: str) -> None:
        self.sent: list[tuple[bytes, int]] = []
        self._futures: list[asyncio.Future[Any]] = []
        self._producer = producer
        self._topic = topic

    async def send_during(self, work: Awaitable[Any]) -> None:
        """Sends while something happens, and for a short while after it."""
        happening = asyncio.ensure_future(work)
        end = time.monotonic() + PATIENCE_SECONDS
        done_at = None
        while done_at is None or time.monotonic() < done_at + 0.3:
            assert time.monotonic() < end, "what was waited for did not happen"
            done_at = done_at or (time.monotonic() if happening.done() else None)
            for _ in range(20):
                await self._send()
            await asyncio.sleep(0.005)
        await happening

    async def assert_all_once_and_in_order(self, bootstrap: str) -> None:
        """Holds what a stock consumer reads against what was acknowledged, which must be everything."""
        await asyncio.wait_for(asyncio.gather(*self._futures), PATIENCE_SECONDS)
        got = await asyncio.to_thread(read_all, bootstrap, self._topic, len(self.sent))
        assert set(self.sent) - set(got) == set(), "lost"
        assert len(got) == len(set(got)), "doubled"
        for key in {key for key, _ in got}:
            numbers = [number for each, number in got if each == key]
            assert numbers == sorted(numbers), f"out of order: {key!r}"

    async def _send(self) -> None:
        number = len(self.sent)
        key = b"key-%d" % (number % KEYS)
        self._futures.append(await self._producer.send(self._topic, b"%d" % number, key))
        self.sent.append((key, number))


@asynccontextmanager
async def traffic(topic: str, *bootstrap: str, **options: Any) -> AsyncIterator[Traffic]:
    async with OrderedProducer(bootstrap_servers=list(bootstrap), linger_ms=5, **options) as producer:
        yield Traffic(producer, topic)


async def test_a_topic_grows_and_shrinks_under_a_producer(pair: list[ProxyProcess]) -> None:
    """3 -> 4 -> 12 -> 5 -> 3 by another proxy: every record is written once, each key in order, no error seen."""
    admin = await asyncio.to_thread(create_managed, pair[0].bootstrap, "resized")
    async with traffic("resized", pair[1].bootstrap, compression_type="lz4") as records:
        for count in (4, 12, 5, 3):
            await records.send_during(asyncio.to_thread(resize(admin, "resized", count).result, 60))
        await records.assert_all_once_and_in_order(pair[0].bootstrap)


@pytest.mark.deep
async def test_a_proxy_dies_while_a_topic_grows_and_shrinks(open_cluster: Cluster) -> None:
    """The producer goes on through the one that is left: it asks its bootstrap servers again."""
    topic = "dying-proxy"
    with (
        ProxyProcess.start(bootstrap=open_cluster.bootstrap()) as stays,
        ProxyProcess.start(bootstrap=open_cluster.bootstrap()) as dies,
    ):
        admin = await asyncio.to_thread(create_managed, stays.bootstrap, topic)
        async with traffic(topic, dies.bootstrap, stays.bootstrap) as records:
            await records.send_during(asyncio.to_thread(resize(admin, topic, 5).result, 60))
            change = resize(admin, topic, 7)
            dies.kill()
            await records.send_during(asyncio.to_thread(change.result, 60))
            await records.send_during(asyncio.to_thread(resize(admin, topic, 3).result, 60))
            await records.assert_all_once_and_in_order(stays.bootstrap)


async def test_a_record_is_written_as_it_was_sent(pair: list[ProxyProcess]) -> None:
    """Headers, timestamp, serializers, a given partition, batches of the caller's, records without key."""
    await asyncio.to_thread(create_managed, pair[0].bootstrap, "as-sent")
    async with OrderedProducer(
        bootstrap_servers=pair[0].bootstrap, key_serializer=encoded, value_serializer=encoded
    ) as producer:
        assert await producer.partitions_for("as-sent") == {0, 1, 2}
        told = await producer.send_and_wait(
            "as-sent", "value", "key", timestamp_ms=1_700_000_000_000, headers=[("h", b"1")]
        )
        assert (told.partition, told.offset) == (home("key"), 0)
        assert (await producer.send_and_wait("as-sent", "value", "key", partition=2)).partition == 2
        batch = producer.create_batch()
        for number in range(3):
            batch.append(key="key", value=str(number), timestamp=None)
        told = await (await producer.send_batch(batch, "as-sent", partition=1))
        assert told.partition == 1
        assert (await producer.send_and_wait("as-sent", "no key")).partition in {0, 1, 2}
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2"):
            await producer.send("as-sent", "value", partition=3)
    got = await asyncio.to_thread(read, {"bootstrap.servers": pair[1].bootstrap}, "as-sent", 6)
    assert len(got) == 6
    first = next(message for message in got if message.headers())
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"key", b"value", 1_700_000_000_000)
    assert first.headers() == [("h", b"1")]


async def test_a_partitioner_chooses_one_of_the_virtual_partitions(pair: list[ProxyProcess]) -> None:
    """It is called as aiokafka calls its own."""
    asked: list[tuple[bytes | None, int, int]] = []

    def always_seven(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        asked.append((key, len(all_partitions), len(available)))
        return 7

    await asyncio.to_thread(create_managed, pair[0].bootstrap, "chosen")
    async with OrderedProducer(bootstrap_servers=pair[0].bootstrap, partitioner=always_seven) as producer:
        told = await producer.send_and_wait("chosen", b"value", b"key")
    assert asked == [(b"key", VIRTUAL_PARTITIONS, VIRTUAL_PARTITIONS)]
    assert told.partition == homes(3, 3, VIRTUAL_PARTITIONS)[7]


async def test_transactions_are_for_other_topics_where_they_are_not_switched_on(pair: list[ProxyProcess]) -> None:
    """On a managed topic they are refused with the cure before anything is written; elsewhere they are as ever."""
    await asyncio.to_thread(create_managed, pair[0].bootstrap, "no-transactions")
    producer = OrderedProducer(bootstrap_servers=pair[0].bootstrap, transactional_id="some")
    async with producer:
        async with producer.transaction():
            await producer.send_and_wait("sdk-ordinary", b"value", b"key")
        with pytest.raises(TransactionRefusedError, match=r"no-transactions: .* ordering.transactions to true"):
            async with producer.transaction():
                await producer.send_and_wait("no-transactions", b"value", b"key")
        async with producer.transaction():
            await producer.send_and_wait("sdk-ordinary", b"value", b"key")


async def test_what_is_missing_is_said_once(pair: list[ProxyProcess], caplog: pytest.LogCaptureFixture) -> None:
    """Of a topic that is not managed, at its first record."""
    with caplog.at_level(logging.WARNING, "kordon.client"):
        async with OrderedProducer(bootstrap_servers=pair[0].bootstrap) as producer:
            for _ in range(3):
                await producer.send_and_wait("unmanaged", b"value", b"key")
    assert [message.split(":")[0] for message in warnings(caplog)] == ["unmanaged is not managed by Kordon"]


async def test_without_a_kordon_it_is_as_aiokafkas_own(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Keys go where AIOKafkaProducer puts them; one warning says that no Kordon answers."""
    bootstrap = cluster.bootstrap()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic("sdk-bare", 5, 1)])["sdk-bare"].result, 60)
    with caplog.at_level(logging.WARNING, "kordon.client"):
        async with (
            OrderedProducer(bootstrap_servers=bootstrap) as ordered,
            AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as plain,
        ):
            for number in range(20):
                put = [await each.send_and_wait("sdk-bare", b"value", b"%d" % number) for each in (ordered, plain)]
                assert put[0].partition == put[1].partition
                assert put[1].offset == put[0].offset + 1
    assert [message[:20] for message in warnings(caplog)] == ["No Kordon answers at"]


@pytest.mark.parametrize("options", [{"enable_idempotence": False}, {"acks": 1}])
async def test_a_producer_that_is_not_idempotent_is_refused(options: dict[str, Any]) -> None:
    """Without sequences nothing could be asked about what was sent."""
    with pytest.raises(ValueError, match="idempot"):
        OrderedProducer(**options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the SDK has said."""
    return [record.message for record in caplog.records if record.name.startswith("kordon.")]


def encoded(text: str | None) -> bytes | None:
    """A serializer as users write them."""
    return None if text is None else text.encode()


def home(key: str) -> int:
    """The partition of a key as long as there are three."""
    place = key_hash(key.encode()) % VIRTUAL_PARTITIONS
    return homes(3, 3, VIRTUAL_PARTITIONS)[place]


async def test_the_example_sends_orders(pair: list[ProxyProcess]) -> None:
    """As docs/sdk.md shows it."""
    await asyncio.to_thread(create_managed, pair[0].bootstrap, "example-orders")
    command = [sys.executable, "-m", "kordon.client.examples.send_orders", "--bootstrap", pair[0].bootstrap]
    process = await asyncio.create_subprocess_exec(
        *command, "--topic", "example-orders", "--count", "300", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    lines = [line.split() for line in output.decode().splitlines()]
    assert [line[1] for line in lines] == ["0:", "1:", "2:"]
    assert sum(int(line[2]) for line in lines) == 300


async def test_it_logs_in_over_tls_as_aiokafka_does(secure_cluster: Cluster) -> None:
    """SASL_SSL with SCRAM: ApiVersions with the tag goes before the log-in."""
    async with OrderedProducer(
        bootstrap_servers=secure_cluster.bootstrap("SASL_SSL"),
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=secure_cluster.certificates.ca),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="admin",
        sasl_plain_password=USERS["admin"],
    ) as producer:
        assert (await producer.send_and_wait("logged-in", b"value", b"key")).offset == 0
