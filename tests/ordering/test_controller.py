"""The controller's procedure, step by step."""

from uuid import UUID

import pytest

from kordon.proxy.ordering import soundness
from kordon.proxy.ordering.changes import (
    Abandoned,
    Change,
    Commit,
    ConfirmMembers,
    Finished,
    Prepare,
    Producers,
    ReadCuts,
)
from kordon.proxy.ordering.controller import FENCE_SECONDS, MISSED_RETRY_SECONDS, Controller
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import ImageParts, ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FenceRecord, TopicRecord

LEASE = 20.0
LAYOUT = Layout.created("orders", UUID(int=1), 3, 12)


def controller(*members: str, now: float = 0.0) -> Controller:
    """Makes a controller for whom nobody has been missing for a lease's time."""
    made = Controller(frozenset(members), now)
    made.known.know(TopicRecord(LAYOUT, UUID(int=2)), {})
    return made


def open_fence(made: Controller, now: float) -> FenceRecord:
    """Leads a growth to 4 partitions to its fence."""
    assert made.begin(Change("orders", 4), now) == [Prepare("orders", 4)]
    assert made.on_prepared("orders", None, now) == []
    (commit,) = made.on_tick(now, "id")
    assert isinstance(commit, Commit)
    ((key, fence),) = commit.records
    assert key == "fence/orders"
    assert isinstance(fence, FenceRecord)
    assert made.on_committed("orders", now) == [ConfirmMembers("orders")]
    return fence


def test_a_growth_is_committed_when_all_have_acknowledged() -> None:
    """Fence, acknowledgements, cuts, layout: each before the next, and the layout ends the fence it came from."""
    made = controller("a", "b")
    fence = open_fence(made, 1.0)
    assert made.on_confirmed("orders", 1.0) == []
    assert made.on_ack(fence.id, "a", 1.1) == []
    assert made.on_ack(fence.id, "b", 1.2) == [ReadCuts("orders", fence.id, frozenset({0, 3}))]
    (commit,) = made.on_cuts("orders", fence.id, {0: Producers(100, {}), 3: Producers(0, {})}, 1.3)
    assert isinstance(commit, Commit)
    assert [key for key, _ in commit.records] == [
        "topic/orders", f"ack/{fence.id}/a", f"ack/{fence.id}/b", "fence/orders",
    ]  # fmt: skip
    assert made.on_committed("orders", 1.4) == [Finished("orders")]


def test_a_controller_knows_its_own_fences() -> None:
    """Its own worker tells it at once that it holds one; of another controller's, by the layouts."""
    made = controller("a", "b")
    assert not made.raised("id")
    fence = open_fence(made, 1.0)
    assert made.raised(fence.id)
    assert not made.raised("another")


def test_a_shortened_log_is_mended_by_an_epoch_of_its_own() -> None:
    """BEYOND-LOSS: writers are held, then the layout goes on behind all that somebody was told of."""
    made = controller("a")
    grown = LAYOUT.changed(LAYOUT.next_epoch(4), {0: 100, 3: 90})
    v, image = grown.residence.residents(3)[0], ImageParts({1: ImageRecord({7: Written(0, 41)}, cut_ms=0)})
    made.known.know(TopicRecord(grown, UUID(int=2)), {v: image})
    assert made.mend("orders", {3: 60}, 1.0) == [Prepare("orders", 4)]
    made.on_prepared("orders", None, 1.0)
    (commit,) = made.on_tick(1.0, "id")
    assert isinstance(commit, Commit)
    fence = commit.records[0][1]
    assert isinstance(fence, FenceRecord)
    assert (fence.sealed, fence.following.shortened) == (frozenset({3}), {3: 60})
    made.on_committed("orders", 1.0)
    made.on_confirmed("orders", 1.0)
    assert made.on_ack(fence.id, "a", 1.1, {3: 130}) == [ReadCuts("orders", fence.id, frozenset({3}))]
    stray = {tag(v, 1, 7): (0, 55)}
    (commit,) = made.on_cuts("orders", fence.id, {3: Producers(70, stray)}, 1.2)
    assert isinstance(commit, Commit)
    records = dict(commit.records)
    assert not any(key.startswith("image/") for key in records)  # what landed since may lie where no reader looks
    mended = records["topic/orders"]
    assert isinstance(mended, TopicRecord)
    home = mended.layout.chains[v].home
    assert home is not None
    assert (home.start, home.virtual_start, home.move) == (70, 100 + 130 - 90, 2)


def test_a_change_that_meets_a_shortened_log_waits_and_mends_it() -> None:
    """Its cut would lie below the segment: it is tried again, and goes on behind the loss in the same epoch."""
    made = controller("a")
    made.known.know(TopicRecord(LAYOUT.changed(LAYOUT.next_epoch(4), {0: 100, 3: 0}), UUID(int=2)), {})
    made.begin(Change("orders", 3), 1.0)
    for attempt, (now, following) in enumerate([(1.0, None), (3.0, {0: 60})]):
        made.on_prepared("orders", None, now)
        (opened,) = made.on_tick(now, f"id-{attempt}")
        assert isinstance(opened, Commit)
        fence = opened.records[0][1]
        assert isinstance(fence, FenceRecord)
        assert fence.following.shortened == following
        made.on_committed("orders", now)
        made.on_confirmed("orders", now)
        made.on_ack(fence.id, "a", now)
        (commit,) = made.on_cuts("orders", fence.id, {0: Producers(60, {}), 3: Producers(5, {})}, now)
        assert isinstance(commit, Commit)
        assert ("topic/orders" in dict(commit.records)) is (following is not None)
        made.on_committed("orders", now)
        if following is None:
            assert made.mend("orders", {0: 60}, now) == []
            assert made.on_tick(now + 1.5, "id") == [Prepare("orders", 3)]


@pytest.mark.parametrize("is_wished", [False, True], ids=["alone", "with a wish"])
def test_a_mend_that_nobody_would_read_holds_nothing(is_wished: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up before its fence: no proxy would go by the layout, and the topic be served nowhere."""
    made = controller("a")
    grown = LAYOUT.changed(LAYOUT.next_epoch(4), {0: 100, 3: 90})
    made.known.know(TopicRecord(grown, UUID(int=2)), {})
    monkeypatch.setattr(soundness, "MOST_CHANGES", grown.epoch)
    if is_wished:
        made.begin(Change("orders", 5), 1.0)
    made.mend("orders", {3: 60}, 1.0)
    made.on_prepared("orders", None, 1.0)
    (given_up,) = made.on_tick(1.0, "id")
    assert isinstance(given_up, Abandoned)
    assert "changed too often" in given_up.problem
    assert not made.changes


def test_nothing_is_held_while_somebody_missing_may_still_serve() -> None:
    """SHORT-FENCE: a member that is gone is waited out before writes are held, not after."""
    made = controller("a", "b")
    made.on_members(frozenset({"a"}), 5.0, 5.0 + LEASE)
    made.begin(Change("orders", 4), 6.0)
    made.on_prepared("orders", None, 6.0)
    assert made.on_tick(5.0 + LEASE - 0.1, "id") == []
    assert len(made.on_tick(5.0 + LEASE, "id")) == 1


def test_a_fence_is_taken_back_when_somebody_turns_out_to_be_missing() -> None:
    """It may serve for a lease's time; to wait for that would hold writes for as long (MISSING-WAITED, SHORT-FENCE)."""
    made = controller("a", "b")
    fence = open_fence(made, 0.0)
    made.on_confirmed("orders", 0.0)
    made.on_ack(fence.id, "a", 0.1)
    (cancel,) = made.on_members(frozenset({"a"}), 0.2, 0.2 + LEASE)
    assert isinstance(cancel, Commit)
    assert cancel.records[0] == ("fence/orders", None)


def test_each_attempt_needs_acknowledgements_of_its_own() -> None:
    """Whoever held the fence before has gone on writing since that was taken back."""
    made = controller("a", "b")
    fence = open_fence(made, 0.0)
    made.on_confirmed("orders", 0.0)
    made.on_ack(fence.id, "a", 0.1)
    assert len(made.on_tick(FENCE_SECONDS + 0.1, "id")) == 1
    made.on_committed("orders", 3.0)
    now = 3.1 + MISSED_RETRY_SECONDS
    assert made.on_tick(now, "id") == [Prepare("orders", 4)]
    made.on_prepared("orders", None, now)
    (commit,) = made.on_tick(now, "again")
    assert isinstance(commit, Commit)
    made.on_committed("orders", now)
    made.on_confirmed("orders", now)
    assert made.on_ack("again-orders", "b", now) == []
    (cuts,) = made.on_ack("again-orders", "a", now)
    assert cuts == ReadCuts("orders", "again-orders", frozenset({0, 3}), None)
    producers = Producers(100, {}, in_transaction=False, leader_epoch=0, read_ms=0)
    assert made.on_cuts("orders", fence.id, {0: producers, 3: producers}, now) == [], "of the attempt before"
    assert len(made.on_cuts("orders", "again-orders", {0: producers, 3: producers}, now)) == 1


def test_a_change_that_the_cluster_refuses_is_given_up() -> None:
    """It was tried again for ever, and every other change of the topic refused meanwhile (ONE-CHANGE)."""
    made, violation = controller("a"), 44
    assert made.begin(Change("orders", 4), 1.0) == [Prepare("orders", 4)]
    assert made.on_refused("orders", violation, "too many") == [Abandoned("orders", "too many", violation)]
    assert made.changes == {}
    assert made.on_prepared("orders", None, 1.1) == []
    open_fence(made, 1.2)
    assert made.on_refused("orders", violation, "too late for that") == []


def test_a_member_that_ended_in_order_is_not_waited_for() -> None:
    """Whoever says that it has stopped serving holds no lease."""
    made = controller("a", "b")
    made.on_members(frozenset({"a"}), 5.0, 5.0 + LEASE)
    made.begin(Change("orders", 4), 6.0)
    made.on_prepared("orders", None, 6.0)
    assert made.on_tick(6.0, "id") == []
    made.on_members(frozenset({"a"}), 6.5, 0.0)  # the record that says so is read after the generation was joined
    assert len(made.on_tick(6.6, "id")) == 1


def test_a_dead_member_is_not_asked_again_and_again() -> None:
    """Each attempt holds writes; after one that it did not acknowledge, the group is given time to notice its death."""
    made = controller("a", "b")
    fence = open_fence(made, 0.0)
    made.on_confirmed("orders", 0.0)
    made.on_ack(fence.id, "a", 0.1)
    (cancel,) = made.on_tick(FENCE_SECONDS + 0.1, "id")
    assert isinstance(cancel, Commit)
    assert cancel.records[0] == ("fence/orders", None)
    made.on_committed("orders", 3.0)
    assert made.on_tick(3.0 + MISSED_RETRY_SECONDS - 0.1, "id") == []
    made.on_members(frozenset({"a"}), 11.0, 11.0)
    assert made.on_tick(12.0, "id") == [Prepare("orders", 4)]


def test_a_former_controllers_question_who_knows_a_layout_begins_no_change() -> None:
    """It is a fence that holds nothing; to begin anew would write an epoch in which nothing moves."""
    made = controller("a")
    fence = FenceRecord("old", "orders", LAYOUT.epochs[-1], frozenset())
    assert made.found_fence(fence, 0.0) == [Commit("orders", (("fence/orders", None),))]
    assert made.on_committed("orders", 0.1) == []
    assert made.changes == {}


def test_a_fence_that_a_former_controller_left_is_cancelled() -> None:
    """A later controller begins anew; it cannot know what the former one had read."""
    made = controller("a")
    fence = FenceRecord("old", "orders", LAYOUT.next_epoch(4), frozenset({0}))
    assert made.found_fence(fence, 0.0) == [Commit("orders", (("fence/orders", None),))]
    made.on_committed("orders", 0.1)
    assert made.on_tick(2.0, "id") == [Prepare("orders", 4)]


def test_a_change_that_is_tried_again_keeps_the_time_of_its_first_attempt() -> None:
    """Operators see how long they wait, not how long the newest attempt takes."""
    made = controller("a", "b")
    open_fence(made, 1.0)
    made.on_confirmed("orders", 1.0)
    made.on_tick(1.0 + FENCE_SECONDS + 0.1, "id")
    made.on_committed("orders", 4.0)
    made.on_tick(4.0 + MISSED_RETRY_SECONDS + 0.1, "id")
    change = made.changes["orders"]
    assert (change.begun, change.since) == (1.0, 4.0 + MISSED_RETRY_SECONDS + 0.1)
