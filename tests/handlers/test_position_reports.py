"""What becomes of one ConsumerGroupPosition request: refused, kept or put off, and what is asked of brokers for it."""

import json
from typing import cast

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.proxy.core.answers import body_of
from kordon.proxy.handlers.consumer_group_position import ConsumerGroupPosition, ServedReport
from kordon.proxy.handlers.position_reports import MemberReports, Reported
from kordon.proxy.ordering.position_records import MOST_ROWS, MemberKey, place_of
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.testing.handled import held
from kordon.testing.positions_in_memory import ReportsInMemory, answer, asked, report_fields, served

A, B, C = (MemberKey("readers", member) for member in "abc")
DAY_MS = 24 * 3_600_000


class Worker:
    """One worker's reports, with a clock of its own."""

    def __init__(self) -> None:
        self.kept = ReportsInMemory()
        self.now_ms = 1_000_000_000_000
        self.reports = MemberReports(cast(GroupPositions, self.kept), lambda: self.now_ms)

    async def tell(self, place: MemberKey, owned: dict[int, int], members: str = "ab", sequence: int = 1) -> int:
        """Has a member of a group report; returns the error code."""
        decision = asked(self.reports, report_fields(place, owned, report_sequence=sequence))
        answer(decision, list(members))
        return int((await served(self.reports, decision)).error_code)


@pytest.fixture
def worker() -> Worker:
    """A worker that knows of no report."""
    return Worker()


def keys(decision: Reported) -> list[int]:
    """The api keys that brokers are asked."""
    return [question.route.api.key for question in decision.questions]


async def test_the_coordinators_answer_to_a_heartbeat_is_the_answer(worker: Worker) -> None:
    """Nothing is written for whoever is no member now."""
    for code in (Code.ILLEGAL_GENERATION, Code.GROUP_AUTHORIZATION_FAILED, Code.NOT_COORDINATOR):
        decision = asked(worker.reports, report_fields(A, {0: 1}, group_instance_id="i"))
        assert keys(decision) == [apis.HEARTBEAT]
        answer(decision, code=code)
        told = await served(worker.reports, decision)
        assert (told.error_code, told.topics) == (code, [])
    assert not worker.kept.written
    assert worker.reports.outcomes["refused"] == 3


async def test_only_a_new_member_beside_others_has_the_group_asked_for(worker: Worker) -> None:
    """The first one needs not, and those do not whom the same answer has named."""
    assert await worker.tell(A, {0: 1}, "abc") == Code.NONE
    first = asked(worker.reports, report_fields(B, {1: 1}))
    assert keys(first) == [apis.HEARTBEAT, apis.DESCRIBE_GROUPS]
    answer(first, "abc")
    assert (await served(worker.reports, first)).error_code == Code.NONE
    assert keys(asked(worker.reports, report_fields(C, {2: 1}))) == [apis.HEARTBEAT]
    assert keys(asked(worker.reports, report_fields(A, {0: 2}))) == [apis.HEARTBEAT]


async def test_who_is_gone_is_taken_out_before_a_new_member_is_written(worker: Worker) -> None:
    """In the log, so that no proxy ever knows the new one beside those of the group's former life."""
    await worker.tell(A, {0: 40}, "a")
    assert await worker.tell(B, {0: -1}, members="b") == Code.NONE
    written = [(place_of(key), value is None) for key, value in worker.kept.written]
    assert written == [(A, False), (A, True), (B, False)]
    assert worker.kept.positions.of("readers", 1, "orders") == {}


async def test_those_who_come_while_the_group_is_asked_for_wait_for_that(worker: Worker) -> None:
    """Of a thousand members that join at once, one asks."""
    await worker.tell(A, {0: 40}, "a")
    one = asked(worker.reports, report_fields(B, {1: 1}))
    other = asked(worker.reports, report_fields(C, {2: 1}))
    assert keys(other) == [apis.HEARTBEAT]
    answer(one, "abc")
    answer(other)
    assert (await served(worker.reports, one)).error_code == Code.NONE
    assert (await served(worker.reports, other)).error_code == Code.NONE


async def test_who_is_not_in_the_answer_that_others_wait_for_comes_again(worker: Worker) -> None:
    """It has joined later: its next report asks anew."""
    await worker.tell(A, {0: 40}, "a")
    one = asked(worker.reports, report_fields(B, {1: 1}))
    later = asked(worker.reports, report_fields(C, {2: 1}))
    answer(one, "ab")
    answer(later)
    assert (await served(worker.reports, one)).error_code == Code.NONE
    assert (await served(worker.reports, later)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert await worker.tell(C, {2: 1}, "abc") == Code.NONE


async def test_a_member_that_reported_elsewhere_meanwhile_is_not_taken_for_one_that_is_gone(worker: Worker) -> None:
    """It has joined after the group was asked for, and reported through another proxy: nobody knows it to be gone."""
    await worker.tell(A, {0: 40}, "a")
    decision = asked(worker.reports, report_fields(B, {1: 1}))
    elsewhere = MemberReports(cast(GroupPositions, worker.kept))
    answer(decision, "ab")
    new = asked(elsewhere, report_fields(C, {2: 7}))
    answer(new, "abc")
    assert (await served(elsewhere, new)).error_code == Code.NONE
    assert (await served(worker.reports, decision)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert worker.kept.positions.of("readers", 1, "orders") == {0: 40, 2: 7}
    assert await worker.tell(B, {1: 1}, "abc") == Code.NONE


async def test_what_says_nothing_new_is_written_once_a_day(worker: Worker) -> None:
    """Records are deleted after seven days, and the member may have nothing new to say for longer."""
    for sequence in (1, 1, 1):
        assert await worker.tell(A, {0: 40}, sequence=sequence) == Code.NONE
    assert len(worker.kept.written) == 1
    worker.now_ms += DAY_MS
    await worker.tell(A, {0: 40})
    assert len(worker.kept.written) == 2
    assert [json.loads(value or b"")["said_ms"] for _, value in worker.kept.written] == [
        worker.now_ms - DAY_MS,
        worker.now_ms,
    ]


async def test_a_report_that_comes_late_is_answered_and_not_written(worker: Worker) -> None:
    """By what its member has said since."""
    await worker.tell(A, {0: 3}, sequence=2)
    assert await worker.tell(A, {0: 40}, sequence=1) == Code.NONE
    assert worker.kept.positions.of("readers", 1, "orders") == {0: 3}
    assert len(worker.kept.written) == 1


async def test_while_the_log_is_not_known_members_are_told_to_come_again(worker: Worker) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS once it is, COORDINATOR_NOT_AVAILABLE where it cannot be read or written."""
    worker.kept.is_current = False
    assert await worker.tell(A, {0: 1}) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert await worker.tell(A, {0: 1}) == Code.NONE
    worker.kept.fails = True
    assert await worker.tell(A, {0: 2}, sequence=2) == Code.COORDINATOR_NOT_AVAILABLE
    worker.kept.is_current = False
    assert await worker.tell(A, {0: 2}, sequence=2) == Code.COORDINATOR_NOT_AVAILABLE
    assert worker.reports.outcomes == {"written": 1, "unchanged": 0, "late": 0, "refused": 0, "unavailable": 3}


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        pytest.param([("o", [(0, 1), (0, 2)])], Code.INVALID_REQUEST, id="a partition twice"),
        pytest.param([("o", []), ("o", [])], Code.INVALID_REQUEST, id="a topic twice"),
        pytest.param([("o", [(-1, 1)])], Code.INVALID_REQUEST, id="no partition"),
        pytest.param([("o", [(0, -2)])], Code.INVALID_REQUEST, id="no position"),
        pytest.param([("o", [(q, 1) for q in range(MOST_ROWS + 1)])], Code.INVALID_REQUEST, id="too many"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    worker: Worker, topics: list[tuple[str, list[tuple[int, int]]]], code: Code
) -> None:
    """No broker is asked, and nothing is written."""
    rows = [
        {"topic": name, "partitions": [{"partition": q, "need_position": False, "position": at} for q, at in each]}
        for name, each in topics
    ]
    decision = asked(worker.reports, report_fields(A, {}) | {"topics": rows})
    assert not decision.questions
    assert (await served(worker.reports, decision)).error_code == code
    assert not worker.kept.written


async def test_as_many_partitions_as_a_member_may_name_fit_into_a_record(worker: Worker) -> None:
    """With the longest positions that there are."""
    assert await worker.tell(A, dict.fromkeys(range(MOST_ROWS), (1 << 63) - 1)) == Code.NONE
    ((_, value),) = worker.kept.written
    assert len(value or b"") < 900_000


async def test_positions_of_a_topic_need_the_right_to_read_it(worker: Worker) -> None:
    """Else nothing of the report is taken: the answer has one error code."""
    key = apis.CONSUMER_GROUP_POSITION
    decision = ConsumerGroupPosition(worker.reports).decide(held(ManagedTopics(), key, 0, report_fields(A, {0: 40})))
    assert isinstance(decision, ServedReport)
    assert set(decision.names()) == {"orders"}
    answer(decision, "a")
    told = await decision.refuse({"orders": Code.TOPIC_AUTHORIZATION_FAILED}).answer(None)
    assert response(key).parse(0, body_of(told)).error_code == Code.TOPIC_AUTHORIZATION_FAILED
    assert not worker.kept.written
