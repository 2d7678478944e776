"""Reports of positions: what members of a dialect group tell, and what they are answered (KIP-253 7).

Whether a member may report, its coordinator says: it is asked by a Heartbeat in the client's name, on the client's own
connection, and what it answers (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID,
NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED, …) is the answer. Then the report is written to the log that all proxies
read (`own_topics/group_positions.py`), unless it says what stands there, and answered by what has been read back.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import ConsumerGroupPositionRequest as Request
from kordon.codecs.bodies import ConsumerGroupPositionRequestTopic as RequestTopic
from kordon.codecs.bodies import ConsumerGroupPositionResponse as Response
from kordon.codecs.bodies import ConsumerGroupPositionResponsePartition as ResponsePartition
from kordon.codecs.bodies import ConsumerGroupPositionResponseTopic as ResponseTopic
from kordon.codecs.bodies import HeartbeatRequest, HeartbeatResponse
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import heartbeat
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.interception import Question
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.position_decisions import decisions_of, known_before
from kordon.proxy.handlers.rosters import ASK_SECONDS, Roll, Rosters
from kordon.proxy.ordering.position_records import MOST_ROWS, MemberKey
from kordon.proxy.ordering.positions import UNKNOWN, MemberReport, TopicReport
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.log_limits import client_log

log = client_log(__name__)

_HEARTBEAT_VERSION: Final = 4
"""All brokers since Kafka 2.4 speak it."""
_REFRESH_MS: Final = 24 * 3_600_000
"""Time after which a report is written again though it is the same: records are deleted after seven days."""
_LOAD_SECONDS: Final = 5.0
"""How long a client waits for the log to be read before it is told to come again."""


OUTCOMES: Final[Sequence[str]] = ("written", "unchanged", "late", "refused", "unavailable")
"""What comes of a report: it stands in the log now, or stood there, or a later one of its member does; it is refused,
as the coordinator says or because it cannot be meant; the log cannot be read or written now."""


class Malformed(Exception):  # noqa: N818 - what a request is
    """Raised for a request that cannot be meant; says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Reported:
    """A report that is to be answered.

    Attributes:
        place: The member that reports.
        report: The report.
        questions: The questions that the brokers are asked first.
        checked: The coordinator's answer to the member's heartbeat. None: the coordinator is not asked.
        roll: The group's members that must be known first. None: none have to be.
        asks: Whether this one is to settle it.
        loading: Whether the log had not been read to its end yet.
        error_code: With which it is refused if the coordinator refuses nothing; NONE: it is not.
        problem: Why it cannot be meant, for the log.
    """

    place: MemberKey
    report: MemberReport
    questions: tuple[Question, ...] = ()
    checked: asyncio.Future[HeartbeatResponse] | None = None
    roll: Roll | None = None
    asks: bool = False
    loading: bool = False
    error_code: int = Code.NONE
    problem: str = ""

    @property
    def names(self) -> Collection[str]:
        """The topics that it is about."""
        return self.report.topics.keys()


class MemberReports:
    """Takes reports and answers them.

    Args:
        now_ms: Milliseconds since 1970.
    """

    def __init__(self, kept: GroupPositions, now_ms: Callable[[], int] = now_ms, journal: Journal = NO_JOURNAL) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        """How many reports came to what."""
        self._kept = kept
        self._now_ms = now_ms
        self._journal = journal
        self._rosters = Rosters()

    def decide(self, request: Request) -> Reported:
        """Has the coordinator asked whether the member may report, and who is in the group where that must be known."""
        place = MemberKey(request.group_id, request.member_id)
        try:
            report = read_report(request, self._now_ms())
        except Malformed as error:
            nothing = MemberReport(request.generation_id, UNKNOWN, {})
            return Reported(place, nothing, error_code=Code.INVALID_REQUEST, problem=str(error))
        checked, heartbeat = _heartbeat(request)
        if not self._kept.is_current:
            return Reported(place, report, (heartbeat,), checked, loading=True)
        if self._may_be_written(place):
            return Reported(place, report, (heartbeat,), checked)
        roll, question = self._rosters.call(place.group_id, self._known(place))
        questions = (heartbeat, question) if question is not None else (heartbeat,)
        return Reported(place, report, questions, checked, roll, asks=question is not None)

    async def serve(self, request: Reported, client: Client) -> Response:
        """Answers a report."""
        try:
            answer = await self._serve(request, client)
        except UpstreamUnavailable as error:
            log.warning("report_not_kept", group=request.place.group_id, error=str(error))
            self.outcomes["unavailable"] += 1
            return _refused(Code.COORDINATOR_NOT_AVAILABLE)
        finally:
            if request.roll is not None and request.asks:
                self._rosters.give_up(request.roll)
        if answer.error_code == Code.COORDINATOR_LOAD_IN_PROGRESS:
            self.outcomes["unavailable"] += 1
        elif answer.error_code:
            self.outcomes["refused"] += 1
        return answer

    async def _serve(self, asked: Reported, client: Client) -> Response:
        if asked.problem:
            log.warning(
                "report_malformed", group=asked.place.group_id, member=asked.place.member_id, error=asked.problem
            )
        if asked.checked is None:
            return _refused(asked.error_code)
        heartbeat = await asked.checked
        if code := heartbeat.error_code or asked.error_code:  # brokers judge the group before its topics
            return _refused(code, heartbeat.throttle_time_ms)
        if asked.loading:
            await self._kept.ready(_LOAD_SECONDS)
            return _refused(Code.COORDINATOR_LOAD_IN_PROGRESS)  # who is in the group was not asked
        code = await self._know_the_others(asked)
        if code:
            return _refused(code)
        self.outcomes[await self._keep(asked.place, asked.report, client)] += 1
        told = self._kept.positions.answer(*asked.place)
        topics = [
            ResponseTopic(topic=name, partitions=[ResponsePartition(**row._asdict()) for row in rows])
            for name, rows in told.items()
        ]
        return Response(throttle_time_ms=heartbeat.throttle_time_ms, topics=topics, error_code=Code.NONE)

    async def _know_the_others(self, asked: Reported) -> int:
        """Returns NONE when all whose reports stand beside this one are of its days, else what to answer."""
        group_id = asked.place.group_id
        if asked.roll is not None and asked.asks:

            async def take_out(gone: Collection[str]) -> None:
                log.info("members_gone", group=group_id, members=len(gone))
                await self._kept.say({MemberKey(group_id, member_id): None for member_id in gone})

            if code := await self._rosters.settle(asked.roll, take_out):
                return code
        elif asked.roll is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.roll.over.wait(), ASK_SECONDS)
        return Code.NONE if self._may_be_written(asked.place) else Code.COORDINATOR_LOAD_IN_PROGRESS

    def _may_be_written(self, place: MemberKey) -> bool:
        """Whether a member has reported before, or all who have are known to be in the group together with it."""
        if self._kept.positions.said(*place) is not None:
            return True
        return self._rosters.vouches(place.group_id, place.member_id, self._known(place))

    def _known(self, place: MemberKey) -> Collection[str]:
        return self._kept.positions.members(place.group_id)

    async def _keep(self, place: MemberKey, report: MemberReport, client: Client) -> str:
        """Writes a report where it says something new; returns what came of it."""
        said = self._kept.positions.said(*place)
        if said is not None and report.order < said.order:
            return "late"
        if said is not None and report == said and report.said_ms - said.said_ms < _REFRESH_MS:
            return "unchanged"
        before = known_before(place, report, self._kept.positions) if self._journal.is_on else {}
        await self._kept.say({place: report})
        for decision in decisions_of(place, report, before, client) if self._journal.is_on else ():
            self._journal.note(decision)
        return "written"


def read_report(request: Request, now_ms: int) -> MemberReport:
    """Reads what a request reports; raises Malformed if it cannot be meant.

    Args:
        now_ms: Milliseconds since 1970.
    """
    rows = sum(len(topic.partitions) for topic in request.topics)
    if rows > MOST_ROWS:
        raise Malformed(f"it names {rows} partitions, and a member may name at most {MOST_ROWS}")
    topics = {topic.topic: _read_topic(topic) for topic in request.topics}
    if len(topics) < len(request.topics):
        raise Malformed("a topic is named twice")
    return MemberReport(request.generation_id, request.report_sequence, topics, now_ms)


def _read_topic(topic: RequestTopic) -> TopicReport:
    rows = {row.partition: row for row in topic.partitions}
    if len(rows) < len(topic.partitions):
        raise Malformed(f"a partition of {topic.topic} is named twice")
    if any(row.partition < 0 or row.position < UNKNOWN for row in topic.partitions):
        raise Malformed(f"a partition or position of {topic.topic} is negative")
    owned = {q: row.position for q, row in rows.items() if row.position != UNKNOWN or not row.need_position}
    return TopicReport(owned, array("i", sorted(q for q, row in rows.items() if row.need_position)))


def _heartbeat(request: Request) -> tuple[asyncio.Future[HeartbeatResponse], Question]:
    """Returns what asks the coordinator whether a member is one, and what is given its answer."""
    checked: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()

    def told(answer: HeartbeatResponse) -> None:
        if not checked.done():
            checked.set_result(answer)

    asked = HeartbeatRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    route = verdicts.route(apis.HEARTBEAT, _HEARTBEAT_VERSION)
    assert route is not None, "Heartbeat is spoken"
    return checked, Question(route, heartbeat.REQUEST.build(_HEARTBEAT_VERSION, asked), told)


def _refused(code: int, throttle_time_ms: int = 0) -> Response:
    return Response(throttle_time_ms=throttle_time_ms, topics=[], error_code=code)
