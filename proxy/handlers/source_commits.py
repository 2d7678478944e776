"""OffsetCommit and TxnOffsetCommit on source topics: only restart points are taken, and no older ones (POINT-KEPT).

Whatever else is committed there would take the restart point's place, and all data of the source be written again. A
stock consumer does that every five seconds: its auto commit writes an empty text. It is told so by a code that makes it
log a warning and continue.

Whether a number is lower is asked of the group's coordinator, in the client's name, where this worker does not know it,
and where the commit names no generation, so that the coordinator cannot tell the commit of a member that others have
taken over from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from kordon.codecs import apis
from kordon.codecs.bodies import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import offset_fetch
from kordon.codecs.row import Row
from kordon.codecs.source_points import OFFSET, Point, parsed
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Ask, Translate
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.events import OwnError
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.decisions.room import RecordRoom
from kordon.proxy.decisions.source_points import PointPlace, restart_point
from kordon.proxy.handlers.api_handler import ApiHandler, ConferredRequest, Handled, HeldRequest
from kordon.proxy.handlers.own_refusals import refusal
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics

log = client_log(__name__)

REFUSED: Final = Code.INVALID_COMMIT_OFFSET_SIZE
"""Java's consumer logs a warning for it, as librdkafka's and aiokafka's continue; a producer aborts its transaction."""
MOST_NUMBERS: Final = 20_000
"""Partitions of groups whose last number is kept; the coordinator is asked about others."""
_CURES: Final = {
    "no_point": "the commit has no restart point: keep consumers out of the group of a source, or set "
    "enable.auto.commit=false; kordon sources alter sets a restart point",
    "lower_number": "the group has a later restart point: this member no longer owns the partition. "
    "kordon sources alter sets a restart point on purpose",
}
_FETCH_ROUTE: Final = next(each for each in verdicts.ROUTES if (each.api.key, each.version) == (apis.OFFSET_FETCH, 7))
_SourcePlace: TypeAlias = tuple[str, str, int]
"""A group, a source topic and a partition."""


class LastNumbers:
    """The numbers of restart points that groups were last seen to commit, as one worker has seen them."""

    def __init__(self) -> None:
        self._by_place: dict[_SourcePlace, int] = {}

    def get(self, place: _SourcePlace) -> int | None:
        """Returns the last number; None: it is not known."""
        return self._by_place.get(place)

    def saw(self, place: _SourcePlace, number: int) -> None:
        """Notes a number. If there are too many, it forgets the one that was seen longest ago."""
        self._by_place.pop(place, None)
        if len(self._by_place) >= MOST_NUMBERS:
            del self._by_place[next(iter(self._by_place))]
        self._by_place[place] = number


class SourceCommits(ApiHandler):
    """Refuses on source topics what is no restart point; all else is `stock`'s.

    Args:
        stock: What happens to commits on other topics.
        numbers: Shared by all handlers of a worker.
        journal: Where decisions are recorded.
        room: Bounds the decisions about restart points. None: the handler has a bound of its own.
    """

    concerns_sources = True

    def __init__(
        self, stock: ApiHandler, numbers: LastNumbers, journal: Journal = NO_JOURNAL, room: RecordRoom | None = None
    ) -> None:
        self.key = stock.key
        self.journal = journal
        self.room = room or RecordRoom(journal)
        self.stock = stock
        self.numbers = numbers

    def decide(self, held: HeldRequest) -> Handled:
        """Takes a request that names a source topic."""
        value: OffsetCommitRequest = held.read()
        if any(_source(row, held.topics) for row in value.topics):
            return _SourceCommit(self, held, value)
        return self.stock.decide(held)


def _source(row: Row, topics: ManagedTopics) -> str:
    """Returns the name of the source topic that a row is about; "" if it is about another one."""
    name = row.get("name", "")
    return (name if name in topics.sources else "") if name else topics.sources.name_of(row.get("topic_id", None))


def _point(row: OffsetCommitRequestPartition) -> Point | None:
    """Returns the restart point that a row commits; None: it is none (OFFSET-ZERO)."""
    return parsed(row.committed_metadata) if row.committed_offset == OFFSET else None


class _SourceCommit(ConferredRequest):
    """A commit that names source topics; one of TxnOffsetCommit has the same fields as one of OffsetCommit."""

    def __init__(self, handler: SourceCommits, held: HeldRequest, value: OffsetCommitRequest) -> None:
        self._handler = handler
        self._held = held
        self._value = value
        self._refused: dict[tuple[int, int], str] = {}
        """Why a partition's row is refused, by the places of its topic's row and its own."""
        self._points: dict[tuple[int, int], tuple[_SourcePlace, Point]] = {}
        self._current: dict[tuple[str, int], int] = {}
        """The numbers that the coordinator has, by source topic and partition, as far as it was asked."""
        self._asked_after = handler.journal.backlog.newest_number

    async def answer(self, ask: Ask) -> OffsetCommitResponse:
        """Answers once the coordinator has taken what is not refused."""
        self._read()
        await self._compare(ask)
        taken = await self._commit(ask)
        answer = self._answered(taken)
        self._note(answer)
        return answer

    def _read(self) -> None:
        for at, topic in enumerate(self._value.topics):
            name = _source(topic, self._held.topics)
            for row_at, row in enumerate(topic.partitions if name else ()):
                point = _point(row)
                if point is None:
                    self._refused[at, row_at] = "no_point"
                else:
                    self._points[at, row_at] = (self._value.group_id, name, row.partition_index), point

    async def _compare(self, ask: Ask) -> None:
        """Refuses numbers that are lower than the group's."""
        has_generation = self._value.get("generation_id_or_member_epoch", -1) >= 0
        doubtful: dict[str, set[int]] = {}
        for (group, name, partition), point in self._points.values():
            known = self._handler.numbers.get((group, name, partition))
            if not has_generation or known is None or point.number < known:
                doubtful.setdefault(name, set()).add(partition)
        if not doubtful:
            return
        self._current = await self._ask_numbers(doubtful, ask)
        for at, ((_, name, partition), point) in self._points.items():
            if point.number < self._current.get((name, partition), 0):
                self._refused[at] = "lower_number"

    async def _ask_numbers(self, wanted: Mapping[str, set[int]], ask: Ask) -> dict[tuple[str, int], int]:
        """Returns the numbers that the group has; 0: it has no restart point; -1: the coordinator does not tell."""
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=sorted(each)) for name, each in wanted.items()]
        asked = OffsetFetchRequest(group_id=self._value.group_id, topics=topics, require_stable=False)
        answer: OffsetFetchResponse = await ask(_FETCH_ROUTE, offset_fetch.REQUEST.build(_FETCH_ROUTE.version, asked))
        found = {(name, partition): -1 for name, each in wanted.items() for partition in each}
        for topic in answer.topics:
            for row in topic.partitions:
                if not row.error_code:
                    point = parsed(row.metadata)
                    found[topic.name, row.partition_index] = point.number if point is not None else 0
        return found

    async def _commit(self, ask: Ask) -> OffsetCommitResponse | None:
        """Has the rows that are not refused committed; None: there are none."""
        route, body = self._held.route, bytes(self._held.body)
        if self._refused:
            self._tell()
            asked: OffsetCommitRequest = self._held.read()
            for at, topic in enumerate(asked.topics):
                rows = [row for row_at, row in enumerate(topic.partitions) if (at, row_at) not in self._refused]
                topic.partitions = rows
            left = [topic for topic in asked.topics if topic.partitions]
            if not left:
                return None
            asked.topics = left
            body = self._held.build(asked)
        held = self._held
        handled = self._handler.stock.decide(
            HeldRequest(route, memoryview(bytearray(body)), held.shared, held.told, held.offer)
        )
        if isinstance(handled, ConferredRequest):
            return cast("OffsetCommitResponse", await handled.answer(ask))
        if isinstance(handled, Translate):
            body = body if handled.body is None else handled.body
        answer: OffsetCommitResponse = await ask(route, body)
        if isinstance(handled, Translate):
            handled.back(answer)
        return answer

    def _tell(self) -> None:
        """Counts what is refused, and says in the log why."""
        sources, client = self._held.topics.sources, self._held.client
        for at, row_at in self._refused:
            reason = self._refused[at, row_at]
            sources.refused[reason] += 1
            name = _source(self._value.topics[at], self._held.topics)
            error = OwnError.about(None, self._handler.key, REFUSED, name=name, rule="POINT-KEPT")
            self._handler.journal.refused(client, error)
            log.warning(
                "source_commit_refused",
                reason=reason,
                group=self._value.group_id,
                topic=name,
                partition=self._value.topics[at].partitions[row_at].partition_index,
                client_id=client.client_id,
                cure=_CURES[reason],
            )

    def _answered(self, taken: OffsetCommitResponse | None) -> OffsetCommitResponse:
        """Returns an answer with a row for each row of the request."""
        codes: dict[tuple[object, int], int] = {}
        for topic in taken.topics if taken is not None else ():
            codes |= {(_topic_key(topic), row.partition_index): row.error_code for row in topic.partitions}
        answer = cast("OffsetCommitResponse", refusal(self._handler.key, self._held.version, self._value, REFUSED))
        for at, topic in enumerate(answer.topics):
            for row_at, row in enumerate(topic.partitions):
                if (at, row_at) not in self._refused:
                    row.error_code = codes.get((_topic_key(topic), row.partition_index), Code.UNKNOWN_SERVER_ERROR)
        answer.throttle_time_ms = taken.throttle_time_ms if taken is not None and "throttle_time_ms" in taken else 0
        return answer

    def _note(self, answer: OffsetCommitResponse) -> None:
        """Keeps the numbers that the coordinator has taken, and puts its restart points on record."""
        value, journal, sources = self._value, self._handler.journal, self._held.topics.sources
        generation, member = value.get("generation_id_or_member_epoch", -1), value.get("member_id", "")
        committer = Committer(value.group_id, generation, member, self._handler.key)
        producer: tuple[int, int] | None = None
        if self._handler.key == apis.TXN_OFFSET_COMMIT:
            of_transaction = cast("TxnOffsetCommitRequest", value)
            producer = of_transaction.producer_id, of_transaction.producer_epoch
        for (at, row_at), (place, point) in self._points.items():
            if answer.topics[at].partitions[row_at].error_code:
                continue
            self._handler.numbers.saw(place, point.number)
            topic = sources.named(place[1])
            if journal.is_on and topic is not None:
                partition = PointPlace(place[1], topic.topic_id, place[2])
                told = restart_point(
                    self._held.client,
                    committer,
                    partition,
                    point,
                    producer=producer,
                    asked_after=self._asked_after,
                    held=self._current.get((place[1], place[2])),
                )
                self._handler.room.note(told, 1)


def _topic_key(row: Row) -> object:
    return row.get("name", "") or row.get("topic_id", None)
