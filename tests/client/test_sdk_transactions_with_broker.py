"""Transactions of the SDK through two proxies and a real broker: partitions come and go, and so do producers."""

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial

import pytest
from aiokafka.errors import MessageSizeTooLargeError, ProducerFenced
from aiokafka.structs import TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.client import OrderedConsumer, OrderedProducer
from kordon.testing.broker_features import SECOND_PROTOCOL, VERIFIED_TRANSACTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, TAKES, create_managed, create_ordinary, read_to_ends, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.transaction_logs import log_words
from kordon.testing.waiting import until, wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason),
]

PATIENCE_SECONDS = 90.0
KEYS = 12


@pytest.fixture
def topic(takers: list[ProxyProcess]) -> str:
    """A managed topic with 3 partitions and 12 virtual ones."""
    name = f"sdk-transactions-{uuid.uuid4().hex[:8]}"
    create_managed(takers[0].bootstrap, name)
    return name


def ids(bootstrap: str, topic: str) -> dict[str, object]:
    return {"bootstrap_servers": bootstrap, "transactional_id": topic, "linger_ms": 2, "metadata_max_age_ms": 1000}


async def send(producer: OrderedProducer, topic: str, numbers: Sequence[int]) -> None:
    """Sends numbered records, one key after the other; returns when all are written."""
    sent = [await producer.send(topic, b"%d" % number, b"key-%d" % (number % KEYS)) for number in numbers]
    await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_SECONDS)


async def read_committed(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, int]]:
    """Reads a topic from its beginning with the SDK, until so many records are there and nothing more comes."""
    consumer = OrderedConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"g-{uuid.uuid4().hex[:8]}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=300,
    )
    got: list[tuple[bytes, int]] = []
    async with consumer, asyncio.timeout(PATIENCE_SECONDS):
        while True:
            records = await consumer.getmany(timeout_ms=1000)
            if not records and len(got) >= count:
                return got
            got += [(record.key or b"", int(record.value or b"")) for each in records.values() for record in each]


def read_stock(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, int]]:
    """Reads what is committed with librdkafka, when it is so many records.

    A coordinator answers a commit before it writes the markers, so the last transaction may still be open then.
    """
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    read = partial(read_to_ends, settings, topic)
    found = wait_until(f"{count} are committed", lambda: got if len(got := read()) >= count else [])
    return [(each.key() or b"", int(each.value() or b"")) for each in found]


def by_key(got: Sequence[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for key, number in got:
        found.setdefault(key, []).append(number)
    return found


async def assert_committed(takers: list[ProxyProcess], topic: str, numbers: Sequence[int]) -> None:
    """Both kinds of readers get what was committed, once and in the order of each key, and nothing else."""
    expected = by_key([(b"key-%d" % (number % KEYS), number) for number in numbers])
    assert by_key(await asyncio.to_thread(read_stock, takers[0].bootstrap, topic, len(numbers))) == expected
    assert by_key(await read_committed(takers[1].bootstrap, topic, len(numbers))) == expected


async def test_transactions_go_on_while_a_topic_grows_and_shrinks(takers: list[ProxyProcess], topic: str) -> None:
    """3 -> 6 -> 4 by the other proxy, every third transaction aborted."""
    admin = AdminClient({"bootstrap.servers": takers[1].bootstrap})
    committed: list[int] = []
    number = 0
    async with OrderedProducer(**ids(takers[0].bootstrap, topic)) as producer:  # type: ignore[arg-type]
        for count in (6, 4):
            change = resize(admin, topic, count)
            left = 4
            while left:
                left -= change.done()
                numbers = range(number, number + 2 * KEYS)
                number += 2 * KEYS
                await producer.begin_transaction()
                await send(producer, topic, numbers)
                if numbers.start // (2 * KEYS) % 3 == 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    committed += numbers
            change.result(CHANGE_SECONDS)
    await assert_committed(takers, topic, committed)


async def test_a_transaction_begins_before_a_change_and_ends_behind_it(
    open_cluster: Cluster, takers: list[ProxyProcess], topic: str
) -> None:
    """Behind the announcement, so the change does not wait for it. Each of its homes has a witness before its data."""
    admin = AdminClient({"bootstrap.servers": takers[1].bootstrap})
    older = OrderedProducer(**ids(takers[0].bootstrap, f"{topic}-older"))  # type: ignore[arg-type]
    younger = OrderedProducer(**ids(takers[0].bootstrap, topic))  # type: ignore[arg-type]
    read: list[int] = []
    async with older, younger:
        for count, begin in ((6, 0), (4, 3 * KEYS)):
            await older.begin_transaction()
            await send(older, topic, range(begin, begin + KEYS))
            change = resize(admin, topic, count)
            await until("all know that the change waits", lambda: all(waits(each, topic) for each in takers), 60)
            await younger.begin_transaction()
            await send(younger, topic, range(begin + KEYS, begin + 2 * KEYS))
            await older.commit_transaction()
            await asyncio.to_thread(change.result, CHANGE_SECONDS)
            await send(younger, topic, range(begin + 2 * KEYS, begin + 3 * KEYS))
            read = by_key(await asyncio.to_thread(read_stock, takers[1].bootstrap, topic, begin + KEYS))[b"key-0"]
            assert read[-1] == begin, "nothing of what is open is read"
            await younger.commit_transaction()
    await assert_committed(takers, topic, range(6 * KEYS))
    for q in range(6):
        words = log_words(open_cluster.bootstrap(), topic, q)
        assert words[0].startswith("witness"), words


def waits(proxy: ProxyProcess, topic: str) -> bool:
    """Whether a proxy knows that a change of a topic waits for transactions; the controller may be another test's."""
    return "waits for transactions" in proxy.topic(topic)["state"]


@pytest.mark.parametrize("is_direct", [True, False])
async def test_brokers_say_by_which_protocol_a_transaction_goes(
    open_cluster: Cluster, takers: list[ProxyProcess], *, is_direct: bool
) -> None:
    """By the second one each has an epoch of its own (KIP-890); at the brokers, and through Kordon."""
    topic = f"ordinary-{uuid.uuid4().hex[:8]}"
    bootstrap = open_cluster.bootstrap() if is_direct else takers[0].bootstrap
    await asyncio.to_thread(create_ordinary, bootstrap, topic, 2)
    async with OrderedProducer(**ids(bootstrap, topic)) as producer:  # type: ignore[arg-type]
        for begin in (0, KEYS, 2 * KEYS):
            await producer.begin_transaction()
            await send(producer, topic, range(begin, begin + KEYS))
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): begin}, topic)
            await (producer.abort_transaction() if begin == KEYS else producer.commit_transaction())
        assert producer._txn_manager.producer_epoch == (0 if SECOND_PROTOCOL.is_missing else 3)
    committed = sorted(number for _, number in read_stock(bootstrap, topic, 2 * KEYS))
    assert committed == [*range(KEYS), *range(2 * KEYS, 3 * KEYS)]


async def test_a_successor_ends_what_was_begun_and_fences_its_producer(takers: list[ProxyProcess], topic: str) -> None:
    """Through the other proxy: nothing of the former one is read, and it learns of that when it commits."""
    former = OrderedProducer(**ids(takers[0].bootstrap, topic))  # type: ignore[arg-type]
    async with former:
        await former.begin_transaction()
        await send(former, topic, range(KEYS))
        async with OrderedProducer(**ids(takers[1].bootstrap, topic)) as successor:  # type: ignore[arg-type]
            async with successor.transaction():
                await send(successor, topic, range(KEYS, 2 * KEYS))
            with pytest.raises(ProducerFenced):
                await former.commit_transaction()
    await assert_committed(takers, topic, range(KEYS, 2 * KEYS))


async def test_a_record_that_fails_ends_its_transaction_and_not_its_producer(takers: list[ProxyProcess]) -> None:
    """What is left of it is aborted; the next one has another epoch, and its records no gap before them."""
    topic = f"sdk-transactions-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(create_managed, takers[0].bootstrap, topic, configs={"max.message.bytes": "2000"})
    async with OrderedProducer(**ids(takers[0].bootstrap, topic)) as producer:  # type: ignore[arg-type]
        for begin in (0, 2 * KEYS):
            with pytest.raises(MessageSizeTooLargeError):
                await send_too_large(producer, topic, range(begin, begin + KEYS))
            async with producer.transaction():
                await send(producer, topic, range(begin + KEYS, begin + 2 * KEYS))
    await assert_committed(takers, topic, [*range(KEYS, 2 * KEYS), *range(3 * KEYS, 4 * KEYS)])


async def send_too_large(producer: OrderedProducer, topic: str, numbers: Sequence[int]) -> None:
    """Does a transaction whose last record is refused, which nobody waits for."""
    async with producer.transaction():
        await send(producer, topic, numbers)
        await producer.send(topic, b"-1" + 5_000 * b" ", b"key-0")


async def test_records_and_offsets_are_committed_together(takers: list[ProxyProcess], topic: str) -> None:
    """A group of the SDK goes on behind what was copied in committed transactions."""
    copy = f"{topic}-copy"
    await asyncio.to_thread(create_managed, takers[1].bootstrap, copy)
    options = {"bootstrap_servers": takers[0].bootstrap, "group_id": topic, "enable_auto_commit": False}
    options |= {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "heartbeat_interval_ms": 300}
    async with OrderedProducer(**ids(takers[0].bootstrap, topic)) as producer:  # type: ignore[arg-type]
        async with producer.transaction():
            await send(producer, topic, range(4 * KEYS))
        left = 4 * KEYS
        for commits in (False, True, True):
            async with OrderedConsumer(topic, **options) as consumer, asyncio.timeout(PATIENCE_SECONDS):  # type: ignore[arg-type]
                begun = left
                while left > (begun // 2 if begun == 4 * KEYS else 0):
                    records = await consumer.getmany(timeout_ms=1000, max_records=KEYS)
                    if not records:
                        continue
                    await producer.begin_transaction()
                    offsets: dict[TopicPartition, int] = {}
                    for tp, each in records.items():
                        for record in each:
                            await producer.send(copy, record.value, record.key)
                        offsets[tp] = each[-1].offset + 1
                    await producer.send_offsets_to_transaction(offsets, topic)
                    if not commits:
                        await producer.abort_transaction()
                        break
                    await producer.commit_transaction()
                    left -= sum(map(len, records.values()))
    await assert_committed(takers, copy, range(4 * KEYS))


@pytest.mark.deep
async def test_a_transaction_outlives_the_proxy_of_its_client(open_cluster: Cluster, topic: str) -> None:
    """It goes on through another one, and through one that comes later."""
    bootstrap = open_cluster.bootstrap()
    with ProxyProcess.start(bootstrap, config=TAKES) as stays, ProxyProcess.start(bootstrap, config=TAKES) as dies:
        options = ids(dies.bootstrap, topic) | {"bootstrap_servers": [dies.bootstrap, stays.bootstrap]}
        async with OrderedProducer(**options) as producer:  # type: ignore[arg-type]
            await producer.begin_transaction()
            await send(producer, topic, range(KEYS))
            dies.kill()
            await send(producer, topic, range(KEYS, 2 * KEYS))
            await asyncio.wait_for(producer.commit_transaction(), PATIENCE_SECONDS)
        await assert_committed([stays, stays], topic, range(2 * KEYS))
