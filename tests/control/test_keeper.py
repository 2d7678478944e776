"""A worker's fences, with the cluster left out: what is held, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kordon.proxy.control.batches import Entry, Record
from kordon.proxy.control.keeper import Keeper
from kordon.proxy.managed.topics import ManagedTopics
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, Value, dump

LAYOUT = Layout.created("orders", UUID(int=1), 3, 12)
FENCE = FenceRecord("f1", "orders", LAYOUT.next_epoch(4), LAYOUT.sealed_by(LAYOUT.next_epoch(4)))


class Clients:
    """Stands for lanes and readers."""

    def __init__(self) -> None:
        self.drained = asyncio.Event()

    async def drain(self, topic: str, partitions: frozenset[int]) -> None:
        """Waits until the test says that nothing is under way."""
        await self.drained.wait()

    async def freeze(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Shows nothing beyond 7."""
        return dict.fromkeys(partitions, 7)

    def invalidate(self, topic: str) -> None:
        """Has read nothing."""

    async def nothing_between(self, topic: str, v: int, offset: int, until: int) -> bool:
        """Knows nothing."""
        return False

    def lease_renewed(self) -> None:
        """Has kept nothing."""


class Layouts:
    """Keeps what is appended."""

    def __init__(self) -> None:
        self.appended: list[str] = []
        self.changed = asyncio.Event()

    async def append(self, entries: list[Entry]) -> int:
        """Keeps the keys."""
        self.appended += [entry.key for entry in entries]
        self.changed.set()
        return 0


def keeper_of(clients: Clients, layouts: Layouts) -> tuple[Keeper, ManagedTopics]:
    """Makes a keeper that knows the topic `orders`."""
    topics = ManagedTopics()
    membership = SimpleNamespace(incarnation="me", lease=SimpleNamespace(seconds=20.0))
    keeper = Keeper(
        topics=topics,
        layouts=cast("Any", layouts),
        membership=cast("Any", membership),
        admin=cast("Any", None),
        writers=clients,
        readers=clients,
        make_writer=cast("Any", None),
        admit=cast("Any", None),
    )
    keeper.on_record(record("topic/orders", TopicRecord(LAYOUT, UUID(int=2))))
    return keeper, topics


def record(key: str, value: Value | None) -> Record:
    """Makes a record of the layouts topic."""
    return Record(key, None if value is None else dump(value), 0)


async def test_a_fence_is_acknowledged_when_nothing_is_under_way_any_more() -> None:
    """Writes are held at once; the acknowledgement waits for answers, and names fence and incarnation."""
    clients, layouts = Clients(), Layouts()
    keeper, topics = keeper_of(clients, layouts)
    keeper.on_record(record("fence/orders", FENCE))
    topic = topics.named("orders")
    assert topic is not None
    assert topic.is_sealed(0)
    assert not topic.is_sealed(1)
    await asyncio.sleep(0)
    assert layouts.appended == []
    clients.drained.set()
    async with asyncio.timeout(5):
        await layouts.changed.wait()
    assert layouts.appended == ["ack/f1/me"]
    assert topic.fence is not None
    assert topic.fence.high_watermarks == {0: 7}


async def test_a_fence_that_is_read_together_with_its_layout_holds_nothing() -> None:
    """A proxy that slept reads both at once: it must not begin to hold what the layout has already ended."""
    clients, layouts = Clients(), Layouts()
    clients.drained.set()
    keeper, topics = keeper_of(clients, layouts)
    grown = LAYOUT.changed(FENCE.following, {0: 100, 3: 0})
    keeper.on_record(record("fence/orders", FENCE))
    keeper.on_record(record("topic/orders", TopicRecord(grown, UUID(int=2))))
    keeper.on_record(record("fence/orders", None))
    for _ in range(10):
        await asyncio.sleep(0)
    topic = topics.named("orders")
    assert topic is not None
    assert topic.layout.u == 4
    assert topic.fence is None
    assert layouts.appended == []


async def test_a_cancelled_fence_is_not_acknowledged() -> None:
    """Who drained too late says nothing: the controller counts on what is acknowledged."""
    clients, layouts = Clients(), Layouts()
    keeper, topics = keeper_of(clients, layouts)
    keeper.on_record(record("fence/orders", FENCE))
    await asyncio.sleep(0)
    keeper.on_record(record("fence/orders", None))
    clients.drained.set()
    for _ in range(10):
        await asyncio.sleep(0)
    topic = topics.named("orders")
    assert topic is not None
    assert topic.fence is None
    assert layouts.appended == []
