"""How fast groups work on slow records: Kafka's own consumers, share groups, the SDK's, and Parallel Consumer.

Each way has the same work: a topic of 3 partitions, or of 96 virtual ones, and handlers that wait 20 ms. Of the records
that were handled it tells records a second, and how many were begun after a later one of their key. If a key's handler
is to be blocked for a while, it tells what others have then of what they had before.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from kordon.bench import results
from kordon.bench.loads import ToolError
from kordon.bench.parallel_consumer import parallel_consumer
from kordon.bench.plan import Groups
from kordon.bench.results import Measurement
from kordon.client.cooperative.consumer import CooperativeConsumer
from kordon.client.cooperative.settings import Record
from kordon.testing.proxy_process import ProxyProcess

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

PARTITIONS: Final = 3
VIRTUAL: Final = 96
HANDLER_SECONDS: Final = 0.02
BLOCKED: Final = b"key-0"
"""The key whose handler does not end for a while."""
_VIRTUAL_CONFIG: Final = "kordon.virtual.partitions"
_JOIN_SECONDS: Final = 240.0
_POLL_SECONDS: Final = 0.2
_NEARLY_ALL: Final = 0.95
"""Of the records: behind that, keys are done one after the other, and less is worked on at a time."""


@dataclass(slots=True)
class Handled:
    """What a process, or several, have handled."""

    records: int = 0
    others: int = 0
    """Records of other keys than the one that may be blocked."""
    inversions: int = 0
    """Records that were begun after a later one of their key, as far as one process sees it."""
    repeats: int = 0
    """Records that were begun again, as far as one process sees it."""
    is_blocked: bool = False
    """Whether the handler of `BLOCKED` does not end now."""
    begun: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """By key, the highest number that was begun."""
    seen: set[int] = field(default_factory=set[int])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, key: bytes, number: int) -> None:
        """A record is begun."""
        with self.lock:
            is_again = number in self.seen
            self.repeats += is_again
            self.inversions += not is_again and number < self.begun.get(key, -1)
            self.seen.add(number)
            self.begun[key] = max(number, self.begun.get(key, -1))
            self.records += 1
            self.others += key != BLOCKED

    def holds(self, key: bytes) -> bool:
        """Whether a key's handler does not end now."""
        return self.is_blocked and key == BLOCKED

    def told(self) -> dict[str, int]:
        """Returns the counts."""
        return {"records": self.records, "others": self.others, "inversions": self.inversions, "repeats": self.repeats}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work."""

    name: str
    run: Callable[[str, str, Groups, Handled, threading.Event], None]
    """In one process: bootstrap, topic (and name of the group), work, what is handled, when it is over."""
    processes: int = 1
    """0: as many as the work says."""
    through_kordon: bool = False
    virtual: int = 0
    """Virtual partitions; 0: the topic is an ordinary one."""


def _stock(bootstrap: str, topic: str, work: Groups, handled: Handled, over: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    _in_threads(work.consumers, partial(_poll, partial(Consumer, settings), topic, handled, over, is_batch=False))


def _share(bootstrap: str, topic: str, work: Groups, handled: Handled, over: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic}
    _in_threads(work.consumers, partial(_poll, partial(ShareConsumer, settings), topic, handled, over, is_batch=True))


def _poll(make: Callable[[], Any], topic: str, handled: Handled, over: threading.Event, *, is_batch: bool) -> None:
    consumer = make()
    consumer.subscribe([topic])
    try:
        while not over.is_set():
            found = consumer.poll(_POLL_SECONDS)
            for message in found if is_batch else [found]:
                if message is None or message.error() or over.is_set():
                    continue
                handled.begin(message.key(), int(message.value()))
                time.sleep(HANDLER_SECONDS)
                while handled.holds(message.key()) and not over.is_set():
                    time.sleep(HANDLER_SECONDS)
    finally:
        consumer.close()


def _in_threads(count: int, run: Callable[[], None]) -> None:
    threads = [threading.Thread(target=run) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _cooperative(bootstrap: str, topic: str, work: Groups, handled: Handled, over: threading.Event) -> None:
    async def handle(record: Record) -> None:
        key = record.key or b""
        handled.begin(key, int(record.value or 0))
        await asyncio.sleep(HANDLER_SECONDS)
        while handled.holds(key) and not over.is_set():  # noqa: ASYNC110 - a thread sets that
            await asyncio.sleep(HANDLER_SECONDS)

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


def _parallel(bootstrap: str, topic: str, work: Groups, handled: Handled, over: threading.Event) -> None:
    told = (bootstrap, topic, str(work.concurrency), str(int(HANDLER_SECONDS * 1000)), BLOCKED.decode())
    with parallel_consumer(told) as (tell, counts):
        is_blocked = False
        while not over.wait(HANDLER_SECONDS):
            handled.records, handled.others, handled.inversions, handled.repeats = counts()
            if handled.is_blocked != is_blocked:
                is_blocked = handled.is_blocked
                tell("block" if is_blocked else "go on")


COOPERATIVE: Final = "CooperativeConsumer, through Kordon"
_KEEPS: Final = {"ordering": {"individual_commits": True, "share_groups": True}}
"""Of the Kordon."""
WAYS: Final = (
    Way("stock consumers", _stock),
    Way(f"stock consumers, V = {VIRTUAL}", _stock, through_kordon=True, virtual=VIRTUAL),
    Way(results.SHARE_GROUP, _share),
    Way(results.ORDERED_SHARE_GROUP, _share, through_kordon=True, virtual=VIRTUAL),
    Way("Parallel Consumer", _parallel, processes=0),
    Way("CooperativeConsumer, at brokers", _cooperative, processes=0),
    Way(COOPERATIVE, _cooperative, processes=0, through_kordon=True),
    Way(f"CooperativeConsumer, V = {VIRTUAL}", _cooperative, processes=0, through_kordon=True, virtual=VIRTUAL),
)


def measure_groups(
    cases: Sequence[Groups], bootstrap: str, tell: Callable[..., None], ways: Sequence[Way] = WAYS
) -> Iterator[Measurement]:
    """Lets each way have its turn in each round of each case, with a Kordon that keeps what groups do record by record.

    Raises:
        ToolError: Not all processes of a way got to work.
    """
    with ProxyProcess.start(bootstrap=bootstrap, config=_KEEPS) as kordon:
        for case in cases:
            order = list(ways)
            for number in range(1, case.rounds + 1):
                for way in order:
                    tell(case.name, way.name, number)
                    yield Measurement(case.name, way.name, number, measure(way, case, bootstrap, kordon.bootstrap))
                order.append(order.pop(0))


def measure(way: Way, work: Groups, bootstrap: str, kordon: str) -> dict[str, float]:
    """Makes and fills a topic, has it worked on, and deletes it; raises ToolError."""
    address, topic = kordon if way.through_kordon else bootstrap, f"peers-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    config = {_VIRTUAL_CONFIG: str(way.virtual)} if way.virtual else {}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(60)
    try:
        _fill(address, topic, work)
        if way.run is _share:
            _begin_at_the_start(AdminClient({"bootstrap.servers": bootstrap}), topic)
        with _processes(way, work, address, topic) as pipes:
            return _figures(work, pipes)
    finally:
        admin.delete_topics([topic])[topic].result(60)


def _fill(bootstrap: str, topic: str, work: Groups) -> None:
    settings = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})  # or else what is sent again overtakes others
    for number in range(work.records):
        producer.produce(topic, value=b"%d" % number, key=b"key-%d" % (number % work.keys))
        producer.poll(0)
    producer.flush(_JOIN_SECONDS)


def _begin_at_the_start(admin: AdminClient, group: str) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


@contextmanager
def _processes(way: Way, work: Groups, bootstrap: str, topic: str) -> Generator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes: list[Any] = []
    for _ in range(way.processes or work.processes):
        own, theirs = context.Pipe()
        processes.append(context.Process(target=_process, args=(WAYS.index(way), bootstrap, topic, work, theirs)))
        pipes.append(own)
    for each in processes:
        each.start()
    try:
        yield pipes
    finally:
        for pipe in pipes:
            pipe.send("stop")
        for each in processes:
            each.join(60)
            if each.is_alive():
                each.kill()


def _figures(work: Groups, pipes: Sequence[Connection]) -> dict[str, float]:
    """Counts from when each process has handled something; then again while a key's handler is blocked."""
    _wait_for_records(pipes)
    rate, others = _rates(work, pipes, work.seconds)
    figures = {results.RECORDS: rate}
    if work.blocked_seconds:
        for pipe in pipes:
            pipe.send("block")
        _, then = _rates(work, pipes, work.blocked_seconds)
        figures[results.OTHERS_KEEP] = then / others
    told = _all(pipes)
    return figures | {results.INVERSIONS: float(told["inversions"]), results.REPEATS: float(told["repeats"])}


def _rates(work: Groups, pipes: Sequence[Connection], seconds: float) -> tuple[float, float]:
    """Returns the records a second of all keys, and of those that are never blocked."""
    since, before = time.monotonic(), _all(pipes)
    while (now := time.monotonic()) < since + seconds and _all(pipes)["records"] < work.records * _NEARLY_ALL:
        time.sleep(min(_POLL_SECONDS, max(0.0, since + seconds - now)))
    after, took = _all(pipes), time.monotonic() - since
    return (after["records"] - before["records"]) / took, (after["others"] - before["others"]) / took


def _wait_for_records(pipes: Sequence[Connection]) -> None:
    until = time.monotonic() + _JOIN_SECONDS
    while not all(_asked(each)["records"] for each in pipes):
        if time.monotonic() > until:
            raise ToolError(f"not all processes have a record after {_JOIN_SECONDS:g} s: see what members log")
        time.sleep(_POLL_SECONDS)


def _all(pipes: Sequence[Connection]) -> dict[str, int]:
    counted = [_asked(each) for each in pipes]
    return {name: sum(each[name] for each in counted) for name in counted[0]}


def _asked(pipe: Connection) -> Mapping[str, int]:
    pipe.send("count")
    counted: Mapping[str, int] = json.loads(pipe.recv())
    return counted


def _process(index: int, bootstrap: str, topic: str, work: Groups, pipe: Connection) -> None:
    handled, over = Handled(), threading.Event()

    def obey() -> None:
        while (order := pipe.recv()) != "stop":
            if order == "block":
                handled.is_blocked = True
            else:
                pipe.send(json.dumps(handled.told()))
        over.set()

    threading.Thread(target=obey, daemon=True).start()
    WAYS[index].run(bootstrap, topic, work, handled, over)
