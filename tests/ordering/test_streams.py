"""Streams: virtual partitions, and physical ones as clients of the dialect see them."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.hashing import LARGEST_VIRTUAL_PARTITIONS
from kordon.proxy.ordering.identity import LARGEST_CLIENT_ID, NO_V, Identity, owner_of, tag, untag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.streams import is_physical, physical_stream, shown_partition

CREATED = Layout.created("orders", UUID(int=7), 3, 12)
GROWN = CREATED.changed(CREATED.next_epoch(4), {0: 120, 3: 0})
SHRUNK = GROWN.changed(GROWN.next_epoch(3), {0: 300, 3: 95})
AGAIN = SHRUNK.changed(SHRUNK.next_epoch(4), {0: 310, 3: 95})


def test_a_virtual_partition_is_a_stream_of_its_own_number() -> None:
    """What is known of chains of virtual partitions holds for their streams."""
    assert [AGAIN.chain(v) for v in range(12)] == list(AGAIN.chains)
    assert not any(is_physical(v) for v in range(12))


def test_a_physical_partition_has_a_stay_for_each_segment_with_the_layout_epoch_as_its_move() -> None:
    """Its offsets are the log's, through all changes; one that nothing happened to has one stay."""
    assert AGAIN.chain(physical_stream(0)).stays == (
        Stay(0, 0, 0, 120, 0),
        Stay(0, 1, 120, 300, 0),
        Stay(0, 2, 300, 310, 0),
        Stay(0, 3, 310, None, 0),
    )
    assert AGAIN.chain(physical_stream(1)).stays == (Stay(1, 0, 0, None, 0),)


def test_a_retired_partition_keeps_its_stays_and_gets_another_when_it_is_used_again() -> None:
    """Its last stay has an end while it is retired."""
    assert SHRUNK.chain(physical_stream(3)).stays == (Stay(3, 1, 0, 95, 0),)
    assert AGAIN.chain(physical_stream(3)).stays == (Stay(3, 1, 0, 95, 0), Stay(3, 3, 95, None, 0))


def test_strays_between_two_segments_are_passed_over() -> None:
    """Partition 3 was retired at 95 and is used again from 98 on: what landed in between is nobody's."""
    again = SHRUNK.changed(SHRUNK.next_epoch(4), {0: 310, 3: 98})
    stays = again.chain(physical_stream(3)).stays
    assert stays == (Stay(3, 1, 0, 98, 0, lost_from=95), Stay(3, 3, 98, None, 0))
    assert [stays[0].holds(offset) for offset in (94, 95, 97)] == [True, False, False]


def test_a_log_that_got_shorter_goes_on_where_it_was_cut() -> None:
    """BEYOND-LOSS: 0 was cut at 200, its new leader has 100; what is written then stands at 100, whatever was told."""
    created = Layout.created("orders", UUID(int=7), 1, 2)
    grown = created.changed(created.next_epoch(2), {0: 200, 1: 0})
    mended = grown.changed(grown.next_epoch(2, shortened={0: 100}), {0: 100}, told={0: 250})
    assert mended.chain(physical_stream(0)).stays == (
        Stay(0, 0, 0, 100, 0),
        Stay(0, 1, 100, 100, 0),
        Stay(0, 2, 100, None, 0),
    )


def test_a_physical_partition_that_there_has_never_been_has_no_stay() -> None:
    """A client may ask for any number."""
    assert CREATED.chain(physical_stream(3)).stays == ()


def test_batches_from_before_a_takeover_carry_no_identity_in_a_physical_partition_either() -> None:
    """PAST-STAYS: the log of a topic that had data goes on as it is."""
    unmanaged = Layout.unmanaged("orders", UUID(int=7), 3, 12)
    taken = unmanaged.changed(unmanaged.next_epoch(3, Placement.OWN), {0: 10, 1: 20, 2: 30})
    assert taken.chain(physical_stream(1)).stays == (
        Stay(1, 0, 0, 20, 0, tagged=False),
        Stay(1, 1, 20, None, 0),
    )


@given(st.integers(0, LARGEST_VIRTUAL_PARTITIONS - 1), st.integers(0, 1000), st.integers(0, LARGEST_CLIENT_ID))
def test_identities_tell_physical_streams_from_all_virtual_partitions(q: int, epoch: int, client_id: int) -> None:
    """ORIGIN-TAG: nothing that was written to a physical partition as such is taken for a virtual one's."""
    stream = physical_stream(q)
    assert shown_partition(stream) == q
    identity = untag(tag(stream, epoch, client_id))
    assert identity is not None
    assert identity == Identity(NO_V, epoch % 256, client_id)
    assert identity.is_physical
    assert identity.owner == owner_of(stream, epoch)
    assert identity.owner != owner_of(stream, epoch + 1)
    assert identity.owner not in {owner_of(v, epoch) for v in (0, q, LARGEST_VIRTUAL_PARTITIONS - 1)}


def test_no_virtual_partition_is_taken_for_none() -> None:
    """The largest V there can be leaves one number free, and an id that brokers can store."""
    assert LARGEST_VIRTUAL_PARTITIONS - 1 < NO_V
    assert 0 < tag(physical_stream(0), 255, LARGEST_CLIENT_ID) < 1 << 63
