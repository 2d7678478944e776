"""Who has which records of a share group in hand, what is given next, and what acknowledgements do."""

from itertools import permutations

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import NONE, Ranges
from kordon.proxy.ordering.claims import Done, Start
from kordon.proxy.ordering.share.acknowledging import (
    MOST_OFFSETS,
    AcknowledgementBatch,
    JudgedAcknowledgements,
    ShareAcknowledgeType,
    acknowledge,
    stands,
)
from kordon.proxy.ordering.share.acquiring import GivenRecord, Terms, Wish, acquire, given
from kordon.proxy.ordering.share.locks import MOST_TURNS, Lock, LockOutcome
from kordon.proxy.ordering.share.state import Said, ShareState
from kordon.proxy.ordering.share.window import ShareWindow, WindowRecord

TERMS = Terms(lock_seconds=30.0, most_tries=3)
BEGUN = Start(1, 0, Done(0))


def window(*keys: int | None, end: int | None = None) -> ShareWindow:
    """Returns one with a record of each key at the even offsets; at the odd ones there is none."""
    found = ShareWindow(0)
    found.look(2 * len(keys) if end is None else end, [WindowRecord(2 * place, key) for place, key in enumerate(keys)])
    return found


def state(*said: Said | None, now: float = 0.0) -> ShareState:
    """Returns what records amount to that were read at one time; their keys are their places."""
    found = ShareState()
    for place, each in enumerate(said):
        found.apply(str(place), place, each, now)
    return found


def at(*offsets: int) -> Ranges:
    return Ranges((each, each + 1) for each in offsets)


def lock(member: str, *offsets: int, turn: int = 1, tries: int = 1, incarnation: int = 1) -> Lock:
    return Lock(incarnation, member, turn, tries, at(*offsets))


def done(*offsets: int, turn: int = 1) -> LockOutcome:
    return LockOutcome(1, turn, at(*offsets), at(*offsets))


def released(*offsets: int, turn: int = 1) -> LockOutcome:
    return LockOutcome(1, turn, NONE, at(*offsets))


def wanted(
    found: ShareState, ahead: ShareWindow, terms: Terms = TERMS, most: int = 100, now: float = 0.0
) -> list[Lock]:
    return list(acquire(found, ahead, terms, Wish("B", most), now).locks)


def test_of_each_key_the_first_record_is_given() -> None:
    """And of records without a key all are."""
    assert wanted(state(BEGUN), window(7, 7, 8, None, None, 8)) == [lock("B", 0, 4, 6, 8)]


def test_a_key_is_not_given_while_a_member_has_a_record_of_it() -> None:
    """Until that is done, released, or has been in hand for the lock's time."""
    found, ahead = state(BEGUN, lock("A", 0)), window(7, 7, 8)
    assert wanted(found, ahead) == [lock("B", 4)]
    assert wanted(found, ahead, now=29.9) == [lock("B", 4)]
    assert wanted(found, ahead, now=30.0) == [lock("B", 4), lock("B", 0, turn=2, tries=2)]
    assert wanted(state(BEGUN, lock("A", 0), done(0)), ahead) == [lock("B", 2, 4)]
    assert wanted(state(BEGUN, lock("A", 0), released(0)), ahead) == [lock("B", 4), lock("B", 0, turn=2, tries=2)]


def test_a_record_that_is_done_may_still_be_in_hand() -> None:
    """A was done with it when its lock had expired and B had got it: the key waits for B."""
    found = state(BEGUN, lock("A", 2), lock("B", 2, turn=2, tries=2), done(2))
    assert found.done == Done(0, at(2))
    assert wanted(found, window(None, 7, 7)) == [lock("B", 0)]
    found = state(BEGUN, lock("A", 0), lock("B", 0, turn=2, tries=2), LockOutcome(1, 1, Ranges([(0, 2)]), at(0)))
    ahead = window(7, 7, 8)
    ahead.drop_before(found.done.stable)
    assert wanted(found, ahead) == []
    assert wanted(found, ahead, now=30.0) == [lock("B", 2, 4)]


def test_no_more_is_given_than_is_wanted_and_may_be_in_hand() -> None:
    """Whoever has it in hand."""
    ahead = window(None, None, None, None)
    assert wanted(state(BEGUN), ahead, most=2) == [lock("B", 0, 2)]
    assert wanted(state(BEGUN, lock("A", 0, 2)), ahead, TERMS._replace(most_in_hand=3)) == [lock("B", 4)]


def test_nothing_is_given_where_something_was_not_looked_at() -> None:
    """Nor of a group that has not begun."""
    ahead = ShareWindow(2)
    ahead.look(6, [WindowRecord(2, 7), WindowRecord(4, 8)])
    assert wanted(state(BEGUN), ahead) == []
    assert wanted(state(), window(7)) == []


def test_what_is_done_is_not_passed_over_for_ever() -> None:
    """After some hundred records it is left out of the window, and the same is given; who has what in hand is known."""
    keys = [number % 50 for number in range(1000)]
    every = Ranges((2 * number, 2 * number + 1) for number in range(1, 800) if number != 500)
    found, ahead = state(BEGUN, lock("A", 0), LockOutcome(1, 0, every, NONE)), window(*keys)
    given_first = wanted(found, ahead)
    assert len(ahead.left) == 202
    assert (wanted(found, ahead), len(ahead)) == (given_first, 1000)
    [own] = given_first
    assert next(iter(own.offsets)) == (2 * 801, 2 * 801 + 1), "800 and 500 have the key of what A has in hand"
    ahead.drop_before(1001)
    assert len(ahead.left) == 200


def test_a_record_is_given_so_often_and_then_archived_or_blocks_its_key() -> None:
    """Whatever becomes of the members that were given it."""
    found, ahead = state(BEGUN, lock("A", 2, turn=4, tries=3), released(2, turn=4)), window(8, 7, 7)
    archives = acquire(found, ahead, TERMS, Wish("B", 9), 0)
    assert archives.outcomes == [LockOutcome(1, 4, Ranges([(1, 3)]), at(2))]
    assert archives.locks == [lock("B", 0)]
    blocks = acquire(found, ahead, TERMS._replace(archives=False), Wish("B", 9), 0)
    assert (blocks.outcomes, blocks.locks) == ([], [lock("B", 0)])
    spent = state(BEGUN, lock("A", 0, turn=MOST_TURNS), released(0, turn=MOST_TURNS))
    assert wanted(spent, ahead, TERMS._replace(archives=False)) == [lock("B", 2)]


def test_offsets_without_records_hold_nothing_up() -> None:
    """Those at the stable offset are said to be done, as far as was looked."""
    found = state(BEGUN, lock("A", 0), done(0))
    assert acquire(found, window(7, end=9), TERMS, Wish("B", 9), 0).outcomes == [
        LockOutcome(1, 0, Ranges([(1, 9)]), NONE)
    ]
    assert acquire(found, window(7, 8), TERMS, Wish("B", 9), 0).outcomes == [LockOutcome(1, 0, Ranges([(1, 2)]), NONE)]
    assert acquire(state(BEGUN), window(7), TERMS, Wish("B", 9), 0).outcomes == []


def test_of_two_locks_of_one_turn_the_first_counts() -> None:
    """Who comes second is not given its record, nor later ones of its key."""
    found = state(BEGUN, lock("A", 0), lock("B", 0, 2, 4))
    assert given(found, window(7, 7, 8), ["2"]) == [GivenRecord(4, 1)]
    assert given(found, window(7, 7, 8), ["1"]) == [GivenRecord(0, 1)]


def test_what_is_done_meanwhile_is_not_given() -> None:
    """It was done before its lock came into the log, or after."""
    assert given(state(BEGUN, lock("A", 0), done(0), lock("B", 0, turn=2)), window(7), ["3"]) == []
    assert given(state(BEGUN, lock("A", 0), lock("B", 0, turn=2), done(0)), window(7), ["2"]) == []


def test_locks_of_a_group_that_was_reset_count_for_nothing() -> None:
    """Nor do its outcomes; their records may go."""
    found = state(BEGUN, lock("A", 0), Start(2, 1, Done(0)), lock("A", 2), done(4))
    assert wanted(found, window(7, 8, 9)) == [lock("B", 0, 2, 4, incarnation=2)]
    assert found.outlived(-1) == ["1", "3"]


def test_locks_count_before_the_start_that_goes_on_with_them_is_read() -> None:
    """The first start is taken out of the log, and the next one stands behind the locks."""
    found = state(lock("A", 0), Start(1, 1, Done(0)))
    assert wanted(found, window(7, 8)) == [lock("B", 2)]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_what_counts_does_not_depend_on_what_compaction_has_left(order: tuple[int, ...]) -> None:
    """The lock of the highest turn has the record, in whatever order the lower ones go, or come first."""
    said: list[Said] = [lock("A", 0), lock("C", 0), released(0), lock("B", 0, turn=2, tries=2)]
    found = state(BEGUN, *(said[place] for place in order if place != 3), said[3])
    for place, each in enumerate(order):
        held = found.locks.of(0)
        assert held is not None
        assert (held.member, held.tries) == ("B", 2)
        if each < 2:
            found.apply(str(place + 1), 9 + place, None, 0)


def test_the_lock_of_what_was_given_back_stays_in_the_log() -> None:
    """Whoever reads the log next knows how often the record was given."""
    found = state(BEGUN, lock("A", 0), released(0))
    assert found.outlived(-1) == []
    found.apply("3", 3, lock("B", 0, turn=2, tries=2), 5.0)
    assert found.outlived(-1) == ["1"]
    found.apply("4", 4, LockOutcome(1, 1, at(0), at(0)), 6.0)  # who had it first was done, and B has it in hand
    assert found.outlived(5.0) == ["1"]
    assert found.outlived(5.1) == ["1", "3"]


def judged(
    found: ShareState, *batches: AcknowledgementBatch, member: str = "A", may_renew: bool = False
) -> JudgedAcknowledgements:
    return acknowledge(found, window(7, 8, 9), member, batches, may_renew=may_renew)


def test_acknowledgements_say_what_is_done_and_what_is_given_again() -> None:
    """Offsets before each record that no record has are done with it."""
    found = state(BEGUN, lock("A", 0, 2), lock("A", 4, turn=2, tries=2))
    answer = judged(
        found,
        AcknowledgementBatch(
            0, 2, (ShareAcknowledgeType.ACCEPT, ShareAcknowledgeType.GAP, ShareAcknowledgeType.RELEASE)
        ),
        AcknowledgementBatch(4, 4, (ShareAcknowledgeType.REJECT,)),
    )
    assert answer == JudgedAcknowledgements(
        Code.NONE, [LockOutcome(1, 1, at(0), at(0, 2)), LockOutcome(1, 2, Ranges([(3, 5)]), at(4))]
    )


def test_to_renew_is_to_take_the_next_turn() -> None:
    """It is no further try; a takeover of the same turn that comes later does not count."""
    found = state(BEGUN, lock("A", 0, tries=2))
    answer = judged(found, AcknowledgementBatch(0, 0, (ShareAcknowledgeType.RENEW,)), may_renew=True)
    assert answer == JudgedAcknowledgements(Code.NONE, [], [lock("A", 0, turn=2, tries=2)])
    found.apply("2", 2, answer.renewals[0], 29.0)
    found.apply("3", 3, lock("B", 0, turn=2, tries=3), 31.0)
    assert stands(found, answer, ["2"])
    assert given(found, window(7), ["3"]) == []
    assert wanted(found, window(7), now=58.0) == []
    late = state(BEGUN, lock("A", 0, tries=2), lock("B", 0, turn=2, tries=3), answer.renewals[0])
    assert not stands(late, answer, ["3"])


def test_who_has_a_record_no_longer_says_nothing_of_it() -> None:
    """Another member has it, it has given it back, or it never had it: none of the request counts."""
    for found in (
        state(BEGUN, lock("A", 0, 2), lock("B", 0, turn=2)),
        state(BEGUN, lock("A", 0, 2), released(0)),
        state(BEGUN, lock("A", 2)),
    ):
        answer = judged(
            found,
            AcknowledgementBatch(0, 0, (ShareAcknowledgeType.ACCEPT,)),
            AcknowledgementBatch(2, 2, (ShareAcknowledgeType.ACCEPT,)),
        )
        assert answer == JudgedAcknowledgements(Code.INVALID_RECORD_STATE, is_sure=False)
    assert (
        judged(state(BEGUN, lock("A", 0)), AcknowledgementBatch(0, 0, (ShareAcknowledgeType.GAP,))).code
        is Code.INVALID_RECORD_STATE
    )


def test_what_all_have_passed_may_be_acknowledged_again() -> None:
    """An answer was lost, and the member repeats what it said; brokers take that. A worker reads the log before."""
    found = state(BEGUN, lock("A", 0), done(0))
    assert found.done == Done(1)
    assert judged(found, AcknowledgementBatch(0, 0, (ShareAcknowledgeType.ACCEPT,))) == JudgedAcknowledgements(
        is_sure=False
    )
    renewed = judged(found, AcknowledgementBatch(0, 0, (ShareAcknowledgeType.RENEW,)), may_renew=True)
    assert renewed == JudgedAcknowledgements(Code.INVALID_RECORD_STATE, is_sure=False)
    twice = state(BEGUN, lock("A", 0), lock("B", 0, turn=2, tries=2), done(0))
    assert judged(twice, AcknowledgementBatch(0, 0, (ShareAcknowledgeType.ACCEPT,)), member="B").outcomes == [
        done(0, turn=2)
    ]


def test_a_member_is_told_that_it_came_too_late() -> None:
    """Its lock had expired, and the other's stands before what it said; or the group was reset."""
    answer = judged(state(BEGUN, lock("A", 0)), AcknowledgementBatch(0, 0, (ShareAcknowledgeType.ACCEPT,)))
    assert stands(state(BEGUN, lock("A", 0), *answer.outcomes, lock("B", 0, turn=2)), answer, ())
    assert not stands(state(BEGUN, lock("A", 0), lock("B", 0, turn=2), *answer.outcomes), answer, ())
    assert not stands(state(BEGUN, lock("A", 0), Start(2, 1, Done(0)), *answer.outcomes), answer, ())


def test_a_lock_ends_by_what_is_said_of_its_own_turn() -> None:
    """What the member before it says late leaves it as it is."""
    found = state(BEGUN, lock("A", 0), lock("B", 0, turn=2), released(0))
    held = found.locks.of(0)
    assert held is not None
    assert not held.is_over


@pytest.mark.parametrize(
    "batches",
    [
        [AcknowledgementBatch(2, 2, (1,)), AcknowledgementBatch(0, 0, (1,))],
        [AcknowledgementBatch(0, 2, (1,)), AcknowledgementBatch(2, 4, (1,))],
        [AcknowledgementBatch(2, 0, (1,))],
        [AcknowledgementBatch(-1, 0, (1,))],
        [AcknowledgementBatch(0, 2, (1, 1))],
        [AcknowledgementBatch(0, 0, ())],
        [AcknowledgementBatch(0, 0, (5,))],
        [AcknowledgementBatch(0, 0, (-1,))],
        [AcknowledgementBatch(0, 0, (ShareAcknowledgeType.RENEW,))],
        [AcknowledgementBatch(0, 2**62, (1,))],
        [AcknowledgementBatch(0, MOST_OFFSETS, (1,))],
        [AcknowledgementBatch(0, MOST_OFFSETS - 1, (1,)), AcknowledgementBatch(MOST_OFFSETS, MOST_OFFSETS, (1,))],
    ],
)
def test_what_is_no_acknowledgement_is_refused_before_it_is_read(batches: list[AcknowledgementBatch]) -> None:
    """Whatever its length says."""
    assert judged(state(BEGUN, lock("A", 0)), *batches).code is Code.INVALID_REQUEST


def test_a_worker_that_has_not_looked_at_a_record_takes_its_acknowledgement() -> None:
    """It says nothing of the offsets before it."""
    found = state(BEGUN, lock("A", 40))
    assert judged(found, AcknowledgementBatch(40, 40, (ShareAcknowledgeType.ACCEPT,))).outcomes == [done(40)]


@drawn(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_when_all_records_are_done_all_offsets_are(records: set[int], others: set[int]) -> None:
    """Those that no record has are done with the record behind them, or as the gap at the end."""
    ahead = ShareWindow(0)
    ahead.look(31, [WindowRecord(each, None) for each in sorted(records)])
    found = Done(0).joined(Done(-1, ahead.covered(records - others)))
    assert {each for each in records if found.has(each)} == records - others
    whole = found.joined(Done(-1, ahead.covered(records & others)))
    assert whole.joined(Done(-1, ahead.gap_at(whole.stable))) == Done(31)
    ahead.drop_before(11)
    assert len(ahead) == len([each for each in records if each >= 11])
    assert ahead.begin == 11
