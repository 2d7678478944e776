"""Reports of one member: whole, one at a time, at once when there is news, and said again when one got lost."""

import pytest
from aiokafka.structs import TopicPartition

from kordon.client.moves_events import MemberPositions
from kordon.client.owned import Owned
from kordon.client.position_reports import PositionReports

HEARTBEAT, HURRY = 3.0, 0.2
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def reports() -> PositionReports:
    """Of an assignment that began at 0."""
    made = PositionReports(HEARTBEAT, HURRY)
    made.begin(0.0)
    return made


def stands(tp: TopicPartition, position: int) -> Owned:
    """A partition of which all before a position is handled and flushed."""
    owned = Owned(tp)
    owned.stand(MemberPositions(position, position, position))
    return owned


def test_the_first_report_is_due_at_once_and_names_all_partitions(reports: PositionReports) -> None:
    """One that waits for another asks for it in the same report."""
    both = [stands(P0, 7), stands(P1, -1)]
    both[1].asks = (P0, TopicPartition("orders", 2))
    report = reports.next(both, 0.0)
    assert report is not None
    told = [(row.partition.partition, row.position, row.needed) for row in report.rows]
    assert told == [(0, 7, True), (1, -1, False), (2, -1, True)]


def test_one_report_is_under_way_at_a_time(reports: PositionReports) -> None:
    """The next one has to wait for its answer, or for its failure."""
    owned = stands(P0, 7)
    assert reports.next([owned], 0.0) is not None
    assert reports.next([owned], 100.0) is None
    assert reports.answered() is not None
    assert reports.answered() is None


def test_what_has_not_changed_is_told_once_in_a_heartbeat(reports: PositionReports) -> None:
    """Under the number of the report before."""
    owned = stands(P0, 7)
    first = reports.next([owned], 0.0)
    reports.answered()
    owned.known = 7
    assert reports.next([owned], HEARTBEAT - 0.1) is None
    again = reports.next([owned], HEARTBEAT)
    assert first is not None
    assert again == first


def test_what_may_not_have_arrived_is_said_under_another_number_and_not_at_once(reports: PositionReports) -> None:
    """A group that is loading is not asked in a loop."""
    owned = stands(P0, 7)
    first = reports.next([owned], 0.0)
    reports.failed(0.0)
    assert reports.next([owned], HURRY / 2) is None
    assert reports.due_at([owned], 0.0) == HURRY
    again = reports.next([owned], HURRY)
    assert first is not None
    assert again is not None
    assert (again.rows, again.sequence) == (first.rows, first.sequence + 1)
