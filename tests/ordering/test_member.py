"""What one worker may do: by its lease, by what it has read, and by what its own controller has written."""

from uuid import UUID

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.member import Acknowledge, Adopt, Expect, Hold, Member
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.records import AnnouncementRecord, FenceRecord, TopicRecord, Value

LEASE = 20.0
LAYOUT = Layout.created("orders", UUID(int=1), 3, 12)
FENCE = FenceRecord("f1", "orders", LAYOUT.next_epoch(4), LAYOUT.change_to(LAYOUT.next_epoch(4)).sealed)
GROWN = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
CHANGE: tuple[tuple[str, Value | None], ...] = (("topic/orders", GROWN), ("fence/orders", None))


def serving() -> Member:
    """Makes a member that serves from 100 on, and knows a topic."""
    member = Member("me")
    member.on_record("topic/orders", TopicRecord(LAYOUT, UUID(int=2)))
    member.on_renewed(100.0, LEASE, 100.5)
    member.on_caught_up(member.on_joined())
    assert member.may_serve(100.5)
    return member


def test_a_lease_counts_from_when_it_was_asked_for_and_never_back() -> None:
    """LIVE-LEASE: an answer that was long on its way gives less; one that overtook it is not taken back."""
    member = serving()
    assert not member.may_serve(120.0)
    member.on_renewed(110.0, LEASE, 119.0)
    assert member.may_serve(129.9)
    member.on_renewed(105.0, LEASE, 119.5)
    assert member.may_serve(129.9)
    assert not member.may_serve(130.0)


def test_nothing_is_served_before_the_layouts_were_read_since_it_joined() -> None:
    """READ-BEFORE-SERVE: a reading that began before the last joining ends nothing."""
    member = serving()
    first = member.on_joined()
    assert not member.may_serve(101.0)
    second = member.on_joined()
    assert not member.on_caught_up(first)
    assert not member.may_serve(101.0)
    assert member.on_caught_up(second)
    assert member.may_serve(101.0)


def test_behind_a_lease_that_had_ended_the_layouts_are_read_again() -> None:
    """READ-BEFORE-SERVE: others did not wait for this worker; a lease that lives on asks for nothing."""
    member = serving()
    assert member.on_renewed(110.0, LEASE, 110.5) is None
    under_way = member.on_joined()
    reading = member.on_renewed(140.0, LEASE, 140.5)
    assert reading is not None
    member.on_caught_up(under_way)
    assert not member.may_serve(140.5), "its end was taken while nobody waited for this worker"
    member.on_caught_up(reading)
    assert member.may_serve(140.5)


def test_what_is_read_from_the_beginning_is_served_at_its_end() -> None:
    """A reading that was under way when all was forgotten does not end it."""
    member = serving()
    under_way = member.on_joined()
    member.forget()
    member.on_caught_up(under_way)
    assert not member.may_serve(101.0)


def test_a_layout_of_its_own_controller_is_gone_by_while_its_fence_stands() -> None:
    """What is read behind the next fence must not end that."""
    member = serving()
    member.on_record("fence/orders", FENCE)
    assert [(key, type(command)) for key, command in member.on_own_layout(CHANGE)] == [("topic/orders", Adopt)]
    assert (member.topics["orders"], dict(member.fences)) == (GROWN, {})
    assert member.on_own_layout(CHANGE) == [], "it has been taken in"
    following = GROWN.layout.next_epoch(5)
    another = FenceRecord("f2", "orders", following, GROWN.layout.change_to(following).sealed)
    member.on_record("fence/orders", another)
    assert member.on_own_layout(CHANGE) == []
    assert dict(member.fences) == {"orders": another}


def test_a_fence_waits_for_what_was_sent_to_what_it_seals_and_opens() -> None:
    """Where a segment begins without one that ends, the janitor may have written (KIP-253 9)."""
    member = serving()
    (hold,) = member.on_record("fence/orders", FENCE)
    assert isinstance(hold, Hold)
    assert hold.opened == {0, 3}
    assert hold.drained == {0, 3}
    assert member.standing()[-1] == ("fence/orders", hold), "the same when all is read again"
    (asking,) = member.on_record("fence/orders", FenceRecord("f2", "orders", LAYOUT.epochs[-1], frozenset()))
    assert isinstance(asking, Hold)
    assert asking.drained == frozenset()


def test_a_topic_that_comes_to_be_managed_is_drained_as_it_was() -> None:
    """Nothing is known of it but its fence (TAKEOVER-WAITS)."""
    before = Layout.unmanaged("invoices", UUID(int=3), 3, 12)
    fence = FenceRecord(
        "f1", "invoices", before.next_epoch(3, Placement.OWN), frozenset(range(3)), TopicRecord(before, UUID(int=4))
    )
    (hold,) = serving().on_record("fence/invoices", fence)
    assert isinstance(hold, Hold)
    assert hold.drained == {0, 1, 2}


def test_a_fence_is_acknowledged_once_and_only_while_it_stands() -> None:
    """The controller counts on what is acknowledged: what is held too late is not said."""
    member = serving()
    assert member.on_held("f1") == []
    member.on_record("fence/orders", FENCE)
    (acknowledge,) = member.on_held("f1")
    assert isinstance(acknowledge, Acknowledge)
    assert (acknowledge.ack.fence, acknowledge.ack.incarnation) == ("f1", "me")
    assert member.on_held("f1") == []
    member.on_record("fence/orders", None)
    assert member.on_held("f1") == []


def test_the_last_announcement_counts_until_it_is_taken_away() -> None:
    """DOUBLE-ADD: also if the layouts are read again from their beginning."""
    member = serving()
    announced, withdrawn = (AnnouncementRecord(f"a{n}", "orders", n, {1: 3} if n == 1 else {}) for n in (1, 2))
    assert member.on_record("announcement/orders", announced) == [Expect(announced)]
    assert ("announcement/orders", Expect(announced)) in member.standing()
    assert member.on_record("announcement/orders", withdrawn) == [Expect(withdrawn)]
    assert member.announcements == {"orders": withdrawn}
    member.forget()
    assert member.announcements == {}
    member.on_record("announcement/orders", announced)
    assert member.on_record("announcement/orders", None) == []
    assert member.announcements == {}
