"""What a proxy holds for virtual partitions that are written to and read: memory, and work while nothing happens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kordon.bench import results
from kordon.bench.contenders import Contender
from kordon.bench.loads import ToolError
from kordon.bench.plan import Holding

IDLE_SECONDS: Final = 5.0
"""How long processor time is counted while nobody writes."""
_RECORD: Final = b"x" * 100
_PATIENCE_SECONDS: Final = 120.0


def measure_holding(case: Holding, contender: Contender, topics: Sequence[str]) -> dict[str, float]:
    """Writes a record to each virtual partition, reads all back, and says what the proxy holds for that.

    Args:
        case: How many there are.
        contender: A Kordon of its own, just started: what memory was for before cannot be told apart.
        topics: Managed, and empty.

    Raises:
        ToolError: A record was lost.
    """
    before = contender.rss_bytes()
    everywhere = [
        TopicPartition(topic, v, OFFSET_BEGINNING) for topic in topics for v in range(case.virtual_partitions)
    ]
    _write(contender.bootstrap, everywhere)
    consumer = _read(contender.bootstrap, everywhere)
    took = contender.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    took = contender.cpu_seconds() - took
    held = contender.rss_bytes() - before
    consumer.close()
    return {
        results.HELD_KB: held / 1000 / len(everywhere),
        results.HELD_MB: held / 1e6,
        results.IDLE_CPU: took / IDLE_SECONDS * 1000,
    }


def _write(bootstrap: str, everywhere: Sequence[TopicPartition]) -> None:
    failures: list[str] = []

    def reported(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "on_delivery": reported, "log_level": 2})
    for each in everywhere:
        producer.produce(each.topic, _RECORD, partition=each.partition)
        producer.poll(0)
    left = producer.flush(_PATIENCE_SECONDS)
    if left or failures:
        raise ToolError(
            f"virtual partitions: {left} records without an answer, {len(failures)} refused: {failures[:1]}"
        )


def _read(bootstrap: str, everywhere: Sequence[TopicPartition]) -> Any:
    """Reads one record of each; returns the consumer, which goes on asking for more."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench-holding", "enable.auto.commit": False}
    consumer = Consumer(settings | {"log_level": 2})
    consumer.assign(list(everywhere))
    left, deadline = len(everywhere), time.monotonic() + _PATIENCE_SECONDS
    while left and time.monotonic() < deadline:
        left -= sum(1 for message in consumer.consume(10_000, 0.2) if message.error() is None)
    if left:
        raise ToolError(f"virtual partitions: {left} of {len(everywhere)} records did not come back")
    return consumer
