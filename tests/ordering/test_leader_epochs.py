"""KIP-253's leader epochs of partitions that come and go, by what the layout says."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.leader_epochs import NO_EPOCH, LeaderEpochs, leader_epochs
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.segments import SegmentId

N, V = 2, 16
LARGEST_ELECTION = 32_767
COUNTS = st.lists(st.integers(N, 8), max_size=8)


def resized(counts: list[int]) -> Layout:
    """A topic through all these counts; each sealed partition is cut ten records on."""
    layout = Layout.created("orders", UUID(int=1), N, V)
    for u in counts:
        if u != layout.u:
            following = layout.next_epoch(u)
            cuts = dict.fromkeys(layout.change_to(following).touched, 10 * following.number)
            layout = layout.changed(following, cuts)
    return layout


@pytest.mark.parametrize(
    ("counts", "partition", "expected"),
    [
        ([], 0, LeaderEpochs()),
        ([3], 2, LeaderEpochs((1 << 15) - 1)),
        ([3, 4], 2, LeaderEpochs((1 << 15) - 1)),
        ([3, 2], 2, LeaderEpochs((1 << 15) - 1, (2 << 15) - 1)),
        ([3, 2, 4], 2, LeaderEpochs((3 << 15) - 1)),
        ([3, 2, 4, 2], 3, LeaderEpochs((3 << 15) - 1, (4 << 15) - 1)),
        ([3, 2], 0, LeaderEpochs()),
        ([3], 7, LeaderEpochs()),
    ],
)
def test_epochs_are_of_a_partitions_present_life(counts: list[int], partition: int, expected: LeaderEpochs) -> None:
    """There from the start, added, retired, added again, never there."""
    assert leader_epochs(resized(counts), partition) == expected


@given(COUNTS)
def test_the_epoch_after_creation_finds_where_the_keys_were_before(counts: list[int]) -> None:
    """OffsetForLeaderEpoch of the parent for it: the largest epoch up to it ends at the cut, at whatever election."""
    layout = resized(counts)
    by_id = {segment.id: segment for segment in layout.segments}
    for q in range(N, layout.u):
        asked = leader_epochs(layout, q).after_creation
        first = by_id[SegmentId(q, (asked + 1) >> 15)]
        (parent,) = {each.partition for each in first.predecessors}
        before = [
            segment
            for segment in layout.segments
            if segment.id.partition == parent and virtual_epoch(segment.id.epoch, LARGEST_ELECTION) <= asked
        ]
        last = max(before, key=lambda segment: segment.id.epoch)
        assert last.id in first.predecessors
        assert last.end == 10 * first.id.epoch


@given(COUNTS)
def test_the_epoch_before_deletion_finds_what_must_be_read_first(counts: list[int]) -> None:
    """All that a partition took over from a retired one stands behind that epoch."""
    layout = resized(counts)
    for q in {segment.id.partition for segment in layout.segments}:
        deleted = leader_epochs(layout, q).before_deletion
        assert (deleted == NO_EPOCH) == (q < layout.u)
        if deleted == NO_EPOCH:
            continue
        last = max((each.id for each in layout.segments if each.id.partition == q), key=lambda each: each.epoch)
        heirs = [segment for segment in layout.segments if last in segment.predecessors]
        assert heirs
        assert all(virtual_epoch(segment.id.epoch, 0) > deleted for segment in heirs)
        assert virtual_epoch(last.epoch, LARGEST_ELECTION) <= deleted


def test_a_topic_that_was_taken_over_was_there_from_the_start() -> None:
    """What a takeover changes is where virtual partitions live, not which physical ones there are."""
    before = Layout.unmanaged("orders", UUID(int=1), N, V)
    own = before.changed(before.next_epoch(N, Placement.OWN), {0: 5, 1: 5})
    assert [leader_epochs(own, q) for q in range(N)] == [LeaderEpochs(), LeaderEpochs()]
