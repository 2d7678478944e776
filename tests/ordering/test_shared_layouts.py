"""Versions side by side: what the first one wrote and reads, and what this one makes of what a later one writes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from uuid import UUID

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kordon.proxy.ordering.images import ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.member import Acknowledge, Adopt, Hold, Member
from kordon.proxy.ordering.records import (
    AckRecord,
    FenceRecord,
    FindingRecord,
    GoneRecord,
    JanitorRecord,
    OutcomeRecord,
    TopicRecord,
    Unreadable,
    Value,
    WishRecord,
    dump,
    load,
)
from kordon.proxy.ordering.share.policy import SharePolicy
from kordon.proxy.ordering.takeover import Subscriber, Takeover
from kordon.proxy.ordering.unread import Unread
from kordon.proxy.ordering.wishes import (
    Delete,
    LeaveOut,
    LookAgain,
    Manage,
    OrderDelivery,
    RaiseFloors,
    Resize,
    SetJanitor,
    Unmanage,
    Wish,
)


@dataclass
class FirstEpoch:
    """An epoch as version 0.1.0 reads it; these classes are frozen, whatever becomes of today's."""

    number: int
    u: int
    placement: Literal["linear", "own", "unmanaged"] = "linear"
    shortened: dict[int, int] | None = None
    renewed: tuple[int, ...] = ()


@dataclass
class FirstSegmentId:
    """A segment's id."""

    partition: int
    epoch: int


@dataclass
class FirstSegment:
    """A segment."""

    id: FirstSegmentId
    start: int
    end: int | None = None
    predecessors: tuple[FirstSegmentId, ...] = ()
    lost_from: int | None = None
    bound_epoch: int = -1


@dataclass
class FirstLayout:
    """A layout."""

    topic: str
    topic_id: UUID
    n: int
    v_count: int
    epochs: tuple[FirstEpoch, ...]
    segments: tuple[FirstSegment, ...]
    withheld: bool = False
    floors: dict[int, int] | None = None
    ordered_delivery: bool = True
    janitor: bool = False


@dataclass
class FirstSubscriber:
    """A member of a KIP-848 group."""

    group: str
    member: str
    names: tuple[str, ...]
    regex: str | None


@dataclass
class FirstTakeover:
    """What is left of a takeover."""

    until_ms: int | None
    cuts: dict[int, int] = field(default_factory=dict[int, int])
    left_out: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    subscribers: tuple[FirstSubscriber, ...] = ()
    transition_ms: int = 420_000


@dataclass
class FirstTopic:
    """A managed topic."""

    layout: FirstLayout
    face_id: UUID
    takeover: FirstTakeover | None = None


@dataclass
class FirstFence:
    """A fence."""

    id: str
    topic: str
    following: FirstEpoch
    sealed: frozenset[int]
    taking_over: FirstTopic | None = None


@dataclass
class FirstImage:
    """A part of an image."""

    written: dict[int, tuple[int, int]]
    cut_ms: int


@dataclass
class FirstAck:
    """An acknowledgement."""

    fence: str
    incarnation: str
    told: dict[int, int] | None = None


@dataclass
class FirstGone:
    """A proxy that has gone."""

    incarnation: str


@dataclass
class FirstOutcome:
    """What came of a wish."""

    error_code: int
    message: str


@dataclass
class FirstFinding:
    """A finding."""

    kind: Literal["topic_deleted", "topic_replaced", "records_lost", "compacted_without_janitor"]
    topic: str
    text: str
    found_ms: int


@dataclass
class FirstJanitor:
    """How far a janitor has come."""

    looked_to: dict[int, int]


FIRST: Final[Mapping[str, TypeAdapter[Any]]] = {
    "topic": TypeAdapter(FirstTopic),
    "image": TypeAdapter(FirstImage),
    "fence": TypeAdapter(FirstFence),
    "ack": TypeAdapter(FirstAck),
    "gone": TypeAdapter(FirstGone),
    "outcome": TypeAdapter(FirstOutcome),
    "finding": TypeAdapter(FirstFinding),
    "janitor": TypeAdapter(FirstJanitor),
}
FIRST_WISHES: Final = {
    "manage": {"topic", "virtual_partitions", "quiesced", "transition_ms", "ordered_delivery", "janitor", "kind"},
    "resize": {"topic", "partitions", "kind"},
    "unmanage": {"topic", "kind"},
    "order delivery": {"topic", "ordered", "kind"},
    "set janitor": {"topic", "on", "kind"},
    "leave groups out": {"topic", "groups", "kind"},
    "raise floors": {"topic", "floors", "kind"},
    "delete": {"topic", "kind"},
    "look again": {"topic", "kind"},
}

LAYOUT: Final = Layout.created("orders", UUID(int=1), 3, 12)
FOLLOWING: Final = LAYOUT.next_epoch(4)
GROWN: Final = LAYOUT.changed(FOLLOWING, {0: 100, 3: 0}, leader_epochs={0: 7, 3: 1})
TAKING: Final = Takeover(5, {0: 7}, ("a",), ("b",), (Subscriber("g", "m", ("orders",), None),))
TAKEN: Final = TopicRecord(Layout.unmanaged("orders", UUID(int=1), 3, 12), UUID(int=2), TAKING)
HISTORY: Final[tuple[tuple[str, Value], ...]] = (
    ("topic/orders", TopicRecord(LAYOUT, UUID(int=2))),
    ("fence/orders", FenceRecord("f1", "orders", FOLLOWING, LAYOUT.change_to(FOLLOWING).sealed, TAKEN)),
    ("ack/f1/a", AckRecord("f1", "a", {0: 3})),
    ("image/orders/1/1", ImageRecord({7: Written(0, 41)}, 1_790_000_000_000)),
    ("image/orders/-2/1", ImageRecord({8: Written(1, 2)}, 1_790_000_000_000)),
    ("topic/orders", TopicRecord(GROWN, UUID(int=2))),
    ("outcome/w1", OutcomeRecord(0, "")),
    ("finding/orders", FindingRecord("records_lost", "orders", "text", 5)),
    ("janitor/orders", JanitorRecord({0: 12})),
    ("gone/a", GoneRecord("a")),
)
WISHES: Final[tuple[Wish, ...]] = (
    *(Manage("orders", 12), Resize("orders", 4), Unmanage("orders"), OrderDelivery("orders", ordered=False)),
    *(SetJanitor("orders", on=True), LeaveOut("orders", ("g",)), RaiseFloors("orders", {1: 5})),
    *(Delete("orders"), LookAgain("orders")),
)


STRICT: Final = TypeAdapter(with_config(ConfigDict(extra="forbid"))(FirstTopic))
"""As versions read since they pass over no field."""


def kind(key: str) -> str:
    return key.partition("/")[0]


@pytest.mark.parametrize(("key", "value"), HISTORY)
def test_the_first_version_reads_what_this_one_writes_and_the_other_way_round(key: str, value: Value) -> None:
    """It misses nothing: what it writes of what it has read is what was written."""
    adapter = FIRST[kind(key)]
    read = adapter.validate_json(dump(value))
    assert load(key, adapter.dump_json(read)) == value


@pytest.mark.parametrize("wish", WISHES)
def test_wishes_have_the_fields_that_the_first_version_gave_them(wish: Wish) -> None:
    """A controller of that version would pass over others, and stop at a kind that it does not know."""
    written = json.loads(dump(WishRecord(wish)))["wish"]
    assert written.keys() == FIRST_WISHES[written["kind"]]
    assert load("wish/w1", json.dumps({"wish": written}).encode()) == WishRecord(wish)
    assert {each.kind for each in WISHES} == FIRST_WISHES.keys()


def test_what_share_groups_are_promised_is_passed_over_by_those_who_serve_none() -> None:
    """The record says so; where nobody has asked for anything else, it says nothing of it."""
    record = TopicRecord(GROWN, UUID(int=2))
    assert b"share" not in dump(record)
    asked = replace(record, layout=replace(GROWN, share=SharePolicy("virtual", "block")))
    written = json.loads(dump(asked))
    assert load("topic/orders", dump(asked)) == asked
    written["layout"]["shared_otherwise"] = written["layout"].pop("share")  # a field that this version does not know
    assert isinstance(load("topic/orders", json.dumps(written).encode()), Unreadable)
    written["optional"] = ["shared_otherwise"]
    assert load("topic/orders", json.dumps(written).encode()) == record


def test_a_version_without_transactions_serves_no_topic_that_has_them() -> None:
    """Its record has a field that strict versions do not know, and lacks one without which 0.1.0 serves nothing."""
    without = TopicRecord(GROWN, UUID(int=2))
    having = replace(without, layout=replace(GROWN, has_transactions=True))
    for record in (without, having):
        assert load("topic/orders", dump(record)) == record
    ordinary = json.loads(dump(without))
    assert STRICT.validate_python({key: value for key, value in ordinary.items() if key != "format"})
    told = json.loads(dump(having))
    with pytest.raises(ValidationError, match="layout_with_transactions"):
        STRICT.validate_python({key: value for key, value in told.items() if key != "format"})
    FIRST["topic"].validate_python(ordinary)
    with pytest.raises(ValidationError, match="Field required"):
        FIRST["topic"].validate_python(told)


def test_a_layout_with_transactions_is_no_other_records_layout_and_stands_once() -> None:
    """A record that has both is not understood."""
    having = TopicRecord(replace(GROWN, has_transactions=True), UUID(int=2))
    told = json.loads(dump(having))
    both = {**told, "layout": told["layout_with_transactions"]}
    assert isinstance(load("topic/orders", json.dumps(both).encode()), Unreadable)
    fence = json.loads(dump(FenceRecord("f1", "orders", FOLLOWING, frozenset(), having)))
    fence["taking_over"]["layout_with_transactions"] = fence["taking_over"].pop("layout")
    assert isinstance(load("fence/orders", json.dumps(fence).encode()), Unreadable)


def test_a_topic_keeps_its_transactions_through_each_change() -> None:
    layout = replace(LAYOUT, has_transactions=True)
    assert layout.changed(layout.next_epoch(4), {0: 100, 3: 0}).has_transactions


class Proxy:
    """One that reads a shared log, of this version."""

    def __init__(self) -> None:
        self.member = Member("me")
        self.unread = Unread()
        self.commands: list[Any] = []

    def read(self, key: str, written: bytes | None) -> None:
        value = None if written is None else load(key, written)
        self.unread.take(key, value)
        if not isinstance(value, Unreadable):
            self.commands += self.member.on_record(key, value)

    @property
    def why_unserved(self) -> str | None:
        return self.unread.why_unserved("orders", is_managed="orders" in self.member.topics)


def later(value: Value, **new: Any) -> bytes:
    """Writes as a version to come."""
    return json.dumps(json.loads(dump(value)) | new).encode()


def test_a_proxy_goes_through_a_change_that_the_first_version_leads() -> None:
    """Its controller's records are the first version's, byte for byte."""
    proxy = Proxy()
    for key, value in HISTORY:
        written = FIRST[kind(key)].dump_json(FIRST[kind(key)].validate_json(dump(value)))
        assert b"format" not in written
        proxy.read(key, written)
    assert proxy.member.topics["orders"].layout == GROWN
    assert proxy.member.images("orders")[1][7] == Written(0, 41)
    assert [type(each) for each in proxy.commands] == [Adopt, Hold, Adopt]
    assert proxy.why_unserved is None


def test_a_proxy_goes_through_a_change_of_a_later_version_that_it_need_not_understand() -> None:
    """All that is new says so."""
    proxy = Proxy()
    for key, value in HISTORY:
        proxy.read(key, later(value, hint={"a": 1}, optional=["hint"]))
        proxy.read("rack/orders", b'{"format":1,"optional":true,"of":"a"}')
    assert proxy.member.topics["orders"].layout == GROWN
    assert proxy.why_unserved is None


def test_a_proxy_never_acknowledges_a_fence_that_it_does_not_understand() -> None:
    """So the later version's change waits for it, and the topic goes on under the layout that both know."""
    proxy = Proxy()
    (_, created), (_, fence) = HISTORY[:2]
    proxy.read("topic/orders", dump(created))
    proxy.read("fence/orders", later(fence, seals="more"))
    assert proxy.why_unserved is not None
    assert proxy.member.on_held("f1") == []
    assert not any(isinstance(each, Hold | Acknowledge) for each in proxy.commands)
    proxy.read("fence/orders", None)  # it was cancelled: somebody has not acknowledged
    assert proxy.why_unserved is None
    assert proxy.member.topics["orders"].layout == LAYOUT


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("topic/orders", later(HISTORY[5][1], placed_by="rack")),
        ("topic/orders", later(HISTORY[5][1], format=2)),
        ("image/orders/1/1", later(HISTORY[3][1], compressed=True)),
        ("rack/orders", b'{"format":1,"of":"a"}'),
    ],
)
def test_a_proxy_serves_no_topic_whose_order_may_rest_on_what_it_does_not_understand(key: str, written: bytes) -> None:
    """Until it is upgraded, which reads the same log again, or the later version takes it back."""
    proxy = Proxy()
    proxy.read("topic/orders", dump(HISTORY[0][1]))
    proxy.read("topic/invoices", dump(TopicRecord(Layout.created("invoices", UUID(int=3), 3, 12), UUID(int=4))))
    proxy.read(key, written)
    assert proxy.why_unserved is not None
    assert proxy.unread.why_unserved("invoices") is None
    proxy.read(key, None if key.startswith("rack") else dump(dict[str, Value](HISTORY)[key]))
    assert proxy.why_unserved is None
