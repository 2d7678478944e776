"""What of a physical partition may be deleted: nothing that a virtual partition still needs (DeleteRecords)."""

from uuid import UUID

from kordon.proxy.ordering.floors import needed_from, with_floors
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import physical_stream

LAYOUT = Layout.created("orders", UUID(int=1), 1, 2)


def test_a_physical_partition_is_needed_from_the_lowest_floor_of_those_that_live_there() -> None:
    """One that has no floor needs all."""
    assert needed_from(LAYOUT, 0) == 0
    assert needed_from(with_floors(LAYOUT, {0: 7}), 0) == 0
    assert needed_from(with_floors(LAYOUT, {0: 7, 1: 5}), 0) == 5


def test_a_floor_of_a_physical_partition_as_such_is_nobody_elses() -> None:
    """The dialect's clients have floors of their own, under numbers below 0."""
    floors = {0: 7, 1: 5, physical_stream(0): 3}
    assert needed_from(with_floors(LAYOUT, floors), 0) == 5


def test_where_nobody_has_lived_nothing_is_needed() -> None:
    assert needed_from(LAYOUT, 3) == 0
