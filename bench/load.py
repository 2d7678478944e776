"""A load by librdkafka, by aiokafka or by the SDK: `python -m kordon.bench.load` prints what it took as JSON.

librdkafka sends by some producers, then reads by as many consumers; the others by one, with keys and idempotently.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, cycle, repeat
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kordon.client.consumer import OrderedConsumer
from kordon.client.producer import OrderedProducer

DEADLINE_SECONDS: Final = 300.0
"""A load that takes longer has failed."""
_BATCH_BYTES: Final = 64 * 1024
_LINGER_MS: Final = 5
_QUEUE_KBYTES: Final = 256 * 1024
"""What all clients together may queue."""
_RECORDS_AT_A_TIME: Final = 500
_KEYS: Final = 1_000
_PRODUCERS: Final = {"aiokafka": AIOKafkaProducer, "sdk": OrderedProducer}
_CONSUMERS: Final = {"aiokafka": AIOKafkaConsumer, "sdk": OrderedConsumer}


class LoadError(RuntimeError):
    """Records were refused, or did not come back in time."""


@dataclass(frozen=True)
class Load:
    """What to send and read."""

    client: str
    bootstrap: str
    topics: Sequence[str]
    """The records are divided over them; aiokafka and the SDK take the first."""
    connections: int
    """Producers, or consumers, of librdkafka."""
    record_bytes: int
    records: int


@dataclass(frozen=True)
class Done:
    """What it took; connections were open before, and members had joined their group."""

    seconds: float
    """From the first record to the last acknowledgement, or to the last record read."""
    cpu_seconds: float
    """Of this process in that time."""


class _Clock:
    def __init__(self) -> None:
        self.began, self._cpu = time.monotonic(), time.process_time()

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self.began > DEADLINE_SECONDS

    def done(self) -> Done:
        return Done(time.monotonic() - self.began, time.process_time() - self._cpu)


def produce(load: Load) -> Done:
    """Sends all records, divided over librdkafka's producers.

    Raises:
        LoadError: A record was not acknowledged.
    """
    failures: list[str] = []

    def reported(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    settings = {
        "bootstrap.servers": load.bootstrap,
        "acks": "all",
        "linger.ms": _LINGER_MS,
        "batch.size": _BATCH_BYTES,
        "queue.buffering.max.kbytes": max(_QUEUE_KBYTES // load.connections, 1024),
        "delivery.report.only.error": True,
        "on_delivery": reported,
    }
    producers = [Producer(settings) for _ in range(load.connections)]
    for producer in producers:
        producer.list_topics(timeout=30)
    value = os.urandom(load.record_bytes)
    left = load.records
    clock = _Clock()
    for producer, topic in zip(cycle(producers), _in_turn(load.topics, load.connections), strict=False):
        if not left:
            break
        left -= _queue(producer, topic, value, min(left, _RECORDS_AT_A_TIME), clock)
    unsent = sum(producer.flush(DEADLINE_SECONDS) for producer in producers)
    done = clock.done()
    if unsent or failures:
        raise LoadError(f"{unsent} records not sent, {len(failures)} refused: {failures[:1]}")
    return done


def _in_turn(topics: Sequence[str], times: int) -> Iterator[str]:
    """Names each topic so many times, then the next, without an end."""
    return chain.from_iterable(repeat(topic, times) for topic in cycle(topics))


def _queue(producer: Any, topic: str, value: bytes, count: int, clock: _Clock) -> int:
    """Queues records until `count` or until the queue is full; returns how many."""
    for number in range(count):
        try:
            producer.produce(topic, value)
        except BufferError:
            if clock.is_late:
                raise LoadError("the queue of a producer does not empty") from None
            producer.poll(0.001)
            return number
    producer.poll(0)
    return count


def consume(load: Load) -> Done:
    """Reads the topics from their beginning, the partitions divided over librdkafka's consumers.

    Raises:
        LoadError: Fewer records came than were asked for.
    """
    settings = {
        "bootstrap.servers": load.bootstrap,
        "group.id": f"bench-{load.topics[0]}",
        "enable.auto.commit": False,
        "queued.max.messages.kbytes": max(_QUEUE_KBYTES // load.connections, 1024),
        "queued.min.messages": 1_000_000,
    }
    consumers = [Consumer(settings) for _ in range(load.connections)]
    known = [consumer.list_topics(timeout=30).topics for consumer in consumers].pop()  # all have their connections now
    partitions = [(topic, partition) for topic in load.topics for partition in sorted(known[topic].partitions)]
    clock = _Clock()
    for number, consumer in enumerate(consumers):
        mine = partitions[number :: load.connections]
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in mine])
    read = _read_all(consumers, load.records, clock)
    done = clock.done()
    for consumer in consumers:
        consumer.close()
    return _complete(load, read, done)


def _read_all(consumers: Sequence[Any], records: int, clock: _Clock) -> int:
    """Reads from one consumer after the other, waiting only when none had anything."""
    read = 0
    wait_seconds = 0.0
    while read < records and not clock.is_late:
        before = read
        for consumer in consumers:
            messages = consumer.consume(10_000, wait_seconds)
            read += sum(1 for message in messages if message.error() is None)
        wait_seconds = 0.0 if read > before else 0.02 / len(consumers)
    return read


def _complete(load: Load, read: int, done: Done) -> Done:
    if read < load.records:
        raise LoadError(f"{read} of {load.records} records came back")
    return done


async def produce_by_asyncio(load: Load) -> Done:
    """Sends all records, of a thousand keys in turn; otherwise as `produce`."""
    failures: list[BaseException] = []
    options: dict[str, Any] = {"enable_idempotence": True, "linger_ms": _LINGER_MS, "max_batch_size": _BATCH_BYTES}
    keys = [f"key-{number}".encode() for number in range(_KEYS)]
    value = os.urandom(load.record_bytes)
    topic = load.topics[0]

    def answered(answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and (error := answer.exception()) is not None:
            failures.append(error)

    async with _PRODUCERS[load.client](bootstrap_servers=load.bootstrap, **options) as producer:
        await producer.partitions_for(topic)
        clock = _Clock()
        for number in range(load.records):
            (await producer.send(topic, value, keys[number % _KEYS])).add_done_callback(answered)
        await asyncio.wait_for(producer.flush(), DEADLINE_SECONDS)
        done = clock.done()
    if failures:
        raise LoadError(f"{len(failures)} records refused: {failures[0]!r}")
    return done


async def consume_by_asyncio(load: Load) -> Done:
    """Reads the topic from its beginning, as the only member of a group; otherwise as `consume`."""
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    read, topic = 0, load.topics[0]
    joining = _CONSUMERS[load.client](topic, bootstrap_servers=load.bootstrap, group_id=f"bench-{topic}", **options)
    async with joining as consumer:
        clock = _Clock()  # it has its partitions
        while read < load.records and not clock.is_late:
            found = await consumer.getmany(timeout_ms=500)
            read += sum(len(records) for records in found.values())
        done = clock.done()
    return _complete(load, read, done)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one load and prints a `Done` as JSON."""
    parser = argparse.ArgumentParser(prog="python -m kordon.bench.load")
    parser.add_argument("direction", choices=["produce", "consume"])
    parser.add_argument("--client", choices=["librdkafka", *_PRODUCERS], required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True, action="append", dest="topics", help="may be given more than once")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    told = vars(parser.parse_args(arguments))
    sends = told.pop("direction") == "produce"
    load = Load(**told)
    if load.client == "librdkafka":
        done = produce(load) if sends else consume(load)
    else:
        done = asyncio.run(produce_by_asyncio(load) if sends else consume_by_asyncio(load))
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
