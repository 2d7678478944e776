"""Ranges of offsets, compared with sets of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kordon.client.cooperative.ranges import Range, between, is_in_order, settled, united

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def offsets(ranges: list[Range]) -> set[int]:
    return {offset for begin, end in ranges for offset in range(begin, end)}


@given(RANGES)
def test_a_union_has_the_same_offsets_in_order(ranges: list[Range]) -> None:
    """Whatever overlaps or touches becomes one range."""
    found = united(ranges)
    assert offsets(found) == offsets(ranges)
    assert is_in_order(found)


@given(st.integers(0, 40), RANGES)
def test_everything_before_the_settled_offset_is_finished(stable: int, ranges: list[Range]) -> None:
    """It is the lowest offset that is not finished, and no finished one is forgotten."""
    at, rest = settled(stable, ranges)
    finished = set(range(stable)) | offsets(ranges)
    assert at == next(each for each in range(100) if each not in finished)
    assert offsets(rest) == {each for each in finished if each > at}
    assert is_in_order(rest)


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(0, 10))
def test_between_gaps_all_is_finished(gaps: set[int], more: int) -> None:
    """From the first gap to the end each offset is a gap or in a range."""
    end = max(gaps) + 1 + more
    found = list(between(sorted(gaps), end))
    assert offsets(found) == set(range(min(gaps), end)) - gaps
    assert is_in_order(found)


def test_without_gaps_there_is_nothing_between() -> None:
    """All is before the end, which is the stable offset then."""
    assert list(between([], 7)) == []


def test_ranges_that_touch_or_are_empty_are_not_in_order() -> None:
    """Nobody of us writes such."""
    assert is_in_order([(1, 2), (3, 4)])
    assert not is_in_order([(1, 2), (2, 4)])
    assert not is_in_order([(3, 4), (1, 2)])
    assert not is_in_order([(1, 1)])
