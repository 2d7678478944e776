"""How fast groups work on slow records: `python -m kordon.bench.peers --bootstrap BROKER --kordon HOST:PORT`.

Each way has the same work: a topic of 3 partitions, or of 96 virtual ones, with 1,000 keys, and handlers that wait 20
ms. 100 consumers of a stock client, 100 members of a share group, or 3 processes with a CooperativeConsumer work on it
for some seconds. Of the records that were handled in that time it tells records a second, and how many were begun
after a later one of their key. The Kordon should have ordering.individual_commits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kordon.client.cooperative.consumer import CooperativeConsumer
from kordon.client.cooperative.settings import Record

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

PARTITIONS: Final = 3
VIRTUAL: Final = 96
_VIRTUAL_CONFIG: Final = "kordon.virtual.partitions"
_JOIN_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Work:
    """What all have to do."""

    records: int = 300_000
    keys: int = 1_000
    handler_seconds: float = 0.02
    consumers: int = 100
    """Of stock clients, and of share groups."""
    processes: int = 3
    concurrency: int = 1_000
    """Records at a time of a CooperativeConsumer."""
    seconds: float = 30.0


_WORK: Final = Work()
SMOKE: Final = Work(records=60_000, keys=100, consumers=4, processes=2, concurrency=50, seconds=2.0)


@dataclass(slots=True)
class Handled:
    """What a process, or several, have handled in the time."""

    records: int = 0
    inversions: int = 0
    """Records that were begun after a later one of their key, as far as one process sees it."""
    begun: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """By key, the highest number that was begun."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, key: bytes, number: int) -> None:
        """A record is begun."""
        with self.lock:
            self.inversions += number < self.begun.get(key, -1)
            self.begun[key] = max(number, self.begun.get(key, -1))
            self.records += 1


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work."""

    name: str
    run: Callable[[str, str, Work, Handled, threading.Event], None]
    """In one process: bootstrap, topic (and name of the group), work, what is handled, when it is over."""
    processes: int = 1
    through_kordon: bool = False
    virtual: int = 0
    """Virtual partitions; 0: the topic is an ordinary one."""


def _stock(bootstrap: str, topic: str, work: Work, handled: Handled, over: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    make = partial(Consumer, settings)
    _in_threads(work.consumers, partial(_poll, make, topic, work, handled, over, is_batch=False))


def _share(bootstrap: str, topic: str, work: Work, handled: Handled, over: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic}
    _in_threads(
        work.consumers, partial(_poll, partial(ShareConsumer, settings), topic, work, handled, over, is_batch=True)
    )


def _poll(
    make: Callable[[], Any], topic: str, work: Work, handled: Handled, over: threading.Event, *, is_batch: bool
) -> None:
    consumer = make()
    consumer.subscribe([topic])
    try:
        while not over.is_set():
            found = consumer.poll(_POLL_SECONDS)
            for message in found if is_batch else [found]:
                if message is None or message.error() or over.is_set():
                    continue
                handled.begin(message.key(), int(message.value()))
                time.sleep(work.handler_seconds)
    finally:
        consumer.close()


def _in_threads(count: int, run: Callable[[], None]) -> None:
    threads = [threading.Thread(target=run) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _cooperative(bootstrap: str, topic: str, work: Work, handled: Handled, over: threading.Event) -> None:
    async def handle(record: Record) -> None:
        handled.begin(record.key or b"", int(record.value or 0))
        await asyncio.sleep(work.handler_seconds)

    async def run() -> None:
        async with CooperativeConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            concurrency=work.concurrency,
        ) as consumer:
            running = asyncio.ensure_future(consumer.run(handle))
            await asyncio.to_thread(over.wait)
        await running

    asyncio.run(run())


WAYS: Final = (
    Way("stock consumers", _stock),
    Way(f"stock consumers, V = {VIRTUAL}", _stock, through_kordon=True, virtual=VIRTUAL),
    Way("share group (no order)", _share),
    Way("CooperativeConsumer, at brokers", _cooperative, processes=0),
    Way("CooperativeConsumer, through Kordon", _cooperative, processes=0, through_kordon=True),
    Way(f"CooperativeConsumer, V = {VIRTUAL}", _cooperative, processes=0, through_kordon=True, virtual=VIRTUAL),
)
"""`processes` 0: as many as the work says."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What came of a way."""

    per_second: float
    records: int
    inversions: int


def measure(way: Way, work: Work, bootstrap: str, kordon: str) -> Rate:
    """Makes and fills a topic, has it worked on for the time, and deletes it."""
    address, topic = kordon if way.through_kordon else bootstrap, f"peers-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    config = {_VIRTUAL_CONFIG: str(way.virtual)} if way.virtual else {}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(60)
    try:
        _fill(address, topic, work)
        if way.run is _share:
            _begin_at_the_start(AdminClient({"bootstrap.servers": bootstrap}), topic)
        return _worked(way, work, address, topic)
    finally:
        admin.delete_topics([topic])[topic].result(60)


def _fill(bootstrap: str, topic: str, work: Work) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(work.records):
        producer.produce(topic, value=b"%d" % number, key=b"key-%d" % (number % work.keys))
        producer.poll(0)
    producer.flush(_JOIN_SECONDS)


def _begin_at_the_start(admin: AdminClient, group: str) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def _worked(way: Way, work: Work, bootstrap: str, topic: str) -> Rate:
    """Counts from when the first record was handled."""
    context = multiprocessing.get_context("spawn")
    index = WAYS.index(way)
    pipes, processes = [], []
    for _ in range(way.processes or work.processes):
        own, theirs = context.Pipe()
        processes.append(context.Process(target=_process, args=(index, bootstrap, topic, work, theirs)))
        pipes.append(own)
    for each in processes:
        each.start()
    try:
        _wait_for_records(pipes)
        since = time.monotonic()
        before = [_asked(each) for each in pipes]
        time.sleep(work.seconds)
        after, seconds = [_asked(each) for each in pipes], time.monotonic() - since
        count = sum(each["records"] for each in after) - sum(each["records"] for each in before)
        return Rate(count / seconds, count, sum(each["inversions"] for each in after))
    finally:
        for pipe in pipes:
            pipe.send("stop")
        for each in processes:
            each.join(60)
            if each.is_alive():
                each.kill()


def _wait_for_records(pipes: list[Connection]) -> None:
    until = time.monotonic() + _JOIN_SECONDS
    while not all(_asked(each)["records"] for each in pipes):
        if time.monotonic() > until:
            raise SystemExit(f"not all processes have a record after {_JOIN_SECONDS:g} s: see what members log")
        time.sleep(_POLL_SECONDS)


def _asked(pipe: Connection) -> Mapping[str, int]:
    pipe.send("count")
    counted: Mapping[str, int] = json.loads(pipe.recv())
    return counted


def _process(index: int, bootstrap: str, topic: str, work: Work, pipe: Connection) -> None:
    handled, over = Handled(), threading.Event()

    def answer() -> None:
        while pipe.recv() == "count":
            pipe.send(json.dumps({"records": handled.records, "inversions": handled.inversions}))
        over.set()

    threading.Thread(target=answer, daemon=True).start()
    WAYS[index].run(bootstrap, topic, work, handled, over)


def main() -> None:
    """Measures each way once, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="of a broker")
    parser.add_argument("--kordon", required=True, metavar="HOST:PORT", help="of a Kordon in front of it")
    parser.add_argument("--seconds", type=float, default=_WORK.seconds, help="for each way")
    parser.add_argument("--records", type=int, default=_WORK.records, help="in each topic")
    told = parser.parse_args()
    work = Work(records=told.records, seconds=told.seconds)
    for way in WAYS:
        rate = measure(way, work, told.bootstrap, told.kordon)
        sys.stdout.write(f"{way.name}: {rate.per_second:,.0f} records/s, {rate.inversions:,} inversions\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
