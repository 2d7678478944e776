"""Records of the layouts as they are written and read: whatever stands there, by whichever version."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.images import PRODUCERS_OF_A_PART, ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.placements import Epoch, Placement
from kordon.proxy.ordering.reading import tenancies
from kordon.proxy.ordering.records import (
    KINDS,
    MOST_BYTES,
    MOST_WRITTEN_BYTES,
    OTHER,
    AckRecord,
    AnnouncementRecord,
    BehindRecord,
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
    why_never,
    why_no_more,
)
from kordon.proxy.ordering.soundness import why_unsound
from kordon.proxy.ordering.takeover import Takeover
from kordon.proxy.ordering.unread import Unread
from kordon.proxy.ordering.wishes import Manage, RaiseFloors
from kordon.proxy.own_topics.layouts_writer import BATCH_BYTES
from kordon.testing.calls import calls_of
from kordon.testing.large_layouts import LARGEST, forged

LAYOUT: Final = Layout.created("orders", UUID(int=1), 3, 12)
FOLLOWING: Final = LAYOUT.next_epoch(4)
GROWN: Final = LAYOUT.changed(FOLLOWING, {0: 100, 3: 0}, leader_epochs={0: 7, 3: 1})
FENCE: Final = FenceRecord("f1", "orders", FOLLOWING, LAYOUT.change_to(FOLLOWING).sealed)
RECORDS: Final[Mapping[str, Value]] = {
    "topic/orders": TopicRecord(GROWN, UUID(int=2), Takeover(5, {0: 7}, ("a",))),
    "image/orders/1/2": ImageRecord({7: Written(0, 41)}, 1_790_000_000_000),
    "image/orders/-3/1": ImageRecord({}, 5),
    "fence/orders": FENCE,
    "ack/f1/me": AckRecord("f1", "me", {0: 9}),
    "gone/me": GoneRecord("me"),
    "wish/w1": WishRecord(RaiseFloors("orders", {1: 5})),
    "outcome/w1": OutcomeRecord(3, "no such topic"),
    "finding/orders": FindingRecord("records_lost", "orders", "text", 5),
    "janitor/orders": JanitorRecord({0: 12}),
    "behind/orders": BehindRecord(5, {"orders-mailer": 1204}),
    "announcement/orders": AnnouncementRecord("a1", "orders", 2, {3: 4}, {0: 100}),
}
HARMS: Final = frozenset({"topic", "image", "fence", "announcement"})
"""Kinds without which a topic is not served."""

BY_THE_FIRST_VERSION: Final[Mapping[str, tuple[bytes, Value]]] = {
    "topic/orders": (
        b'{"layout":{"topic":"orders","topic_id":"00000000-0000-0000-0000-000000000001","n":3,"v_count":12,"epochs":'
        b'[{"number":0,"u":3,"placement":"linear","shortened":null,"renewed":[]},{"number":1,"u":4,"placement":'
        b'"linear","shortened":null,"renewed":[]}],"segments":[{"id":{"partition":0,"epoch":0},"start":0,"end":100,'
        b'"predecessors":[],"lost_from":null,"bound_epoch":7},{"id":{"partition":1,"epoch":0},"start":0,"end":null,'
        b'"predecessors":[],"lost_from":null,"bound_epoch":-1},{"id":{"partition":2,"epoch":0},"start":0,"end":null,'
        b'"predecessors":[],"lost_from":null,"bound_epoch":-1},{"id":{"partition":0,"epoch":1},"start":100,"end":null,'
        b'"predecessors":[{"partition":0,"epoch":0}],"lost_from":null,"bound_epoch":7},{"id":{"partition":3,"epoch":1}'
        b',"start":0,"end":null,"predecessors":[{"partition":0,"epoch":0}],"lost_from":null,"bound_epoch":1}],'
        b'"withheld":false,"floors":null,"ordered_delivery":true,"janitor":false},"face_id":'
        b'"00000000-0000-0000-0000-000000000002","takeover":null}',
        TopicRecord(GROWN, UUID(int=2)),
    ),
    "image/orders/1/2": (b'{"written":{"7":[0,41]},"cut_ms":5}', ImageRecord({7: Written(0, 41)}, 5)),
    "fence/orders": (
        b'{"id":"f1","topic":"orders","following":{"number":1,"u":4,"placement":"linear","shortened":null,"renewed":[]}'
        b',"sealed":[0],"taking_over":null}',
        FENCE,
    ),
    "ack/f1/me": (b'{"fence":"f1","incarnation":"me","told":null}', AckRecord("f1", "me")),
    "gone/me": (b'{"incarnation":"me"}', GoneRecord("me")),
    "wish/w1": (
        b'{"wish":{"topic":"orders","virtual_partitions":12,"quiesced":false,"transition_ms":420000,'
        b'"ordered_delivery":true,"janitor":false,"kind":"manage"}}',
        WishRecord(Manage("orders", 12, transition_ms=420_000)),
    ),
    "outcome/w1": (b'{"error_code":0,"message":""}', OutcomeRecord(0, "")),
    "finding/orders": (
        b'{"kind":"topic_deleted","topic":"orders","text":"gone","found_ms":5}',
        FindingRecord("topic_deleted", "orders", "gone", 5),
    ),
    "janitor/orders": (b'{"looked_to":{"0":12}}', JanitorRecord({0: 12})),
}
"""As version 0.1.0 wrote them, byte for byte; logs of then are read for ever."""


def with_fields(value: Value, **fields: Any) -> bytes:
    """Writes a record with more fields."""
    return json.dumps(json.loads(dump(value)) | fields).encode()


@pytest.mark.parametrize("key", RECORDS)
def test_every_kind_is_read_as_it_was_written(key: str) -> None:
    """With the format by which it is written."""
    assert json.loads(dump(RECORDS[key]))["format"] == 1
    assert load(key, dump(RECORDS[key])) == RECORDS[key]
    assert {each.partition("/")[0] for each in RECORDS} == KINDS


@pytest.mark.parametrize("key", BY_THE_FIRST_VERSION)
def test_what_the_first_version_wrote_is_read(key: str) -> None:
    """It says no format."""
    written, value = BY_THE_FIRST_VERSION[key]
    assert load(key, written) == value


@pytest.mark.parametrize("key", BY_THE_FIRST_VERSION)
def test_what_is_written_now_the_first_version_reads(key: str) -> None:
    """That one passes over any field that it does not know, so nothing but the format may be new in its place."""
    written, value = BY_THE_FIRST_VERSION[key]
    now = json.loads(dump(value))
    assert now.pop("format") == 1
    assert now == json.loads(written)


JUNK: Final = {
    "nothing": b"",
    "no JSON": b"not json",
    "no object": b"[1, 2]",
    "null": b"null",
    "another shape": b'{"what": "ever"}',
    "no text": b"\xff\xfe\x00",
    "deep lists": b"[" * 300_000,
    "deep objects": b'{"a":' * 100_000,
    "16 MB": b'"' + b"x" * 16_000_000 + b'"',
    "a number of 100,000 digits": b'{"format": ' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("key", RECORDS)
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_junk_harms_at_most_its_own_topic(key: str, junk: bytes) -> None:
    """It is told what is wrong, in few words; kinds that no order rests on are passed over."""
    found = load(key, junk)
    assert isinstance(found, Unreadable)
    assert found.topic == ("orders" if key.partition("/")[0] in HARMS else None)
    assert 0 < len(found.why) <= 200


def test_numbers_that_no_producer_has_are_told_of() -> None:
    """They do not fit where they are kept."""
    for written in (b'{"99999999999999999999":[0,1]}', b'{"7":[0,99999999999]}', b'{"7":[99999999999,0]}'):
        assert isinstance(load("image/orders/1/2", b'{"written":' + written + b',"cut_ms":5}'), Unreadable)


def test_a_value_is_read_only_up_to_a_size() -> None:
    """What Kordon writes is smaller; parsing what is larger would hold up clients."""
    found = load("gone/me", b'{"incarnation":"' + b"x" * MOST_BYTES + b'"}')
    assert isinstance(found, Unreadable)
    assert "at most" in found.why


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        ("", None),
        ("/", None),
        ("topic", None),
        ("topic/", None),
        ("topic/no name of a topic", None),
        ("topic/" + "x" * 250, None),
        ("later/orders", "orders"),
        ("later/orders/1", "orders"),
        ("image/orders", "orders"),
        ("image/orders/one/2", "orders"),
        ("image/orders/1/2/3", "orders"),
        ("image/orders/99999999999/1", "orders"),
    ],
)
def test_odd_keys_are_told_of(key: str, topic: str | None) -> None:
    """Where they name a topic it is theirs."""
    found = load(key, dump(RECORDS["image/orders/1/2"]))
    assert isinstance(found, Unreadable)
    assert (found.key, found.topic) == (key, topic)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (AnnouncementRecord("a1", "invoices", 1, {}), "it is about invoices"),
        (AnnouncementRecord("a1", "orders", -1, {}), "number -1"),
        (AnnouncementRecord("a1", "orders", 1 << 60, {}), "number"),
        (AnnouncementRecord("a1", "orders", 1, {-2: 1}), "partition -2"),
        (AnnouncementRecord("a1", "orders", 1, {1: 1 << 40}), "partition 1099511627776"),
        (AnnouncementRecord("a1", "orders", 1, {1: 2}, {1 << 31: 5}), "partition 2147483648"),
    ],
)
def test_an_announcement_of_what_cannot_be_is_not_gone_by(record: AnnouncementRecord, why: str) -> None:
    found = load("announcement/orders", dump(record))
    assert isinstance(found, Unreadable)
    assert why in found.why
    assert found.topic == "orders"


def test_a_kind_to_come_is_passed_over_only_if_it_is_optional() -> None:
    """Else it may say what its topic's order rests on."""
    assert load("later/orders", b'{"format":1,"optional":true}') is None
    for marked in (b"false", b"1", b'"yes"', b"[]"):
        assert isinstance(load("later/orders", b'{"format":1,"optional":' + marked + b"}"), Unreadable)


@pytest.mark.parametrize("key", RECORDS)
def test_a_field_to_come_is_passed_over_only_if_it_is_optional(key: str) -> None:
    """At the top, where any kind may get one."""
    value = RECORDS[key]
    found = load(key, with_fields(value, pinned=[1]))
    assert isinstance(found, Unreadable)
    assert "pinned" in found.why
    assert load(key, with_fields(value, pinned=[1], optional=["pinned"])) == value
    assert isinstance(load(key, with_fields(value, pinned=[1], hard=2, optional=["pinned"])), Unreadable)


def test_a_field_to_come_may_stand_deeper() -> None:
    """In an epoch of a layout, or in a wish."""
    for key, place in (("topic/orders", ("layout", "epochs", 1)), ("wish/w1", ("wish",))):
        whole = json.loads(dump(RECORDS[key]))
        inner = whole
        for step in place:
            inner = inner[step]
        inner["pinned"] = True
        assert isinstance(load(key, json.dumps(whole).encode()), Unreadable)
        assert load(key, json.dumps({**whole, "optional": ["pinned"]}).encode()) == RECORDS[key]


@pytest.mark.parametrize(
    ("key", "place", "value"),
    [
        ("topic/orders", ("layout", "epochs", 1, "placement"), "spiral"),
        ("finding/orders", ("kind",), "eclipse"),
        ("wish/w1", ("wish", "kind"), "fly"),
        ("fence/orders", ("following", "placement"), "spiral"),
    ],
)
def test_a_value_to_come_is_not_taken_for_one_of_today(key: str, place: tuple[int | str, ...], value: str) -> None:
    """A later version's proxy may write it while this one still runs."""
    whole = json.loads(dump(RECORDS[key]))
    inner = whole
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert isinstance(load(key, json.dumps(whole).encode()), Unreadable)


@pytest.mark.parametrize("written", [2, 0, "1", None])
def test_another_format_is_not_read(written: Any) -> None:
    """By its rules the same fields may mean something else."""
    found = load("topic/orders", with_fields(RECORDS["topic/orders"], format=written))
    assert isinstance(found, Unreadable)
    assert "format" in found.why


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("topic",), "invoices", "invoices"),
        (("v_count",), 2_000_000_000, "more than"),
        (("v_count",), 13, "power of two"),
        (("n",), 0, "at least one"),
        (("epochs",), [], "numbered"),
        (("epochs", 1, "number"), 7, "numbered"),
        (("epochs", 1, "u"), 1_000, "1,000 partitions"),
        (("segments",), [], "no open segment"),
        (("segments", 1, "end"), -5, "impossible"),
        (("segments", 1, "id", "partition"), 0, "twice"),
        (("segments", 1, "id", "epoch"), 9, "impossible"),
    ],
)
def test_a_layout_that_cannot_be_is_not_gone_by(place: tuple[int | str, ...], value: Any, why: str) -> None:
    """Each field is fine, and all together would end whoever derives homes and chains from them."""
    whole = json.loads(dump(RECORDS["topic/orders"]))
    inner = whole["layout"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    found = load("topic/orders", json.dumps(whole).encode())
    assert isinstance(found, Unreadable)
    assert why in found.why


TOO_LARGE: Final = {
    "changes": forged(1, 16_384, [1] * 1_002, [(0, 0)]),
    "segments": forged(1, 16_384, [1], [(q, 0) for q in range(6_001)]),
    "renewed segments": forged(1, 1, [1] * 90, [(0, 0)], renewed=[0] * 100),
    "steps": forged(1, 16_384, [4_000, *([1] * 900)], [(0, epoch) for epoch in range(901)]),
    "partitions": forged(9_000, 9_000, [9_000], [(q, 0) for q in range(9_000)]),
    "elements": forged(1, 1, [1] * 60, [(0, 0)], renewed=[0] * 2_000),
}


@pytest.mark.parametrize(("what", "written"), TOO_LARGE.items(), ids=TOO_LARGE)
def test_a_layout_with_too_much_behind_it_is_not_gone_by(what: str, written: bytes) -> None:
    """To derive from it where everything is would hold up all clients of a worker for seconds."""
    assert len(written) <= MOST_BYTES
    found = load("topic/orders", written)
    assert isinstance(found, Unreadable)
    assert found.topic == "orders"
    assert what in found.why


@pytest.mark.parametrize("written", LARGEST.values(), ids=LARGEST)
def test_the_largest_layouts_that_are_gone_by_take_few_calls(written: bytes) -> None:
    """A call is some 0.2 µs: 100,000 are 20 ms. Each record is read in one step of the event loop."""
    record = load("topic/orders", written)
    assert isinstance(record, TopicRecord)
    assert calls_of(lambda: load("topic/orders", written)) < 40_000
    layout = record.layout
    assert calls_of(lambda: layout.chains) < 250_000
    assert calls_of(lambda: tenancies(layout)) < 25_000  # each is derived when it is asked for


@pytest.mark.parametrize(
    "written",
    [
        b'{"layout":{"segments":[' + b",".join([b"{}"] * 90_000) + b"]}}",
        b"{" + b",".join(b'"%d":0' % number for number in range(90_000)) + b"}",
    ],
    ids=["segments", "fields"],
)
def test_what_is_wrong_with_a_record_is_not_listed_without_end(written: bytes) -> None:
    """A list of 90,000 faults would take longer than anything that can be read."""
    found = load("topic/orders", written)
    assert isinstance(found, Unreadable)
    assert "of its fields are not understood" in found.why
    assert calls_of(lambda: load("topic/orders", written)) < 1_000


def test_a_part_of_an_image_has_as_many_producers_as_kordon_writes() -> None:
    """Twice as many are read as junk: nobody has written them."""
    for producers, is_read in ((PRODUCERS_OF_A_PART, True), (2 * PRODUCERS_OF_A_PART, False)):
        rows = ",".join(f'"{number}":[0,0]' for number in range(producers))
        found = load("image/orders/1/2", f'{{"written":{{{rows}}},"cut_ms":5}}'.encode())
        assert isinstance(found, ImageRecord) == is_read


def test_a_topic_is_not_changed_so_often_that_nobody_would_read_it() -> None:
    """A wish is refused while there is still room for what has to be mended."""
    record = TopicRecord(Layout.created("orders", UUID(int=1), 1, 2), UUID(int=2))
    changes = 0
    while not (why := why_no_more(record, record.layout.next_epoch(2 if record.layout.u == 1 else 1))):
        following = record.layout.next_epoch(2 if record.layout.u == 1 else 1)
        cuts = dict.fromkeys(range(2), 10**15 * (changes + 1))
        record = replace(record, layout=record.layout.changed(following, cuts))
        changes += 1
    assert changes == 900
    assert "changed too often" in why
    assert load("topic/orders", dump(record)) == record


def test_a_log_that_got_shorter_is_mended_as_long_as_the_layout_is_read() -> None:
    """Behind the last wish there is room for a hundred of them; the one that nobody would read is not begun."""
    record = TopicRecord(Layout.created("orders", UUID(int=1), 1, 2), UUID(int=2))
    while not why_no_more(record, record.layout.next_epoch(1, renewed=(0,))):
        following = record.layout.next_epoch(1, renewed=(0,))
        record = replace(record, layout=record.layout.changed(following, {0: 10**15 + following.number}))
    mends = 0
    while not (why := why_never(record, shortened_by(record.layout))):
        mends += 1
        layout = record.layout.changed(shortened_by(record.layout), {0: 10**15}, told={0: 10**15 + 1})
        record = replace(record, layout=layout)
    assert mends == 100
    assert "changed too often" in why
    assert load("topic/orders", dump(record)) == record
    following = shortened_by(record.layout)
    beyond = replace(record, layout=record.layout.changed(following, {0: 10**15}))
    assert isinstance(load("topic/orders", dump(beyond)), Unreadable)


def shortened_by(layout: Layout) -> Epoch:
    """The epoch that mends a loss of the only partition."""
    return layout.next_epoch(1, shortened={0: 10**14})


def test_no_layout_is_written_that_no_batch_takes() -> None:
    """However few changes it has: the controller would fail for ever."""
    layout = replace(GROWN, floors=dict.fromkeys(range(10**6, 10**6 + 40_000), 10**15))
    record = TopicRecord(layout, UUID(int=2))
    assert len(dump(record)) > MOST_WRITTEN_BYTES
    assert "bytes" in why_never(record, layout.next_epoch(4, shortened={3: 0}))
    assert MOST_WRITTEN_BYTES + 1_000 < BATCH_BYTES


@pytest.mark.parametrize(
    ("v_count", "u", "why"),
    [(10**9, 1, "1,000,000,000 virtual partitions are more"), (12, 0, "0 partitions are fewer than the 3")],
)
def test_a_fence_of_what_cannot_be_is_not_gone_by(v_count: int, u: int, why: str) -> None:
    """A topic that is taken over is derived from the record alone, and would have no end."""
    layout = Layout.unmanaged("orders", UUID(int=1), 3, 12)
    coming = TopicRecord(replace(layout, v_count=v_count), UUID(int=2))
    fence = FenceRecord("f1", "orders", Epoch(1, u, Placement.OWN), frozenset({0}), coming)
    found = load("fence/orders", dump(fence))
    assert isinstance(found, Unreadable)
    assert why in found.why


def test_no_fence_leads_a_layout_to_what_cannot_be() -> None:
    """The layout in force is not in the record, so the member tells; it goes on without that fence."""
    member = Member("me")
    member.on_record("topic/orders", TopicRecord(LAYOUT, UUID(int=2)))
    with pytest.raises(ValueError, match="0 partitions are fewer"):
        member.on_record("fence/orders", replace(FENCE, following=Epoch(1, 0)))
    assert not member.fences


@given(st.lists(st.tuples(st.integers(2, 16), st.booleans(), st.booleans()), max_size=8), st.booleans())
def test_every_layout_that_changes_lead_to_is_sound(steps: list[tuple[int, bool, bool]], taken_over: bool) -> None:
    """Grown, shrunk, renewed, cut short, taken over: none is taken for one that cannot be."""
    layout = Layout.unmanaged("orders", UUID(int=1), 2, 16) if taken_over else LAYOUT_OF_TWO
    if taken_over:
        following = layout.next_epoch(2, Placement.OWN)
        layout = layout.changed(following, dict.fromkeys(range(2), 9), withheld=True)
    for number, (u, is_renewed, is_short) in enumerate(steps):
        some = min(layout.open_segments)
        shortened = {some: 3} if is_short else None
        following = layout.next_epoch(u, shortened=shortened, renewed=(some,) if is_renewed else ())
        touched = layout.change_to(following).touched
        cuts = {q: 100 * (number + 1) if q != some or not is_short else 3 for q in touched}
        layout = layout.changed(following, cuts)
        assert why_unsound(layout) == ""
        assert load("topic/orders", dump(TopicRecord(layout, UUID(int=2)))) == TopicRecord(layout, UUID(int=2))


LAYOUT_OF_TWO: Final = Layout.created("orders", UUID(int=1), 2, 16)


@given(st.data())
def test_whatever_bytes_become_of_a_record_reading_ends(data: st.DataObject) -> None:
    """It is read, or told to be unreadable; nothing is raised."""
    key = data.draw(st.sampled_from(sorted(RECORDS)))
    written = bytearray(dump(RECORDS[key]))
    for _ in range(data.draw(st.integers(1, 4))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    load(key, bytes(written))


def bad(key: str) -> Unreadable:
    """What junk under a key amounts to."""
    found = load(key, b"junk")
    assert isinstance(found, Unreadable)
    return found


def test_a_topic_is_served_again_when_its_key_is_taken() -> None:
    """By a record that can be read, or by a tombstone; each key for itself."""
    unread = Unread()
    unread.take("image/orders/1/1", bad("image/orders/1/1"))
    unread.take("fence/orders", bad("fence/orders"))
    why = unread.why_unserved("orders")
    assert why is not None
    assert "image/orders/1/1" in why
    assert "1 more" in why
    unread.take("image/orders/1/1", RECORDS["image/orders/1/2"])
    assert unread.why_unserved("orders") is not None
    unread.take("fence/orders", None)
    assert unread.why_unserved("orders") is None
    assert "orders" not in unread


def test_what_cannot_be_read_is_counted_by_its_kind_whomever_it_concerns() -> None:
    """Each record once, also where another takes its place; kinds to come are one."""
    unread = Unread()
    for key in ("image/orders/1/1", "image/orders/1/2", "image/orders/1/2", "fence/orders", "later/1", "evenlater/1"):
        unread.take(key, bad(key))
    unread.take("fence/orders", None)
    assert unread.counted == {"image": 3, "fence": 1, OTHER: 2}


def test_what_is_said_of_an_ordinary_topic_concerns_nobody() -> None:
    """Except for a layout: a topic with one that cannot be read may be managed."""
    unread = Unread()
    for key in ("image/orders/1/1", "fence/orders", "later/orders", "wish/w1", ""):
        unread.take(key, bad(key))
    assert unread.why_unserved("orders", is_managed=False) is None
    assert unread.why_unserved("invoices", is_managed=True) is None
    unread.take("topic/orders", bad("topic/orders"))
    assert unread.why_unserved("orders", is_managed=False) is not None
