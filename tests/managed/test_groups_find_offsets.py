"""Where clients begin to read: each is told the same of a topic that has grown and shrunk, and reads what it wants."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from kordon.testing.client_programs import franz_go, kafkajs, kafkajs_path
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, resize, watermarks
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

TOPIC = "times"
BEGAN_MS, STEP_MS, EACH = 1_700_000_000_000, 60_000, 60
Offsets = dict[int, tuple[int, int, int | None]]
"""By partition: beginning, end, and the first offset of the second step's time; None: there is none."""


@pytest.fixture(scope="module")
def bootstrap(open_cluster: Cluster) -> Iterator[str]:
    """Of a proxy whose topic was written in three steps, a minute apart, with a growth and a shrink in between."""
    with ProxyProcess.start(open_cluster.bootstrap()) as proxy:
        admin = create_managed(proxy.bootstrap, TOPIC)
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
        for step, partitions in enumerate((6, 4, None)):
            for number in range(EACH):
                time_ms = BEGAN_MS + step * STEP_MS + number
                producer.produce(TOPIC, str(step), partition=number % VIRTUAL_PARTITIONS, timestamp=time_ms)
            assert producer.flush(60) == 0
            if partitions is not None:
                resize(admin, TOPIC, partitions).result(60)
        yield proxy.bootstrap


def by_librdkafka(bootstrap: str, time_ms: int) -> Offsets:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    asked = [TopicPartition(TOPIC, v, time_ms) for v in range(VIRTUAL_PARTITIONS)]
    times = {each.partition: each.offset for each in consumer.offsets_for_times(asked, timeout=60)}
    consumer.close()
    marks = watermarks(bootstrap, TOPIC, times)
    return {v: (*marks[v], offset if 0 <= offset < marks[v][1] else None) for v, offset in times.items()}


def by_kafka_python(bootstrap: str, time_ms: int) -> Offsets:
    kafka: Any = import_module("kafka")  # here, where its warnings at import are let be
    consumer: Any = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    asked = [kafka.TopicPartition(TOPIC, v) for v in range(VIRTUAL_PARTITIONS)]
    first, last = consumer.beginning_offsets(asked), consumer.end_offsets(asked)
    times = consumer.offsets_for_times(dict.fromkeys(asked, time_ms))
    consumer.close()
    return {p.partition: (first[p], last[p], times[p].offset if times[p] else None) for p in asked}


def by_aiokafka(bootstrap: str, time_ms: int) -> Offsets:
    async def ask() -> Offsets:
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            asked = [AioPartition(TOPIC, v) for v in range(VIRTUAL_PARTITIONS)]
            first, last = await consumer.beginning_offsets(asked), await consumer.end_offsets(asked)
            times = await consumer.offsets_for_times(dict.fromkeys(asked, time_ms))
            return {p.partition: (first[p], last[p], times[p].offset if times[p] else None) for p in asked}
        finally:
            await consumer.stop()

    return asyncio.run(ask())


def by_kafkajs(bootstrap: str, time_ms: int) -> Offsets:
    return by_program(kafkajs("offsets.js"), bootstrap, time_ms)


def by_franz_go(bootstrap: str, time_ms: int) -> Offsets:
    return by_program(franz_go("offsets"), bootstrap, time_ms)


def by_program(command: Sequence[str], bootstrap: str, time_ms: int) -> Offsets:
    """Asks with a program, which tells the end where there is nothing so late, as these clients do."""
    asked = [*command, bootstrap, TOPIC, str(time_ms)]
    env = {**os.environ, "NODE_PATH": kafkajs_path()}
    done = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows: dict[str, tuple[int, int, int]] = json.loads(done.stdout)
    return {int(v): (first, end, begin if begin < end else None) for v, (first, end, begin) in rows.items()}


ASKING: dict[str, Callable[[str, int], Offsets]] = {
    "librdkafka": by_librdkafka,
    "kafka_python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "kafkajs": by_kafkajs,
    "franz_go": by_franz_go,
}
CLIENTS = [name for name in ASKING if name not in os.environ.get("KORDON_SKIP_CLIENTS", "").split(",")]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_every_client_finds_the_same_and_reads_exactly_what_is_younger(bootstrap: str, step: int) -> None:
    """By time, in the homes before and after each change; no client that begins there gets an older record."""
    time_ms = BEGAN_MS + step * STEP_MS
    found = by_librdkafka(bootstrap, time_ms)
    for client in CLIENTS:
        assert ASKING[client](bootstrap, time_ms) == found, client
    assert {first for first, _, _ in found.values()} == {0}

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "assigned", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, v, begin or 0) for v, (_, _, begin) in found.items()])
    read: list[int] = []
    wanted = sorted(later for later in range(step, 3) for _ in range(EACH))

    def has_read() -> bool:
        messages = consumer.consume(500, 1.0)
        read.extend(int(each.value() or b"-1") for each in messages if each.error() is None)
        return len(read) >= len(wanted) and not messages

    wait_until("all is read", has_read, 90)
    consumer.close()
    assert sorted(read) == wanted


def test_nothing_is_younger_than_the_last_record(bootstrap: str) -> None:
    """Each client is told that there is none."""
    later = BEGAN_MS + 10 * STEP_MS
    for client in CLIENTS:
        assert {begin for _, _, begin in ASKING[client](bootstrap, later).values()} == {None}, client
