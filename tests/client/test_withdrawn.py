"""Who has taken back what it got, so that a partition that went back may be read on."""

from uuid import UUID

from kordon.client.owned import Withdrawn
from kordon.proxy.ordering.gate import Gate
from kordon.proxy.ordering.layout import Layout

FIRST = Layout.created("orders", UUID(int=1), 1, 2)
GATE = Gate.of(FIRST.changed(FIRST.next_epoch(2), {0: 100, 1: 0}))
"""Half of the keys of 0 went to 1 at offset 100."""


def test_a_follower_is_missing_until_it_stands_where_it_needs_nothing_that_was_taken_back() -> None:
    """Partition 0 went back to 50. Partition 1 has gone on by its offsets up to 100 if it stands anywhere at all."""
    followers = frozenset({1})
    withdrawn = Withdrawn()
    assert withdrawn.missing(GATE, 0, 50, {1: 7}, followers) == (1,)
    withdrawn.hear(GATE, 0, 50, {1: 7})
    assert withdrawn.missing(GATE, 0, 50, {}, followers) == (1,)
    withdrawn.hear(GATE, 0, 50, {1: -1})
    assert withdrawn.missing(GATE, 0, 50, {1: 7}, followers) == ()


def test_who_needs_no_more_than_what_is_left_has_nothing_to_take_back() -> None:
    """Partition 0 went back, but not below the cut."""
    assert Withdrawn().missing(GATE, 0, 100, {1: 7}, frozenset({1})) == ()
