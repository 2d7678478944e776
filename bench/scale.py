"""What the parts of a proxy cost by their number, and how a change of partitions takes longer with more proxies.

Two kinds of measurements, neither of which needs a broker:

- *Parts*: bytes of Python objects (tracemalloc) and CPU of the product's own code for a virtual partition, a managed
  topic and a connection, at 100, 1,000 and 10,000 of them. If the cost of one rises with their number, something is
  worse than linear.
- *Proxies*: the simulation (`testing/simulation`) runs so many proxies in virtual time, in front of a cluster on which
  nothing goes wrong: their group comes together, a topic grows, one of them is killed, and the topic grows again.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as numbers
from typing import Final
from uuid import UUID

from kordon.bench import results
from kordon.bench.results import Measurement
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import Tick
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.handlers import Handlers
from kordon.proxy.handlers.service import ManagedService
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import TopicRecord, dump, load
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import shared
from kordon.testing.simulation.cluster import Cluster
from kordon.testing.simulation.logs import told_in
from kordon.testing.simulation.loop import clocks_of
from kordon.testing.simulation.world import World

PARTS: Final = ("virtual partitions of one topic", "managed topics, V = 24", "idle connections")
PROXIES: Final = "proxies in virtual time"
_CHANGES: Final = (12, 24, 12)
"""What a topic's partitions have been, so that its virtual partitions have moved."""
_V: Final = 24
_U: Final = 6
_FACE_ID: Final = UUID(int=2)
_BEGINNING: Final = 1_000.0
"""Of virtual time: behind the time in which things go wrong in a simulated cluster."""
_PATIENCE_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.005
_STEADY_SECONDS: Final = 30.0
"""Until leases of before, of which a new controller cannot know, have ended."""


class ScaleError(RuntimeError):
    """Simulated proxies did not come to where they were to be."""


def measure_scale(counts: Sequence[int], proxies: Sequence[int]) -> Iterator[Measurement]:
    """Measures each part by each count, then each number of proxies; raises ScaleError."""
    for name, make in zip(PARTS, (_virtual_partitions, _topics, _connections), strict=True):
        for count in counts:
            yield Measurement(name, f"{count:,}", 1, make(count))
    for count in proxies:
        yield Measurement(PROXIES, f"{count:,}", 1, of_proxies(count))


def _cost(count: int, make: Callable[[], object]) -> dict[str, float]:
    """Returns bytes and CPU of one of `count` things; they are made twice, as tracing takes time."""
    began = time.process_time()
    made = make()
    cpu_seconds = time.process_time() - began
    del made
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    made = make()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return {results.PART_BYTES: (held - before) / count, results.PART_US: cpu_seconds / count * 1e6}


def _record(name: str, number: int, n: int, v_count: int) -> tuple[str, bytes]:
    layout = Layout.created(name, UUID(int=number), n, v_count)
    for step, u in enumerate(_CHANGES if n == _CHANGES[0] else (), 1):
        layout = layout.changed(layout.next_epoch(u), dict.fromkeys(range(max(_CHANGES)), step))
    return f"topic/{name}", dump(TopicRecord(layout, _FACE_ID))


def _served(records: Sequence[tuple[str, bytes]]) -> tuple[ManagedTopics, list[object]]:
    """Reads records of `__kordon.layouts` as a worker does when it begins, and derives what serving needs."""
    topics, derived = ManagedTopics(), list[object]()
    for number, (key, value) in enumerate(records):
        record = load(key, value)
        assert isinstance(record, TopicRecord), record
        topic = ManagedTopic(record.layout, UUID(int=number + 10), layouts_offset=number)
        topics.add(topic)
        derived += [chain.home for chain in topic.layout.chains]
    return topics, derived


def _virtual_partitions(count: int) -> dict[str, float]:
    n = _CHANGES[0]
    v_count = n * 2 ** max((count // n).bit_length(), 2)
    record = [_record("orders", 1, n, v_count)]
    return {**_cost(v_count, lambda: _served(record)), results.PART_COUNT: v_count}


def _topics(count: int) -> dict[str, float]:
    records = [_record(f"topic-{number}", number, _U, _V) for number in range(count)]
    return {**_cost(count, lambda: _served(records)), results.PART_COUNT: count}


def _connections(count: int) -> dict[str, float]:
    """Measures what a worker keeps of connections beside their sockets; the CPU is that of a look at each of them."""
    limits, tally, address = Limits(), Tally(), Advertised(host="proxy", base_port=1)
    handlers = Handlers([], shared(ManagedTopics()))
    service = ManagedService(handlers, handlers)

    def made() -> list[Connection]:
        return [Connection(limits, tally, address, 0.0, service.connected(Client(each))) for each in range(count)]

    figures = _cost(count, made)
    connections, began = made(), time.process_time()
    for each in connections:
        each.handle(Tick(1.0, client_read=True))
    cpu_seconds = time.process_time() - began
    return {**figures, results.PART_US: cpu_seconds / count * 1e6, results.PART_COUNT: count}


def of_proxies(count: int) -> dict[str, float]:
    """Measures so many proxies of a simulated cluster.

    Returns:
        Virtual time until all serve; of the fence of a change; of a change that begins when a proxy has just died
        without a word, and another one begins in its place. CPU of one proxy for the first change, and records of
        `__kordon.layouts` that it took.

    Raises:
        ScaleError: They do not get there.
    """
    with _cluster(count) as cluster:
        world = cluster.world
        together = _seconds_until(cluster, lambda: all(each.may_serve for each in cluster.proxies))
        world.run(world.now + _STEADY_SECONDS)
        written, cpu, fence_ms = len(cluster.layouts.records), time.process_time(), _fence_ms(cluster)
        cpu, written = time.process_time() - cpu, len(cluster.layouts.records) - written
        cluster.kill(cluster.proxies[-1])
        cluster.wanted += 1
        with_one_dead = _seconds_until(cluster, lambda: _has_changed(cluster))
        return {
            results.SCALE_TOGETHER_S: together,
            results.SCALE_FENCE_MS: fence_ms,
            results.SCALE_DEAD_S: with_one_dead,
            results.SCALE_CPU_MS: cpu / count * 1000,
            results.SCALE_RECORDS: float(written),
        }


def _fence_ms(cluster: Cluster) -> float:
    """Has the topic grow by one partition; returns for how long some proxy had its fence, within 5 ms."""
    fenced: list[float] = []

    def look() -> bool:
        if any(each.topic is not None and each.topic.fence is not None for each in cluster.proxies):
            fenced.append(cluster.world.now)
        return not _has_changed(cluster)

    cluster.wanted += 1
    cluster.world.each(_LOOK_SECONDS, look)
    _seconds_until(cluster, lambda: _has_changed(cluster))
    return (fenced[-1] - fenced[0]) * 1000 if fenced else 0.0


def _has_changed(cluster: Cluster) -> bool:
    return cluster.layout.u == cluster.wanted and not cluster.look()


def _seconds_until(cluster: Cluster, holds: Callable[[], bool]) -> float:
    began = cluster.world.now
    cluster.world.run(began + _PATIENCE_SECONDS, holds)
    if not holds():
        raise ScaleError(f"simulated proxies did not agree within {_PATIENCE_SECONDS:g} virtual seconds")
    return cluster.world.now - began


@contextmanager
def _cluster(count: int) -> Iterator[Cluster]:
    """Begins a cluster on which nothing goes wrong, with so many proxies and a topic that is managed."""
    errors: list[str] = []
    for seed in numbers():
        world = World(seed)
        world.now = _BEGINNING
        with clocks_of(world), told_in(world, errors.append):
            cluster = Cluster(world)
            cluster.trouble_share = 0.0
            if not cluster.is_taken_over:
                cluster.proxies += [cluster.new_proxy() for _ in range(count - len(cluster.proxies))]
                yield cluster
                cluster.over = True
                for proxy in (*cluster.ended, *cluster.proxies):
                    proxy.loop.end()
                world.end()
                if errors:
                    raise ScaleError(errors[0])
                return
