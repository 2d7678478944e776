"""Sets of offsets are what sets of numbers are, and travel as one form that is checked before it is believed."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.ranges import MOST_BYTES, MOST_OFFSET, MOST_RANGES, NONE, Range, Ranges, load, load_stored

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)
FAR = st.lists(st.tuples(st.integers(0, MOST_OFFSET), st.integers(0, MOST_OFFSET)), max_size=12)


def numbers(ranges: list[Range]) -> set[int]:
    return {each for begin, end in ranges for each in range(begin, end)}


@given(RANGES)
def test_a_set_has_its_offsets_in_ranges_that_do_not_touch(ranges: list[Range]) -> None:
    """Whatever the order in which they come."""
    found = list(Ranges(ranges))
    assert numbers(found) == numbers(ranges)
    assert all(begin < end for begin, end in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert {each for each in range(61) if each in Ranges(ranges)} == numbers(ranges)


@given(RANGES, RANGES)
def test_sets_are_joined_and_taken_from_each_other(one: list[Range], other: list[Range]) -> None:
    """And none of them changes by that."""
    first, second = Ranges(one), Ranges(other)
    assert first.joined(second) == Ranges(numbers_as_ranges(numbers(one) | numbers(other)))
    assert first.without(second) == Ranges(numbers_as_ranges(numbers(one) - numbers(other)))
    assert (first, second) == (Ranges(one), Ranges(other))


@given(RANGES, st.integers(0, 60))
def test_a_set_is_cut_at_an_offset(ranges: list[Range], offset: int) -> None:
    """Below it; and above it, where what touches it raises it."""
    done = numbers(ranges) | set(range(offset))
    stable, rest = Ranges(ranges).above(offset)
    assert stable == next(each for each in range(62) if each not in done)
    assert rest == Ranges(numbers_as_ranges({each for each in done if each > stable}))
    assert Ranges(ranges).below(offset) == Ranges(
        numbers_as_ranges({each for each in numbers(ranges) if each < offset})
    )


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(0, 10))
def test_between_gaps_are_all_other_offsets(gaps: set[int], more: int) -> None:
    """From the first gap to the end."""
    end = max(gaps) + 1 + more
    found = Ranges.between(sorted(gaps), end)
    assert found == Ranges(numbers_as_ranges(set(range(min(gaps), end)) - gaps))
    assert load(found.dump()) == found


def test_without_gaps_there_is_nothing_between() -> None:
    """All is before the end, which is the stable offset then."""
    assert Ranges.between([], 7) == NONE


@given(RANGES, st.integers(0, 12))
def test_the_lowest_ranges_are_taken_first(ranges: list[Range], count: int) -> None:
    """Where there is no room for all of them."""
    assert list(Ranges(ranges).first(count)) == list(Ranges(ranges))[:count]


def numbers_as_ranges(of: set[int]) -> list[Range]:
    return [(each, each + 1) for each in of]


@given(FAR)
def test_a_set_travels(ranges: list[Range]) -> None:
    """And comes as it was."""
    sent = Ranges(ranges)
    assert load(sent.dump()) == sent
    assert load(memoryview(sent.dump())) == sent


@given(st.binary(max_size=60))
def test_bytes_are_a_set_in_its_one_form_or_refused(data: bytes) -> None:
    """Nothing else comes of them."""
    try:
        found = load(data)
    except ValueError:
        return
    assert found.dump() == data


def test_a_set_looks_as_the_module_says() -> None:
    """Other clients write it, too: [41, 43), [46, 48), [300, 301)."""
    assert Ranges([(41, 43), (46, 48), (300, 301)]).dump().hex() == "03290203 02fc0101".replace(" ", "")
    assert NONE.dump() == b"\0"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not end"),
        (b"\x01\x05", "too few"),
        (b"\x01\x05\x00", "empty"),
        (b"\x02\x05\x01\x00\x01", "touches"),
        (b"\x01\x05\x01\x00", "follow"),
        (b"\x01\x85\x00\x01", "longer than it need be"),
        (b"\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x01", "does not end"),
        (b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01", "behind the last offset"),
        (b"\x91\x4e" + b"\x01\x01" * 10_001, "more than 10000"),
        (b"\xff\xff\xff\x7f\x01\x01", "more than 10000"),
        (b"\x01\x01\x01" + bytes(MOST_BYTES), "more than 10000 ranges take"),
    ],
)
def test_what_is_no_set_is_refused(data: bytes, why: str) -> None:
    """With the reason, and before more is read than it may have."""
    with pytest.raises(ValueError, match=why):
        load(data)


def test_as_many_ranges_as_one_may_say_are_read() -> None:
    """And twice as many of the log, where what several say at once comes together."""
    most = Ranges((2 * each, 2 * each + 1) for each in range(MOST_RANGES))
    twice = Ranges((2 * each, 2 * each + 1) for each in range(2 * MOST_RANGES))
    assert load(most.dump()) == most
    assert load_stored(twice.dump()) == twice
    with pytest.raises(ValueError, match="20000 ranges are more"):
        load(twice.dump())


def test_ten_thousand_ranges_take_twenty_kilobytes() -> None:
    """That is what `docs/why/cooperative.md` says of a commit, of a record and of the memory."""
    ranges = Ranges((begin, begin + 1 + begin // 40 % 30) for begin in range(0, 40 * MOST_RANGES, 40))
    assert len(ranges) == MOST_RANGES
    assert len(ranges.dump()) < 20_100
    assert sum(sys.getsizeof(each) for each in (ranges._begins, ranges._ends)) < 200_000  # pyright: ignore[reportPrivateUsage] - nothing else has its memory
