"""Whose a batch is in the log of a physical partition, by the producer id under which it stands there (ORIGIN-TAG)."""

from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import Hidden, Resident, tenancies
from kordon.testing.layout_histories import histories


@given(histories(), st.data())
def test_a_batch_is_its_writers_where_that_one_lived_and_else_nobodys(layout: Layout, data: st.DataObject) -> None:
    """Also where its neighbours lived at that offset, after as many moves (STRAY-HIDDEN)."""
    for q, tenancy in tenancies(layout).items():
        v = data.draw(st.integers(0, layout.v_count - 1))
        offset = data.draw(st.integers(0, 1_000))
        stays = [stay for stay in layout.chains[v].stays if stay.partition == q and stay.tagged]
        moves = {stay.move for _, line in tenancy.lines for stay in line if stay.tagged}
        for move in moves:
            here = [stay for stay in stays if stay.move == move and stay.holds(offset)]
            found = tenancy.owner(tag(v, move, 3), offset, is_control=False)
            if not any(past.stay.holds(offset) for past in tenancy.untagged):
                assert found == (Resident(v, here[0]) if here else Hidden.STRAY)
