"""What a controller and a member of its group note, with the cluster left out."""

from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.controller.controller_notes import ControllerNotes, evidence_of
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.kafka.group import GroupMember
from kordon.proxy.member.member_notes import MemberNotes
from kordon.proxy.member.membership import Generation
from kordon.proxy.ordering.changes import Producers
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.proxy.ordering.records import AckRecord, FenceRecord, OutcomeRecord, TopicRecord
from kordon.proxy.ordering.standing_findings import StandingFindings
from kordon.proxy.ordering.write_sequencer import Binding, Write
from kordon.proxy.own_topics.layouts_writer import ChangeNotCommitted, Fenced, OutcomeUnknown, Records
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.noted import Noted

LAYOUT = Layout.created("orders", UUID(int=1), 3, 12)
BEFORE = TopicRecord(LAYOUT, UUID(int=2))
FENCE = FenceRecord("f1", "orders", LAYOUT.next_epoch(4), LAYOUT.change_to(LAYOUT.next_epoch(4)).sealed)
GROWN = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
CUTS = {0: Producers(100, {}, leader_epoch=5), 3: Producers(0, {})}
RAISED: Records = (("fence/orders", FENCE),)
COMMITTED: Records = (("topic/orders", GROWN), ("ack/f1/you", None), ("fence/orders", None))


class Controller:
    """A controller's notes in a group of two."""

    def __init__(self) -> None:
        self.noted = Noted()
        self.members = frozenset({"me", "you"})
        self.notes = ControllerNotes(self.noted.journal, lambda: self.members)
        self.topics = {"orders": BEFORE}

    def write(self, records: Records, at: int) -> None:
        """Has records be durable, the first of them at an offset."""
        self.notes.written(records, {key: at + place for place, (key, _) in enumerate(records)}, self.topics)


def test_a_change_is_told_by_fence_cuts_and_layout() -> None:
    """Each with what it rests on: who had to acknowledge, where that was read, and the whole layout."""
    controller = Controller()
    controller.write(RAISED, 10)
    controller.notes.on_ack("f1", "you", 12)
    controller.notes.on_ack("f1", "me", None)
    controller.notes.enough("f1")
    controller.notes.cut("f1", CUTS)
    controller.write(COMMITTED, 14)
    fence, parent, child, commit = controller.noted.of()
    named: dict[str, Any] = {"topic": "orders", "fence": "f1", "layout_epoch": 1}
    members = ["me", "you"]
    evidence: dict[str, Any] = {"members": members, "sealed": [0], "kind": "change"}
    assert fence == Decision(kind=Kind.FENCE, layouts_offset=10, evidence=evidence, **named)
    evidence = {"members": members, "acknowledged": members, "acknowledged_at": {"you": 12}, "leader_epoch": 5}
    assert parent == Decision(
        kind=Kind.CUT, partition=0, last_offset=100, layouts_offset=12, evidence=evidence, **named
    )
    evidence = {**evidence, "leader_epoch": -1}
    assert child == Decision(kind=Kind.CUT, partition=3, last_offset=0, layouts_offset=12, evidence=evidence, **named)
    assert commit == Decision(kind=Kind.COMMIT, layouts_offset=14, evidence=evidence_of(GROWN.layout), **named)
    assert LAYOUT_JSON.validate_python(commit.evidence["layout"]) == GROWN.layout


def test_an_acknowledgement_may_come_before_the_answer_that_its_fence_is_durable() -> None:
    """The controller's worker reads the fence from the log; the end of the transaction may be answered later."""
    controller = Controller()
    controller.notes.on_ack("f1", "me", None)
    controller.write(RAISED, 10)
    controller.notes.enough("f1")
    controller.notes.cut("f1", CUTS)
    (parent, _) = controller.noted.of(Kind.CUT)
    assert (parent.evidence["acknowledged"], parent.layouts_offset) == (["me"], 10)


def test_who_has_left_in_order_is_not_among_those_whose_acknowledgement_a_cut_needs() -> None:
    """A fence is raised among two; one stops before it acknowledges, and holds no lease."""
    controller = Controller()
    controller.write(RAISED, 10)
    controller.members = frozenset({"me"})
    controller.notes.on_ack("f1", "me", None)
    controller.notes.enough("f1")
    controller.notes.cut("f1", CUTS)
    assert [each.evidence["members"] for each in controller.noted.of(Kind.FENCE, Kind.CUT)] == [
        ["me", "you"],
        *[["me"]] * 2,
    ]


def test_who_joins_while_cuts_are_read_is_not_among_those_whose_acknowledgement_a_cut_needs() -> None:
    """It reads the fence before it serves (READ-BEFORE-SERVE), and may acknowledge it too late to be of use."""
    controller = Controller()
    controller.write(RAISED, 10)
    controller.notes.on_ack("f1", "you", 12)
    controller.notes.on_ack("f1", "me", None)
    controller.notes.enough("f1")
    controller.members |= {"new"}
    controller.notes.on_ack("f1", "new", 13)
    controller.notes.cut("f1", CUTS)
    told = [(each.evidence["members"], each.layouts_offset) for each in controller.noted.of(Kind.CUT)]
    assert told == [(["me", "you"], 12)] * 2


def test_a_fence_that_is_taken_back_is_told_once() -> None:
    """Also one that a former controller has left; the end of none is told where none stood."""
    controller = Controller()
    controller.write(RAISED, 10)
    controller.write((("fence/orders", None),), 11)
    controller.write((("fence/orders", None),), 12)
    controller.notes.found(FenceRecord("f0", "invoices", FENCE.following, FENCE.sealed))
    controller.write((("fence/invoices", None),), 13)
    cancels = controller.noted.of(Kind.CANCEL)
    assert [(each.topic, each.fence, each.layouts_offset) for each in cancels] == [
        ("orders", "f1", 11),
        ("invoices", "f0", 13),
    ]


def test_what_may_be_durable_or_not_is_told_as_such() -> None:
    """Nothing of it counts: neither fence nor layout stand where they are looked for."""
    controller = Controller()
    controller.notes.doubted(RAISED)
    controller.write(RAISED, 10)
    controller.notes.doubted(COMMITTED)
    controller.notes.doubted((("fence/orders", None),))
    told = [each for each in controller.noted.of() if each.reason == "unknown"]
    assert [(each.kind, each.layout_epoch) for each in told] == [(Kind.FENCE, 1), (Kind.COMMIT, 1), (Kind.CANCEL, 1)]
    assert {(each.topic, each.fence, each.layouts_offset) for each in told} == {("orders", None, None)}
    assert all(each.evidence == {"of_fence": "f1"} for each in told)


@pytest.mark.parametrize(
    ("error", "is_told"),
    [(OutcomeUnknown("no answer"), True), (Fenced("another"), True), (ChangeNotCommitted("no"), False)],
)
async def test_a_ledger_tells_of_what_it_does_not_know(error: Exception, is_told: bool) -> None:
    """Once: what is tried behind a failure is not even begun."""

    class Writer:
        """Fails."""

        async def commit(self, entries: object) -> list[int]:
            raise error

    noted = Noted()
    ledger = Ledger(
        cast("Any", Writer()), ControllerNotes(noted.journal, lambda: frozenset({"me"})), StandingFindings()
    )
    for _ in range(2):
        with pytest.raises(type(error)):
            await ledger.write((("topic/orders", BEFORE),))
    with pytest.raises(type(error)):
        ledger.raise_failure()
    expected = [(Kind.COMMIT, 0, "unknown")] if is_told else []
    assert [(each.kind, each.layout_epoch, each.reason) for each in noted.of()] == expected


def test_cuts_of_a_fence_that_has_ended_are_not_told() -> None:
    """They were read too late, and nothing rests on them."""
    controller = Controller()
    controller.write(RAISED, 10)
    controller.write((("fence/orders", None),), 11)
    controller.notes.on_ack("f1", "you", 12)
    controller.notes.enough("f1")
    controller.notes.cut("f1", CUTS)
    assert controller.noted.kinds == [Kind.FENCE, Kind.CANCEL]


def test_a_fence_that_asks_who_knows_a_layout_is_no_change() -> None:
    """It ends by being taken back, together with the outcome of a wish; layouts written meanwhile are not its own."""
    controller = Controller()
    asking = FenceRecord("q1", "orders", LAYOUT.epochs[-1], frozenset())
    controller.write((("fence/orders", asking),), 10)
    controller.write((("topic/orders", BEFORE),), 11)
    controller.write((("fence/orders", None), ("ack/q1/you", None), ("outcome/w1", OutcomeRecord(0, ""))), 12)
    fence, commit, cancel = controller.noted.of()
    assert (fence.kind, fence.fence, fence.layout_epoch, fence.evidence["kind"]) == (Kind.FENCE, "q1", 0, "question")
    assert (commit.kind, commit.fence, commit.layout_epoch) == (Kind.COMMIT, None, 0)
    assert (cancel.kind, cancel.fence, cancel.evidence) == (Kind.CANCEL, "q1", {"kind": "question"})


def test_the_first_layout_of_a_topic_is_told_without_a_fence() -> None:
    """Nobody wrote to it through Kordon before, so nobody is asked to stop."""
    controller = Controller()
    controller.topics = {}
    controller.write((("topic/orders", BEFORE),), 3)
    (commit,) = controller.noted.of()
    assert (commit.kind, commit.fence, commit.layout_epoch, commit.layouts_offset) == (Kind.COMMIT, None, 0, 3)


def test_a_taken_over_topic_is_changed_by_its_first_fence() -> None:
    """Nothing was written down of it before, but its layout is another one from then on (PAST-STAYS)."""
    controller = Controller()
    controller.topics = {}
    before = Layout.unmanaged("orders", UUID(int=1), 3, 12)
    fence = FenceRecord("f1", "orders", before.next_epoch(3), frozenset(range(3)), TopicRecord(before, UUID(int=2)))
    controller.write((("fence/orders", fence),), 3)
    taken = TopicRecord(before.changed(fence.following, {0: 5, 1: 5, 2: 5}), UUID(int=2))
    controller.write((("topic/orders", taken), ("fence/orders", None)), 5)
    raised, commit = controller.noted.of()
    assert (raised.layout_epoch, raised.evidence["kind"]) == (1, "change")
    assert (commit.fence, commit.layout_epoch) == ("f1", 1)


def test_a_lease_is_told_when_it_begins_and_when_it_is_lost() -> None:
    """Not each time that it is renewed."""
    noted = Noted()
    notes = MemberNotes(noted.journal)
    generation = Generation(4, "m-1", "m-1", (GroupMember("m-1", "me", "here"), GroupMember("m-2", "you", "there")))
    notes.lost(None, 0)
    notes.joined(generation, 5)
    for offset in (6, 7):
        notes.alive(generation, offset)
    for offset in (8, 9):
        notes.lost(generation, offset)
    join, alive, lost = noted.of()
    assert (join.kind, join.generation_id, join.member_id, join.layouts_offset) == (Kind.JOIN, 4, "m-1", 5)
    assert join.evidence == {"members": ["me", "you"], "leads": True}
    assert [(each.kind, each.reason, each.generation_id, each.layouts_offset) for each in (alive, lost)] == [
        (Kind.LEASE, "alive", 4, 6),
        (Kind.LEASE, "lost", 4, 8),
    ]


def test_what_a_fence_holds_here_is_told_as_long_as_it_stands() -> None:
    """It is held, acknowledged under the layout in force, and let go; or a layout is adopted, and nothing is let go."""
    noted = Noted()
    notes = MemberNotes(noted.journal)
    notes.held(FENCE, 0, 10)
    notes.acknowledged(AckRecord("f1", "me"), 10)
    notes.released("orders", 12)
    notes.held(FENCE, 0, 20)
    notes.adopted(GROWN.layout, 22)
    notes.released("orders", 23)
    notes.forgot("orders", 30)
    told = [(each.kind, each.fence, each.layout_epoch, each.layouts_offset) for each in noted.of()]
    assert told == [
        (Kind.HOLD, "f1", 0, 10),
        (Kind.ACKNOWLEDGE, "f1", 0, 10),
        (Kind.RELEASE, "f1", 0, 12),
        (Kind.HOLD, "f1", 0, 20),
        (Kind.ADOPT, None, 1, 22),
        (Kind.FORGET, None, None, 30),
    ]
    assert {each.topic for each in noted.of()} == {"orders"}


def test_what_was_acknowledged_to_clients_stands_before_the_acknowledgement_of_a_fence() -> None:
    """Batches are merged into one record; that is numbered before the worker says that it holds the fence."""
    noted = Noted()
    notes = MemberNotes(noted.journal)
    client = noted.journal.connected()
    notes.held(FENCE, 0, 10)
    write = Write(9, 0, 0, records=5, size=100, acks=-1, since=0.0, bound=Binding(0, 0, 9, 9, 0, 0, opens=False))
    noted.journal.admitted(client, ManagedTopic(LAYOUT, UUID(int=2), layouts_offset=3), 0, write, 95)
    notes.acknowledged(AckRecord("f1", "me"), 10)
    assert noted.kinds == [Kind.HOLD, Kind.ADMIT, Kind.ACKNOWLEDGE]
