"""One virtual partition over the places where it has lived, and whose the records are that name nobody."""

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.reading import share_out

BEFORE, EMPTY = Stay(0, 0, 0, 100, 0), Stay(1, 1, 7, 7, 93)
HOME = Stay(3, 2, 40, None, 60)
CHAIN = Chain((BEFORE, EMPTY, HOME))
"""It has lived on 0 up to 100, was on 1 for a moment, and lives on 3, where 40 is the first offset of its own."""


def test_offsets_go_on_from_home_to_home() -> None:
    """OFFSET-CHAIN: where one ends the next begins, whatever they are called in the log."""
    assert [stay.virtual_start for stay in CHAIN.stays] == [0, 100, 100]
    assert [stay.virtual_end for stay in CHAIN.stays] == [100, 100, None]


def test_an_offset_is_read_where_it_was_written() -> None:
    """KEY-ORDER: all of a former home comes before what stands in the next; nothing is read where nothing stands."""
    assert [CHAIN.stay_of(offset) for offset in (-1, 0, 99, 100, 5_000)] == [None, BEFORE, BEFORE, HOME, HOME]


def test_records_of_nobody_go_to_who_lives_there() -> None:
    """BYPASS-SHARED: to the virtual partition of their key if it is one, else to one that the key alone decides."""
    given = share_out([4, 16, 9, 10, 11, 9], residents={4, 5, 9}, v_count=12)
    assert given[:3] == [4, 4, 9]
    assert given[5] == given[2]
    assert set(given) <= {4, 5, 9}
