"""A takeover in which nothing waits: what is written to v >= N is delivered as v mod N (TAKEOVER-SHARES)."""

from uuid import uuid4

from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.reading import Hidden, Resident, tenancies

N, V = 3, 12
TAKEN, CUT = 100, 200
CLIENT = 7


def taken_over(*, cut: bool) -> Layout:
    """A topic with 100 records in each partition, that goes on to 200, where it may have been cut."""
    layout = Layout.unmanaged("orders", uuid4(), N, V)
    shared = layout.next_epoch(N, Placement.SHARED)
    layout = layout.changed(shared, dict.fromkeys(range(N), TAKEN), withheld=True)
    if cut:
        layout = layout.changed(layout.next_epoch(N), dict.fromkeys(range(N), CUT))
    return layout


def owner(layout: Layout, q: int, v: int, offset: int, move: int = 0) -> int | Hidden:
    found = tenancies(layout)[q].owner(tag(v, move, CLIENT), offset, is_control=False)
    return found.v if isinstance(found, Resident) else found


def test_all_virtual_partitions_of_one_old_partition_live_on_it() -> None:
    """So a key's records stand in one log, whichever number of partitions its producer knows."""
    assert taken_over(cut=False).homes == tuple(v % N for v in range(V))


def test_what_is_written_to_new_ones_is_delivered_as_the_old_one() -> None:
    """With the offsets of the old one, up to the cut; what lands in another partition is nobody's."""
    for layout, end in ((taken_over(cut=False), None), (taken_over(cut=True), CUT)):
        for v in range(V):
            assert owner(layout, v % N, v, TAKEN + 50) == v % N
            assert owner(layout, (v + 1) % N, v, TAKEN + 50) is Hidden.STRAY
        found = tenancies(layout)[1].owner(tag(7, 0, CLIENT), TAKEN + 50, is_control=False)
        assert isinstance(found, Resident)
        # ends at the cut: whoever remembers it does not go by it behind that
        assert (found.stay.partition, found.stay.start, found.stay.end, found.stay.delta) == (1, TAKEN, end, 0)


def test_behind_the_cut_each_is_its_own_again() -> None:
    """Those whose home stays the same keep their identity; what others left lands behind their cut."""
    layout = taken_over(cut=True)
    assert layout.homes == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)
    assert owner(layout, 0, 3, CUT + 1) == 3
    assert owner(layout, 1, 7, CUT + 1) == 7
    assert owner(layout, 1, 10, CUT + 1) is Hidden.STRAY
    assert owner(layout, 2, 10, CUT + 1, move=1) == 10


def test_offsets_of_new_ones_rise_over_the_cut() -> None:
    """Producers are told such while nothing is delivered there, and readers that begin at 0 find all behind the cut."""
    chain = taken_over(cut=True).chain(10)
    assert [stay.virtual_start for stay in chain.stays] == [0, CUT - TAKEN]
    assert chain.stays[0].partition == 1


def test_records_of_writers_that_went_round_are_the_old_ones() -> None:
    """As before the takeover: whoever writes to partition 1 writes to virtual partition 1."""
    tenancy = tenancies(taken_over(cut=True))[1]
    assert list(tenancy.at(TAKEN + 1)) == [1]
    assert list(tenancy.at(CUT + 1)) == [4, 5, 6, 7]


def test_log_that_gets_shorter_meanwhile_goes_on_being_shared() -> None:
    """Behind what was lost all is delivered as the old one, too (BEYOND-LOSS)."""
    layout = taken_over(cut=False)
    following = layout.next_epoch(N, Placement.SHARED, {1: TAKEN + 40})
    layout = layout.changed(following, {0: 150, 1: TAKEN + 40, 2: 150}, withheld=True, told={1: TAKEN + 60})
    assert owner(layout, 1, 7, TAKEN + 20) == 1
    assert owner(layout, 1, 7, TAKEN + 80, move=layout.chain(7).stays[-1].move) == 1


def test_what_comes_late_below_a_log_s_loss_is_not_the_old_one_s() -> None:
    """Behind the cut 3 lives on partition 0; the log loses its end, and a batch of 3 lands in the shared stretch."""
    layout = Layout.unmanaged("orders", uuid4(), 2, 8)
    layout = layout.changed(layout.next_epoch(2, Placement.SHARED), {0: TAKEN, 1: TAKEN}, withheld=True)
    layout = layout.changed(layout.next_epoch(2), {0: CUT, 1: CUT})
    assert layout.homes[3] == 0
    assert owner(layout, 0, 3, TAKEN + 10, move=1) is Hidden.STRAY
