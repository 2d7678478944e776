"""What a log of claims amounts to, and which of its records may be taken out."""

from itertools import permutations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.ranges import Ranges
from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import (
    NO_INCARNATION,
    NO_OFFSET,
    NOTHING,
    RENEW_AFTER_CLAIMS,
    RENEW_AFTER_MS,
    Begun,
    Claim,
    Claims,
    Done,
    Place,
    PlaceKey,
    Said,
    Start,
    Told,
    fitting,
    found_start,
    to_push,
    told,
)

NUMBERS = st.sets(st.integers(0, 40))


def done(stable: int, *ranges: tuple[int, int]) -> Done:
    return Done(stable, Ranges(ranges))


def place(*records: tuple[str, Said | None]) -> Place:
    found = Place()
    for offset, (key, said) in enumerate(records):
        found.apply(key, offset, said, size=10)
    return found


def made_of(numbers: set[int]) -> Done:
    return Done(0).joined(Done(NO_OFFSET, Ranges((each, each + 1) for each in numbers)))


@given(NUMBERS, NUMBERS)
def test_what_is_done_is_joined_and_compared_as_sets_are(one: set[int], other: set[int]) -> None:
    """Whatever is stable of it."""
    first, second = made_of(one), made_of(other)
    both = first.joined(second)
    assert both == made_of(one | other)
    assert {each for each in range(42) if both.has(each)} == one | other
    assert first.joined(first.missing(second)) == both
    assert (first.missing(second) == NOTHING) is (both == first)


def test_claims_add_to_each_other_in_any_order() -> None:
    """However often they come."""
    said = [Claim(1, done(NO_OFFSET, (43, 46))), Claim(1, done(NO_OFFSET, (48, 50))), Claim(1, done(41, (42, 43)))]
    for order in permutations([*said, *said]):
        found = place(("s", Start(1, 0, done(40))), *((f"{n}", each) for n, each in enumerate(order)))
        assert found.done == done(41, (42, 46), (48, 50))


def test_the_proposals_example_is_amended_gap_by_gap() -> None:
    """Stable 41, done 43 to 45 and 48 to 49: a member that has fetched up to 50 names 41-42, 46-47 and 50."""
    found = place(("s", Start(1, 0, done(41))), ("a", Claim(1, done(NO_OFFSET, (43, 46), (48, 50)))))
    named = done(NO_OFFSET, (41, 43), (46, 48), (50, 51))
    assert found.done.missing(named).ranges == named.ranges
    assert found.to_write(1, named) == Claim(1, done(NO_OFFSET, (41, 43), (46, 48), (50, 51)))
    found.apply("b", 2, found.to_write(1, named))
    assert found.done == done(51)


def test_claims_of_an_ended_incarnation_are_void() -> None:
    """Also those that come late."""
    found = place(
        ("a", Start(1, 0, done(0))), ("b", Claim(1, done(50))), ("c", Start(2, 1, done(10))), ("d", Claim(1, done(90)))
    )
    assert (found.incarnation, found.done) == (2, done(10))


def test_of_two_starts_that_end_one_incarnation_the_first_counts() -> None:
    """The second would void what was done since."""
    found = place(
        ("a", Start(1, 0, done(0))),
        ("b", Start(2, 1, done(10))),
        ("c", Claim(2, done(20))),
        ("d", Start(3, 1, done(10))),
    )
    assert (found.incarnation, found.done) == (2, done(20))


def test_a_start_that_ends_its_own_name_goes_on() -> None:
    """It says all that is known; behind another incarnation it says nothing."""
    records = [("a", Start(1, 0, done(0))), ("b", Start(1, 1, done(20, (25, 30))))]
    assert place(*records).done == done(20, (25, 30))
    late = place(records[0], ("c", Start(2, 1, done(5))), records[1])
    assert (late.incarnation, late.done) == (2, done(5))


def test_a_half_compacted_log_amounts_to_the_same() -> None:
    """Where a start that never counted has outlived the one before it, the tombstones behind say so."""
    whole: list[tuple[str, Said | None]] = [
        ("a", Start(1, 0, done(0))),
        ("b", Start(2, 1, done(10))),
        ("c", Start(3, 1, done(99))),
        ("d", Start(4, 2, done(30))),
        ("e", Claim(4, done(35))),
        ("a", None),
        ("b", None),
        ("c", None),
    ]
    for left_out in ({0}, {0, 1}, {1}, {0, 1, 2}, {2}):
        found = Claims()
        key = PlaceKey("g", UUID(int=1), 0)
        for offset, (record, said) in enumerate(whole):
            if offset not in left_out:
                found.apply(key, record, offset, said)
        assert (found.of(key).incarnation, found.of(key).done) == (4, done(35)), left_out


def test_many_claims_are_written_as_one_record() -> None:
    """So are large ones, and those of an old start; the log stays as small as that."""
    found = place(
        ("s", Start(1, 0, done(0))), *((f"{n}", Claim(1, done(2 * n + 2))) for n in range(RENEW_AFTER_CLAIMS))
    )
    assert found.to_write(1, done(99)) == Start(1, 1, done(99))
    old = place(("s", Start(1, 0, done(0))))
    assert old.to_write(1, done(9), now_ms=RENEW_AFTER_MS) == Start(1, 1, done(9))
    assert old.to_write(1, done(9), now_ms=RENEW_AFTER_MS - 1) == Claim(1, done(9))
    large = place(("s", Start(1, 0, done(0))))
    large.apply("a", 1, Claim(1, done(5)), size=claims.RENEW_AFTER_BYTES)
    assert large.to_write(1, done(9)) == Start(1, 1, done(9))


def test_what_stands_in_the_log_is_not_written_again() -> None:
    """A commit that is repeated costs nothing."""
    found = place(("s", Start(1, 0, done(40))), ("a", Claim(1, done(NO_OFFSET, (43, 46)))))
    assert found.to_write(1, done(40, (44, 46))) is None
    assert found.to_write(1, done(40, (44, 47))) == Claim(1, done(NO_OFFSET, (46, 47)))


def test_nobody_takes_out_what_he_had_not_read() -> None:
    """Another's claim may stand between what he has read and his own."""
    found = place(
        ("s", Start(1, 0, done(0))),
        ("a", Claim(1, done(5))),
        ("b", Claim(1, done(NO_OFFSET, (20, 30)))),
        ("own", Start(1, 1, done(5))),
        ("c", Claim(1, done(NO_OFFSET, (40, 50)))),
    )
    assert found.outlived("own", read_to=2) == ["s", "a"]


def test_a_start_that_does_not_count_outlives_nothing() -> None:
    """What it says is void."""
    found = place(
        ("s", Start(1, 0, done(0))),
        ("a", Claim(1, done(5))),
        ("r", Start(2, 1, done(0))),
        ("own", Start(1, 1, done(5))),
    )
    assert found.outlived("own", read_to=2) == []
    assert found.outlived("r", read_to=2) == ["s", "a"]


def test_starts_that_never_counted_go_with_what_they_stand_behind() -> None:
    """One alone would count."""
    found = place(
        ("s", Start(1, 0, done(0))),
        ("r", Start(2, 1, done(0))),
        ("late", Start(3, 1, done(0))),
        ("own", Start(2, 2, done(5))),
    )
    assert found.outlived("own", read_to=1) == ["s", "late"]


@pytest.mark.parametrize("committed", [NO_OFFSET, 0, 500])
def test_a_commit_without_a_mark_begins_anew(committed: int) -> None:
    """Somebody has reset the group, deleted it, or uses it without Kordon."""
    found = place(("s", Start(1, 0, done(0))), ("a", Claim(1, done(100, (200, 300)))))
    start = found_start(found.seen(), committed, None, 7)
    assert start == Start(7, 1, done(committed))
    found.apply("r", 2, start)
    assert told(found, committed, None) == Told(7, done(committed))


def test_a_mark_that_the_log_does_not_know_begins_anew() -> None:
    """The log was lost, so the coordinator's offset is what is known (at least once)."""
    assert found_start(Place().seen(), 500, 3, 7) == Start(7, NO_INCARNATION, done(500))


def test_only_what_a_start_that_counts_has_ended_is_known_to_be_over() -> None:
    """A record that goes on with an incarnation of which the log has lost the beginning says nothing of its end."""
    found = place(("s", Start(1, 0, done(0))), ("lost", Start(2, 2, done(30))))
    assert found.incarnation == 1
    assert found_start(found.seen(), 30, 2, 7) == Start(7, 1, done(30))


def test_what_ended_is_known_when_the_starts_that_ended_it_are_taken_out() -> None:
    """A member's commit may be slow: it is no reset because two starts have come since."""
    found = place(("s", Start(1, 0, done(0))), ("r", Start(2, 1, done(0))))
    found.apply("t", 2, found_start(found.seen(), 0, None, 3))
    for number, gone in enumerate(found.outlived("t", read_to=0)):
        found.apply(gone, 3 + number, None)
    assert found.records == 1
    assert found_start(found.seen(), 0, 1, 7) is None
    found.apply("u", 9, Start(3, 3, found.done, found.seen().ended))
    found.apply("t", 10, None)
    assert found_start(found.seen(), 0, 1, 7) is None


DAY_MS = 24 * 3_600_000


def test_what_nobody_has_added_to_is_void_for_all() -> None:
    """Retention takes it out a day later, one record after the other, so no two proxies would find the same."""
    key, known = PlaceKey("g", UUID(int=1), 0), Claims()
    known.apply(key, "s", 0, Start(1, 0, done(5)), timestamp_ms=0)
    known.apply(key, "a", 1, Claim(1, done(9)), timestamp_ms=DAY_MS)
    assert known.of(key, 7 * DAY_MS - 1).incarnation == 1
    assert known.of(key, 7 * DAY_MS).incarnation == NO_INCARNATION
    assert known.of(PlaceKey("g", UUID(int=1), 1), DAY_MS).incarnation == NO_INCARNATION
    known.apply(key, "t", 2, Start(2, 0, done(7)), timestamp_ms=7 * DAY_MS)
    assert (known.of(key).incarnation, known.of(key).records) == (2, 1)


def test_what_is_void_leaves_the_memory_an_hour_later() -> None:
    """Clocks of proxies differ: what one of them still adds to must be there for the others."""
    key, known = PlaceKey("g", UUID(int=1), 0), Claims()
    known.apply(key, "s", 0, Start(1, 0, done(5)), timestamp_ms=0)
    assert known.forget_void(6 * DAY_MS + 3_599_999) == []
    assert known.forget_void(6 * DAY_MS + 3_600_000) == [key]
    assert len(known) == 0


def test_an_old_start_is_written_anew_though_nothing_is_new() -> None:
    """So a group that commits at all has a start of the last day."""
    found = Place()
    found.apply("s", 0, Start(1, 0, done(5)), timestamp_ms=0)
    assert found.to_write(1, done(5), RENEW_AFTER_MS - 1) is None
    assert found.to_write(1, done(5), RENEW_AFTER_MS) == Start(1, 1, done(5))


def test_who_has_begun_anew_asks_again() -> None:
    """What the coordinator has then may be told if it is the same, and the start counts."""
    found = place(("s", Start(7, 0, done(30))))
    assert found_start(found.seen(), 30, None, 8, Begun(30, None, 7)) is None
    assert found_start(found.seen(), 31, None, 8, Begun(30, None, 7)) == Start(8, 7, done(31))
    assert found_start(found.seen(), 30, None, 8, Begun(30, None, 6)) == Start(8, 7, done(30))


def test_a_late_commit_of_an_ended_incarnation_changes_nothing() -> None:
    """The log has what counts; unless the newest has no offset yet: then a member has said where the group begins."""
    found = place(("s", Start(1, 0, done(0))), ("r", Start(2, 1, done(10))), ("a", Claim(2, done(20))))
    assert found_start(found.seen(), 300, 1, 7) is None
    assert told(found, 300, 1) == Told(2, done(20))
    begun = place(("s", Start(1, 0, done(NO_OFFSET))), ("r", Start(2, 1, done(NO_OFFSET))))
    assert told(begun, 300, 1) == Told(2, done(300))


def test_the_coordinators_own_offset_counts_too() -> None:
    """It may be ahead of the log: a commit is accepted before its claim is written."""
    found = place(("s", Start(1, 0, done(40))), ("a", Claim(1, done(NO_OFFSET, (45, 50)))))
    assert told(found, 45, 1) == Told(1, done(50))


def test_the_coordinator_is_told_what_is_stable() -> None:
    """As far as the log and the member together know."""
    found = place(("s", Start(1, 0, done(40))), ("a", Claim(1, done(NO_OFFSET, (45, 50)))))
    assert to_push(found, 40) == 40
    assert to_push(found, 45) == 50
    assert to_push(found, 10) == 40


def test_of_too_many_ranges_those_are_taken_that_fit() -> None:
    """What closes a gap always does, and of the rest the lowest."""
    known = done(10, (12, 14), (16, 18), (20, 22))
    assert fitting(known, done(10, (30, 31), (14, 16)), 2) == (done(10, (14, 16)), 1)
    assert fitting(known, done(10, (14, 16)), 1) == (done(10, (14, 16)), 0)
    assert fitting(known, done(12), 0) == (done(12), 0)
    assert fitting(known, done(10, (24, 25), (26, 27), (28, 29)), 4) == (done(10, (24, 25)), 2)
    assert fitting(known, done(10, (11, 12), (40, 41)), 3) == (done(10, (11, 12)), 1)


@given(NUMBERS, NUMBERS, st.integers(0, 6))
def test_what_is_taken_never_leaves_too_many_ranges(one: set[int], other: set[int], most: int) -> None:
    """Unless there were as many before; and whatever is not taken, would."""
    known, said = made_of(one), made_of(other)
    taken, left = fitting(known, said, most)
    after = known.joined(taken)
    assert len(after.ranges) <= max(most, len(known.ranges))
    assert after.stable >= said.stable
    assert (left == 0) is (after == known.joined(said))


def test_members_that_wait_for_each_other_at_the_limit_go_on() -> None:
    """Two members with every second record each: whoever has the stable offset is never refused."""
    known, odd, even = Done(0), made_of(set(range(1, 60, 2))), made_of(set(range(0, 60, 2)))
    for _ in range(60):
        for said in (odd, even):
            known = known.joined(fitting(known, said, 3).done)
    assert known == done(60)


def test_a_place_of_which_nothing_stands_in_the_log_takes_no_memory() -> None:
    """Groups come and go."""
    found, key = Claims(), PlaceKey("g", UUID(int=1), 0)
    found.apply(key, "s", 0, Start(1, 0, done(5)))
    assert len(found) == 1
    found.apply(key, "s", 1, None)
    found.apply(key, "unknown", 2, None)
    assert len(found) == 0
    assert found.of(key).incarnation == NO_INCARNATION


def test_what_nothing_in_the_log_speaks_of_is_forgotten() -> None:
    """Ranges of ended incarnations would fill the memory."""
    found = place(("s", Start(1, 0, done(0))), ("a", Claim(1, done(5))), ("r", Start(2, 1, done(0))))
    found.apply("s", 3, None)
    found.apply("a", 4, None)
    assert set(found._done) == {2}  # pyright: ignore[reportPrivateUsage] - nothing else shows it
