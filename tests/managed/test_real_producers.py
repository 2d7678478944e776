"""Real producers write to a managed topic through a proxy, as they do to any other topic."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.broker_features import REASONS_IN_TRANSACTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_ordinary, read, write
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

COUNT = 200
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def topic(proxy: ProxyProcess, request: pytest.FixtureRequest) -> str:
    """A managed topic of 2 physical and 8 virtual partitions."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    wanted = NewTopic(name, 2, 1, config={"kordon.virtual.partitions": "8"})
    admin.create_topics([wanted])[name].result(60)
    return name


def values_of(proxy: ProxyProcess, topic: str, count: int) -> list[str]:
    """Reads the topic until there are so many records, and no more."""
    messages = read({"bootstrap.servers": proxy.bootstrap}, topic, count)
    return sorted((message.value() or b"").decode() for message in messages)


def wait_for_leaders(proxy: ProxyProcess, topic: str, partitions: int) -> None:
    """A broker tells of a new topic before it takes writes for it; with acks=0 nobody would say that they are lost."""
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": topic})

    def lead(partition: int) -> bool:
        try:
            consumer.get_watermark_offsets(TopicPartition(topic, partition), 5)
        except KafkaException:
            return False
        return True

    wait_until("leaders of all partitions", lambda: all(map(lead, range(partitions))))
    consumer.close()


def expected(count: int = COUNT) -> list[str]:
    return sorted(f"value-{n}" for n in range(count))


@pytest.mark.parametrize(
    ("options", "codec"),
    [*(({"enable.idempotence": True}, codec) for codec in CODECS), ({"acks": "1"}, "none"), ({"acks": "0"}, "none")],
    ids=str,
)
def test_librdkafka(proxy: ProxyProcess, topic: str, options: dict[str, Any], codec: str) -> None:
    """Every codec; idempotent and not, with and without an answer."""
    config = {"bootstrap.servers": proxy.bootstrap, "linger.ms": 5, "compression.type": codec, **options}
    write(config, topic, ({"key": f"key-{n}", "value": f"value-{n}"} for n in range(COUNT)))
    assert values_of(proxy, topic, COUNT) == expected()


@pytest.mark.parametrize("options", [{"enable_idempotence": True}, {"acks": 1}, {"acks": 0}], ids=str)
async def test_aiokafka(proxy: ProxyProcess, topic: str, options: dict[str, Any]) -> None:
    """All of its three ways."""
    producer = AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, linger_ms=5, **options)
    await producer.start()
    try:
        sends = [await producer.send(topic, f"value-{n}".encode(), key=b"%d" % n) for n in range(COUNT)]
        await asyncio.gather(*sends)
    finally:
        await producer.stop()
    assert await asyncio.to_thread(values_of, proxy, topic, COUNT) == expected()


@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_one_request_for_managed_and_other_topics(proxy: ProxyProcess, topic: str, acks: int | str) -> None:
    """As aiokafka sends all topics of a broker: each part goes its way, one answer comes back."""
    other = f"{topic}-unmanaged"
    create_ordinary(proxy.bootstrap, other, 2)
    await asyncio.to_thread(wait_for_leaders, proxy, other, 2)
    producer = AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, linger_ms=20, acks=acks)
    await producer.start()
    try:
        sends = [
            await producer.send(name, f"value-{n}".encode(), key=b"%d" % n)
            for n in range(COUNT)
            for name in (topic, other)
        ]
        await asyncio.gather(*sends)
    finally:
        await producer.stop()
    for name in (topic, other):
        assert await asyncio.to_thread(values_of, proxy, name, COUNT) == expected()


@pytest.mark.parametrize("options", ["enable_idempotence=True", "enable_idempotence=False, acks=1"])
def test_kafka_python(proxy: ProxyProcess, topic: str, options: str) -> None:
    """Idempotent and not; in a process of its own, for importing it warns of its own past."""
    script = f"""
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers="{proxy.bootstrap}", linger_ms=5, {options})
sends = [producer.send("{topic}", b"value-%d" % n, key=b"%d" % n) for n in range({COUNT})]
producer.flush(60)
assert {{send.get(60).partition for send in sends}} == set(range(8))
producer.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert values_of(proxy, topic, COUNT) == expected()


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_java(open_cluster: Cluster, proxy: ProxyProcess, topic: str, acks: str) -> None:
    """Kafka's own producer, idempotent with acks=all."""
    properties = [f"bootstrap.servers={proxy.bootstrap}", f"acks={acks}", f"enable.idempotence={acks == 'all'}"]
    sizes = ["--num-records", "3000", "--record-size", "500", "--throughput", "-1"]
    done = open_cluster.tool(
        "kafka-producer-perf-test",
        "--topic",
        topic,
        *sizes,
        "--producer-props",
        *(each.lower() if "idem" in each else each for each in properties),
    )
    assert "3000 records sent" in done.stdout
    assert len(values_of(proxy, topic, 3_000)) == 3_000


def transactional_requests(proxy: ProxyProcess) -> float:
    """How often clients have asked for partitions in transactions, or have written: who retries goes on and on."""
    return sum(proxy.metric("kordon_requests_total", api=api) for api in ("AddPartitionsToTxn", "Produce"))


def test_a_transaction_of_librdkafka_fails_at_once(proxy: ProxyProcess, topic: str) -> None:
    """NO-TRANSACTIONS: a fatal error that says what, not a time-out; and the proxy's log names the topic."""
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": topic})
    producer.init_transactions(90)
    asked = transactional_requests(proxy)  # before there is a record: it asks for partitions in the background
    producer.begin_transaction()
    for n in range(16):
        producer.produce(topic, value=f"value-{n}", partition=n % 8)
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(120)
    assert 0 < transactional_requests(proxy) - asked <= 3, "it was not told at once"
    error = raised.value.args[0]
    assert error.fatal()
    assert "Failed to add partition" in error.str()
    (told,) = (line for line in proxy.log().splitlines() if f'"{topic}"' in line and "transaction_refused" in line)
    assert "set ordering.transactions to true in all proxies: docs/transactions.md" in told
    del producer


def test_a_transaction_of_java_fails_at_once(open_cluster: Cluster, proxy: ProxyProcess, topic: str) -> None:
    """NO-TRANSACTIONS: Kafka's own producer hands on the reason."""
    sizes = ["--num-records", "100", "--record-size", "500", "--throughput", "-1"]
    transaction = ["--transactional-id", topic, "--transaction-duration-ms", "1000"]
    properties = ["--producer-props", f"bootstrap.servers={proxy.bootstrap}"]
    asked = transactional_requests(proxy)
    done = open_cluster.tool(
        "kafka-producer-perf-test", "--topic", topic, *sizes, *transaction, *properties, check=False
    )
    assert done.returncode
    assert 0 < transactional_requests(proxy) - asked <= 20, "it was not told at once"
    told = "partitions; set ordering.transactions to true in all proxies: docs/transactions.md"
    assert ("InvalidTxnStateException" if REASONS_IN_TRANSACTIONS.is_missing else told) in done.stderr


def test_transactions_elsewhere_are_untouched(proxy: ProxyProcess, topic: str) -> None:
    """Also while something is managed."""
    other = f"{topic}-unmanaged"
    create_ordinary(proxy.bootstrap, other, 2)
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": other})
    producer.init_transactions(90)
    producer.begin_transaction()
    for n in range(10):
        producer.produce(other, value=f"value-{n}", partition=n % 2)
    producer.commit_transaction(90)
    assert values_of(proxy, other, 10) == expected(10)
