"""What a member of a cooperative group has in hand: what may be started, what is finished, when it is full."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.client.cooperative.entry import Progress, RecordInHand
from kordon.client.cooperative.in_hand import HandLimits, InHand, Order
from kordon.codecs.ranges import Range, Ranges

MANY = HandLimits(1_000, 1_000_000, 1_000)
Hand = InHand[int, str]


def taken(hand: Hand, partition: int, rows: Iterable[tuple[int, bytes | None]], position: int) -> None:
    hand.take(partition, [(offset, key, 10, f"{partition}-{offset}") for offset, key in rows], position)


def hand_with(
    *rows: tuple[int, bytes | None], order: Order = "key", limits: HandLimits = MANY, ranges: Iterable[Range] = ()
) -> Hand:
    """A member that has fetched these records of partition 0, and nothing behind them."""
    hand = Hand(order, limits)
    hand.assign(0, 0, ranges)
    taken(hand, 0, rows, rows[-1][0] + 1 if rows else 0)
    return hand


def started(hand: Hand, now: float = 0.0) -> list[RecordInHand[int, str]]:
    found: list[RecordInHand[int, str]] = []
    while (entry := hand.start(now)) is not None:
        found.append(entry)
    return found


def offsets(entries: Iterable[RecordInHand[int, str]]) -> list[int]:
    return [entry.offset for entry in entries]


A, B = b"a", b"b"


def test_one_record_of_each_key_is_started_at_a_time() -> None:
    """The next one of a key is started when the one before is finished."""
    hand = hand_with((0, A), (1, A), (2, B), (3, A))
    first, other = started(hand)
    assert offsets([first, other]) == [0, 2]
    assert hand.finish(first)
    assert offsets(started(hand)) == [1]


def test_records_without_key_follow_nobody() -> None:
    """They have no order."""
    assert offsets(started(hand_with((0, None), (1, None), (2, None)))) == [0, 1, 2]


def test_a_partition_can_be_one_chain() -> None:
    """With `order="partition"`; other partitions go on."""
    hand = hand_with((0, A), (1, B), order="partition")
    hand.assign(1, 0)
    taken(hand, 1, [(0, A)], 1)
    assert [(each.partition, each.offset) for each in started(hand)] == [(0, 0), (1, 0)]


def test_without_an_order_all_may_be_started() -> None:
    """With `order=None`, keys count for nothing."""
    assert offsets(started(hand_with((0, A), (1, A), order=None))) == [0, 1]


def test_the_same_key_of_another_partition_does_not_wait() -> None:
    """Kafka orders records within a partition."""
    hand = hand_with((0, A))
    hand.assign(1, 0)
    taken(hand, 1, [(0, A)], 1)
    assert len(started(hand)) == 2


def test_a_released_record_comes_again_before_those_that_follow_it() -> None:
    """When it is due; others go on meanwhile."""
    hand = hand_with((0, A), (1, A), (2, B))
    first, other = started(hand)
    assert hand.release(first, due=5.0)
    assert hand.finish(other)
    assert started(hand, now=4.9) == []
    assert hand.next_due() == 5.0
    assert started(hand, now=5.0) == [first]
    assert first.attempts == 2
    assert hand.finish(first)
    assert offsets(started(hand, now=5.0)) == [1]


def test_what_is_finished_behind_a_gap_is_a_range() -> None:
    """The oldest record in hand is where the commit stays."""
    hand = hand_with((0, A), (1, B), (2, None), (3, None), (4, A))
    zero, one, two, three = started(hand)
    for each in (two, three):
        hand.finish(each)
    assert hand.progress(0) == Progress(0, Ranges([(2, 4)]))
    hand.finish(zero)
    assert hand.progress(0) == Progress(1, Ranges([(2, 4)]))
    hand.finish(one)
    assert hand.progress(0) == Progress(4)
    assert hand.oldest(0) is hand.find(0, 4)


def test_offsets_without_a_record_are_finished_when_the_position_has_passed_them() -> None:
    """Compacted ones, those of markers, and what was aborted; also at the end of a partition."""
    hand = hand_with((3, None), (10, None))
    first, second = started(hand)
    hand.finish(second)
    assert hand.progress(0) == Progress(3, Ranges([(4, 11)]))
    hand.finish(first)
    taken(hand, 0, [], 15)
    assert hand.progress(0) == Progress(15)


def test_what_was_finished_before_is_not_started_again() -> None:
    """It is fetched again, and left out; what lies between is handled."""
    hand = hand_with((0, A), (1, A), (2, B), (3, B), (4, A), ranges=[(1, 3), (4, 5)])
    assert hand.progress(0) == Progress(0, Ranges([(1, 3), (4, 5)]))
    for each in started(hand):
        hand.finish(each)
    assert hand.progress(0) == Progress(5)


def test_ranges_ahead_of_the_position_are_told_again() -> None:
    """A member that dies before it has fetched them has lost nothing of them."""
    hand = Hand("key", MANY)
    hand.assign(0, 0, [(5, 8), (20, 30)])
    taken(hand, 0, [(0, A), (6, A)], 7)
    assert hand.progress(0) == Progress(0, Ranges([(1, 8), (20, 30)]))
    hand.finish(started(hand)[0])
    assert hand.progress(0) == Progress(8, Ranges([(20, 30)]))


def test_what_comes_of_records_that_were_given_up_does_not_count() -> None:
    """Their partition may be another member's."""
    hand = hand_with((0, A), (1, A))
    (entry,) = started(hand)
    assert hand.revoke([0]) == [entry]
    assert not hand.finish(entry)
    assert not hand.release(entry, 0.0)
    assert (hand.running, hand.partitions) == (0, set())
    hand.assign(0, 0)
    assert hand.progress(0) == Progress(0)
    assert hand.start(0.0) is None


def test_a_record_is_finished_once() -> None:
    """A second acknowledgement counts for nothing."""
    hand = hand_with((0, A), (1, A), (2, A))
    (entry,) = started(hand)
    assert hand.finish(entry)
    assert not hand.finish(entry)
    assert offsets(started(hand)) == [1]


def test_a_record_may_be_finished_before_it_is_started() -> None:
    """By who got it in an earlier assignment; those behind it wait for those before it all the same."""
    hand = hand_with((0, A), (1, A), (2, A), (3, A))
    (first,) = started(hand)
    for offset in (1, 3):
        entry = hand.find(0, offset)
        assert entry is not None
        assert hand.finish(entry)
    taken(hand, 0, [(4, A)], 5)
    assert started(hand) == []
    hand.finish(first)
    (third,) = started(hand)
    hand.finish(third)
    assert offsets(started(hand)) == [4]
    assert hand.progress(0) == Progress(4)


def test_so_many_run_at_a_time() -> None:
    """A record that waits for its next try is none of them."""
    hand = hand_with(*((n, None) for n in range(5)), limits=HandLimits(running=2))
    first, second = started(hand)
    assert not hand.can_start(0.0)
    hand.release(first, due=9.0)
    assert offsets(started(hand)) == [2]
    hand.finish(second)
    assert hand.can_start(0.0)


@pytest.mark.parametrize("limits", [HandLimits(records=4), HandLimits(size=40)])
def test_each_partition_has_its_share_of_what_is_in_hand(limits: HandLimits) -> None:
    """A partition that does not come on leaves room for others."""
    hand = hand_with((0, A), limits=limits)
    hand.assign(1, 0)
    assert hand.wanted() == [0, 1]
    taken(hand, 0, [(1, A)], 2)
    assert hand.wanted() == [1]
    hand.finish(started(hand)[0])
    assert hand.wanted() == [0, 1]
    assert hand.counts() == {0: 1, 1: 0}


def test_all_partitions_together_have_no_more_than_there_is_room_for() -> None:
    """A fetch asks for no more records than that."""
    hand = hand_with((0, A), (1, A), limits=HandLimits(records=3))
    assert hand.room == 1
    taken(hand, 0, [(2, A), (3, A)], 4)
    assert hand.room == 0


def test_a_log_that_is_another_one_is_noticed() -> None:
    """Its records are at offsets that were passed."""
    hand = hand_with((0, A), (7, A))
    assert hand.has_gone_back(0, 7)
    assert not hand.has_gone_back(0, 8)


def test_changes_tell_whether_there_is_anything_to_commit() -> None:
    """Starting and releasing a record changes nothing of what is finished."""
    hand = hand_with((0, A), (1, B))
    before = hand.changes(0)
    first, _ = started(hand)
    hand.release(first, 0.0)
    assert hand.changes(0) == before
    hand.finish(first)
    assert hand.changes(0) > before


class Model:
    """The same told slowly: a record may be started when all earlier ones of its key are finished."""

    def __init__(self, rows: dict[int, bytes | None]) -> None:
        self.rows = rows
        self.finished: set[int] = set()
        self.busy: set[int] = set()

    def may_start(self) -> set[int]:
        """All offsets that may be started now."""
        return {
            offset
            for offset, key in self.rows.items()
            if offset not in self.finished | self.busy
            and not any(key == k is not None and o < offset and o not in self.finished for o, k in self.rows.items())
        }

    def progress(self, position: int) -> set[int]:
        """All offsets below the position that are finished."""
        return set(range(position)) - (self.rows.keys() - self.finished)


@given(st.integers(0, 10**6))
def test_it_does_what_a_plain_model_does(seed: int) -> None:
    """Through any order of fetches, starts, ends and releases."""
    chance = random.Random(seed)
    hand, model = hand_with(), Model({})
    position, running = 0, list[RecordInHand[int, str]]()
    for _ in range(60):
        match chance.randrange(4):
            case 0:
                rows = [
                    (position + n, chance.choice([A, B, b"c", None]))
                    for n in range(chance.randrange(6))
                    if chance.random() < 0.8
                ]
                position += 6
                taken(hand, 0, rows, position)
                model.rows.update(rows)
            case 1:
                allowed = model.may_start()
                entry = hand.start(0.0)
                assert (entry is None) == (not allowed)
                if entry is not None:
                    assert entry.offset in allowed
                    model.busy.add(entry.offset)
                    running.append(entry)
            case 2 if running:
                entry = running.pop(chance.randrange(len(running)))
                assert hand.finish(entry)
                model.finished.add(entry.offset)
                model.busy.discard(entry.offset)
            case 3 if running:
                entry = running.pop(chance.randrange(len(running)))
                assert hand.release(entry, 0.0)
                model.busy.discard(entry.offset)
            case _:
                continue
        told = hand.progress(0)
        finished = set(range(told.stable)) | {o for begin, end in told.ranges for o in range(begin, end)}
        assert finished == model.progress(position)
