"""What comes before the fence of a topic with transactions: an announcement, and the end of older transactions."""

from dataclasses import replace
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

import pytest

from kordon.proxy.ordering import soundness
from kordon.proxy.ordering.announcing import DOUBT_SECONDS, LOOK_SECONDS, STALE_SECONDS, TELL_SECONDS
from kordon.proxy.ordering.changes import (
    Abandoned,
    AskEnds,
    AskOpen,
    Change,
    Command,
    Commit,
    ConfirmMembers,
    Finished,
    Mended,
    OlderOpen,
    Prepare,
    Producers,
    ReadCuts,
    Stage,
)
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import LARGEST_NUMBER, AnnouncementRecord, FenceRecord, TopicRecord
from kordon.proxy.ordering.transactions.older_transactions import OpenAt

LAYOUT = replace(Layout.created("orders", UUID(int=1), 3, 12), has_transactions=True)
MOVING = dict(LAYOUT.change_to(LAYOUT.next_epoch(4)).moves)
P = 1000
OLDER = OlderOpen("billing", P, frozenset({0}), "Ongoing", 60_000)
AT_LEADER = OpenAt(0, P, 49)

_T = TypeVar("_T", bound=Command)


def controller(*members: str, layout: Layout = LAYOUT, alone_from: float = 0.0) -> Controller:
    made = Controller(frozenset(members or ("a",)), alone_from)
    made.known.know(TopicRecord(layout, UUID(int=2)), {})
    return made


def one(commands: list[Command], kind: type[_T]) -> _T:
    (command,) = commands
    assert isinstance(command, kind)
    return command


def announced(commands: list[Command]) -> AnnouncementRecord:
    """Returns what is announced by the one command."""
    record = dict(one(commands, Commit).records)["announcement/orders"]
    assert isinstance(record, AnnouncementRecord)
    return record


def fence_of(commands: list[Command]) -> FenceRecord:
    record = dict(one(commands, Commit).records)["fence/orders"]
    assert isinstance(record, FenceRecord)
    return record


def announce(made: Controller, now: float = 1.0, target: int = 4) -> AnnouncementRecord:
    """Leads a change to where its announcement is durable."""
    assert made.begin(Change("orders", target), now) == [Prepare("orders", max(target, 3))]
    assert made.on_prepared("orders", None, now) == []
    record = announced(made.on_tick(now, "id"))
    assert made.on_committed("orders", now) == [ConfirmMembers("orders", record.id)]
    return record


def wait(made: Controller, now: float = 1.0) -> AnnouncementRecord:
    """Leads a change to where leaders are asked who is open."""
    record = announce(made, now)
    assert made.on_confirmed("orders", now, record.id) == []
    assert made.on_ack(record.id, "a", now) == [AskEnds("orders", record.id, frozenset({0}))]
    with_ends = announced(made.announcing.on_ends("orders", record.id, {0: 50}, now))
    assert with_ends == replace(record, ends={0: 50})
    assert made.on_committed("orders", now) == [AskOpen("orders", record.id, {0: 50}, frozenset())]
    return with_ends


def fenced(made: Controller, record: AnnouncementRecord, now: float) -> FenceRecord:
    """Has nobody be open, and returns the fence that is raised then."""
    assert made.announcing.on_open("orders", record.id, [], [], now) == []
    return fence_of(made.on_tick(now, "id"))


def test_a_fence_comes_behind_an_announcement_and_the_end_of_older_transactions() -> None:
    """DOUBLE-ADD, OLDER-FIRST: each step is durable before the next."""
    made = controller("a")
    record = wait(made)
    assert (record.coming, record.number) == (MOVING, 1)
    assert MOVING, "something moves"
    assert made.announcing.on_open("orders", record.id, [AT_LEADER], [OLDER], 1.1) == []
    assert made.changes["orders"].waited == (OLDER,)
    assert made.on_tick(1.1, "id") == []
    later = 1.2 + LOOK_SECONDS
    assert made.on_tick(later, "id") == [AskOpen("orders", record.id, {0: 50}, frozenset({P}))]
    fence = fenced(made, record, later)
    assert fence.following.u == 4
    assert not made.changes["orders"].waited


def test_the_layout_ends_what_was_announced() -> None:
    """In the same transaction; the number differs, so that workers plan anew."""
    made = controller("a")
    fence = fenced(made, wait(made), 1.2)
    assert made.on_committed("orders", 1.2) == [ConfirmMembers("orders")]
    assert made.on_confirmed("orders", 1.2) == []
    one(made.on_ack(fence.id, "a", 1.2), ReadCuts)
    commit = one(made.on_cuts("orders", fence.id, {0: Producers(60, {}), 3: Producers(0, {})}, 1.3), Commit)
    keys = [key for key, _ in commit.records]
    assert keys.index("topic/orders") < keys.index("announcement/orders")
    record = announced([commit])
    assert (record.number, dict(record.coming)) == (2, {})
    assert made.on_committed("orders", 1.4) == [Finished("orders")]
    assert announce(made, 2.0, target=5).number == 3


def test_a_change_has_another_number_than_the_first_announcement() -> None:
    """DOUBLE-ADD: the first one, before there are transactions, says that nothing moves."""
    made = controller("a")
    first = made.announcing.first("orders", "id-0")
    assert (first.number, first.coming) == (1, {})
    assert announce(made).number == 2


def test_a_topic_without_transactions_has_nothing_of_this() -> None:
    made = controller("a", layout=replace(LAYOUT, has_transactions=False))
    made.begin(Change("orders", 4), 1.0)
    made.on_prepared("orders", None, 1.0)
    fence_of(made.on_tick(1.0, "id"))


def test_all_are_waited_for_who_may_serve() -> None:
    """A member that has not acknowledged, one that joined unknown to this controller, and one whose lease may live."""
    made = controller("a", "b")
    record = announce(made)
    assert made.on_ack(record.id, "a", 1.0) == []
    assert made.on_ack(record.id, "b", 1.0) == []
    assert made.on_confirmed("orders", 1.0, "another") == []
    assert made.on_confirmed("orders", 1.0) == [], "of a fence"
    assert made.on_members(frozenset({"a", "b", "c"}), 1.0, 0.0) == []
    assert made.on_confirmed("orders", 1.0, record.id) == []
    assert made.on_ack(record.id, "c", 1.0) == [AskEnds("orders", record.id, frozenset({0}))]
    missing = controller("a", "b")
    record = announce(missing)
    missing.on_confirmed("orders", 1.0, record.id)
    missing.on_ack(record.id, "a", 1.0)
    assert missing.on_members(frozenset({"a"}), 2.0, 21.0) == [], "the other's lease lives"
    assert missing.on_members(frozenset({"a"}), 21.0, 21.0) == [AskEnds("orders", record.id, frozenset({0}))]


def test_a_controller_knows_its_own_announcements() -> None:
    made = controller("a")
    record = announce(made)
    assert made.raised(record.id)
    assert not made.raised("another")


def test_what_is_not_acknowledged_is_announced_again() -> None:
    """Nobody writes an acknowledgement twice."""
    made = controller("a", "b")
    first = announce(made)
    made.on_confirmed("orders", 1.0, first.id)
    made.on_ack(first.id, "a", 1.0)
    assert made.on_tick(1.0 + TELL_SECONDS / 2, "id2") == []
    assert made.on_tick(1.1 + TELL_SECONDS, "id2") == []
    second = announced(made.on_tick(1.2 + TELL_SECONDS, "id3"))
    assert (second.number, second.coming) == (2, MOVING)
    assert second.id != first.id


def test_a_look_that_fails_is_repeated() -> None:
    made = controller("a")
    record = announce(made)
    made.on_confirmed("orders", 1.0, record.id)
    made.on_ack(record.id, "a", 1.0)
    assert made.announcing.on_ends("orders", record.id, None, 2.0) == []
    assert made.on_tick(8.0, "id") == [AskEnds("orders", record.id, frozenset({0}))]
    made.announcing.on_ends("orders", record.id, {0: 50}, 8.1)
    made.on_committed("orders", 8.1)
    assert made.announcing.on_open("orders", record.id, [], None, 8.2) == []
    assert made.changes["orders"].stage is Stage.OLDER
    assert made.on_tick(8.3 + LOOK_SECONDS, "id") == [AskOpen("orders", record.id, {0: 50}, frozenset())]


def test_what_no_coordinator_knows_is_looked_at_twice_and_then_not_waited_for() -> None:
    """It hangs, unless a coordinator had just begun and did not know its transactions yet."""
    made = controller("a")
    record = wait(made)
    assert made.announcing.on_open("orders", record.id, [AT_LEADER], [], 1.1) == []
    assert made.changes["orders"].stage is Stage.OLDER
    assert made.on_tick(1.7, "id") == [AskOpen("orders", record.id, {0: 50}, frozenset({P}))]
    made.announcing.on_open("orders", record.id, [AT_LEADER], [], 1.75)
    assert made.changes["orders"].stage is Stage.OLDER, "for less than a second"
    made.on_tick(1.15 + DOUBT_SECONDS, "id")
    made.announcing.on_open("orders", record.id, [AT_LEADER], [], 1.2 + DOUBT_SECONDS)
    fence_of(made.on_tick(1.3 + DOUBT_SECONDS, "id"))


def test_looks_are_rarer_the_longer_a_wait_is() -> None:
    """A short transaction holds a change up for no second, and a long one costs brokers a look in a second."""
    made = controller("a")
    record = wait(made, 1.0)
    made.announcing.on_open("orders", record.id, [AT_LEADER], [OLDER], 1.0)
    times: list[float] = []
    for tick in range(1, 400):
        now = 1.0 + tick / 10
        if made.on_tick(now, "id"):
            times.append(now)
            made.announcing.on_open("orders", record.id, [AT_LEADER], [OLDER], now)
    pauses = [after - before for before, after in pairwise(times)]
    assert times[0] < 1.2
    assert len([each for each in times if each < 2.0]) >= 5
    assert max(pauses) <= LOOK_SECONDS + 0.11
    assert min(pauses[-10:]) >= LOOK_SECONDS


def test_a_coordinator_that_moves_is_believed_at_the_second_look() -> None:
    made = controller("a")
    record = wait(made)
    made.announcing.on_open("orders", record.id, [AT_LEADER], [], 1.1)
    made.on_tick(1.2 + LOOK_SECONDS, "id")
    made.announcing.on_open("orders", record.id, [AT_LEADER], [OLDER], 2.3)
    made.on_tick(2.4 + LOOK_SECONDS, "id")
    made.announcing.on_open("orders", record.id, [AT_LEADER], [], 3.5)
    assert made.changes["orders"].stage is Stage.OLDER, "it was known in between"


def test_answers_to_what_is_over_say_nothing() -> None:
    made = controller("a")
    record = wait(made)
    assert made.announcing.on_open("orders", "another", [], [], 1.1) == []
    assert made.announcing.on_open("invoices", record.id, [], [], 1.1) == []
    assert made.announcing.on_ends("orders", "another", {0: 1}, 1.1) == []
    assert made.changes["orders"].stage is Stage.OLDER


def test_another_attempt_waits_for_nobody_again() -> None:
    """The announcement still stands: whatever is open since then has a witness in both homes."""
    made = controller("a")
    fence = fenced(made, wait(made), 1.2)
    made.on_committed("orders", 1.2)
    made.on_confirmed("orders", 1.2)
    commit = one(made.on_tick(5.0, "id2"), Commit)
    assert [key for key, _ in commit.records] == ["fence/orders"]
    made.on_committed("orders", 5.0)
    assert made.on_tick(20.0, "id3") == [Prepare("orders", 4)]
    made.on_prepared("orders", None, 20.0)
    assert fence_of(made.on_tick(20.0, "id4")).id != fence.id


def test_the_next_controller_goes_on_with_the_same_wait() -> None:
    """It asks who is open below the same log ends; what was not acknowledged yet it announces anew."""
    with_ends = wait(controller("a"))
    made = controller("b")
    made.announcing.standing["orders"] = with_ends
    made.begin(Change("orders", 4), 1.0)
    made.on_prepared("orders", None, 1.0)
    assert made.on_tick(1.0, "id") == [AskOpen("orders", with_ends.id, {0: 50}, frozenset())]
    assert made.announcing.on_open("orders", with_ends.id, [AT_LEADER], [OLDER], 1.1) == []
    assert made.changes["orders"].waited == (OLDER,)
    for standing in (replace(with_ends, ends=None), replace(with_ends, coming={1: 2})):
        other = controller("b")
        other.announcing.standing["orders"] = standing
        other.begin(Change("orders", 4), 1.0)
        other.on_prepared("orders", None, 1.0)
        again = announced(other.on_tick(1.0, "id9"))
        assert (again.number, again.coming, again.ends) == (2, MOVING, None)


def test_a_change_that_is_given_up_is_withdrawn() -> None:
    """Whoever wished it is told, and workers add no coming homes any more."""
    made = controller("a")
    record = wait(made)
    commit = one(made.withdraw("orders", "somebody wants 3 partitions again", 2.0), Commit)
    over = announced([commit])
    assert (over.number, dict(over.coming), over.ends) == (record.number + 1, {}, None)
    assert made.on_committed("orders", 2.1) == [Abandoned("orders", "somebody wants 3 partitions again")]
    assert made.withdraw("orders", "again", 2.2) == []
    assert made.announcing.on_open("orders", record.id, [], [], 2.2) == []


def test_what_the_cluster_refuses_later_is_withdrawn_too() -> None:
    made = controller("a")
    fenced(made, wait(made), 1.2)
    made.on_committed("orders", 1.2)
    one(made.on_tick(5.0, "id2"), Commit)
    made.on_committed("orders", 5.0)
    assert made.on_tick(20.0, "id3") == [Prepare("orders", 4)]
    assert dict(announced(made.on_refused("orders", 44, "the policy forbids it")).coming) == {}
    assert made.on_committed("orders", 20.0) == [Abandoned("orders", "the policy forbids it", 44)]


def test_a_change_of_which_nobody_would_go_by_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    made = controller("a")
    record = wait(made)
    made.announcing.on_open("orders", record.id, [], [], 1.1)
    monkeypatch.setattr(soundness, "MOST_CHANGES", 0)
    assert dict(announced(made.on_tick(1.2, "id")).coming) == {}
    (given_up,) = made.on_committed("orders", 1.3)
    assert isinstance(given_up, Abandoned)


def test_what_nobody_wants_any_more_is_withdrawn_after_a_while() -> None:
    """A controller may have ended between the outcome of a wish and the end of what it had announced."""
    made = controller("a")
    made.announcing.standing["orders"] = AnnouncementRecord("old", "orders", 7, {1: 3}, {1: 5})
    idle = True
    assert made.announcing.withdraw_stale(lambda _: idle, 1.0) == []
    assert made.announcing.withdraw_stale(lambda _: not idle, 1.0 + 2 * STALE_SECONDS) == []
    assert made.announcing.withdraw_stale(lambda _: idle, 20.0) == []
    over = announced(made.announcing.withdraw_stale(lambda _: idle, 20.1 + STALE_SECONDS))
    assert (over.number, dict(over.coming)) == (8, {})
    assert made.announcing.withdraw_stale(lambda _: idle, 99.0) == []
    made.announcing.standing["orders"] = AnnouncementRecord("old", "orders", LARGEST_NUMBER, {1: 3})
    assert dict(made.announcing.withdrawal("orders"))["announcement/orders"] == AnnouncementRecord(
        "old-over", "orders", 1, {}
    )


def test_what_no_controller_has_announced_is_noticed_and_withdrawn() -> None:
    """Workers go by it meanwhile, so it stands: what is announced next has another number than any before."""
    made = controller("a")
    own = announce(made)
    assert not made.announcing.announced.is_others(own)
    forged = AnnouncementRecord("forged", "orders", own.number - 1, {1: 3})
    assert made.announcing.announced.is_others(forged)
    (over,) = dict(made.announcing.withdrawal("orders")).values()
    assert isinstance(over, AnnouncementRecord)
    assert (over.number, dict(over.coming)) == (own.number + 1, {})
    assert made.announcing.announced.is_others(replace(over, coming={1: 3})), "by the id of one's own"
    assert not made.announcing.announced.is_others(over)
    assert not made.announcing.stands("orders"), "the newest record counts"


def test_a_change_that_somebody_else_has_announced_is_announced_by_the_controller() -> None:
    """Else a forged one that says that all are told, and who is older, would stand for both (OLDER-FIRST)."""
    made = controller("a")
    assert made.announcing.announced.is_others(AnnouncementRecord("forged", "orders", 7, MOVING, {0: 0, 1: 0, 2: 0}))
    record = announce(made)
    assert (record.number, dict(record.coming), record.ends) == (8, MOVING, None)


def test_announcements_of_former_controllers_and_of_other_topics_are_nobodys_forgery() -> None:
    """What comes back late from the log is known as well."""
    made = controller("a")
    former = AnnouncementRecord("former", "orders", 7, {1: 3})
    made.announcing.announced.inherit([former])
    over = announced(
        made.announcing.withdraw_stale(lambda _: True, 0.0) or made.announcing.withdraw_stale(lambda _: True, 99.0)
    )
    assert not made.announcing.announced.is_others(former)
    assert not made.announcing.announced.is_others(over)
    assert not made.announcing.announced.is_others(replace(former, topic="unknown"))
    made.announcing.announced.forget("orders")
    assert made.announcing.standing == {}


@pytest.mark.parametrize("is_writing", [False, True], ids=["while it waits", "while something is written"])
def test_a_log_that_got_shorter_is_mended_without_a_wait(is_writing: bool) -> None:
    """Readers wait for that. The change goes on behind it, and its wait as well."""
    made = controller("a")
    if is_writing:
        record = announce(made)
        made.on_confirmed("orders", 1.0, record.id)
        made.on_ack(record.id, "a", 1.0)
        made.announcing.on_ends("orders", record.id, {0: 50}, 1.0)
        assert made.mend("orders", {1: 60}, 2.0) == []
        assert made.on_tick(2.0, "early") == [], "or its end would be taken for the end of what comes next"
        assert made.on_committed("orders", 2.0) == []
    else:
        record = wait(made)
        made.announcing.on_open("orders", record.id, [AT_LEADER], [OLDER], 1.1)
        assert made.mend("orders", {1: 60}, 2.0) == []
    fence = fence_of(made.on_tick(2.0, "id2"))
    assert (fence.following.u, fence.following.shortened, fence.sealed) == (3, {1: 60}, frozenset({1}))
    made.on_committed("orders", 2.0)
    made.on_confirmed("orders", 2.0)
    one(made.on_ack(fence.id, "a", 2.0), ReadCuts)
    commit = one(made.on_cuts("orders", fence.id, {1: Producers(60, {})}, 2.1), Commit)
    assert "announcement/orders" not in dict(commit.records)
    assert made.on_committed("orders", 2.2) == [Mended("orders"), Prepare("orders", 4)]
    made.on_prepared("orders", None, 2.3)
    assert one(made.on_tick(2.3, "id3"), AskOpen).ends == {0: 50}


def test_a_mend_alone_announces_nothing() -> None:
    """No virtual partition changes its home."""
    made = controller("a")
    assert made.mend("orders", {1: 60}, 1.0) == [Prepare("orders", 3)]
    made.on_prepared("orders", None, 1.0)
    fence = fence_of(made.on_tick(1.0, "id"))
    made.on_committed("orders", 1.0)
    made.on_confirmed("orders", 1.0)
    made.on_ack(fence.id, "a", 1.0)
    one(made.on_cuts("orders", fence.id, {1: Producers(60, {})}, 1.1), Commit)
    assert made.on_committed("orders", 1.2) == [Finished("orders")]


def test_a_topic_that_is_let_go_has_nothing_announced() -> None:
    made = controller("a")
    wait(made)
    made.forget("orders")
    assert not made.announcing.stands("orders")


def test_a_look_that_takes_long_is_followed_by_a_rest() -> None:
    """Leaders that remember very many producers are not asked all the time."""
    made = controller("a")
    record = wait(made, 1.0)
    made.announcing.on_open("orders", record.id, [AT_LEADER], [OLDER], 5.0)
    assert made.on_tick(24.9, "id") == []
    assert made.on_tick(25.1, "id") == [AskOpen("orders", record.id, {0: 50}, frozenset({P}))]
