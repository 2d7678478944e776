"""How keys move, event by event: what may be read, what is told, and when the application is called."""

from uuid import UUID

import pytest
from aiokafka.structs import TopicPartition

from kordon.client.moves import KeyMoves
from kordon.client.moves_events import (
    Answered,
    Assigned,
    CallAssigned,
    CallFailed,
    CallMaybeRevoked,
    CallReturned,
    Command,
    Leaving,
    Left,
    MemberPositions,
    ReportFailed,
    ReportRow,
    Resume,
    SendReport,
    Stood,
    Ticked,
    TopicGate,
)
from kordon.client.owned import Owned
from kordon.proxy.ordering.gate import Gate
from kordon.proxy.ordering.layout import Layout

P0, P1, P3 = (TopicPartition("t", q) for q in (0, 1, 3))


def grown() -> Gate:
    """3 -> 4: partition 0 splits at offset 100, and its keys go on in 0 and 3."""
    layout = Layout.created("t", UUID(int=1), 3, 12)
    return Gate.of(layout.changed(layout.next_epoch(4), {0: 100, 3: 0}))


def member(*partitions: TopicPartition, at: int = 0) -> KeyMoves:
    """A member that got partitions, stands at an offset in all, and has told so."""
    moves = KeyMoves(3.0)
    moves.handle(Assigned(0, partitions, {"t": TopicGate(grown())}))
    stand(moves, 0, dict.fromkeys(partitions, at))
    moves.handle(Answered(0, {}, ()))
    moves.handle(Answered(0, {}, ()))
    return moves


def stand(
    moves: KeyMoves, now: float, at: dict[TopicPartition, int], handled: int | None = None, end: int = -1
) -> list[Command]:
    places = {tp: MemberPositions(offset, offset if handled is None else handled, end) for tp, offset in at.items()}
    return moves.handle(Stood(now, places))


def reports(commands: list[Command]) -> list[dict[TopicPartition, tuple[bool, int]]]:
    told = [command.rows for command in commands if isinstance(command, SendReport)]
    return [{row.partition: (row.needed, row.position) for row in rows} for rows in told]


def calls(commands: list[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, CallAssigned | CallMaybeRevoked)]


def loading() -> KeyMoves:
    """A member that owns the child, whose parent has been read: the application loads."""
    moves = member(P3)
    assert calls(hear(moves, 0.2, 100)) == [CallAssigned((P3,))]
    return moves


def asked_for(*partitions: TopicPartition) -> KeyMoves:
    """A member that stands at 90, and of which others want to know where P0 is read."""
    moves = member(*partitions, at=90)
    moves.handle(Ticked(0.2))
    moves.handle(Answered(0.2, {}, {P0}))
    return moves


def hear(moves: KeyMoves, now: float, position: int) -> list[Command]:
    """Lets the group say where the parent is read."""
    moves.handle(Ticked(now))
    return moves.handle(Answered(now, {P0: position}, ()))


def test_the_first_report_names_all_partitions_before_anything_is_known_of_them() -> None:
    """So that others know who owns what."""
    commands = KeyMoves(3.0).handle(Assigned(0, (P0, P1), {"t": TopicGate(grown())}))
    assert commands == [SendReport((ReportRow(P0), ReportRow(P1)), 1)]


def test_a_partition_is_not_read_before_it_is_known_where_it_stands() -> None:
    """Nor is one whose keys never moved held any longer than that."""
    moves = KeyMoves(3.0)
    moves.handle(Assigned(0, (P1,), {"t": TopicGate(grown())}))
    assert not moves.admits(P1, 7)
    assert Resume((P1,)) in stand(moves, 0, {P1: 7})
    assert moves.admits(P1, 7)


def test_partitions_of_other_topics_are_read_as_ever() -> None:
    """A topic that is not managed, or that has enable.ordered.delivery off, does not concern it."""
    moves = KeyMoves(3.0)
    other = TopicPartition("other", 0)
    assert moves.handle(Assigned(0, (other,), {})) == []
    assert moves.admits(other, 0)
    assert moves.next_tick() is None


def test_a_child_is_held_until_its_parent_has_been_read_by_whoever_owns_it() -> None:
    """It asks for the parent's position, and is called to load before it reads."""
    moves = member(P3)
    assert moves.held == {P3}
    assert moves.next_tick() == 0.2
    assert reports(moves.handle(Ticked(0.2))) == [{P0: (True, -1), P3: (False, 0)}]
    assert calls(moves.handle(Answered(0.3, {P0: 99}, ()))) == []
    moves.handle(Ticked(0.5))
    assert calls(moves.handle(Answered(0.6, {P0: 100}, ()))) == [CallAssigned((P3,))]
    assert not moves.admits(P3, 0)
    assert moves.handle(CallReturned(0.7)) == [Resume((P3,))]
    assert moves.admits(P3, 0)


def test_a_parent_is_read_over_its_cut_without_a_call_to_load() -> None:
    """No key comes to it; it is not read across the cut before the driver has looked."""
    moves = member(P0, at=90)
    assert moves.admits(P0, 99)
    assert not moves.admits(P0, 100)
    assert calls(stand(moves, 1, {P0: 100})) == []
    assert moves.admits(P0, 100)


def test_a_parents_state_is_flushed_before_its_position_is_told() -> None:
    """The position behind the cut is told when `maybe_revoked` has returned, and not before."""
    moves = asked_for(P0)
    commands = stand(moves, 1, {P0: 100})
    assert calls(commands) == [CallMaybeRevoked((P0,))]
    assert reports(commands) in ([], [{P0: (False, 90)}])
    moves.handle(Answered(1, {}, {P0}))
    assert reports(moves.handle(CallReturned(1.1))) == [{P0: (False, 100)}]


def test_what_the_application_has_not_come_back_from_is_not_flushed() -> None:
    """The last record before the cut was delivered, and is still being worked on."""
    moves = asked_for(P0)
    assert calls(stand(moves, 1, {P0: 100}, handled=99)) == []
    assert calls(stand(moves, 1, {P0: 100}, handled=100)) == [CallMaybeRevoked((P0,))]


def test_a_position_that_nobody_asks_for_is_not_flushed() -> None:
    """KIP-253 7: only positions that are interesting to some member."""
    assert calls(stand(member(P0, at=90), 1, {P0: 100})) == []


@pytest.mark.parametrize(
    ("position", "end", "is_due"),
    [
        pytest.param(95, 200, False, id="amid a segment: it opens nothing"),
        pytest.param(95, 95, True, id="as far as the high watermark"),
        pytest.param(100, 200, True, id="at the cut"),
        pytest.param(110, 200, True, id="behind the cut"),
    ],
)
def test_the_condition_in_three_parts(position: int, end: int, is_due: bool) -> None:
    """KIP-253 7: a position is told where it can open something for others."""
    moves = asked_for(P0)
    assert bool(calls(stand(moves, 1, {P0: position}, end=end))) == is_due


def test_a_flush_that_fails_is_not_told_and_tried_again_at_the_next_heartbeat() -> None:
    """Others wait meanwhile."""
    moves = asked_for(P0)
    stand(moves, 1, {P0: 100})
    assert calls(moves.handle(CallFailed(1.5))) == []
    assert moves.unflushed == {P0}
    assert calls(moves.handle(Ticked(4.0))) == []
    assert calls(moves.handle(Ticked(4.6))) == [CallMaybeRevoked((P0,))]


def test_a_load_that_fails_keeps_the_partition_from_being_read() -> None:
    """It is tried again at the next heartbeat."""
    moves = member(P3)
    moves.handle(Ticked(0.2))
    moves.handle(Answered(0.3, {P0: 100}, ()))
    moves.handle(CallFailed(0.5))
    assert not moves.admits(P3, 0)
    assert calls(moves.handle(Ticked(4))) == [CallAssigned((P3,))]


def test_who_goes_back_takes_back_what_was_told_and_reads_on_when_others_have_withdrawn() -> None:
    """They went on by it. What they have flushed before they withdrew is loaded then."""
    moves = member(P0, at=120)
    commands = stand(moves, 1, {P0: 50})
    assert reports(commands) == [{P0: (False, -1), P3: (True, -1)}]
    assert reports(moves.handle(Answered(1.1, {P3: 7}, ()))) == []
    assert not moves.admits(P0, 50)
    moves.handle(Ticked(1.4))
    commands = moves.handle(Answered(1.5, {P3: -1}, ()))
    assert reports(commands) == [{P0: (False, 50)}]
    assert calls(commands) == [CallAssigned((P0,))]
    moves.handle(Answered(1.6, {}, ()))
    assert not moves.admits(P0, 50)
    assert Resume((P0,)) in moves.handle(CallReturned(1.7))
    assert moves.admits(P0, 50)


def test_who_goes_back_where_nobody_went_on_by_it_waits_for_nobody() -> None:
    """Behind the cut, all that it told is taken back with the next report, and read again; nothing is loaded."""
    moves = member(P0, at=120)
    commands = stand(moves, 1, {P0: 110})
    assert reports(commands) == [{P0: (False, 110)}]
    assert not moves.admits(P0, 110)
    assert calls(moves.handle(Answered(1.1, {}, ()))) == []
    assert moves.admits(P0, 110)


def test_who_is_asked_for_looks_whether_what_opened_it_holds_and_withdraws_if_not() -> None:
    """The parent's owner went back: flush, tell that it stands nowhere, and load anew when the parent is read."""
    moves = loading()
    moves.handle(CallReturned(0.4))
    stand(moves, 0.5, {P3: 7})
    moves.handle(Ticked(4))
    assert reports(moves.handle(Answered(4.1, {}, {P3}))) == []
    assert reports(moves.handle(Ticked(4.4))) == [{P0: (True, -1), P3: (False, 0)}]
    assert calls(moves.handle(Answered(4.5, {P0: -1}, {P3}))) == [CallMaybeRevoked((P3,))]
    assert not moves.admits(P3, 7)
    assert reports(moves.handle(CallReturned(4.6))) == [{P0: (True, -1), P3: (False, -1)}]
    assert reports(moves.handle(Answered(4.7, {P0: 50}, ()))) == [{P0: (True, -1), P3: (False, 7)}]
    assert calls(moves.handle(Answered(4.8, {P0: 50}, ()))) == []
    moves.handle(Ticked(5))
    assert calls(moves.handle(Answered(5.1, {P0: 100}, ()))) == [CallAssigned((P3,))]


def test_who_withdraws_stands_where_the_segment_before_ends_though_strays_lie_between() -> None:
    """Nowhere would be further back than it went on by what is taken back: others would wait for it, and it for them.

    Partition 4 is there from the growth to 8 on, is left at 50, and taken up again at 60 behind strays.
    """
    layout = Layout.created("t", UUID(int=1), 2, 8)
    for partitions, end in ((8, 0), (2, 50), (8, 60)):
        following = layout.next_epoch(partitions)
        cut = layout.change_to(following).touched
        layout = layout.changed(following, {q: 100 * layout.epoch + 100 if q < 2 else end for q in cut})
    owned = Owned(TopicPartition("t", 4), is_needed=True, heard={0: 1000, 2: -1, 6: 50})
    owned.stand(MemberPositions(70, 70, -1))
    owned.look(TopicGate(Gate.of(layout)), {}, {})
    assert owned.withdraws_to == 49


def test_what_was_heard_opens_nothing_unless_others_knew_where_the_one_who_heard_it_stood() -> None:
    """Who goes back meanwhile would not have waited for it: it says where it stands first, and asks again."""
    moves = KeyMoves(3.0)
    moves.handle(Assigned(0, (P3,), {"t": TopicGate(grown())}))
    stand(moves, 0, {P3: 0})
    commands = moves.handle(Answered(0.1, {P0: 100}, ()))
    assert calls(commands) == []
    assert reports(commands) == [{P0: (True, -1), P3: (False, 0)}]
    assert calls(moves.handle(Answered(0.2, {P0: 100}, ()))) == [CallAssigned((P3,))]


def test_who_stands_behind_a_cut_that_nobody_asks_for_tells_it_where_it_has_to_hear_others() -> None:
    """Others answer for a place that they know: so all that was handled before the cut is flushed, and told.

    4 -> 3: the keys of partition 3 come back to 0 at its offset 200.
    """
    layout = Layout.created("t", UUID(int=1), 3, 12)
    layout = layout.changed(layout.next_epoch(4), {0: 100, 3: 0})
    layout = layout.changed(layout.next_epoch(3), {0: 200, 3: 50})
    moves = KeyMoves(3.0)
    moves.handle(Assigned(0, (P0,), {"t": TopicGate(Gate.of(layout))}))
    stand(moves, 0, {P0: 150})
    moves.handle(Answered(0, {}, ()))
    moves.handle(Answered(0, {}, ()))
    assert calls(stand(moves, 1, {P0: 200})) == [CallMaybeRevoked((P0,))]
    moves.handle(CallReturned(1.1))
    assert reports(moves.handle(Answered(1.2, {P3: -1}, ()))) == [{P0: (False, 200), P3: (True, -1)}]


def test_an_answer_to_what_was_told_before_a_member_went_back_says_nothing_of_who_has_withdrawn() -> None:
    """Also where it had told 0: they withdraw when they hear that it stands nowhere."""
    gate = grown()
    owned = Owned(P0)
    owned.stand(MemberPositions(120, 120, -1))
    owned.tell()
    owned.stand(MemberPositions(50, 50, -1))
    owned.look(TopicGate(gate), {}, {})
    assert owned.is_back
    for told, is_back in ((0, True), (-1, False)):
        owned.answered(told, {3: -1}, gate)
        owned.look(TopicGate(gate), {}, {})
        assert owned.is_back is is_back


def test_a_member_that_owns_parent_and_child_flushes_and_loads_too() -> None:
    """State is kept by partition: maybe_revoked of the parent returns before assigned of the child is called."""
    moves = member(P0, P3, at=0)
    commands = stand(moves, 1, {P0: 100, P3: 0})
    assert calls(commands) == [CallMaybeRevoked((P0,))]
    moves.handle(Answered(1, {}, ()))
    assert reports(moves.handle(CallReturned(1.1))) == [{P0: (True, 100), P3: (False, 0)}]
    assert calls(moves.handle(Answered(1.2, {P0: 100}, ()))) == [CallAssigned((P3,))]


def test_all_that_was_handled_is_flushed_before_partitions_are_given_up() -> None:
    """Whoever gets them next loads; nothing is called for what nothing was read of."""
    moves = member(P0, P1, at=10)
    stand(moves, 1, {P0: 20, P1: 10})
    assert moves.handle(Leaving(1)) == [CallMaybeRevoked((P0,))]
    assert moves.handle(CallReturned(1)) == []
    assert moves.unflushed == frozenset()


def test_a_report_that_was_lost_is_repeated_under_a_higher_number_and_not_at_once() -> None:
    """Nobody knows whether it arrived, so what it said counts as told."""
    moves = KeyMoves(3.0)
    moves.handle(Assigned(0, (P0,), {"t": TopicGate(grown())}))
    assert stand(moves, 0, {P0: 120}) == [Resume((P0,))]
    assert moves.handle(ReportFailed(0.1)) == []
    assert moves.handle(Ticked(0.4)) == [SendReport((ReportRow(P0, position=120),), 2)]
    stand(moves, 0.5, {P0: 50})
    moves.handle(ReportFailed(0.6))
    assert not moves.admits(P0, 50)


def test_a_report_that_says_nothing_new_keeps_its_number() -> None:
    """It is only asked by it, and need not be written."""
    moves = member(P3)
    first = [each.sequence for each in moves.handle(Ticked(0.2)) if isinstance(each, SendReport)]
    moves.handle(Answered(0.3, {P0: 5}, ()))
    second = [each.sequence for each in moves.handle(Ticked(0.6)) if isinstance(each, SendReport)]
    assert first == second != []


def test_who_reads_alone_flushes_what_it_had_before_new_partitions_came() -> None:
    """Its partitions are not given up when a topic grows; what it has not flushed stays so."""
    moves = member(P0, at=90)
    stand(moves, 1, {P0: 95})
    moves.handle(Assigned(1, (P0, P3), {"t": TopicGate(grown())}, goes_on=True))
    assert moves.unflushed == {P0}
    assert calls(stand(moves, 2, {P0: 100, P3: 0})) == [CallMaybeRevoked((P0,))]


def test_a_child_is_held_again_when_its_parent_is_read_once_more_and_loads_anew() -> None:
    """What the parent's owner flushes at the second time is missing in what was loaded at the first."""
    moves = loading()
    moves.handle(CallReturned(0.4))
    stand(moves, 0.5, {P3: 7})
    assert calls(hear(moves, 4, 50)) == []
    assert not moves.admits(P3, 7)
    assert calls(hear(moves, 5, 100)) == [CallAssigned((P3,))]
    assert not moves.admits(P3, 7)
    assert Resume((P3,)) in moves.handle(CallReturned(5.1))


def test_a_load_under_way_does_not_open_what_is_held_again_meanwhile() -> None:
    """The parent's owner went back, and flushes more than the application could load: it loads anew."""
    moves = loading()
    hear(moves, 4, 50)
    assert moves.handle(CallReturned(4.1)) == []
    assert not moves.admits(P3, 0)
    assert calls(hear(moves, 8, 100)) == [CallAssigned((P3,))]


def test_a_load_that_failed_is_not_tried_again_while_its_parent_is_read_once_more() -> None:
    """It would come too early; and when the parent is read, it is tried as ever."""
    moves = loading()
    moves.handle(CallFailed(0.4))
    assert calls(hear(moves, 3.3, 50)) == []
    assert calls(moves.handle(Ticked(9))) == []
    moves.handle(Answered(9.1, {P0: 100}, ()))
    assert moves.handle(CallReturned(9.2)) == [Resume((P3,))]


def test_who_goes_back_in_a_parent_holds_its_own_child_at_once() -> None:
    """It knows before the group does."""
    moves = member(P0, P3, at=0)
    stand(moves, 1, {P0: 100, P3: 0})
    moves.handle(Answered(1, {}, ()))
    moves.handle(CallReturned(1.1))
    moves.handle(Answered(1.2, {P0: 100}, ()))
    moves.handle(CallReturned(1.3))
    assert moves.admits(P3, 0)
    stand(moves, 2, {P0: 50, P3: 0})
    assert not moves.admits(P3, 0)


def test_a_flush_under_way_does_not_count_beyond_where_the_member_went_back_to() -> None:
    """What it reads once more from there on is flushed once more before it is told."""
    moves = asked_for(P0)
    assert calls(stand(moves, 1, {P0: 100})) == [CallMaybeRevoked((P0,))]
    stand(moves, 1.1, {P0: 80})
    told = reports(moves.handle(CallReturned(1.2))) + reports(moves.handle(Answered(1.3, {}, {P0})))
    assert {P0: (False, 100)} not in told
    assert moves.told == {P0: 80} or told == [{P0: (False, 80)}]
    moves.handle(Answered(1.4, {}, {P0}))
    assert calls(stand(moves, 2, {P0: 100})) == [CallMaybeRevoked((P0,))]


def test_what_was_handled_before_the_member_went_back_is_not_told_as_handled() -> None:
    """The application is still at work on what came before the seek, and nothing behind it was delivered anew."""
    moves = asked_for(P0)
    assert calls(stand(moves, 1, {P0: 50}, handled=100)) == []
    assert reports(moves.handle(Answered(1.1, {}, {P0}))) in ([], [{P0: (False, 50)}])
    assert moves.told == {P0: 50}


def returned() -> Gate:
    """3 -> 4 -> 3 -> 4: what went from 0 to 3 came back, and went again."""
    layout = Layout.created("t", UUID(int=1), 3, 12)
    for u, cuts in ((4, {0: 100, 3: 0}), (3, {0: 200, 3: 40}), (4, {0: 300, 3: 40})):
        layout = layout.changed(layout.next_epoch(u), cuts)
    return Gate.of(layout)


@pytest.mark.parametrize("at", [299, 300])
def test_whoever_begins_where_keys_once_came_in_loads_once(at: int) -> None:
    """From 300 on no key has come to 0, but those that came at 200 are unknown to whoever was not there."""
    moves = KeyMoves(3.0)
    moves.handle(Assigned(0, (P0,), {"t": TopicGate(returned())}))
    stand(moves, 0, {P0: at})
    moves.handle(Answered(0, {}, ()))
    moves.handle(Answered(0, {}, ()))
    moves.handle(Ticked(0.2))
    assert calls(moves.handle(Answered(0.2, {P3: 40}, ()))) == [CallAssigned((P0,))]
    assert not moves.admits(P0, at)
    moves.handle(CallReturned(0.3))
    assert calls(stand(moves, 1, {P0: 300})) == []
    assert moves.admits(P0, 300)


def test_a_partition_that_the_segments_do_not_name_is_read_freely() -> None:
    """It is newer than they are; whoever is asked for it answers by its own."""
    new = TopicPartition("t", 9)
    moves = member(new, at=5)
    moves.handle(Ticked(3.5))
    moves.handle(Answered(3.5, {}, {new}))
    assert moves.admits(new, 5)
    assert calls(stand(moves, 4, {new: 9}, end=9)) == [CallMaybeRevoked((new,))]


def test_what_others_told_in_a_former_generation_opens_nothing() -> None:
    """Whoever has the parent now may have begun earlier; nor does what was under way then go on."""
    for gives_up in (True, False):
        moves = loading()
        if gives_up:
            assert moves.handle(Leaving(1)) == []
            assert moves.handle(Left(1)) == []
            assert moves.partitions == frozenset()
        first = moves.handle(Assigned(2, (P3,), {"t": TopicGate(grown())}))
        assert reports(first) == [{P3: (False, -1)}]
        assert calls(stand(moves, 2, {P3: 0})) == []
        assert not moves.admits(P3, 0)
        assert calls(moves.handle(Answered(2.1, {}, ()))) == []
        assert calls(hear(moves, 2.4, 100)) == [CallAssigned((P3,))]


def test_a_flush_that_failed_is_tried_at_once_when_partitions_are_given_up() -> None:
    """It is the last time to try."""
    moves = asked_for(P0)
    stand(moves, 1, {P0: 100})
    moves.handle(CallFailed(1.5))
    assert moves.handle(Leaving(1.6)) == [CallMaybeRevoked((P0,))]


def test_a_call_under_way_ends_before_the_last_one_begins() -> None:
    """One call of the application is under way at a time, also when partitions are given up."""
    moves = asked_for(P0, P1)
    assert calls(stand(moves, 1, {P0: 100, P1: 95})) == [CallMaybeRevoked((P0,))]
    assert moves.handle(Leaving(1.1)) == []
    assert moves.handle(CallReturned(1.2)) == [CallMaybeRevoked((P1,))]


def test_who_is_told_that_its_own_position_is_unknown_says_it_again_under_another_number() -> None:
    """The log of reports was lost; the same number would not be written once more."""
    moves = member(P0, at=90)
    (before,) = [each for each in moves.handle(Ticked(4)) if isinstance(each, SendReport)]
    moves.handle(Answered(4.1, {P0: -1}, {P0}))
    (after,) = [each for each in moves.handle(Ticked(9)) if isinstance(each, SendReport)]
    assert after.rows == before.rows
    assert after.sequence > before.sequence


def test_what_waits_is_hurried_and_nothing_else_is() -> None:
    """Reports come each heartbeat, more often while somebody waits, and after a failure not at once."""
    moves = member(P1, at=5)
    assert moves.next_tick() == 3.0
    assert len(moves.handle(Ticked(3.5))) == 1
    moves.handle(Ticked(4.0))
    assert moves.next_tick() == 7.0  # one is under way: this is only to look
    moves.handle(ReportFailed(4.5))
    assert moves.next_tick() == 6.5
    moves = member(P3)
    moves.handle(Ticked(0.2))
    moves.handle(ReportFailed(0.3))
    assert moves.next_tick() == 0.5
