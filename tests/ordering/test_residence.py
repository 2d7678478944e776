"""Where streams live and have lived, from epochs and segments alone."""

from kordon.proxy.ordering.placements import Epoch, Placement, Placements
from kordon.proxy.ordering.residence import Residence
from kordon.proxy.ordering.segments import Segment, SegmentId
from kordon.proxy.ordering.streams import physical_stream

FIRST = (Segment(SegmentId(0, 0), 0), Segment(SegmentId(1, 0), 0))


def test_who_has_always_lived_together_shares_one_chain() -> None:
    """A topic has many virtual partitions, and few ways on which they have come."""
    residence = Residence(Placements(2, 1_024), (Epoch(0, 2),), FIRST)
    assert len({id(chain) for chain in residence.chains}) == 2
    assert residence.homes.count(0) == len(residence.residents(0)) == 512


def test_a_topic_is_plain_until_a_virtual_partition_lives_elsewhere_than_at_its_number() -> None:
    """A plain topic can be let go: its partitions are to any client what its virtual partitions were."""
    epochs = (Epoch(0, 2, Placement.UNMANAGED),)
    assert Residence(Placements(2, 8), epochs, FIRST).is_plain
    assert not Residence(Placements(2, 8), (Epoch(0, 2),), FIRST).is_plain


def test_physical_partitions_are_streams_beside_the_virtual_ones() -> None:
    """Clients of the dialect write and read them as they are, segment by segment."""
    ended = Segment(SegmentId(1, 0), 0, 10)
    segments = (FIRST[0], ended, Segment(SegmentId(1, 1), 10))
    residence = Residence(Placements(2, 4), (Epoch(0, 2), Epoch(1, 2, renewed=(1,))), segments)
    assert sorted(residence.streams) == [physical_stream(1), physical_stream(0), 0, 1, 2, 3]
    assert [(stay.start, stay.end) for stay in residence.physical_chains[1].stays] == [(0, 10), (10, None)]
    assert {q: residence.physical_chain(q) for q in range(3)} == {**residence.physical_chains, 2: None}
