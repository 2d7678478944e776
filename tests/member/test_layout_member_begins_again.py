"""A worker that fails while it takes in the layouts reads all of them again, and serves nothing until then."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.internal_topic_log import LogLost
from kordon.proxy.member.fence_holder import FenceHolder
from kordon.proxy.member.layout_member import LayoutMember
from kordon.proxy.member.membership import Generation
from kordon.proxy.member.served import ServedParts
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, Value, dump
from kordon.proxy.runtime.clock import clock
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.testing.known import known
from kordon.testing.waiting import until

ORDERS = Layout.created("orders", UUID(int=1), 3, 12)
GROWN = ORDERS.changed(ORDERS.next_epoch(4), {0: 7, 1: 8, 2: 9, 3: 0})
OTHER = Layout.created("other", UUID(int=3), 3, 12)
THIRD = Layout.created("third", UUID(int=5), 3, 12)
FENCE = FenceRecord("f1", "other", OTHER.next_epoch(4), OTHER.change_to(OTHER.next_epoch(4)).sealed)


class Log:
    """A layouts topic whose records a test gives out."""

    def __init__(self, *records: tuple[str, Value | None]) -> None:
        self.position = 0
        self.records = list(records)
        self.failure: Exception | None = None
        self.appended: list[str] = []

    async def exists(self) -> bool:
        return True

    async def faces(self) -> list[str]:
        return []

    async def follow(self, on_record: Callable[[Record], None]) -> None:
        """Gives each record, then what the test has it fail by."""
        while True:
            while self.position < len(self.records):
                key, value = self.records[self.position]
                on_record(Record(key, None if value is None else dump(value), self.position))
                self.position += 1
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            await asyncio.sleep(0.001)

    async def append(self, entries: list[NewRecord], _: float = 0.0) -> int:
        self.appended += [entry.key for entry in entries]
        return 0

    def rewind(self) -> None:
        self.position = 0

    async def read_to_end(self) -> int:
        """Returns when all has been given."""
        await until("all is read", lambda: self.position >= len(self.records))
        return self.position


class Clients:
    """Stands for lanes and readers, that have nothing to do but what a test has them do."""

    def __init__(self) -> None:
        self.landed = asyncio.Event()
        """Set unless something is under way."""
        self.landed.set()
        self.renewed = 0
        """How often what was kept was judged."""
        self.end = 0
        """Where all logs end, as their leaders tell."""

    async def drain(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Waits until nothing is under way."""
        await self.landed.wait()
        return {}

    async def freeze(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Asks how far may be shown."""
        return dict.fromkeys(partitions, self.end)

    async def expect(self, topic: str, partitions: frozenset[int]) -> None:
        """Dials nobody."""

    def invalidate(self, topic: str) -> None:
        """Has read nothing."""

    def lease_renewed(self) -> None:
        self.renewed += 1


class Group:
    """Stands for the membership; it was joined and the lease lives."""

    def __init__(self) -> None:
        self.incarnation, self.word = "me", "word"
        self.lease = SimpleNamespace(seconds=20.0)
        self.is_known, self.stopped = True, False

    async def run(self, events: object) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.stopped = True


def layout_member_of(log: Log, lanes: Clients | None = None) -> tuple[LayoutMember, ManagedTopics, Group]:
    """Makes a layout member that has joined a generation in which another one leads."""
    topics, group, clients = ManagedTopics(), Group(), cast("Any", lanes or Clients())
    layout_member = LayoutMember(
        topics=topics,
        layouts=cast("Any", log),
        membership=cast("Any", group),
        served=ServedParts(clients, clients),
        make_role=cast("Any", None),
        admit=cast("Any", None),
        journal=NoJournal(),
    )
    return layout_member, topics, group


@asynccontextmanager
async def begun(log: Log, clients: Clients | None = None) -> AsyncIterator[tuple[LayoutMember, ManagedTopics, Group]]:
    """A layout member that has joined and begun to read; it leaves at the end."""
    layout_member, topics, group = layout_member_of(log, clients)
    layout_member.start()
    join(layout_member)
    yield layout_member, topics, group
    await layout_member.leave()


def join(layout_member: LayoutMember) -> None:
    """Has a layout member join a generation and get its lease."""
    layout_member.on_generation(Generation(1, "a member", "another", ()))
    layout_member.on_renewed(clock())


async def test_all_is_read_again_before_anything_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics stay managed meanwhile; those that are gone since go, layouts come as they are, fences are held again."""
    log = Log()
    log.records = [(f"topic/{each.topic}", TopicRecord(each, UUID(int=2))) for each in (ORDERS, OTHER, THIRD)]
    async with begun(log) as (layout_member, topics, _):
        await until("it serves", layout_member.may_serve)
        served: list[tuple[bool, frozenset[str]]] = []
        adopted: list[int] = []
        adopt = cast("Any", FenceHolder)._adopt

        def watch(self: FenceHolder, record: TopicRecord, images: Any, offset: int) -> None:
            served.append((layout_member.may_serve(), topics.names))
            adopted.append(record.layout.epoch)
            adopt(self, record, images, offset)

        monkeypatch.setattr(FenceHolder, "_adopt", watch)
        log.records += [
            ("topic/orders", TopicRecord(GROWN, UUID(int=2))),
            ("topic/third", None),
            ("fence/other", FENCE),
        ]
        log.position = len(log.records)  # the failure comes before these are taken in
        log.failure = ValueError("a fault")
        await until("it serves what it read again", lambda: len(adopted) == 2 and layout_member.may_serve())

        assert {name for names in served for name in names[1]} >= {"orders", "other"}
        assert not any(serves for serves, _ in served)
        assert sorted(adopted) == [OTHER.epoch, GROWN.epoch]  # no layout that has ended is adopted on the way
        assert topics.names == {"orders", "other"}
        orders, other = topics.named("orders"), topics.named("other")
        assert orders is not None
        assert (orders.layout, orders.layouts_offset) == (GROWN, 3)
        assert other is not None
        assert other.is_sealed(0)


async def test_behind_a_lease_that_had_ended_nothing_is_served_before_the_layouts_were_read_again() -> None:
    """READ-BEFORE-SERVE: nobody waited for this worker meanwhile; what it has read may be old."""
    log = Log(("topic/orders", TopicRecord(ORDERS, UUID(int=2))))
    async with begun(log) as (layout_member, topics, _):
        await until("it serves", layout_member.may_serve)
        layout_member.state.member.lease_expires = 0.0
        log.records.append(("topic/orders", TopicRecord(GROWN, UUID(int=2))))
        layout_member.on_renewed(clock())
        assert not layout_member.may_serve()
        await until("it serves again", layout_member.may_serve)
        orders = known(topics.named("orders"))
        assert orders.layout == GROWN


async def test_layouts_that_are_lost_are_served_no_more() -> None:
    """The worker leaves the group, so that nobody waits for its acknowledgements, and says why it does not serve."""
    log = Log(("topic/orders", TopicRecord(ORDERS, UUID(int=2))))
    async with begun(log) as (layout_member, topics, group):
        await until("it serves", layout_member.may_serve)
        log.failure = LogLost("__kordon.layouts was deleted")
        await until("the group ends", lambda: group.stopped)
        assert not layout_member.may_serve()
        assert layout_member.lost == "__kordon.layouts was deleted"
        assert topics.names == {"orders"}


async def test_what_was_kept_is_judged_when_there_is_a_lease_and_the_layouts_have_been_read() -> None:
    """Neither is enough by itself (LATE-ANSWER)."""
    log, clients = Log(("topic/orders", TopicRecord(ORDERS, UUID(int=2)))), Clients()
    layout_member, topics, _ = layout_member_of(log, clients)
    layout_member.start()
    layout_member.on_generation(Generation(1, "a member", "another", ()))
    await until("all is read", lambda: len(topics) == 1)
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert (layout_member.may_serve(), clients.renewed) == (False, 0), "there is no lease"
    layout_member.on_renewed(clock())
    assert (layout_member.may_serve(), clients.renewed) == (False, 0), "nothing was read since it began"
    await until("what was kept is judged", lambda: clients.renewed == 1)
    assert layout_member.may_serve()
    await layout_member.leave()


async def test_a_new_generation_needs_all_layouts_of_meanwhile() -> None:
    """Whoever was missing in the one before was not waited for, though its lease lives on (READ-BEFORE-SERVE)."""
    log = Log(("topic/orders", TopicRecord(ORDERS, UUID(int=2))))
    async with begun(log) as (layout_member, _, _):
        await until("it serves", layout_member.may_serve)
        layout_member.on_generation(Generation(2, "a member", "another", ()))
        assert not layout_member.may_serve()
        await until("it serves", layout_member.may_serve)


async def test_whoever_leaves_says_so_when_nothing_can_land_any_more() -> None:
    """The others do not wait for its lease then (MISSING-WAITED)."""
    log, clients = Log(("topic/orders", TopicRecord(ORDERS, UUID(int=2)))), Clients()
    layout_member, _, _ = layout_member_of(log, clients)
    layout_member.start()
    join(layout_member)
    await until("it serves", layout_member.may_serve)
    clients.landed.clear()
    leaving = asyncio.ensure_future(layout_member.leave())
    await asyncio.sleep(0.01)
    assert (layout_member.may_serve(), log.appended) == (False, [])
    clients.landed.set()
    await leaving
    assert log.appended == ["gone/me"]


@pytest.mark.parametrize("is_known", [True, False], ids=["joining", "unknown"])
async def test_whoever_ends_while_it_joins_says_so_too(*, is_known: bool) -> None:
    """The coordinator may have put it into a generation that it has not heard of, and would wait for its session."""
    log = Log(("topic/orders", TopicRecord(ORDERS, UUID(int=2))))
    layout_member, topics, group = layout_member_of(log)
    group.is_known = is_known
    layout_member.start()
    await until("all is read", lambda: len(topics) == 1)
    await layout_member.leave()
    assert (log.appended, group.stopped) == ((["gone/me"], True) if is_known else ([], False))


UNMANAGED = Layout.unmanaged("other", UUID(int=3), 3, 12)
TAKING = FenceRecord(
    "f1", "other", UNMANAGED.next_epoch(3, Placement.OWN), frozenset(range(3)), TopicRecord(UNMANAGED, UUID(int=4))
)


@pytest.mark.parametrize("fence", [FENCE, TAKING], ids=["change", "takeover"])
async def test_what_an_acknowledged_fence_shows_stays_when_all_is_read_again(fence: FenceRecord) -> None:
    """The controller cuts where the logs end then: what stands behind that is nobody's, and nobody is to see it."""
    log, clients = Log(), Clients()
    log.records = [(f"topic/{OTHER.topic}", TopicRecord(OTHER, UUID(int=2)))] if fence is FENCE else []
    async with begun(log, clients) as (layout_member, topics, _):
        clients.end = 7
        await until("it serves", layout_member.may_serve)
        log.records.append(("fence/other", fence))
        await until("it is acknowledged", lambda: log.appended == ["ack/f1/me"])
        other = known(topics.served("other"))
        assert other.limit(0, may_serve=True) == 7
        limits: set[int | None] = set()
        clients.end = 9
        log.failure = ValueError("a fault")

        def is_said_again() -> bool:
            served = topics.served("other")
            limits.add(None if served is None else served.limit(0, may_serve=True))
            return log.appended == ["ack/f1/me"] * 2 and layout_member.may_serve()

        await until("it is acknowledged again, whether or not it was written the first time", is_said_again)
        assert limits == {7}
        log.records.append(("fence/other", None))
        await until("it ends", lambda: other.fence is None or topics.served("other") is None)


async def test_a_fence_that_was_not_acknowledged_is_held_when_all_is_read_again() -> None:
    """What was under way then is waited for still."""
    log, clients = Log(), Clients()
    log.records = [(f"topic/{OTHER.topic}", TopicRecord(OTHER, UUID(int=2)))]
    clients.end = 7
    clients.landed.clear()
    async with begun(log, clients) as (layout_member, topics, _):
        await until("it serves", layout_member.may_serve)
        log.records.append(("fence/other", FENCE))
        await until("it is held", lambda: bool(topics.names) and "other" in layout_member.state.member.fences)
        log.failure = ValueError("a fault")
        await until("all has been read again", lambda: log.failure is None and layout_member.may_serve())
        assert log.appended == []
        clients.landed.set()
        await until("it is acknowledged", lambda: bool(log.appended))
        other = known(topics.served("other"))
        assert other.limit(0, may_serve=True) == 7
        await asyncio.sleep(0.01)
        assert log.appended == ["ack/f1/me"]
