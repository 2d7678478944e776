"""AddPartitionsToTxn while homes change: both homes are meant, and no answer rests on an outdated plan."""

import pytest

from kordon.proxy.ordering.transactions.adds import Announcement, Course, Plan, course, plan

HOMES = {0: 0, 1: 1, 2: 2, 3: 0}
ANNOUNCED = Announcement(4, {3: 3, 1: 2})
PLAN = Plan(frozenset({0, 3}), 7, ANNOUNCED)


@pytest.mark.parametrize(
    ("vs", "announcement", "wanted"),
    [
        ([3], Announcement(3), {0}),
        ([3], ANNOUNCED, {0, 3}),
        ([0], ANNOUNCED, {0}),
        ([0, 1, 3], ANNOUNCED, {0, 1, 2, 3}),
        ([], ANNOUNCED, set[int]()),
    ],
    ids=["nothing is announced", "it is about to move", "others are about to move", "several", "none"],
)
def test_an_add_means_the_present_home_and_the_coming_one(
    vs: list[int], announcement: Announcement, wanted: set[int]
) -> None:
    """Whichever the data go to, a witness stands there."""
    assert plan(vs, HOMES, 7, announcement) == Plan(frozenset(wanted), 7, announcement)


@pytest.mark.parametrize(
    ("layout_epoch", "announcement", "has_lease", "wanted"),
    [
        (7, Announcement(4, {3: 3, 1: 2}), True, Course.GO_ON),
        (7, Announcement(5), True, Course.AGAIN),
        (7, Announcement(4, {3: 5, 1: 2}), True, Course.AGAIN),
        (8, ANNOUNCED, True, Course.AGAIN),
        (8, Announcement(5), True, Course.AGAIN),
        (7, ANNOUNCED, False, Course.LATER),
    ],
    ids=[
        "nothing has changed, and the record was read once more",
        "a change was announced, or withdrawn, while it was under way",
        "another change has the number of a former one",
        "the worker slept, and woke to another layout",
        "a change has come and gone",
        "the worker has no lease: it cannot know",
    ],
)
def test_an_add_is_answered_under_the_plan_that_it_was_made_by(
    layout_epoch: int, announcement: Announcement, has_lease: bool, wanted: Course
) -> None:
    """Else its client writes to a home without a witness."""
    assert course(PLAN, layout_epoch, announcement, has_lease=has_lease) is wanted


def test_a_fence_waits_where_something_leaves() -> None:
    """What stays where it is has its witnesses there; a fence that moves nothing waits for nobody."""
    assert ANNOUNCED.left(HOMES) == {0, 1}
    assert Announcement(4, {0: 0}).left(HOMES) == frozenset()
    assert Announcement(4).left(HOMES) == frozenset()
