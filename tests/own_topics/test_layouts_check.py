"""Which batches show that a backup is older than the data."""

from uuid import UUID

import pytest

from kordon.proxy.ordering.identity import JANITOR, tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.reading import tenancies
from kordon.proxy.ordering.streams import physical_stream

CLIENT = 4711
CREATED = Layout.created("orders", UUID(int=1), 3, 12)
GROWN = CREATED.changed(CREATED.next_epoch(6), {0: 7, 1: 8, 2: 9, 3: 0, 4: 0, 5: 0})
SHRUNK = GROWN.changed(GROWN.next_epoch(3), dict.fromkeys(range(6), 20))
UNMANAGED = Layout.unmanaged("orders", UUID(int=1), 3, 12)
TAKEN = UNMANAGED.changed(UNMANAGED.next_epoch(3, Placement.LINEAR), dict.fromkeys(range(3), 100))


def writer(layout: Layout, v: int) -> int:
    """Under which producer id a virtual partition is written by a layout."""
    home = layout.chains[v].home
    assert home is not None
    return tag(v, home.move, CLIENT)


@pytest.mark.parametrize("later", [GROWN, SHRUNK])
def test_a_virtual_partition_that_has_moved_since_is_not_known(later: Layout) -> None:
    """Wherever it went, there and back again too; those that have not moved show nothing."""
    before, here = tenancies(CREATED), 0
    for v in range(CREATED.v_count):
        home = later.chains[v].home
        assert home is not None
        moved = len(later.chains[v].stays) > 1
        here += moved
        known = home.partition in before and before[home.partition].knows(writer(later, v), 10**6)
        assert known is not moved
    assert here == 6


def test_what_a_layout_and_those_before_it_have_written_is_known() -> None:
    """Strays behind a cut, too: their writers had lived there."""
    now = tenancies(SHRUNK)
    for layout in (CREATED, GROWN, SHRUNK):
        for v, chain in enumerate(layout.chains):
            assert chain.home is not None
            assert now[chain.home.partition].knows(writer(layout, v), 10**6)


@pytest.mark.parametrize("producer_id", [-1, CLIENT, tag(JANITOR, 3, CLIENT)])
def test_who_goes_round_kordon_and_a_janitor_show_nothing(producer_id: int) -> None:
    """Neither names a virtual partition."""
    assert tenancies(CREATED)[0].knows(producer_id, 5)


def test_a_client_of_the_dialect_shows_the_layout_epoch() -> None:
    """It has written by a segment that a layout has, or has not."""
    assert tenancies(GROWN)[0].knows(tag(physical_stream(0), 1, CLIENT), 50)
    assert not tenancies(CREATED)[0].knows(tag(physical_stream(0), 1, CLIENT), 50)


def test_what_stands_before_a_takeover_shows_nothing() -> None:
    """The topic may have been managed, let go, and managed again."""
    tenancy, before = tenancies(TAKEN)[0], tag(0, 77, CLIENT)
    assert tenancy.knows(before, 99)
    assert not tenancy.knows(before, 100)
