"""Whose a batch is in the log of a physical partition, by the producer id under which it stands there (ORIGIN-TAG)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Epoch
from kordon.proxy.ordering.reading import Hidden, Resident, tenancies
from kordon.testing.layout_histories import histories


class Counted(tuple[Epoch, ...]):
    """The epochs of a layout; counts how often somebody goes through them."""

    __slots__ = ()
    walks: ClassVar[int] = 0

    def __iter__(self) -> Iterator[Epoch]:
        Counted.walks += 1
        return super().__iter__()


def test_a_long_history_is_not_gone_through_for_each_partition() -> None:
    """A thousand epochs of thousands of partitions would hold up all clients of a worker for long."""
    walks: list[int] = []
    for partitions in (2, 16):
        layout = Layout.created("orders", UUID(int=1), partitions, 16)
        layout = replace(layout, epochs=Counted(layout.epochs))
        Counted.walks = 0
        assert len(tenancies(layout)) == partitions
        walks.append(Counted.walks)
    assert walks[0] == walks[1] > 0


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
