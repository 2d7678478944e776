"""What a CooperativeConsumer costs: `python -m kordon.bench.cooperative [--bootstrap HOST:PORT]`.

Without a broker: CPU microseconds of each step of a record, with so many in flight that are finished at random, and the
bytes of a commit. With one: records a second of one process, with handlers that wait 20 ms, on a topic of 3 partitions
that it makes, fills and deletes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord, TopicPartition

from kordon.client.cooperative.consumer import CooperativeConsumer
from kordon.client.cooperative.in_hand import InHand, Limits
from kordon.client.cooperative.range_text import Owner, build
from kordon.client.cooperative.settings import AcknowledgeType, Record, Settings
from kordon.client.cooperative.working import Hand, Held, Working

IN_FLIGHT: Final = (1_000, 10_000, 20_000)
RECORDS: Final = 200_000
_AT_ONCE: Final = 500
_KEYS: Final = 1_000
_HANDLER_SECONDS: Final = 0.02
_TP: Final = TopicPartition("t", 0)
_LIMITS: Final = Limits(10**6, 10**9, 10**6)


@dataclass(slots=True)
class Cost:
    """CPU microseconds of a record, by what is done with it, and what its partition commits at the end."""

    in_flight: int
    us: dict[str, float] = field(default_factory=dict[str, float])
    ranges: int = 0
    fitting: int = 0
    commit_bytes: int = 0
    """Of ranges that a Kordon keeps."""
    metadata_bytes: int = 0
    """Of those that a commit's metadata has room for."""
    commit_ms: float = 0.0

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """Counts the CPU time of a block."""
        since = time.thread_time()
        yield
        self.us[what] = self.us.get(what, 0.0) + (time.thread_time() - since) / RECORDS * 1e6


async def measure(in_flight: int) -> Cost:
    """Fetches, starts and acknowledges records by hand, each time others of those in flight."""
    chance = random.Random(1)  # noqa: S311 - chance that can be repeated
    cost = Cost(in_flight)
    hand: Hand = InHand("key", _LIMITS)
    working = Working(hand, Settings(), key_deserializer=None, value_deserializer=None, freed=lambda: None)
    hand.assign(_TP, 0)
    running: list[Held] = []
    offset = 0
    while offset < RECORDS:
        room = in_flight - len(running)
        rows = [(o, b"%d" % o, 100, _record(o)) for o in range(offset, offset + room)]
        offset += room
        with cost.counted("fetched"):
            hand.take(_TP, rows, offset)
        with cost.counted("started"):
            running += [entry for _ in range(room) if (entry := hand.start(0.0)) is not None]
        chance.shuffle(running)
        done, running = running[:_AT_ONCE], running[_AT_ONCE:]
        with cost.counted("acknowledged"):
            for entry in done:
                working.acknowledge(hand.find(_TP, entry.offset) or entry, AcknowledgeType.ACCEPT)
    since = time.thread_time()
    progress = hand.progress(_TP)
    data = progress.ranges.dump()
    cost.commit_ms = (time.thread_time() - since) * 1e3
    text, told = build(Owner("group", "topic", 0, UUID(int=1)), progress.stable, progress.ranges)
    cost.ranges, cost.fitting = len(progress.ranges), len(told)
    cost.commit_bytes, cost.metadata_bytes = len(data), len(text)
    return cost


def _record(offset: int) -> Record:
    return ConsumerRecord("t", 0, offset, 0, 0, b"", b"", None, 0, 0, ())


async def throughput(bootstrap: str, concurrency: int, records: int) -> tuple[float, float]:
    """Returns the records a second of one process, and the CPU microseconds of each."""
    topic = f"kordon-bench-{uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 3, 1)])
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
            for number in range(records):
                await producer.send(topic, b"x" * 100, key=b"key-%d" % (number % _KEYS))
        return await _handled(bootstrap, topic, concurrency, records)
    finally:
        await admin.delete_topics([topic])
        await admin.close()


async def _handled(bootstrap: str, topic: str, concurrency: int, records: int) -> tuple[float, float]:
    left, over = records, asyncio.Event()
    begun: list[tuple[float, float]] = []

    async def handle(record: Record) -> None:
        nonlocal left
        if not begun:
            begun.append((time.monotonic(), time.process_time()))
        await asyncio.sleep(_HANDLER_SECONDS)
        left -= 1
        if not left:
            over.set()

    async with CooperativeConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", concurrency=concurrency
    ) as consumer:
        running = asyncio.ensure_future(consumer.run(handle))
        await over.wait()
        (wall, cpu), wall_now, cpu_now = begun[0], time.monotonic(), time.process_time()
    await running
    return records / (wall_now - wall), (cpu_now - cpu) / records * 1e6


def main() -> None:
    """Measures, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="of brokers or a Kordon, to measure records a second")
    parser.add_argument("--records", type=int, default=50_000)
    told = parser.parse_args()
    for in_flight in IN_FLIGHT:
        cost = asyncio.run(measure(in_flight))
        steps = ", ".join(f"{what} {us:.2f}" for what, us in cost.us.items())
        _say(
            f"{in_flight:,} in flight: us of a record: {steps}; {cost.ranges:,} ranges in {cost.commit_bytes:,} bytes "
            f"of a commit to Kordon, made in {cost.commit_ms:.1f} ms, or {cost.fitting:,} of them in "
            f"{cost.metadata_bytes:,} bytes of metadata"
        )
    for concurrency in (100, 1_000) if told.bootstrap else ():
        rate, us = asyncio.run(throughput(told.bootstrap, concurrency, told.records))
        _say(f"{concurrency:,} at a time, 20 ms each: {rate:,.0f} records/s, {us:.0f} us of CPU each")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
