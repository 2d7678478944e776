"""The keeper of keys' moves, event by event: what may be read, what is told, and when the application is called."""

from __future__ import annotations

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
    Place,
    Report,
    ReportFailed,
    Resume,
    Row,
    Stood,
    Ticked,
    TopicGate,
)
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
    places = {tp: Place(offset, offset if handled is None else handled, end) for tp, offset in at.items()}
    return moves.handle(Stood(now, places))


def reports(commands: list[Command]) -> list[dict[TopicPartition, tuple[bool, int]]]:
    told = [command.rows for command in commands if isinstance(command, Report)]
    return [{row.partition: (row.needed, row.position) for row in rows} for rows in told]


def calls(commands: list[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, CallAssigned | CallMaybeRevoked)]


def test_the_first_report_names_all_partitions_before_anything_is_known_of_them() -> None:
    """So that others know who owns what."""
    commands = KeyMoves(3.0).handle(Assigned(0, (P0, P1), {"t": TopicGate(grown())}))
    assert commands == [Report((Row(P0), Row(P1)), 1)]


def test_a_partition_is_not_read_before_it_is_known_where_it_stands() -> None:
    """Nor is one whose keys never moved held any longer than that."""
    moves = KeyMoves(3.0)
    moves.handle(Assigned(0, (P1,), {"t": TopicGate(grown())}))
    assert not moves.admits(P1, 7)
    assert Resume((P1,)) in stand(moves, 0, {P1: 7})
    assert moves.admits(P1, 7)


def test_partitions_of_other_topics_are_read_as_ever() -> None:
    """A topic that is not managed, or that has enable.ordered.delivery off, is none of the keeper's business."""
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
    """No key comes to it; it is not read across the cut before the keeper has looked."""
    moves = member(P0, at=90)
    assert moves.admits(P0, 99)
    assert not moves.admits(P0, 100)
    assert calls(stand(moves, 1, {P0: 100})) == []
    assert moves.admits(P0, 100)


def test_a_parents_state_is_flushed_before_its_position_is_told() -> None:
    """The position behind the cut is told when `maybe_revoked` has returned, and not before."""
    moves = member(P0, at=90)
    moves.handle(Ticked(0.2))
    moves.handle(Answered(0.2, {}, {P0}))
    commands = stand(moves, 1, {P0: 100})
    assert calls(commands) == [CallMaybeRevoked((P0,))]
    assert reports(commands) in ([], [{P0: (False, 90)}])
    moves.handle(Answered(1, {}, {P0}))
    assert reports(moves.handle(CallReturned(1.1))) == [{P0: (False, 100)}]


def test_what_the_application_has_not_come_back_from_is_not_flushed() -> None:
    """The last record before the cut was delivered, and is still being worked on."""
    moves = member(P0, at=90)
    moves.handle(Ticked(0.2))
    moves.handle(Answered(0.2, {}, {P0}))
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
    moves = member(P0, at=90)
    moves.handle(Ticked(0.2))
    moves.handle(Answered(0.2, {}, {P0}))
    assert bool(calls(stand(moves, 1, {P0: position}, end=end))) == is_due


def test_a_flush_that_fails_is_not_told_and_tried_again_at_the_next_heartbeat() -> None:
    """Others wait meanwhile."""
    moves = member(P0, at=90)
    moves.handle(Ticked(0.2))
    moves.handle(Answered(0.2, {}, {P0}))
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


def test_who_goes_back_takes_back_what_was_told_before_reading_on() -> None:
    """Others went on by it; they must be held again first."""
    moves = member(P0, at=120)
    commands = stand(moves, 1, {P0: 50})
    assert reports(commands) == [{P0: (False, 50)}]
    assert not moves.admits(P0, 50)
    moves.handle(Answered(1.1, {}, ()))
    assert moves.admits(P0, 50)


def test_what_went_back_is_told_again_when_it_is_reached_though_nobody_asks() -> None:
    """Who went on by it before does not know that it has to ask."""
    moves = member(P0, at=120)
    stand(moves, 1, {P0: 50})
    moves.handle(Answered(1.1, {}, ()))
    assert calls(stand(moves, 2, {P0: 100})) == [CallMaybeRevoked((P0,))]


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
    assert moves.handle(Ticked(0.4)) == [Report((Row(P0, position=120),), 2)]
    stand(moves, 0.5, {P0: 50})
    moves.handle(ReportFailed(0.6))
    assert not moves.admits(P0, 50)


def test_a_report_that_says_nothing_new_keeps_its_number() -> None:
    """It is only asked by it, and need not be written."""
    moves = member(P3)
    first = [each.sequence for each in moves.handle(Ticked(0.2)) if isinstance(each, Report)]
    moves.handle(Answered(0.3, {P0: 5}, ()))
    second = [each.sequence for each in moves.handle(Ticked(0.6)) if isinstance(each, Report)]
    assert first == second != []


def test_who_reads_alone_flushes_what_it_had_before_new_partitions_came() -> None:
    """Its partitions are not given up when a topic grows; what it has not flushed stays so."""
    moves = member(P0, at=90)
    stand(moves, 1, {P0: 95})
    moves.handle(Assigned(1, (P0, P3), {"t": TopicGate(grown())}, goes_on=True))
    assert moves.unflushed == {P0}
    assert calls(stand(moves, 2, {P0: 100, P3: 0})) == [CallMaybeRevoked((P0,))]
