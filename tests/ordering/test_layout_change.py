"""A change of a layout by itself: who is sealed, what is opened and who moves, from epochs and segments alone."""

import pytest

from kordon.proxy.ordering.layout_change import LayoutChange
from kordon.proxy.ordering.placements import Epoch, Placement, Placements
from kordon.proxy.ordering.residence import Residence
from kordon.proxy.ordering.segments import Segment, SegmentId

EPOCHS = (Epoch(0, 2),)
SEGMENTS = (Segment(SegmentId(0, 0), 0), Segment(SegmentId(1, 0), 0))
BEFORE = Residence(Placements(2, 8), EPOCHS, SEGMENTS)


def change_to(following: Epoch) -> LayoutChange:
    return LayoutChange(BEFORE, EPOCHS, SEGMENTS, following)


def test_a_partition_that_splits_is_sealed_and_opened_again_beside_its_child() -> None:
    """The other partition keeps its segment, and its residents write on as they are."""
    change = change_to(Epoch(1, 3))
    assert change.sealed == {0}
    assert change.opened == change.touched == {0, 2}
    after = Residence(Placements(2, 8), (*EPOCHS, Epoch(1, 3)), change.made({0: 10, 2: 0}, {}, {}))
    assert change.movers == after.residents(2)
    assert set(after.residents(0)) | set(after.residents(2)) == set(BEFORE.residents(0))
    assert after.residents(1) == BEFORE.residents(1)


def test_segments_end_at_the_cuts_and_name_those_before_them() -> None:
    """Whoever reads a child finds where its records were written before."""
    parent, kept, *opened = change_to(Epoch(1, 3)).made({0: 10, 2: 0}, {0: 7}, {})
    assert (parent.end, parent.bound_epoch, kept) == (10, 7, SEGMENTS[1])
    assert [(each.id, each.start, each.predecessors) for each in opened] == [
        (SegmentId(0, 1), 10, (SegmentId(0, 0),)),
        (SegmentId(2, 1), 0, (SegmentId(0, 0),)),
    ]


def test_a_change_without_a_cut_of_each_touched_partition_is_not_made() -> None:
    """No segment ends or begins anywhere but where a leader's log has been looked at."""
    with pytest.raises(KeyError):
        change_to(Epoch(1, 3)).made({0: 10}, {}, {})


def test_a_partition_that_is_renewed_keeps_its_residents_who_move_all_the_same() -> None:
    """They write under another identity from then on, as values stand first that brokers would have taken away."""
    change = change_to(Epoch(1, 2, renewed=(1,)))
    assert change.sealed == change.opened == {1}
    assert change.movers == BEFORE.residents(1)


def test_where_the_placement_changes_all_are_sealed() -> None:
    """Partitions are chosen in another way from then on, whoever lives on them."""
    assert change_to(Epoch(1, 2, Placement.OWN)).sealed == {0, 1}
