"""A worker's fences, with the cluster left out: what is held, and for how long."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kordon.codecs.decision import Kind
from kordon.proxy.control.batches import Entry, Record
from kordon.proxy.control.fence_times import Phase
from kordon.proxy.control.group import Member
from kordon.proxy.control.keeper import Keeper
from kordon.proxy.control.lease import clock
from kordon.proxy.control.membership import Generation
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.managed.topics import ManagedTopics
from kordon.proxy.ordering.layout import Layout, Placement
from kordon.proxy.ordering.presence import sealed
from kordon.proxy.ordering.records import AckRecord, FenceRecord, GoneRecord, TopicRecord, Value, WishRecord, dump
from kordon.proxy.ordering.wishes import Resize
from kordon.testing.noted import Noted
from kordon.testing.waiting import turns

LAYOUT = Layout.created("orders", UUID(int=1), 3, 12)
FENCE = FenceRecord("f1", "orders", LAYOUT.next_epoch(4), LAYOUT.sealed_by(LAYOUT.next_epoch(4)))


class Clients:
    """Stands for lanes and readers."""

    def __init__(self) -> None:
        self.drained = asyncio.Event()
        self.drains: list[frozenset[int]] = []
        self.landed: dict[int, int] = {}
        self.expected: frozenset[int] = frozenset()
        self.readied: list[str] = []

    async def drain(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Waits until the test says that nothing is under way."""
        self.drains.append(partitions)
        await self.drained.wait()
        return self.landed

    async def expect(self, topic: str, partitions: frozenset[int]) -> None:
        self.expected = partitions

    async def ready(self, topic: str) -> None:
        """Keeps what it is made ready for."""
        self.readied.append(topic)

    async def freeze(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Shows nothing beyond 7."""
        return dict.fromkeys(partitions, 7)

    def told(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Nobody was told of anything."""
        return {}

    def invalidate(self, topic: str) -> None:
        """Has read nothing."""

    async def nothing_between(self, topic: str, v: int, offset: int, until: int) -> bool:
        return False

    def lease_renewed(self) -> None:
        """Has kept nothing."""


class Layouts:
    """Keeps what is appended."""

    def __init__(self) -> None:
        self.appended: list[str] = []
        self.position = 0
        self.changed = asyncio.Event()
        self.is_ready = False

    async def ready(self) -> None:
        """Keeps that it was made ready."""
        self.is_ready = True

    async def exists(self) -> bool:
        return True

    async def append(self, entries: list[Entry]) -> int:
        self.appended += [entry.key for entry in entries]
        self.changed.set()
        return 0


class Leads:
    """Stands for the controller's role; keeps who has acknowledged what."""

    def __init__(self, *, raised: bool) -> None:
        self._raised = raised
        self.heard: list[str] = []
        self.begun_anew = 0

    def raised(self, fence: str) -> bool:
        """Whether it has raised a fence, whichever it is."""
        return self._raised

    def begin_anew(self, reason: str) -> None:
        self.begun_anew += 1

    def on_ack(self, fence: str, incarnation: str, told: object = None, offset: int | None = None) -> None:
        self.heard.append(f"{fence} {incarnation}" if offset is None else f"{fence} {incarnation} at {offset}")


def keeper_of(clients: Clients, layouts: Layouts, journal: Journal | None = None) -> tuple[Keeper, ManagedTopics]:
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
        tools=cast("Any", None),
        journal=journal,
    )
    keeper.on_record(record("topic/orders", TopicRecord(LAYOUT, UUID(int=2))))
    return keeper, topics


def record(key: str, value: Value | None, offset: int = 0) -> Record:
    """Makes a record of the layouts topic."""
    return Record(key, None if value is None else dump(value), offset)


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
    async with asyncio.timeout(60):
        await layouts.changed.wait()
    assert layouts.appended == ["ack/f1/me"]
    assert topic.fence is not None
    assert topic.fence.high_watermarks == {0: 7}
    assert clients.drains == [frozenset({0, 3})], "also where a segment begins: Kordon itself may have written there"


async def test_what_was_acknowledged_while_a_fence_drains_is_shown() -> None:
    """The end may have been asked for before: a client that was told of its record would be told of an end below it."""
    clients, layouts = Clients(), Layouts()
    keeper, topics = keeper_of(clients, layouts)
    clients.landed = {0: 9}
    clients.drained.set()
    keeper.on_record(record("fence/orders", FENCE))
    async with asyncio.timeout(60):
        await layouts.changed.wait()
    topic = topics.named("orders")
    assert topic is not None
    assert topic.fence is not None
    assert topic.fence.high_watermarks == {0: 9}


async def test_how_long_a_fence_holds_writes_is_counted() -> None:
    """All of it ends with the next layout, its first part with the last answer; one for adoption holds nothing."""
    clients, layouts = Clients(), Layouts()
    clients.drained.set()
    keeper, _ = keeper_of(clients, layouts)
    keeper.on_record(record("fence/orders", FENCE))
    async with asyncio.timeout(60):
        await layouts.changed.wait()
    counted = {phase: sum(keeper.times.seconds[phase].counts) for phase in (Phase.HOLD, Phase.DRAIN)}
    assert counted == {Phase.HOLD: 0, Phase.DRAIN: 1}
    grown = LAYOUT.changed(FENCE.following, {0: 100, 3: 0})
    keeper.on_record(record("topic/orders", TopicRecord(grown, UUID(int=2))))
    keeper.on_record(record("fence/orders", FenceRecord("f2", "orders", FENCE.following, frozenset())))
    keeper.on_record(record("fence/orders", None))
    counted = {phase: sum(keeper.times.seconds[phase].counts) for phase in (Phase.HOLD, Phase.DRAIN)}
    assert counted == {Phase.HOLD: 1, Phase.DRAIN: 1}


async def test_brokers_are_dialled_when_a_change_is_wished() -> None:
    """Whom a fence needs has not been talked to for long: by then the connections are there."""
    clients, layouts = Clients(), Layouts()
    keeper, _ = keeper_of(clients, layouts)
    wish = record("wish/w1", WishRecord(Resize("orders", 4)))
    keeper.on_record(wish)
    await asyncio.sleep(0)
    assert clients.readied == []  # read as history: nothing is served yet
    keeper.member.on_renewed(clock(), 20.0, clock())
    keeper.member.on_caught_up(keeper.member.on_joined())
    keeper.on_record(wish)
    await turns()
    assert (clients.readied, layouts.is_ready) == (["orders"], True)


async def test_what_will_be_written_to_is_got_ready_while_writes_are_held() -> None:
    """The leader of a new partition is found, and dialled, before clients wait for it."""
    clients, layouts = Clients(), Layouts()
    keeper, _ = keeper_of(clients, layouts)
    keeper.on_record(record("fence/orders", FENCE))
    await asyncio.sleep(0)
    assert clients.expected == {0, 3}


@pytest.mark.parametrize(("raised", "appended", "heard"), [(True, [], ["f1 me"]), (False, ["ack/f1/me"], [])])
async def test_a_controller_hears_its_own_worker_at_once(raised: bool, appended: list[str], heard: list[str]) -> None:
    """A fence of another controller, of one that has taken over, is acknowledged to that one: through the layouts."""
    clients, layouts = Clients(), Layouts()
    keeper, _ = keeper_of(clients, layouts)
    leading = Leads(raised=raised)
    keeper.leading = cast("Any", leading)
    clients.drained.set()
    keeper.on_record(record("fence/orders", FENCE))
    await turns()
    assert (layouts.appended, leading.heard) == (appended, heard)


async def test_a_fence_that_is_read_together_with_its_layout_holds_nothing() -> None:
    """A proxy that slept reads both at once: it must not begin to hold what the layout has already ended."""
    clients, layouts = Clients(), Layouts()
    clients.drained.set()
    keeper, topics = keeper_of(clients, layouts)
    grown = LAYOUT.changed(FENCE.following, {0: 100, 3: 0})
    keeper.on_record(record("fence/orders", FENCE))
    keeper.on_record(record("topic/orders", TopicRecord(grown, UUID(int=2))))
    keeper.on_record(record("fence/orders", None))
    await turns()
    topic = topics.named("orders")
    assert topic is not None
    assert topic.layout.u == 4
    assert topic.fence is None
    assert layouts.appended == []


async def test_a_topic_knows_where_its_layout_was_read() -> None:
    """Decisions cite the offset; it is that of the newest record, also of one that says what the last one said."""
    keeper, topics = keeper_of(Clients(), Layouts())
    topic = topics.named("orders")
    assert topic is not None
    assert topic.layouts_offset == 0
    keeper.on_record(record("fence/orders", FENCE, 3))
    grown = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
    keeper.on_record(record("topic/orders", grown, 5))
    assert (topic.layout.u, topic.layouts_offset) == (4, 5)
    keeper.on_record(record("topic/orders", grown, 9))
    assert topic.layouts_offset == 9


async def test_decisions_of_a_fence_cite_where_it_was_read() -> None:
    """The acknowledgement is noted when it is sent, not when it has arrived, and before anything rests on it."""
    clients, layouts, noted = Clients(), Layouts(), Noted()
    keeper, _ = keeper_of(clients, layouts, noted.journal)
    keeper.on_record(record("fence/orders", FENCE, 3))
    assert noted.kinds == [Kind.ADOPT, Kind.HOLD]
    clients.drained.set()
    async with asyncio.timeout(60):
        await layouts.changed.wait()
    grown = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
    keeper.on_record(record("topic/orders", grown, 7))
    keeper.on_record(record("fence/orders", None, 8))
    keeper.on_record(record("topic/orders", None, 9))
    told = [(each.kind, each.layout_epoch, each.layouts_offset) for each in noted.of()]
    assert told == [
        (Kind.ADOPT, 0, 0),
        (Kind.HOLD, 0, 3),
        (Kind.ACKNOWLEDGE, 0, 3),
        (Kind.ADOPT, 1, 7),
        (Kind.FORGET, None, 9),
    ]


async def test_a_layout_that_a_worker_has_taken_from_its_controller_is_adopted_once() -> None:
    """It comes back as it was written; written down again, it is another record, and told again."""
    noted = Noted()
    keeper, _ = keeper_of(Clients(), Layouts(), noted.journal)
    keeper.on_record(record("fence/orders", FENCE, 3))
    grown = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
    keeper.take_layout((("topic/orders", grown), ("fence/orders", None)), {"topic/orders": 7, "fence/orders": 8})
    keeper.on_record(record("topic/orders", grown, 7))
    keeper.on_record(record("fence/orders", None, 8))
    keeper.on_record(record("topic/orders", grown, 11))
    told = [(each.layout_epoch, each.layouts_offset) for each in noted.of(Kind.ADOPT)]
    assert told == [(0, 0), (1, 7), (1, 11)]
    assert noted.of(Kind.RELEASE) == []


async def test_the_controllers_role_is_told_where_an_acknowledgement_stands() -> None:
    """Its cut rests on that record."""
    keeper, _ = keeper_of(Clients(), Layouts())
    leads = Leads(raised=True)
    keeper.leading = cast("Any", leads)
    keeper.on_record(record("ack/f1/you", AckRecord("f1", "you"), 12))
    assert leads.heard == ["f1 you at 12"]


async def test_the_controllers_worker_goes_on_when_its_layout_is_durable() -> None:
    """Not when it is read; when it is, nothing happens: what was fenced meanwhile stays fenced."""
    clients, layouts = Clients(), Layouts()
    keeper, topics = keeper_of(clients, layouts)
    keeper.on_record(record("fence/orders", FENCE))
    topic = topics.named("orders")
    assert topic is not None
    grown = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
    keeper.take_layout((("topic/orders", grown), ("fence/orders", None)), {"topic/orders": 7, "fence/orders": 8})
    assert (topic.layout.u, topic.fence, topic.layouts_offset) == (4, None, 7)
    kept = topic.layout
    keeper.on_record(record("topic/orders", grown))
    keeper.on_record(record("fence/orders", None))
    assert topics.named("orders") is topic
    assert topic.layout is kept
    following = kept.next_epoch(5)
    keeper.on_record(record("fence/orders", FenceRecord("f2", "orders", following, kept.sealed_by(following))))
    assert topic.is_sealed(1)


async def test_a_layout_that_is_told_late_ends_no_later_fence() -> None:
    """The answer to the controller's transaction may come when the layout and a next fence have been read already."""
    keeper, topics = keeper_of(Clients(), Layouts())
    keeper.on_record(record("fence/orders", FENCE))
    grown = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
    keeper.on_record(record("topic/orders", grown))
    following = grown.layout.next_epoch(5)
    next_fence = FenceRecord("f2", "orders", following, grown.layout.sealed_by(following))
    keeper.on_record(record("fence/orders", next_fence))
    keeper.take_layout((("topic/orders", grown), ("fence/orders", None)), {"topic/orders": 7, "fence/orders": 8})
    topic = topics.named("orders")
    assert topic is not None
    assert topic.is_sealed(1)
    assert keeper.member.fences == {"orders": next_fence}


async def test_a_cancelled_fence_is_not_acknowledged() -> None:
    """Who drained too late says nothing: the controller counts on what is acknowledged."""
    clients, layouts = Clients(), Layouts()
    keeper, topics = keeper_of(clients, layouts)
    keeper.on_record(record("fence/orders", FENCE))
    await asyncio.sleep(0)
    keeper.on_record(record("fence/orders", None))
    clients.drained.set()
    await turns()
    topic = topics.named("orders")
    assert topic is not None
    assert topic.fence is None
    assert layouts.appended == []


BEFORE = Layout.unmanaged("invoices", UUID(int=1), 3, 12)
ENDS = {0: 5, 1: 5, 2: 5}


class Passed:
    """Stands for the clients' connections; keeps whose clients are to see a topic anew."""

    def __init__(self) -> None:
        self.renewed: list[str] = []
        self.reconnected = asyncio.Event()
        self.settled = asyncio.Event()
        """Set unless clients have requests under way that went round Kordon's own lanes."""
        self.settled.set()

    async def settle(self) -> None:
        """Waits until nothing is under way."""
        await self.settled.wait()

    async def renew_views(self, topic: str) -> None:
        """Waits until the test says that clients have come back."""
        self.renewed.append(topic)
        await self.reconnected.wait()


@pytest.mark.parametrize(("placement", "renewed"), [(Placement.LINEAR, ["invoices"]), (Placement.OWN, [])])
async def test_clients_see_a_quiesced_topic_anew_before_it_is_said_to_be_managed(
    placement: Placement, renewed: list[str]
) -> None:
    """The fence that asks who knows the layout is acknowledged then; one taken over online leaves them their time."""
    clients, layouts, passed = Clients(), Layouts(), Passed()
    clients.drained.set()
    keeper, _ = keeper_of(clients, layouts)
    keeper.passed = passed
    following = BEFORE.next_epoch(3, placement)
    fence = FenceRecord("f1", "invoices", following, frozenset(range(3)), TopicRecord(BEFORE, UUID(int=2)))
    taken = BEFORE.changed(following, ENDS, withheld=True)
    keeper.on_record(record("fence/invoices", fence))
    keeper.on_record(record("topic/invoices", TopicRecord(taken, UUID(int=2))))
    keeper.on_record(record("fence/invoices", None))
    keeper.on_record(record("fence/invoices", FenceRecord("f2", "invoices", following, frozenset())))
    await turns()
    assert passed.renewed == renewed
    assert layouts.appended == ([] if renewed else ["ack/f2/me"])
    passed.reconnected.set()
    await turns()
    assert layouts.appended == ["ack/f2/me"]


async def test_a_takeover_waits_for_what_clients_have_sent_to_the_ordinary_topic() -> None:
    """It lands in front of the cut, or is not acknowledged (TAKEOVER-WAITS)."""
    clients, layouts, passed = Clients(), Layouts(), Passed()
    clients.drained.set()
    passed.settled.clear()
    keeper, _ = keeper_of(clients, layouts)
    keeper.passed = passed
    following = BEFORE.next_epoch(3, Placement.OWN)
    fence = FenceRecord("f1", "invoices", following, frozenset(range(3)), TopicRecord(BEFORE, UUID(int=2)))
    keeper.on_record(record("fence/invoices", fence))
    await turns()
    assert layouts.appended == []
    passed.settled.set()
    async with asyncio.timeout(60):
        await layouts.changed.wait()
    assert layouts.appended == ["ack/f1/me"]


@pytest.mark.parametrize(
    ("fence", "epoch", "may"), [("f1", 0, True), ("f2", 0, False), (None, 0, False), ("f1", 1, False)]
)
async def test_kordon_itself_writes_under_its_own_fence_and_layout_alone(
    fence: str | None, epoch: int, *, may: bool
) -> None:
    """A marker that came under another one could take away what its key has got since."""
    keeper, _ = keeper_of(Clients(), Layouts())
    assert not keeper.may_mark("orders", 0, None), "there is no lease yet"
    keeper.member.on_renewed(clock(), 20.0, clock())
    keeper.member.on_caught_up(keeper.member.on_joined())
    assert keeper.may_mark("orders", 0, None)
    keeper.on_record(record("fence/orders", FENCE))
    assert keeper.may_mark("orders", epoch, fence) is may


async def test_a_proxy_that_comes_later_renews_no_view() -> None:
    """Its clients have seen no other."""
    passed = Passed()
    keeper, _ = keeper_of(Clients(), Layouts())
    keeper.passed = passed
    taken = BEFORE.changed(BEFORE.next_epoch(3, Placement.LINEAR), ENDS, withheld=True)
    keeper.on_record(record("topic/invoices", TopicRecord(taken, UUID(int=2))))
    await asyncio.sleep(0)
    assert passed.renewed == []


def bad(key: str, value: bytes = b"junk", offset: int = 0) -> Record:
    """Makes a record that cannot be read."""
    return Record(key, value, offset)


INVOICES = TopicRecord(Layout.created("invoices", UUID(int=3), 3, 12), UUID(int=4))
JUNK_KEYS = (
    *("topic/orders", "image/orders/1/1", "image/orders/x", "fence/orders", "later/orders", "ack/f1/me", "gone/me"),
    *("wish/w1", "outcome/w1", "finding/orders", "janitor/orders", "", "/", "topic", "later"),
)
STOPS = {"topic", "image", "fence", "later"}


@pytest.mark.parametrize("key", JUNK_KEYS)
async def test_a_record_that_cannot_be_read_stops_its_own_topic_at_most(key: str) -> None:
    """Nothing is raised, what comes behind it is read, and another record of its key ends it."""
    keeper, topics = keeper_of(Clients(), Layouts())
    keeper.on_record(record("topic/invoices", INVOICES))
    keeper.on_record(bad(key))
    is_stopped = key.partition("/")[0] in STOPS and "orders" in key
    assert list(topics.unserved) == (["orders"] if is_stopped else [])
    topic, other = topics.named("orders"), topics.named("invoices")
    assert topic is not None
    assert other is not None
    assert topic.is_sealed(0) is is_stopped
    assert not other.is_sealed(0)
    assert [each.kind for each in keeper.findings.unserved.values()] == (["layout_unreadable"] if is_stopped else [])
    assert keeper.findings.unread.counted.total() == 1
    keeper.on_record(record(key, None))
    assert not topics.unserved
    assert not keeper.findings.unserved


async def test_a_topic_whose_layout_was_never_read_is_not_taken_for_an_ordinary_one() -> None:
    """A proxy that starts after compaction has met only the junk: writes would go past the layout."""
    keeper, topics = keeper_of(Clients(), Layouts())
    keeper.on_record(bad("topic/invoices"))
    assert topics.is_held("invoices")
    assert topics.named("invoices") is None
    keeper.on_record(record("topic/invoices", INVOICES))
    topic = topics.named("invoices")
    assert topic is not None
    assert topic.unserved is None


async def test_a_topic_that_is_not_served_stays_so_under_every_other_record() -> None:
    """A fence that was cancelled, or a layout that is adopted, does not open it: what is unread may be newer."""
    keeper, topics = keeper_of(Clients(), Layouts())
    keeper.on_record(record("fence/orders", FENCE))
    keeper.on_record(bad("topic/orders"))
    keeper.on_record(record("fence/orders", None))
    topic = topics.named("orders")
    assert topic is not None
    assert topic.is_sealed(1)
    keeper.on_record(bad("image/orders/1/1"))
    grown = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=5))
    keeper.on_record(record("topic/orders", grown))
    topic = topics.named("orders")
    assert topic is not None
    assert topic.is_sealed(1)


async def test_a_damaged_batch_stops_the_topics_of_its_keys() -> None:
    """What it says is not believed, though it can be read."""
    keeper, topics = keeper_of(Clients(), Layouts())
    written = record("topic/orders", TopicRecord(LAYOUT, UUID(int=2)))
    keeper.on_record(Record(written.key, written.value, 5, fault="its batch has another checksum"))
    assert list(topics.unserved) == ["orders"]


async def test_a_record_that_cannot_be_gone_by_is_one_that_cannot_be_read() -> None:
    """Each of its fields is fine; nobody could hold what it names."""
    keeper, topics = keeper_of(Clients(), Layouts())
    impossible = FenceRecord("f1", "orders", replace(FENCE.following, u=1), frozenset({0}))
    keeper.on_record(record("fence/orders", impossible))
    assert list(topics.unserved) == ["orders"]
    keeper.on_record(record("fence/orders", None))
    assert not topics.unserved


async def test_the_controller_begins_anew_without_what_cannot_be_read() -> None:
    """It must not write over it; when it can be read, it is the controller's again."""
    keeper, _ = keeper_of(Clients(), Layouts())
    keeper.on_record(record("topic/invoices", INVOICES))
    leads = Leads(raised=False)
    keeper.leading = cast("Any", leads)
    keeper.on_record(bad("image/orders/1/1"))
    assert set(keeper.known()) == {"invoices"}
    keeper.on_record(bad("image/orders/1/2"))
    assert leads.begun_anew == 1, "not for each of many"
    keeper.on_record(record("image/orders/1/1", None))
    keeper.on_record(record("image/orders/1/2", None))
    assert set(keeper.known()) == {"invoices", "orders"}
    assert leads.begun_anew == 2


async def test_wishes_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a record that all proxies read; whoever asks for one too many is told so at once."""
    monkeypatch.setattr("kordon.proxy.control.wishing.MOST_WISHES", 2)
    layouts = Layouts()
    keeper, _ = keeper_of(Clients(), layouts)
    asked = [asyncio.ensure_future(keeper.wish(Resize("orders", 4))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(UpstreamUnavailable, match="2 wishes"):
        await keeper.wish(Resize("orders", 4))
    assert len(layouts.appended) == 2
    for each in asked:
        each.cancel()


async def test_nobody_else_says_that_a_proxy_ends() -> None:
    """A forged record is discarded, counted and told of; what the proxy says itself, by its word, is believed."""
    keeper, _ = keeper_of(Clients(), Layouts())
    members = (Member("1", "me", "here"), Member("2", "other", "there", seal=sealed("its word")))
    keeper.on_generation(Generation(1, "1", "2", members))
    with capture_logs() as logs:
        keeper.on_record(record("gone/other", GoneRecord("other"), 7))
        keeper.on_record(record("gone/other", GoneRecord("other", "guessed"), 8))
    told = [(line["key"], line["offset"]) for line in logs if line["event"] == "forged_record"]
    assert told == [("gone/other", 7), ("gone/other", 8)]
    assert keeper.findings.unread.counted == {"gone": 2}
    with capture_logs() as logs:
        keeper.on_record(record("gone/other", GoneRecord("other", "its word"), 9))
    assert logs == []
    assert keeper.findings.unread.counted == {"gone": 2}
