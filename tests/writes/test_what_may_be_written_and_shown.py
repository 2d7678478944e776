"""What a worker writes and shows of a topic now: by its lease, the layout and the fence."""

from uuid import UUID

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, Why
from kordon.testing.random_logs import FACE_ID, NAME

LAYOUT = Layout.created(NAME, UUID(int=1), 2, 4)


def managed(layout: Layout = LAYOUT) -> ManagedTopic:
    return ManagedTopic(layout, FACE_ID)


def test_a_stream_is_written_to_at_its_home_under_a_lease_and_outside_of_fences() -> None:
    """Whatever else stands in the way is named, the lease last: the fence goes on when that is there again."""
    topic = managed()
    assert topic.open_home(3, may_serve=True) is LAYOUT.chain(3).home
    assert topic.open_home(3, may_serve=False) is Why.LEASE
    topic.raise_fence(Fence("f", frozenset({1})))
    assert topic.open_home(3, may_serve=True) is Why.FENCE
    assert topic.open_home(3, may_serve=False) is Why.FENCE
    assert topic.open_home(1, may_serve=True) is LAYOUT.chain(1).home
    topic.cancel_fence()
    topic.serve("a record of it cannot be read")
    assert topic.open_home(2, may_serve=True) is Why.FENCE
    before = Layout.unmanaged(NAME, UUID(int=1), 2, 4)
    assert managed(before).open_home(3, may_serve=True) is Why.UNBORN


def test_all_is_shown_under_a_lease_and_outside_of_fences() -> None:
    """Nothing without a lease, or of what cannot be served."""
    topic = managed()
    assert topic.limit(0, may_serve=True) is None
    assert topic.limit(0, may_serve=False) == 0
    topic.serve("a record of it cannot be read")
    assert topic.limit(0, may_serve=True) == 0


def test_a_fence_shows_what_was_shown_then_what_leaders_say_then_what_clients_were_told() -> None:
    """FROZEN-READS: reading goes on until leaders are asked, stops where readers are, goes on to the marks at most."""
    topic = managed()
    topic.raise_fence(Fence("f", frozenset({0, 1})))
    fence = topic.fence
    assert fence is not None
    assert (topic.limit(0, may_serve=True), fence.may_tell_end(0)) == (None, False)
    topic.fence = fence = fence.freezing({0: 7})
    assert [topic.limit(q, may_serve=True) for q in (0, 1)] == [7, 0]
    topic.fence = fence = fence.freezing({0: 5, 1: 3})
    assert [topic.limit(q, may_serve=True) for q in (0, 1)] == [7, 3], "never below what readers have seen"
    assert not fence.may_tell_end(0), "clients may be told of a write behind it yet"
    topic.fence = fence = fence.frozen({0: 9, 1: 3}, {0: 0, 1: 4}, has_served=True)
    assert [topic.limit(q, may_serve=True) for q in (0, 1)] == [9, 4]
    assert topic.limit(0, may_serve=False) == 0
    assert fence.may_tell_end(0)


def test_a_fence_shows_nothing_of_a_partition_of_which_nothing_is_known() -> None:
    """Its leader did not say where it ends, and nobody here has read of it; what is not sealed goes on."""
    fence = Fence("f", frozenset({0})).freezing({}).frozen({}, {0: 12}, has_served=True)
    assert (fence.limit(0), fence.may_tell_end(0)) == (0, False)
    assert (fence.limit(1), fence.may_tell_end(1)) == (None, True)
