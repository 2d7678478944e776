"""The index of a log's witnesses and markers: a range without a gap, whatever takes its front or its end."""

import pytest

from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Event, Marker, Witness

P, OTHER = 1000, 2000


def filled(most: int = 100) -> EventIndex:
    """An index of four events in a log that was read from 5 to 50."""
    index = EventIndex(5, leader_epoch=1, most=most)
    for event in (Witness(10, P, 1), Witness(20, OTHER, 1), Marker(30, P, 1, True), Witness(40, P, 1)):
        index.take(event)
    index.read_to(50)
    return index


def offsets(events: list[Event] | tuple[Event, ...]) -> list[int]:
    return [each.offset for each in events]


def test_events_of_a_producer_are_told_by_what_they_stand_behind() -> None:
    """And by what they stand before."""
    index = filled()
    assert offsets([*index.behind(10, P)]) == [30, 40]
    assert offsets([*index.behind(9, P)]) == [10, 30, 40]
    assert offsets([*index.before(30, P)]) == [10]
    assert offsets([*index.before(31, P)]) == [10, 30]
    assert [*index.behind(10, 3000)] == [*index.before(10, 3000)] == []
    assert (index.start, index.end, len(index)) == (5, 50, 4)


def test_an_event_is_read_once() -> None:
    """What lies below the end has been read."""
    with pytest.raises(ValueError, match="lies below 50"):
        filled().take(Witness(49, P, 1))


def test_retention_takes_the_front() -> None:
    """What it has not taken is known as before."""
    index = filled()
    index.trim_front(11)
    assert offsets([*index.behind(10, P)]) == [30, 40]
    assert not index.knows_behind(9)
    with pytest.raises(LookupError):
        index.behind(9, P)
    index.trim_front(60)
    assert (index.start, index.end, len(index)) == (60, 60, 0)


def test_an_election_takes_the_end() -> None:
    """Other events may come to stand there."""
    index = filled()
    index.adopt(2, 30)
    assert (index.leader_epoch, index.end, len(index)) == (2, 30, 2)
    index.take(Marker(30, P, 2, False))
    assert [*index.behind(10, P)] == [Marker(30, P, 2, False)]
    index.adopt(3, 2)
    assert (index.start, index.end, len(index)) == (2, 2, 0)


def test_an_election_that_loses_nothing_takes_nothing() -> None:
    """The log of the next leader is the same up to where it was read."""
    index = filled()
    index.adopt(2, 50)
    assert (index.end, len(index), index.leader_epoch) == (50, 4, 2)


def test_the_oldest_events_are_forgotten_at_the_bound() -> None:
    """Readers that are further ahead do not need them."""
    index = filled(most=2)
    assert (index.start, len(index)) == (21, 2)
    assert offsets([*index.behind(20, P)]) == [30, 40]
    assert not index.knows_behind(10)
