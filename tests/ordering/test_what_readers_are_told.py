"""Where a reader is told that its partition ends, and when an answer moves it over what is not its own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.reading import end_told, may_step_over, past_loss, reading_place
from kordon.testing.known import known

HOME = Stay(partition=1, move=1, start=100, end=None, delta=-60)
FORMER = Stay(partition=0, move=0, start=0, end=40, delta=0)
WHERE_IT_LIVES = {"has_batches": False, "has_holes": False, "is_sealed": False, "is_late": False}


def test_who_has_read_all_is_told_its_own_position() -> None:
    """Its lag is 0, though others' records stand behind; a fence that hides these changes nothing (OWN-END)."""
    assert end_told(HOME, 110, None, position=110, after=47) == 47
    assert end_told(HOME, 110, 105, position=105, after=47) == 47


def test_others_are_told_the_high_watermark_of_the_home_up_to_what_is_shown_there() -> None:
    """Also those who read an earlier stay; one that knows less than the stay's beginning is not believed."""
    assert end_told(HOME, 110, None, position=104, after=44) == 50
    assert end_told(HOME, 110, 105, position=104, after=44) == 45
    assert end_told(HOME, 110, None, position=None, after=20) == 50
    assert end_told(HOME, 90, None, position=None, after=20) == 40
    assert end_told(FORMER, 50, None, position=None, after=20) == 40


@given(st.integers(90, 130), st.none() | st.integers(0, 130), st.none() | st.integers(100, 130), st.integers(0, 70))
def test_no_reader_is_told_an_end_before_the_place_where_it_stands(
    mark: int, limit: int | None, position: int | None, after: int
) -> None:
    """To its client that would be lost data."""
    assert end_told(HOME, mark, limit, position=position, after=after) >= after


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        ({}, False),
        ({"is_late": True}, True),
        ({"has_batches": True}, True),
        ({"has_holes": True}, True),
        ({"is_late": True, "is_sealed": True}, False),
        ({"has_holes": True, "is_sealed": True}, False),
    ],
)
def test_a_reader_at_home_steps_over_what_it_has_waited_for_in_vain(case: dict[str, bool], steps: bool) -> None:
    """Or with batches up to the end of the log; never while a fence stands: what is there may be its own."""
    assert may_step_over(HOME, 110, 110, **(WHERE_IT_LIVES | case)) is steps


def test_batches_that_leave_something_to_read_take_their_reader_over_nothing() -> None:
    """The next ones move it on; so do those of a log whose end is not known."""
    batches = WHERE_IT_LIVES | {"has_batches": True, "is_late": True}
    assert not may_step_over(HOME, 104, 110, **batches)
    assert not may_step_over(HOME, 110, None, **batches)
    assert not may_step_over(FORMER, 20, 50, **batches)


def test_the_end_of_a_stay_that_is_over_is_stepped_over_at_once() -> None:
    """A fence of its partition is of no account: nothing of the reader's comes there any more."""
    assert may_step_over(FORMER, 40, None, **(WHERE_IT_LIVES | {"is_sealed": True}))


def test_only_what_is_retired_is_read_out() -> None:
    """Where a stay ends the next one begins."""
    moved, retired = Chain((FORMER, HOME)), Chain((FORMER,))
    read_out = {
        offset: [known(reading_place(chain, offset, 0)).is_read_out for chain in (moved, retired)]
        for offset in (0, 39, 40, 50)
    }
    assert read_out == {0: [False] * 2, 39: [False] * 2, 40: [False, True], 50: [False, True]}


def test_what_a_log_has_lost_is_passed_at_the_end_of_a_stay() -> None:
    """Nothing comes there any more; whoever stood still before it would wait for ever (BEYOND-LOSS)."""
    short = replace(FORMER, lost_from=30)
    assert [past_loss(short, position) for position in (29, 30, 39, 40)] == [29, 40, 40, 40]
    assert past_loss(FORMER, 30) == 30
    assert past_loss(HOME, 110) == 110
