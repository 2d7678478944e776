"""librdkafka and aiokafka as programs that send or take a number of records and print what they did, for the demo."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

READ_SECONDS = 60.0
"""After this long a reader gives up on what has not come."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a client sent or took.

    Attributes:
        digest: Of the values as a multiset, in whatever order they come over the partitions.
    """

    records: int
    size_bytes: int
    digest: str
    seconds: float
    errors: int = 0


def values(count: int, size_bytes: int) -> Iterable[bytes]:
    """Makes values that are all different, and the same in every run."""
    filling = bytes(range(32, 127)) * (size_bytes // 95 + 1)
    for number in range(count):
        yield (b"%010d " % number + filling)[:size_bytes]


class Digest:
    """Sums up values without regard to their order."""

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0
        self._sum = 0

    def add(self, value: bytes) -> None:
        self.records += 1
        self.size_bytes += len(value)
        self._sum += int.from_bytes(hashlib.blake2b(value, digest_size=16).digest(), "big")

    def account(self, seconds: float, errors: int = 0) -> Account:
        return Account(self.records, self.size_bytes, f"{self._sum % 2**128:032x}"[:12], seconds, errors)


def librdkafka_produce(bootstrap: str, topic: str, count: int, size_bytes: int) -> Account:
    from confluent_kafka import KafkaError, Message, Producer  # noqa: PLC0415 (the other client needs none of it)

    errors = 0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal errors
        errors += error is not None

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 10})
    digest, began = Digest(), time.monotonic()
    for value in values(count, size_bytes):
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        digest.add(value)
    errors += producer.flush(READ_SECONDS)
    return digest.account(time.monotonic() - began, errors)


def librdkafka_consume(bootstrap: str, topic: str, count: int, _: int) -> Account:
    from confluent_kafka import Consumer  # noqa: PLC0415

    config = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-librdkafka", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe([topic])
    digest, errors = Digest(), 0
    began = deadline = 0.0
    deadline = time.monotonic() + READ_SECONDS
    while digest.records < count and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            began = began or time.monotonic()
            if message.error():
                errors += 1
            else:
                digest.add(message.value() or b"")
    seconds = time.monotonic() - began
    consumer.close()
    return digest.account(seconds, errors)


async def aiokafka_produce(bootstrap: str, topic: str, count: int, size_bytes: int) -> Account:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415

    digest, waiting = Digest(), []
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=10) as producer:
        began = time.monotonic()
        for value in values(count, size_bytes):
            waiting.append(await producer.send(topic, value))
            digest.add(value)
        results = await asyncio.gather(*waiting, return_exceptions=True)
    return digest.account(time.monotonic() - began, sum(isinstance(result, BaseException) for result in results))


async def aiokafka_consume(bootstrap: str, topic: str, count: int, _: int) -> Account:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

    digest, began = Digest(), 0.0
    group: dict[str, Any] = {"group_id": f"{topic}-aiokafka", "auto_offset_reset": "earliest"}
    deadline = time.monotonic() + READ_SECONDS
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **group) as consumer:
        while digest.records < count and time.monotonic() < deadline:
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                began = began or time.monotonic()
                for record in batch:
                    digest.add(record.value or b"")
    return digest.account(time.monotonic() - began)


def main() -> None:
    """Runs `CLIENT produce|consume BOOTSTRAP TOPIC COUNT BYTES` and prints the account as JSON."""
    client, verb, bootstrap, topic, count, size_bytes = sys.argv[1:]
    told = (bootstrap, topic, int(count), int(size_bytes))
    if client == "librdkafka":
        account = librdkafka_produce(*told) if verb == "produce" else librdkafka_consume(*told)
    else:
        account = asyncio.run(aiokafka_produce(*told) if verb == "produce" else aiokafka_consume(*told))
    print(json.dumps(asdict(account)))


if __name__ == "__main__":
    main()
