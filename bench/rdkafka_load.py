"""Load by librdkafka: some producers, then as many consumers, in one process; prints what it took as JSON."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, cycle, repeat
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

DEADLINE_SECONDS: Final = 300.0
"""A load that takes longer has failed."""
_BATCH_BYTES: Final = 64 * 1024
_LINGER_MS: Final = 5
_QUEUE_KBYTES: Final = 256 * 1024
"""What all clients together may queue."""
_RECORDS_AT_A_TIME: Final = 500


class LoadError(RuntimeError):
    """Records were refused, or did not come back in time."""


@dataclass(frozen=True)
class Load:
    """What to send and read."""

    bootstrap: str
    topics: Sequence[str]
    """The records are divided over them."""
    connections: int
    record_bytes: int
    records: int


@dataclass(frozen=True)
class Done:
    """What came of it."""

    seconds: float
    """From the first record to the last acknowledgement, or to the last record read; connections were open before."""
    records: int


def produce(load: Load) -> Done:
    """Sends all records, divided over the producers.

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
    began = time.monotonic()
    for producer, topic in zip(cycle(producers), _in_turn(load.topics, load.connections), strict=False):
        if not left:
            break
        left -= _queue(producer, topic, value, min(left, _RECORDS_AT_A_TIME), began)
    unsent = sum(producer.flush(DEADLINE_SECONDS) for producer in producers)
    seconds = time.monotonic() - began
    if unsent or failures:
        raise LoadError(f"{unsent} records not sent, {len(failures)} refused: {failures[:1]}")
    return Done(seconds, load.records)


def _in_turn(topics: Sequence[str], times: int) -> Iterator[str]:
    """Names each topic so many times, then the next, without an end."""
    return chain.from_iterable(repeat(topic, times) for topic in cycle(topics))


def _queue(producer: Any, topic: str, value: bytes, count: int, began: float) -> int:
    """Queues records until `count` or until the queue is full; returns how many."""
    for number in range(count):
        try:
            producer.produce(topic, value)
        except BufferError:
            if time.monotonic() - began > DEADLINE_SECONDS:
                raise LoadError("the queue of a producer does not empty") from None
            producer.poll(0.001)
            return number
    producer.poll(0)
    return count


def consume(load: Load) -> Done:
    """Reads the topics from their beginning, the partitions divided over the consumers.

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
    began = time.monotonic()
    for number, consumer in enumerate(consumers):
        mine = partitions[number :: load.connections]
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in mine])
    read = _read_all(consumers, load.records, began)
    seconds = time.monotonic() - began
    for consumer in consumers:
        consumer.close()
    if read < load.records:
        raise LoadError(f"{read} of {load.records} records came back")
    return Done(seconds, read)


def _read_all(consumers: Sequence[Any], records: int, began: float) -> int:
    """Reads from one consumer after the other, waiting only when none had anything."""
    read = 0
    wait_seconds = 0.0
    while read < records and time.monotonic() - began < DEADLINE_SECONDS:
        before = read
        for consumer in consumers:
            messages = consumer.consume(10_000, wait_seconds)
            read += sum(1 for message in messages if message.error() is None)
        wait_seconds = 0.0 if read > before else 0.02 / len(consumers)
    return read


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one load and prints a `Done` as JSON."""
    parser = argparse.ArgumentParser(prog="python -m kordon.bench.rdkafka_load")
    parser.add_argument("direction", choices=["produce", "consume"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True, action="append", dest="topics", help="may be given more than once")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--record-bytes", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=100_000)
    told = vars(parser.parse_args(arguments))
    direction = told.pop("direction")
    done = (produce if direction == "produce" else consume)(Load(**told))
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
