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
from kordon.proxy.controller.fence_times import Phase
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.group import GroupMember
from kordon.proxy.member.fence_holder import FenceHolder
from kordon.proxy.member.layout_member import LayoutMember
from kordon.proxy.member.membership import Generation
from kordon.proxy.member.served import NothingPassed, PassedRequests, ServedParts
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.presence import sealed
from kordon.proxy.ordering.records import (
    AckRecord,
    AnnouncementRecord,
    FenceRecord,
    GoneRecord,
    TopicRecord,
    Value,
    WishRecord,
    dump,
)
from kordon.proxy.ordering.wishes import Resize
from kordon.proxy.own_topics.wishing import WISH_SECONDS
from kordon.proxy.runtime.clock import clock
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.known import known
from kordon.testing.noted import Noted
from kordon.testing.waiting import turns

LAYOUT = Layout.created("orders", UUID(int=1), 3, 12)
FENCE = FenceRecord("f1", "orders", LAYOUT.next_epoch(4), LAYOUT.change_to(LAYOUT.next_epoch(4)).sealed)
GROWN = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))


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
        self.tried_seconds: list[float] = []
        self.position = 0
        self.changed = asyncio.Event()
        self.is_ready = False

    async def ready(self) -> None:
        """Keeps that it was made ready."""
        self.is_ready = True

    async def exists(self) -> bool:
        return True

    async def read_to_end(self) -> None:
        """Has been read."""

    async def faces(self) -> list[str]:
        return []

    async def append(self, entries: list[NewRecord], timeout: float = 0.0) -> int:
        self.appended += [entry.key for entry in entries]
        self.tried_seconds.append(timeout)
        self.changed.set()
        return 0


class Leads:
    """Stands for the controller's role; keeps who has acknowledged what."""

    def __init__(self, *, raised: bool) -> None:
        self._raised = raised
        self.heard: list[str] = []
        self.begun_anew = 0
        self.looked_at_members = 0

    def raised(self, fence: str) -> bool:
        """Whether it has raised a fence, whichever it is."""
        return self._raised

    def begin_anew(self, reason: str) -> None:
        self.begun_anew += 1

    def on_members(self) -> None:
        self.looked_at_members += 1

    def why_forged(self, topic: str, announced: AnnouncementRecord | None) -> str:
        self.heard.append(f"{topic}: {announced.id if announced is not None else None}")
        return "forged" if announced is None else ""

    def on_ack(self, fence: str, incarnation: str, told: object = None, offset: int | None = None) -> None:
        self.heard.append(f"{fence} {incarnation}" if offset is None else f"{fence} {incarnation} at {offset}")


class Stage:
    """A layout member that knows the topic `orders`, and stand-ins for whom it talks to."""

    def __init__(self) -> None:
        self.clients, self.layouts, self.noted = Clients(), Layouts(), Noted()
        self.topics = ManagedTopics()
        self.passed: PassedRequests = NothingPassed()
        nothing: Any = None
        self.layout_member = LayoutMember(
            topics=self.topics,
            layouts=cast("Any", self.layouts),
            membership=cast("Any", SimpleNamespace(incarnation="me", lease=SimpleNamespace(seconds=20.0))),
            served=ServedParts(self.clients, self.clients, lambda: self.passed),
            make_role=nothing,
            admit=nothing,
            journal=self.noted.journal,
        )
        self.fence_holder: FenceHolder = cast("Any", self.layout_member)._fence_holder
        self.read("topic/orders", TopicRecord(LAYOUT, UUID(int=2)))

    def read(self, key: str, value: Value | bytes | None, offset: int = 0) -> None:
        """Has it read a record of the layouts, or junk."""
        written = value if value is None or isinstance(value, bytes) else dump(value)
        self.layout_member.on_record(Record(key, written, offset))

    @property
    def topic(self) -> ManagedTopic:
        return known(self.topics.named("orders"))

    async def until_appended(self) -> None:
        await self.layouts.changed.wait()


@pytest.fixture
async def stage() -> Stage:
    """A layout member that has read the layout of `orders`."""
    return Stage()


async def test_a_fence_is_acknowledged_when_nothing_is_under_way_any_more(stage: Stage) -> None:
    """Writes are held at once; the acknowledgement waits for answers, and names fence and incarnation."""
    stage.read("fence/orders", FENCE)
    assert stage.topic.is_sealed(0)
    assert not stage.topic.is_sealed(1)
    await asyncio.sleep(0)
    assert stage.layouts.appended == []
    stage.clients.drained.set()
    await stage.until_appended()
    assert stage.layouts.appended == ["ack/f1/me"]
    assert stage.topic.fence is not None
    assert stage.topic.fence.high_watermarks == {0: 7}
    # also where a segment begins: Kordon itself may have written there
    assert stage.clients.drains == [frozenset({0, 3})]


@pytest.mark.parametrize("serves", [False, True])
async def test_a_worker_that_comes_while_a_fence_stands_shows_nothing_of_what_it_seals(
    stage: Stage, *, serves: bool
) -> None:
    """Nobody has waited for it: cuts may have been read, and high watermarks be behind strays (FROZEN-READS)."""
    member = stage.layout_member.state.member
    reading = known(member.on_renewed(clock(), 20.0, clock()))
    if serves:
        member.on_caught_up(reading)
    stage.read("fence/orders", FENCE)
    member.on_caught_up(reading)
    stage.clients.drained.set()
    await stage.until_appended()
    fence = stage.topic.fence
    assert fence is not None
    assert stage.topic.limit(0, may_serve=True) == (7 if serves else 0)
    assert fence.may_tell_end(0) is serves
    assert (stage.topic.limit(1, may_serve=True), fence.may_tell_end(1)) == (None, True)
    stage.read("fence/orders", None)
    assert stage.topic.limit(0, may_serve=True) is None


@pytest.mark.parametrize("then", ["gone", "back"])
async def test_a_worker_whose_lease_ends_under_a_fence_shows_nothing_of_what_it_seals(stage: Stage, then: str) -> None:
    """Nobody waits for it from then on, also if it is back before it knows the high watermarks (FROZEN-READS)."""
    member = stage.layout_member.state.member
    member.on_caught_up(known(member.on_renewed(clock(), 20.0, clock())))
    stage.read("fence/orders", FENCE)
    member.lease_expires = clock()
    if then == "back":
        member.on_caught_up(known(member.on_renewed(clock(), 20.0, clock())))
    stage.clients.drained.set()
    await stage.until_appended()
    fence = stage.topic.fence
    assert fence is not None
    assert (stage.topic.limit(0, may_serve=True), fence.may_tell_end(0)) == (0, False)
    stage.read("fence/orders", None)
    assert stage.topic.limit(0, may_serve=True) is None


async def test_a_worker_that_begins_to_serve_reads_a_fence_again_that_it_has_not_acknowledged(stage: Stage) -> None:
    """It stands while nothing was served, so cuts may have been read meanwhile (FROZEN-READS)."""
    member = stage.layout_member.state.member
    member.on_caught_up(known(member.on_renewed(clock(), 20.0, clock())))
    stage.read("fence/orders", FENCE)
    member.on_joined()
    stage.read("fence/orders", FENCE)
    fence = stage.topic.fence
    assert fence is not None
    assert (fence.is_late, fence.is_frozen) == (True, False)


async def test_layouts_of_the_start_are_one_line_of_the_log_and_later_ones_a_line_each() -> None:
    """With hundreds of topics the lines that count would drown: what a start reads is counted."""
    with capture_logs() as logs:
        stage = Stage()
        stage.read("topic/orders", GROWN)
        await stage.layout_member.know()
        stage.read(
            "topic/orders", TopicRecord(GROWN.layout.changed(GROWN.layout.next_epoch(5), {1: 9, 4: 0}), UUID(int=2))
        )
        await stage.layout_member.know()  # as after a long sleep
    told = [line for line in logs if line["event"].startswith("layout")]
    assert told == [
        {"event": "layouts_read", "log_level": "info", "topics": 1, "epochs": 2},
        {"event": "layout_adopted", "log_level": "info", "topic": "orders", "epoch": 2, "partitions": 5},
    ]


async def test_what_was_acknowledged_while_a_fence_drains_is_shown(stage: Stage) -> None:
    """The end may have been asked for before: a client that was told of its record would be told of an end below it."""
    stage.clients.landed = {0: 9}
    stage.clients.drained.set()
    stage.read("fence/orders", FENCE)
    await stage.until_appended()
    assert stage.topic.fence is not None
    assert stage.topic.fence.high_watermarks == {0: 9}


async def test_how_long_a_fence_holds_writes_is_counted(stage: Stage) -> None:
    """All of it ends with the next layout, its first part with the last answer; one for adoption holds nothing."""
    stage.clients.drained.set()
    stage.read("fence/orders", FENCE)
    await stage.until_appended()
    counted = {phase: sum(stage.layout_member.times.seconds[phase].counts) for phase in (Phase.HOLD, Phase.DRAIN)}
    assert counted == {Phase.HOLD: 0, Phase.DRAIN: 1}
    stage.read("topic/orders", GROWN)
    stage.read("fence/orders", FenceRecord("f2", "orders", FENCE.following, frozenset()))
    stage.read("fence/orders", None)
    counted = {phase: sum(stage.layout_member.times.seconds[phase].counts) for phase in (Phase.HOLD, Phase.DRAIN)}
    assert counted == {Phase.HOLD: 1, Phase.DRAIN: 1}


async def test_brokers_are_dialled_when_a_change_is_wished(stage: Stage) -> None:
    """Whom a fence needs has not been talked to for long: by then the connections are there."""
    wish = WishRecord(Resize("orders", 4))
    stage.read("wish/w1", wish)
    await asyncio.sleep(0)
    assert stage.clients.readied == []  # read as history: nothing is served yet
    stage.layout_member.state.member.on_renewed(clock(), 20.0, clock())
    stage.layout_member.state.member.on_caught_up(stage.layout_member.state.member.on_joined())
    stage.read("wish/w1", wish)
    await turns()
    assert (stage.clients.readied, stage.layouts.is_ready) == (["orders"], True)


async def test_what_will_be_written_to_is_got_ready_while_writes_are_held(stage: Stage) -> None:
    """The leader of a new partition is found, and dialled, before clients wait for it."""
    stage.read("fence/orders", FENCE)
    await asyncio.sleep(0)
    assert stage.clients.expected == {0, 3}


@pytest.mark.parametrize(("raised", "appended", "heard"), [(True, [], ["f1 me"]), (False, ["ack/f1/me"], [])])
async def test_a_controller_hears_its_own_worker_at_once(
    stage: Stage, raised: bool, appended: list[str], heard: list[str]
) -> None:
    """A fence of another controller, of one that has taken over, is acknowledged to that one: through the layouts."""
    leading = Leads(raised=raised)
    stage.layout_member.leadership.role = cast("Any", leading)
    stage.clients.drained.set()
    stage.read("fence/orders", FENCE)
    await turns()
    assert (stage.layouts.appended, leading.heard) == (appended, heard)


async def test_a_fence_that_is_read_together_with_its_layout_holds_nothing(stage: Stage) -> None:
    """A proxy that slept reads both at once: it must not begin to hold what the layout has already ended."""
    stage.clients.drained.set()
    stage.read("fence/orders", FENCE)
    stage.read("topic/orders", GROWN)
    stage.read("fence/orders", None)
    await turns()
    assert stage.topic.layout.u == 4
    assert stage.topic.fence is None
    assert stage.layouts.appended == []


async def test_a_topic_knows_where_its_layout_was_read(stage: Stage) -> None:
    """Decisions cite the offset; it is that of the newest record, also of one that says what the last one said."""
    assert stage.topic.layouts_offset == 0
    stage.read("fence/orders", FENCE, 3)
    stage.read("topic/orders", GROWN, 5)
    assert (stage.topic.layout.u, stage.topic.layouts_offset) == (4, 5)
    stage.read("topic/orders", GROWN, 9)
    assert stage.topic.layouts_offset == 9


async def test_decisions_of_a_fence_cite_where_it_was_read(stage: Stage) -> None:
    """The acknowledgement is noted when it is sent, not when it has arrived, and before anything rests on it."""
    stage.read("fence/orders", FENCE, 3)
    assert stage.noted.kinds == [Kind.ADOPT, Kind.HOLD]
    stage.clients.drained.set()
    await stage.until_appended()
    stage.read("topic/orders", GROWN, 7)
    stage.read("fence/orders", None, 8)
    stage.read("topic/orders", None, 9)
    told = [(each.kind, each.layout_epoch, each.layouts_offset) for each in stage.noted.of()]
    assert told == [
        (Kind.ADOPT, 0, 0),
        (Kind.HOLD, 0, 3),
        (Kind.ACKNOWLEDGE, 0, 3),
        (Kind.ADOPT, 1, 7),
        (Kind.FORGET, None, 9),
    ]


async def test_a_layout_that_a_worker_has_taken_from_its_controller_is_adopted_once(stage: Stage) -> None:
    """It comes back as it was written; written down again, it is another record, and told again."""
    stage.read("fence/orders", FENCE, 3)
    stage.fence_holder.take_layout(
        (("topic/orders", GROWN), ("fence/orders", None)), {"topic/orders": 7, "fence/orders": 8}
    )
    stage.read("topic/orders", GROWN, 7)
    stage.read("fence/orders", None, 8)
    stage.read("topic/orders", GROWN, 11)
    told = [(each.layout_epoch, each.layouts_offset) for each in stage.noted.of(Kind.ADOPT)]
    assert told == [(0, 0), (1, 7), (1, 11)]
    assert stage.noted.of(Kind.RELEASE) == []


async def test_the_controllers_role_is_told_where_an_acknowledgement_stands(stage: Stage) -> None:
    """Its cut rests on that record."""
    leads = Leads(raised=True)
    stage.layout_member.leadership.role = cast("Any", leads)
    stage.read("ack/f1/you", AckRecord("f1", "you"), 12)
    assert leads.heard == ["f1 you at 12"]


async def test_the_controllers_worker_goes_on_when_its_layout_is_durable(stage: Stage) -> None:
    """Not when it is read; when it is, nothing happens: what was fenced meanwhile stays fenced."""
    stage.read("fence/orders", FENCE)
    topic = stage.topic
    stage.fence_holder.take_layout(
        (("topic/orders", GROWN), ("fence/orders", None)), {"topic/orders": 7, "fence/orders": 8}
    )
    assert (topic.layout.u, topic.fence, topic.layouts_offset) == (4, None, 7)
    kept = topic.layout
    stage.read("topic/orders", GROWN)
    stage.read("fence/orders", None)
    assert stage.topics.named("orders") is topic
    assert topic.layout is kept
    following = kept.next_epoch(5)
    stage.read("fence/orders", FenceRecord("f2", "orders", following, kept.change_to(following).sealed))
    assert topic.is_sealed(1)


async def test_a_layout_that_is_told_late_ends_no_later_fence(stage: Stage) -> None:
    """The answer to the controller's transaction may come when the layout and a next fence have been read already."""
    stage.read("fence/orders", FENCE)
    stage.read("topic/orders", GROWN)
    following = GROWN.layout.next_epoch(5)
    next_fence = FenceRecord("f2", "orders", following, GROWN.layout.change_to(following).sealed)
    stage.read("fence/orders", next_fence)
    stage.fence_holder.take_layout(
        (("topic/orders", GROWN), ("fence/orders", None)), {"topic/orders": 7, "fence/orders": 8}
    )
    assert stage.topic.is_sealed(1)
    assert stage.layout_member.state.member.fences == {"orders": next_fence}


async def test_a_cancelled_fence_is_not_acknowledged(stage: Stage) -> None:
    """Who drained too late says nothing: the controller counts on what is acknowledged."""
    stage.read("fence/orders", FENCE)
    await asyncio.sleep(0)
    stage.read("fence/orders", None)
    stage.clients.drained.set()
    await turns()
    assert stage.topic.fence is None
    assert stage.layouts.appended == []


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
    stage: Stage, placement: Placement, renewed: list[str]
) -> None:
    """The fence that asks who knows the layout is acknowledged then; one taken over online leaves them their time."""
    stage.passed = passed = Passed()
    stage.clients.drained.set()
    following = BEFORE.next_epoch(3, placement)
    fence = FenceRecord("f1", "invoices", following, frozenset(range(3)), TopicRecord(BEFORE, UUID(int=2)))
    taken = BEFORE.changed(following, ENDS, withheld=True)
    stage.read("fence/invoices", fence)
    stage.read("topic/invoices", TopicRecord(taken, UUID(int=2)))
    stage.read("fence/invoices", None)
    stage.read("fence/invoices", FenceRecord("f2", "invoices", following, frozenset()))
    await turns()
    assert passed.renewed == renewed
    assert stage.layouts.appended == ([] if renewed else ["ack/f2/me"])
    passed.reconnected.set()
    await turns()
    assert stage.layouts.appended == ["ack/f2/me"]


async def test_a_takeover_waits_for_what_clients_have_sent_to_the_ordinary_topic(stage: Stage) -> None:
    """It lands in front of the cut, or is not acknowledged (TAKEOVER-WAITS)."""
    stage.passed = passed = Passed()
    stage.clients.drained.set()
    passed.settled.clear()
    following = BEFORE.next_epoch(3, Placement.OWN)
    fence = FenceRecord("f1", "invoices", following, frozenset(range(3)), TopicRecord(BEFORE, UUID(int=2)))
    stage.read("fence/invoices", fence)
    await turns()
    assert stage.layouts.appended == []
    passed.settled.set()
    await stage.until_appended()
    assert stage.layouts.appended == ["ack/f1/me"]


@pytest.mark.parametrize(
    ("fence", "epoch", "may"), [("f1", 0, True), ("f2", 0, False), (None, 0, False), ("f1", 1, False)]
)
async def test_kordon_itself_writes_under_its_own_fence_and_layout_alone(
    stage: Stage, fence: str | None, epoch: int, *, may: bool
) -> None:
    """A marker that came under another one could take away what its key has got since."""
    assert not stage.layout_member.may_mark("orders", 0, None), "there is no lease yet"
    stage.layout_member.state.member.on_renewed(clock(), 20.0, clock())
    stage.layout_member.state.member.on_caught_up(stage.layout_member.state.member.on_joined())
    assert stage.layout_member.may_mark("orders", 0, None)
    stage.read("fence/orders", FENCE)
    assert stage.layout_member.may_mark("orders", epoch, fence) is may


async def test_a_proxy_that_comes_later_renews_no_view(stage: Stage) -> None:
    """Its clients have seen no other."""
    stage.passed = passed = Passed()
    taken = BEFORE.changed(BEFORE.next_epoch(3, Placement.LINEAR), ENDS, withheld=True)
    stage.read("topic/invoices", TopicRecord(taken, UUID(int=2)))
    await asyncio.sleep(0)
    assert passed.renewed == []


INVOICES = TopicRecord(Layout.created("invoices", UUID(int=3), 3, 12), UUID(int=4))
JUNK_KEYS = (
    *("topic/orders", "image/orders/1/1", "image/orders/x", "fence/orders", "later/orders", "ack/f1/me", "gone/me"),
    *("wish/w1", "outcome/w1", "finding/orders", "janitor/orders", "", "/", "topic", "later"),
)
STOPS = {"topic", "image", "fence", "later"}


@pytest.mark.parametrize("key", JUNK_KEYS)
async def test_a_record_that_cannot_be_read_stops_its_own_topic_at_most(stage: Stage, key: str) -> None:
    """Nothing is raised, what comes behind it is read, and another record of its key ends it."""
    stage.read("topic/invoices", INVOICES)
    stage.read(key, b"junk")
    is_stopped = key.partition("/")[0] in STOPS and "orders" in key
    assert list(stage.topics.unserved) == (["orders"] if is_stopped else [])
    topic, other = stage.topics.named("orders"), stage.topics.named("invoices")
    assert topic is not None
    assert other is not None
    assert topic.is_sealed(0) is is_stopped
    assert not other.is_sealed(0)
    assert [each.kind for each in stage.layout_member.findings.unserved.values()] == (
        ["layout_unreadable"] if is_stopped else []
    )
    assert stage.layout_member.findings.unread.counted.total() == 1
    stage.read(key, None)
    assert not stage.topics.unserved
    assert not stage.layout_member.findings.unserved


async def test_a_topic_whose_layout_was_never_read_is_not_taken_for_an_ordinary_one(stage: Stage) -> None:
    """A proxy that starts after compaction has met only the junk: writes would go past the layout."""
    stage.read("topic/invoices", b"junk")
    assert stage.topics.is_held("invoices")
    assert stage.topics.named("invoices") is None
    stage.read("topic/invoices", INVOICES)
    topic = known(stage.topics.named("invoices"))
    assert topic.unserved is None


async def test_a_topic_that_is_not_served_stays_so_under_every_other_record(stage: Stage) -> None:
    """A fence that was cancelled, or a layout that is adopted, does not open it: what is unread may be newer."""
    stage.read("fence/orders", FENCE)
    stage.read("topic/orders", b"junk")
    stage.read("fence/orders", None)
    assert stage.topic.is_sealed(1)
    stage.read("image/orders/1/1", b"junk")
    stage.read("topic/orders", replace(GROWN, face_id=UUID(int=5)))
    assert stage.topic.is_sealed(1)


async def test_a_damaged_batch_stops_the_topics_of_its_keys(stage: Stage) -> None:
    """What it says is not believed, though it can be read."""
    written = dump(TopicRecord(LAYOUT, UUID(int=2)))
    stage.layout_member.on_record(Record("topic/orders", written, 5, fault="its batch has another checksum"))
    assert list(stage.topics.unserved) == ["orders"]


async def test_a_record_that_cannot_be_gone_by_is_one_that_cannot_be_read(stage: Stage) -> None:
    """Each of its fields is fine; nobody could hold what it names."""
    impossible = FenceRecord("f1", "orders", replace(FENCE.following, u=1), frozenset({0}))
    stage.read("fence/orders", impossible)
    assert list(stage.topics.unserved) == ["orders"]
    stage.read("fence/orders", None)
    assert not stage.topics.unserved


async def test_the_controller_begins_anew_without_what_cannot_be_read(stage: Stage) -> None:
    """It must not write over it; when it can be read, it is the controller's again."""
    stage.read("topic/invoices", INVOICES)
    leads = Leads(raised=False)
    stage.layout_member.leadership.role = cast("Any", leads)
    stage.read("image/orders/1/1", b"junk")
    assert set(stage.layout_member.state.known()) == {"invoices"}
    stage.read("image/orders/1/2", b"junk")
    assert leads.begun_anew == 1, "not for each of many"
    stage.read("image/orders/1/1", None)
    stage.read("image/orders/1/2", None)
    assert set(stage.layout_member.state.known()) == {"invoices", "orders"}
    assert leads.begun_anew == 2


async def test_wishes_under_way_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a record that all proxies read; whoever asks for one too many is told so at once."""
    monkeypatch.setattr("kordon.proxy.own_topics.wishing.MOST_WISHES", 2)
    asked = [asyncio.ensure_future(stage.layout_member.wish(Resize("orders", 4))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(UpstreamUnavailable, match="2 wishes"):
        await stage.layout_member.wish(Resize("orders", 4))
    assert len(stage.layouts.appended) == 2
    for each in asked:
        each.cancel()


async def test_a_wish_is_written_for_as_long_as_its_client_waits(stage: Stage) -> None:
    """Brokers whose leader of the layouts has died take 10 s and more to find another one."""
    asked = asyncio.ensure_future(stage.layout_member.wish(Resize("orders", 4)))
    await stage.until_appended()
    assert stage.layouts.tried_seconds == [WISH_SECONDS]
    asked.cancel()


async def test_the_controller_looks_at_each_announcement_and_at_each_that_is_taken_away(stage: Stage) -> None:
    """What it finds forged is told of and counted."""
    leads = Leads(raised=False)
    stage.layout_member.leadership.role = cast("Any", leads)
    with capture_logs() as logs:
        stage.read("announcement/orders", AnnouncementRecord("a1", "orders", 1, {}), 7)
        stage.read("announcement/orders", None, 8)
    assert leads.heard == ["orders: a1", "orders: None"]
    assert [(line["key"], line["offset"]) for line in logs if line["event"] == "forged_record"] == [
        ("announcement/orders", 8)
    ]
    assert stage.layout_member.findings.unread.counted == {"announcement": 1}


async def test_nobody_else_says_that_a_proxy_ends(stage: Stage) -> None:
    """A forged record is discarded, counted and told of; what the proxy says itself, by its word, is believed."""
    members = (GroupMember("1", "me", "here"), GroupMember("2", "other", "there", seal=sealed("its word")))
    stage.layout_member.on_generation(Generation(1, "1", "2", members))
    leads = Leads(raised=False)
    stage.layout_member.leadership.role = cast("Any", leads)
    with capture_logs() as logs:
        stage.read("gone/other", GoneRecord("other"), 7)
        stage.read("gone/other", GoneRecord("other", "guessed"), 8)
    told = [(line["key"], line["offset"]) for line in logs if line["event"] == "forged_record"]
    assert told == [("gone/other", 7), ("gone/other", 8)]
    assert stage.layout_member.findings.unread.counted == {"gone": 2}
    assert leads.looked_at_members == 0
    with capture_logs() as logs:
        stage.read("gone/other", GoneRecord("other", "its word"), 9)
    assert logs == []
    assert stage.layout_member.findings.unread.counted == {"gone": 2}
    assert leads.looked_at_members == 1, "a controller that waits for its acknowledgement goes on without"
