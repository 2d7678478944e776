"""Real readers of transactions on a managed topic: both isolations, from anywhere, over a growth and beside zombies."""

# pyright: reportPrivateImportUsage=false
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer, IsolationLevel, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec

from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.broker_features import SECOND_PROTOCOL, VERIFIED_TRANSACTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import links_to
from kordon.testing.managed_clients import create_managed, lags, resize
from kordon.testing.native_producer import NativeProducer, allow_transactions, layout_of
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until, wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason),
]

V, NEIGHBOUR = 0, 3
"""Virtual partitions that share a partition of the brokers while there are 3 of those."""
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
BOTH = [
    pytest.param(Protocol.V1, id="v1"),
    pytest.param(
        Protocol.V2,
        id="v2",
        marks=pytest.mark.skipif(SECOND_PROTOCOL.is_missing, reason=SECOND_PROTOCOL.reason),
    ),
]


@pytest.fixture(scope="module")
def taker(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    """A proxy that takes transactions."""
    config = {"ordering": {"transactions": True, "group_lag_ms": 200}}
    with ProxyProcess.start(open_cluster.bootstrap(), config=config) as started:
        yield started


@pytest.fixture
def topic(taker: ProxyProcess) -> str:
    """A managed topic with 3 partitions and 12 virtual ones."""
    name = f"reading-transactions-{uuid.uuid4().hex[:8]}"
    create_managed(taker.bootstrap, name)
    return name


def read(bootstrap: str, topic: str, v: int, isolation: str, at: int = 0) -> list[tuple[int, str]]:
    """Reads a partition to where its reader is told that it ends; returns offsets and values."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([Place(topic, v, at)])
    found: list[tuple[int, str]] = []
    while True:
        (message,) = consumer.consume(1, 60)
        if message.error() is not None:
            consumer.close()
            return found
        found.append((message.offset() or 0, (message.value() or b"").decode()))


def values(bootstrap: str, topic: str, v: int, isolation: str) -> list[str]:
    return [value for _, value in read(bootstrap, topic, v, isolation)]


def wait_for_values(bootstrap: str, topic: str, v: int, expected: list[str]) -> None:
    """Waits until these are committed: a coordinator answers the end of a transaction before it writes the markers."""
    wait_until(f"{expected} in {v}", lambda: values(bootstrap, topic, v, COMMITTED) == expected)


def end(bootstrap: str, topic: str, v: int, isolation: IsolationLevel) -> int:
    """Returns what ListOffsets tells."""
    latest = OffsetSpec.latest()
    assert latest is not None
    asked: dict[Place, OffsetSpec] = {Place(topic, v): latest}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.list_offsets(asked, isolation_level=isolation).values()
    offset: int = found.result(60).offset
    return offset


def transact(producer: Producer, topic: str, *records: tuple[int, str]) -> None:
    """Writes records of a transaction, and leaves it open."""
    producer.begin_transaction()
    for v, value in records:
        producer.produce(topic, value, partition=v)
    assert producer.flush(60) == 0


def producer_of(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    return producer


async def read_by_aiokafka(bootstrap: str, topic: str, v: int, isolation: str, count: int) -> list[str]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, v)])
        await consumer.seek_to_beginning()
        return [((await consumer.getone()).value or b"").decode() for _ in range(count)]
    finally:
        await consumer.stop()


def test_an_open_transaction_holds_its_own_partition_only(taker: ProxyProcess, topic: str) -> None:
    """STABLE-END: its neighbours on the same partition of the brokers go on, and Fetch and ListOffsets tell one end."""
    first, second = (producer_of(taker.bootstrap, f"{topic}-{number}") for number in range(2))
    transact(first, topic, (V, "one"), (NEIGHBOUR, "one"))
    first.commit_transaction(60)
    transact(second, topic, (V, "gone"), (NEIGHBOUR, "gone"))
    second.abort_transaction(60)
    transact(second, topic, (V, "open"))
    transact(first, topic, (V, "behind"), (NEIGHBOUR, "behind"))
    first.commit_transaction(60)

    wait_for_values(taker.bootstrap, topic, NEIGHBOUR, ["one", "behind"])
    assert values(taker.bootstrap, topic, V, COMMITTED) == ["one"]
    everything = read(taker.bootstrap, topic, V, UNCOMMITTED)
    assert [value for _, value in everything] == ["one", "gone", "open", "behind"]
    at = {value: offset for offset, value in everything}
    assert end(taker.bootstrap, topic, V, IsolationLevel.READ_COMMITTED) == at["open"]
    assert end(taker.bootstrap, topic, V, IsolationLevel.READ_UNCOMMITTED) > at["behind"]
    second.commit_transaction(60)
    wait_for_values(taker.bootstrap, topic, V, ["one", "open", "behind"])


def test_readers_that_begin_anywhere_agree_over_a_growth(taker: ProxyProcess, topic: str) -> None:
    """OUTCOME-BEHIND: a transaction that was open when the partition moved is read from both of its homes."""
    first, second = (producer_of(taker.bootstrap, f"{topic}-{number}") for number in range(2))
    v = 6  # moves
    transact(first, topic, (v, "one"), (V, "of a neighbour"))
    first.commit_transaction(60)
    transact(second, topic, (v, "two"))
    admin = AdminClient({"bootstrap.servers": taker.bootstrap})
    grown = resize(admin, topic, 6)
    second.commit_transaction(60)
    grown.result(60)
    transact(second, topic, (v, "gone"))
    second.abort_transaction(60)
    transact(first, topic, (v, "three"))
    first.commit_transaction(60)
    wait_for_values(taker.bootstrap, topic, v, ["one", "two", "three"])
    everything = read(taker.bootstrap, topic, v, COMMITTED)
    for at in range(end(taker.bootstrap, topic, v, IsolationLevel.READ_COMMITTED) + 1):
        assert read(taker.bootstrap, topic, v, COMMITTED, at) == [each for each in everything if each[0] >= at]


def test_a_group_that_has_read_all_has_no_lag(taker: ProxyProcess, topic: str) -> None:
    """Neither the markers nor what was aborted is left to read."""
    producer = producer_of(taker.bootstrap, topic)
    transact(producer, topic, (V, "one"), (NEIGHBOUR, "one"))
    producer.commit_transaction(60)
    transact(producer, topic, (V, "gone"), (NEIGHBOUR, "gone"))
    producer.abort_transaction(60)
    settings = {"bootstrap.servers": taker.bootstrap, "group.id": topic, "isolation.level": COMMITTED}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read_ = [consumer.consume(1, 60)[0] for _ in range(2)]
    behind = [Place(topic, each.partition() or 0, (each.offset() or 0) + 1) for each in read_]
    consumer.commit(offsets=behind, asynchronous=False)
    consumer.close()
    wait_until("no lag", lambda: {lags(taker.bootstrap, topic, topic)[v] for v in (V, NEIGHBOUR)} == {0})


@pytest.mark.parametrize("protocol", BOTH)
async def test_what_a_zombie_writes_behind_its_abort_is_not_committed(
    open_cluster: Cluster, taker: ProxyProcess, topic: str, protocol: Protocol
) -> None:
    """PROVEN-ABSENCE: nothing follows it in the log, and its coordinator has no transaction open; it is counted."""
    async with links_to(open_cluster) as links:
        brokers = Brokers(links)
        await allow_transactions(brokers, topic)
        layout = await layout_of(brokers, topic)
        producer = NativeProducer(brokers, topic, topic, protocol)
        await producer.begin()
        home = layout.chains[V].home
        assert home is not None
        await producer.open(home.partition)
        await producer.write(layout, V, ["one"])
        await producer.end(commits=True)
        zombie = producer.epoch
        await producer.open(home.partition)
        await producer.write(layout, V, ["gone"])
        await producer.end(commits=False)
        await NativeProducer(brokers, topic, topic, protocol).begin()  # the marker stands when it is answered
        producer.epoch = zombie
        await producer.write(layout, V, ["late"])
        other = NativeProducer(brokers, topic, f"{topic}-2", protocol)
        await other.begin()
        await other.open(home.partition)
        await other.write(layout, V, ["two"])
        await other.end(commits=True)
    got = await read_by_aiokafka(taker.bootstrap, topic, V, COMMITTED, 2)
    assert got == ["one", "two"]
    got = await read_by_aiokafka(taker.bootstrap, topic, V, UNCOMMITTED, 4)
    assert got == ["one", "gone", "late", "two"]
    await until("it is counted", lambda: taker.metric("kordon_managed_late_batches_total", topic=topic) > 0)
    options = ("--topic", topic, "--partition", f"{V}", "--offset", "earliest", "--max-messages", "2")
    command = ("--bootstrap-server", taker.bootstrap, *options, "--isolation-level", COMMITTED)
    assert open_cluster.tool("kafka-console-consumer", *command).stdout.split() == ["one", "two"]
