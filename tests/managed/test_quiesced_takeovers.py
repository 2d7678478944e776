"""Producers that are connected and wait while their topic is taken over as quiesced (TAKEOVER-WAITS)."""

import asyncio
import subprocess
import threading
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from kordon.testing.jars import kafka_version
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.kafka_tools import tool_command
from kordon.testing.managed_clients import create_ordinary, manage
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

TOPIC = "idle-producers"
KEYS = [f"key-{number}" for number in range(40)]
OLD_COUNT = 3


class Idle(Protocol):
    """A producer that keeps its connections and its view of the topic while it has nothing to send."""

    def send(self, number: int) -> None:
        """Sends a record of each key, and returns when all are acknowledged."""
        ...


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def send(self, number: int) -> None:
        for key in KEYS:
            self._producer.produce(TOPIC, f"librdkafka {number}", key)
        assert self._producer.flush(60) == 0


class Aiokafka:
    """aiokafka, on a loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: AIOKafkaProducer | None = None
        self._run(self._start(bootstrap))

    def send(self, number: int) -> None:
        self._run(self._send(number))

    def close(self) -> None:
        assert self._producer is not None
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    async def _start(self, bootstrap: str) -> None:
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await self._producer.start()

    async def _send(self, number: int) -> None:
        assert self._producer is not None
        for key in KEYS:
            await self._producer.send_and_wait(TOPIC, f"aiokafka {number}".encode(), key=key.encode())


class Java:
    """Kafka's console producer, which sends what it reads."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        tool = tool_command("kafka-console-producer", kafka_version(), folder)
        options = ["--bootstrap-server", bootstrap, "--topic", TOPIC]
        options += ["--property", "parse.key=true", "--property", "key.separator=:"]
        self._process = subprocess.Popen([*DIES_WITH_PARENT, *tool, *options], stdin=subprocess.PIPE, text=True)

    def send(self, number: int) -> None:
        """Sends a record of each key; nobody is told when they are acknowledged."""
        assert self._process.stdin is not None
        for key in KEYS:
            self._process.stdin.write(f"{key}:java {number}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends it when all is sent."""
        self._process.communicate(timeout=60)


@contextmanager
def idle_producers(bootstraps: list[str], folder: Path) -> Generator[Mapping[str, Idle], None, None]:
    """One of each kind, through different proxies."""
    aiokafka, java = Aiokafka(bootstraps[1]), Java(bootstraps[0], folder)
    try:
        yield {"librdkafka": Librdkafka(bootstraps[0]), "librdkafka there": Librdkafka(bootstraps[1])} | {
            "aiokafka": aiokafka,
            "java": java,
        }
    finally:
        aiokafka.close()
        java.close()


class Everything:
    """A reader of all that stands in the topic, as it comes."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"group.id": "everything", "auto.offset.reset": "earliest"}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 1000} | settings
        )
        self._consumer.subscribe([TOPIC])
        self.partitions: dict[str, set[int]] = defaultdict(set)
        """By what was written, where it stands."""
        self.count = 0

    def read(self, count: int) -> None:
        wait_until(f"{count} records are read", lambda: self._poll() >= count, 90)

    def _poll(self) -> int:
        for message in self._consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            self.partitions[(message.value() or b"").decode()].add(message.partition() or 0)
            self.count += 1
        return self.count

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.deep
def test_producers_that_were_idle_see_the_new_number_before_they_send(
    proxies: list[ProxyProcess], tmp_path: Path
) -> None:
    """Their connections end at all proxies when the topic is taken over, so they ask for Metadata."""
    bootstraps = [proxy.bootstrap for proxy in proxies]
    admin = create_ordinary(bootstraps[0], TOPIC, OLD_COUNT)
    everything = Everything(bootstraps[1])
    with idle_producers(bootstraps, tmp_path) as producers:
        for each in producers.values():
            each.send(0)
        everything.read(len(producers) * len(KEYS))
        manage(admin, TOPIC, "quiesced").result(90)
        for each in producers.values():
            each.send(1)
        everything.read(2 * len(producers) * len(KEYS))
    everything.close()
    old = set(range(OLD_COUNT))
    blind = [name.split()[0] for name in producers if everything.partitions[f"{name.split()[0]} 1"] <= old]
    assert blind == [], "they placed keys by the old number"
