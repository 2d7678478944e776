"""What of the reports of groups is noted: positions that rose, and those that fell."""

from typing import cast

from kordon.codecs.decision import Kind
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.position_reports import MemberReports
from kordon.proxy.ordering.position_records import MemberKey
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.testing.noted import Noted
from kordon.testing.positions_in_memory import ReportsInMemory, answer, asked, report_fields, served

A, B = MemberKey("readers", "a"), MemberKey("readers", "b")


class Worker:
    """One worker's reports, with what it notes."""

    def __init__(self) -> None:
        self.kept = ReportsInMemory()
        self.noted = Noted()
        self.reports = MemberReports(cast(GroupPositions, self.kept), lambda: 1, self.noted.journal)
        self.client = self.noted.journal.connected("User:ann")
        self.noted.journal.named(self.client, "sdk", "User:ann")

    async def tell(self, place: MemberKey, owned: dict[int, int], *, generation: int = 1, sequence: int = -1) -> int:
        """Has a member of the group of both report; returns the error code."""
        fields = report_fields(place, owned, generation_id=generation, report_sequence=sequence)
        decision = asked(self.reports, fields)
        answer(decision, "ab")
        return int((await served(self.reports, decision, self.client)).error_code)

    @property
    def positions(self) -> list[dict[str, int]]:
        return [dict(each.evidence["positions"]) for each in self.noted.of(Kind.POSITION)]


async def test_a_heartbeat_notes_what_rose_and_nothing_else() -> None:
    """One record for all partitions of a topic; what stands where it stood is not said again."""
    worker = Worker()
    for owned in ({0: 40, 1: 7, 2: -1}, {0: 40, 1: 7, 2: -1}, {0: 40, 1: 9, 2: 0}):
        assert await worker.tell(A, owned) == Code.NONE
    assert worker.positions == [{"0": 40, "1": 7}, {"1": 9, "2": 0}]
    first = worker.noted.of(Kind.POSITION)[0]
    assert (first.group_id, first.member_id, first.generation_id, first.topic) == ("readers", "a", 1, "orders")
    assert (first.connection, first.client_id, first.principal) == (1, "sdk", "User:ann")
    assert worker.noted.of(Kind.REWIND) == []


async def test_a_position_that_falls_is_a_rewind_of_its_group() -> None:
    """Its member has gone back; other partitions of the same report have gone on."""
    worker = Worker()
    await worker.tell(A, {0: 40, 1: 7})
    await worker.tell(A, {0: 30, 1: 8})
    (rewind,) = worker.noted.of(Kind.REWIND)
    assert (rewind.group_id, rewind.member_id, rewind.partition, rewind.stream) == ("readers", "a", 0, ~0)
    assert (rewind.first_offset, rewind.last_offset, rewind.reason) == (30, 40, "position")
    assert (rewind.connection, rewind.client_id) == (None, "sdk"), "no reader on a connection has gone back"
    assert worker.positions == [{"0": 40, "1": 7}, {"1": 8}]


async def test_who_takes_a_partition_over_begins_where_the_group_stood() -> None:
    """A new owner that begins below what the last one said goes back, as it commits less than it has processed."""
    worker = Worker()
    await worker.tell(A, {0: 40})
    await worker.tell(B, {1: 5})
    await worker.tell(B, {0: 38, 1: 5}, generation=2)
    (rewind,) = worker.noted.of(Kind.REWIND)
    assert (rewind.member_id, rewind.generation_id, rewind.first_offset, rewind.last_offset) == ("b", 2, 38, 40)


async def test_reports_that_are_not_kept_are_not_noted() -> None:
    """Refused ones, late ones, and those that the log does not take: nobody goes by them."""
    worker = Worker()
    refused = asked(worker.reports, report_fields(A, {0: 40}))
    answer(refused, code=Code.ILLEGAL_GENERATION)
    await served(worker.reports, refused)
    worker.kept.fails = True
    assert await worker.tell(A, {0: 41}) == Code.COORDINATOR_NOT_AVAILABLE
    worker.kept.fails = False
    await worker.tell(A, {0: 50}, sequence=2)
    await worker.tell(A, {0: 45}, sequence=1)
    assert worker.positions == [{"0": 50}]
    assert worker.noted.of(Kind.REWIND) == []
