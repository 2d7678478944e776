"""OffsetCommit with ranges: a member says what is done offset by offset (individual commit, docs/dialect.md).

The coordinator is asked first, in the client's own name: it gets the offset before which all is done, with Kordon's
mark (MARKED-PUSH, NEVER-AHEAD). What it accepts is written as a claim, read back, and only then answered.

Ranges are read when it is known that a member of the group sends them, which has been told its incarnation, or one who
may Read the group. So nobody makes Kordon work who has not logged in, and nobody is answered then.

A request may have rows of both kinds. Those without an incarnation are Kafka's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kordon.codecs import apis
from kordon.codecs.bodies import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import MOST_OFFSET, MOST_RANGES, load
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.interception import Ask
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.individual_commits import individual_commit
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.handlers.api_handler import ApiHandler, ConferredRequest, Handled, HeldRequest, parse_request
from kordon.proxy.handlers.commit_decisions import watch_commit
from kordon.proxy.handlers.face_rows import FaceRows
from kordon.proxy.handlers.individual_commits import (
    FIRST_VERSION,
    TopicIds,
    give_turn,
    may_read_group,
    opened,
)
from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import MOST_INCARNATION, NO_INCARNATION, Claim, Done, PlaceKey, Said
from kordon.proxy.ordering.commit_marks import marked
from kordon.proxy.own_topics.claims_log import ClaimsLog
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.names import NO_ID
from kordon.proxy.topics.views import VIRTUAL, View

log = client_log(__name__)

_MOST_RANGE_BYTES: Final = 1 << 20
"""Of all ranges of a request: reading them takes some 0.1 s."""
_OUTCOMES: Final[Mapping[int, str]] = {
    Code.NONE: "taken",
    Code.MAX_INDIVIDUAL_COMMIT_REACHED: "full",
    Code.INDIVIDUAL_COMMIT_TOO_OLD: "too_old",
    Code.INVALID_REQUEST: "invalid",
    Code.COORDINATOR_LOAD_IN_PROGRESS: "unavailable",
    Code.COORDINATOR_NOT_AVAILABLE: "unavailable",
    Code.INDIVIDUAL_COMMIT_NOT_ALLOWED: "not_allowed",
}
_RowKey: TypeAlias = tuple[object, int]
"""The topic as a message names it, by name or id, and the partition."""


class IndividualOffsetCommit(ApiHandler):
    """Takes individual commits; other requests are `stock`'s."""

    key = apis.OFFSET_COMMIT
    is_always_wanted = True

    def __init__(self, stock: ApiHandler, logs: IndividualCommits, journal: Journal, view: View = VIRTUAL) -> None:
        self.stock = stock
        self.logs = logs
        self.journal = journal
        self.view = view

    def decide(self, held: HeldRequest) -> Handled:
        """Takes a request that has a row with an incarnation or ranges."""
        if held.version >= FIRST_VERSION and self.logs.is_wanted:
            value: OffsetCommitRequest = held.read()
            if any(row.incarnation or row.offset_ranges for topic in value.topics for row in topic.partitions):
                return _Commit(self, held, value)
        return self.stock.decide(held) if held.topics else None


@dataclass(slots=True)
class _Row:
    """A row with ranges."""

    topic: OffsetCommitRequestTopic
    asked: OffsetCommitRequestPartition
    done: Done = claims.NOTHING
    place: PlaceKey | None = None
    code: int = Code.NONE
    pushed: int = -1
    said: Said | None = None
    known_ranges: int = 0
    left: int = 0
    stable: int = -1

    @property
    def key(self) -> _RowKey:
        return _topic_key(self.topic), self.asked.partition_index


class _Commit(ConferredRequest):
    """A request with ranges, which Kordon answers."""

    def __init__(self, handler: IndividualOffsetCommit, held: HeldRequest, value: OffsetCommitRequest) -> None:
        self._handler = handler
        self._held = held
        self._body = bytes(held.body)
        self._value = value
        self._committer = Committer(
            value.group_id, value.generation_id_or_member_epoch, value.member_id, apis.OFFSET_COMMIT
        )
        self._rows = {
            id(row): _Row(topic, row)
            for topic in value.topics
            for row in topic.partitions
            if row.incarnation or row.offset_ranges
        }
        self._may_read: bool | None = None
        """Whether the client may Read the group; None: nobody has asked."""

    async def answer(self, ask: Ask) -> OffsetCommitResponse:
        """Answers when all that is taken has been read back."""
        self._check()
        ids = TopicIds(self._held.topics, self._handler.view)
        await ids.ask([each.topic for each in self._open()], ask)
        for row in self._open():
            self._find(row, ids)
        known = await self._log(ask)
        if known is None:
            codes, throttle_time_ms = await self._ask_coordinator(ask)
        else:
            life = known.life
            await self._look_for_older(known, ask)
            await self._read()
            for row in self._open():
                assert row.place is not None
                row.pushed = claims.to_push(known.of(row.place), row.done.stable)
            codes, throttle_time_ms = await self._ask_coordinator(ask)
            await self._claim(known, life)
        self._handler.logs.outcomes.update(_OUTCOMES.get(each.code, "refused") for each in self._rows.values())
        return self._answered(codes, throttle_time_ms)

    def _open(self) -> Iterator[_Row]:
        """Yields the rows that are not refused."""
        return (each for each in self._rows.values() if not each.code)

    def _refuse(self, code: int) -> None:
        for row in self._open():
            row.code = code

    def _check(self) -> None:
        """Refuses rows that cannot be meant, whatever their ranges are; they cost the other rows nothing."""
        seen, size = set[_RowKey](), 0
        for row in self._rows.values():
            size += len(row.asked.offset_ranges)
            if row.key in seen:
                _refuse_malformed(self._value.group_id, row, "the partition is named twice")
            elif size > _MOST_RANGE_BYTES:
                _refuse_malformed(
                    self._value.group_id, row, f"the ranges of a request have more than {_MOST_RANGE_BYTES} bytes"
                )
            elif not 0 < row.asked.incarnation <= MOST_INCARNATION:
                _refuse_malformed(self._value.group_id, row, f"there is no incarnation {row.asked.incarnation}")
            elif not 0 <= row.asked.committed_offset <= MOST_OFFSET:
                _refuse_malformed(self._value.group_id, row, f"there is no offset {row.asked.committed_offset}")
            seen.add(row.key)

    async def _read(self) -> None:
        """Reads the ranges; what cannot be read is refused, and costs the other rows nothing."""
        for row in list(self._open()):
            try:
                row.done = _done(row.asked)
            except ValueError as error:
                _refuse_malformed(self._value.group_id, row, str(error))
            await give_turn(row.done.ranges)

    def _find(self, row: _Row, ids: TopicIds) -> None:
        topic_id = ids.of(row.topic)
        if topic_id == NO_ID:
            row.code = ids.refusal(row.topic)
        else:
            row.place = PlaceKey(self._value.group_id, topic_id, row.asked.partition_index)

    def _is_newest(self, row: _Row, known: ClaimsLog) -> bool:
        assert row.place is not None
        return row.asked.incarnation == known.of(row.place).incarnation != NO_INCARNATION

    async def _log(self, ask: Ask) -> ClaimsLog | None:
        """Returns the group's log; None: there is no row for it, or all of these are refused."""
        logs, group_id = self._handler.logs, self._value.group_id
        if not any(self._open()) or not (logs.is_read(group_id) or await self._asked_right(ask)):
            return None
        found = await opened(logs, group_id)
        if isinstance(found, Code):
            self._refuse(found)
            return None
        return found

    async def _asked_right(self, ask: Ask) -> bool:
        """Returns whether the client may Read the group; if not, all rows are refused."""
        if self._may_read is None:
            self._may_read = await may_read_group(self._value.group_id, ask)
        if not self._may_read:
            for row in self._rows.values():  # whatever else is wrong, as brokers do
                row.code = Code.GROUP_AUTHORIZATION_FAILED
        return self._may_read

    async def _look_for_older(self, known: ClaimsLog, ask: Ask) -> None:
        """Refuses rows whose incarnation has ended, when the log was read to its end."""
        try:
            if not all(self._is_newest(row, known) for row in self._open()) and await self._asked_right(ask):
                await known.read_to_end()
        except UpstreamUnavailable:
            self._refuse(Code.COORDINATOR_LOAD_IN_PROGRESS)
        for row in self._open():
            if not self._is_newest(row, known):
                row.code = Code.INDIVIDUAL_COMMIT_TOO_OLD

    async def _ask_coordinator(self, ask: Ask) -> tuple[dict[_RowKey, int], int]:
        """Returns what the coordinator says of the rows that are not refused, and how long the client is to wait."""
        value, route = self._value, self._held.route
        asked: OffsetCommitRequest = parse_request(route, self._body)
        for topic, sent in zip(value.topics, asked.topics, strict=True):
            pairs = zip(topic.partitions, sent.partitions, strict=True)
            sent.partitions = [each for row, each in pairs if self._sent(row, each)]
        keys = {id(sent): _topic_key(topic) for topic, sent in zip(value.topics, asked.topics, strict=True)}
        asked.topics = [each for each in asked.topics if each.partitions]
        if not asked.topics:
            await self._asked_right(ask)  # who has not logged in is answered nothing
            return {}, 0
        if isinstance(self._handler.stock, FaceRows):
            self._handler.stock.request(route.version, asked, self._held.topics)
        by_broker = {_topic_key(each): keys[id(each)] for each in asked.topics}
        answer: OffsetCommitResponse = await ask(route, self._held.build(asked))
        codes = {
            (by_broker.get(_topic_key(topic)), row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }
        for row in self._open():
            row.code = codes.get(row.key, Code.UNKNOWN_SERVER_ERROR)
        self._note_commit(codes)
        return codes, answer.throttle_time_ms

    def _sent(self, row: OffsetCommitRequestPartition, sent: OffsetCommitRequestPartition) -> bool:
        """Changes a row to what the coordinator is given; returns whether it is given it."""
        individual = self._rows.get(id(row))
        if individual is None:
            return True
        if individual.code:
            return False
        assert individual.place is not None
        offset = individual.pushed
        if offset != sent.committed_offset:
            sent.committed_leader_epoch = -1
        sent.committed_metadata = marked(sent.committed_metadata, individual.place, offset, row.incarnation)
        sent.committed_offset = offset
        sent.offset_ranges, sent.incarnation = b"", NO_INCARNATION
        return True

    def _note_commit(self, codes: Mapping[_RowKey, int]) -> None:
        """Puts on record what the coordinator has got of managed topics."""
        for row in self._rows.values():
            if row.pushed >= 0:
                row.asked.committed_offset = row.pushed
        watch = watch_commit(self._handler.journal, self._held, self._value, self._handler.view)
        if watch is not None:
            watch.told(self._response(codes))

    async def _claim(self, known: ClaimsLog, life: int) -> None:
        """Writes what is new of the rows that the coordinator has accepted."""
        taken, read_to = list(self._open()), known.read_to  # what comes from here on is in no record that is made here
        new: dict[int, Claim] = {}
        for row in taken:
            if known.life != life:
                row.code = Code.COORDINATOR_LOAD_IN_PROGRESS
            elif not self._is_newest(row, known):
                row.code = Code.INDIVIDUAL_COMMIT_TOO_OLD
            else:
                new[id(row)] = self._fit(row, known)
            await give_turn(row.done.ranges)
        said = [(row.place, row.said) for row in taken if row.said is not None and row.place is not None]
        try:
            if said:
                await known.write(said, read_to)
        except UpstreamUnavailable as error:
            log.warning("claims_not_written", group=self._value.group_id, error=str(error))
            self._refuse(Code.COORDINATOR_NOT_AVAILABLE)
        for row in list(self._open()):
            self._settle(row, known, life)
            if not row.code or row.code == Code.MAX_INDIVIDUAL_COMMIT_REACHED:
                self._note(row, new[id(row)])

    def _fit(self, row: _Row, known: ClaimsLog) -> Claim:
        """Makes the record of a row; returns what is new in it."""
        assert row.place is not None
        place = known.of(row.place)
        most = len(place.done.ranges) if self._handler.logs.is_full else MOST_RANGES
        fitting = claims.fitting(place.done, row.done, min(most, MOST_RANGES))
        row.left, row.known_ranges = fitting.left, len(place.done.ranges)
        row.said = place.to_write(row.asked.incarnation, fitting.done, now_ms())
        return Claim(row.asked.incarnation, place.done.missing(fitting.done))

    def _settle(self, row: _Row, known: ClaimsLog, life: int) -> None:
        if known.life != life:
            row.code = Code.COORDINATOR_LOAD_IN_PROGRESS
        elif not self._is_newest(row, known):
            row.code = Code.INDIVIDUAL_COMMIT_TOO_OLD
        else:
            assert row.place is not None
            row.stable = known.of(row.place).done.stable
            row.code = Code.MAX_INDIVIDUAL_COMMIT_REACHED if row.left else Code.NONE

    def _note(self, row: _Row, new: Claim) -> None:
        journal, name = self._handler.journal, row.topic.get("name", "") or None
        if journal.is_on and row.place is not None:
            client, known = self._held.client, row.known_ranges
            told = individual_commit(
                client, self._committer, row.place, new, known_ranges=known, pushed=row.pushed, topic=name
            )
            journal.note(told)

    def _answered(self, codes: Mapping[_RowKey, int], throttle_time_ms: int) -> OffsetCommitResponse:
        response = self._response({**codes, **{each.key: each.code for each in self._rows.values()}})
        response.throttle_time_ms = throttle_time_ms
        stable = {each.key: each.stable for each in self._rows.values()}
        for topic in response.topics:
            for row in topic.partitions:
                row.last_stable_offset = stable.get((_topic_key(topic), row.partition_index), -1)
        return response

    def _response(self, codes: Mapping[_RowKey, int]) -> OffsetCommitResponse:
        topics = list[OffsetCommitResponseTopic]()
        for topic in self._value.topics:
            key = _topic_key(topic)
            rows = [
                OffsetCommitResponsePartition(
                    partition_index=row.partition_index,
                    error_code=codes.get((key, row.partition_index), Code.UNKNOWN_SERVER_ERROR),
                )
                for row in topic.partitions
            ]
            answered = OffsetCommitResponseTopic(partitions=rows)
            if "topic_id" in topic:
                answered.topic_id = topic.topic_id
            else:
                answered.name = topic.name
            topics.append(answered)
        return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


def _refuse_malformed(group_id: str, row: _Row, why: str) -> None:
    row.code = Code.INVALID_REQUEST
    log.warning("individual_commit_malformed", group=group_id, error=why)


def _topic_key(row: OffsetCommitRequestTopic | OffsetCommitResponseTopic) -> object:
    return row.topic_id if "topic_id" in row else row.name


def _done(row: OffsetCommitRequestPartition) -> Done:
    """Reads what a row says is done; raises ValueError if it cannot be meant."""
    ranges = load(row.offset_ranges) if row.offset_ranges else claims.NOTHING.ranges
    if ranges and next(iter(ranges))[0] <= row.committed_offset:
        raise ValueError("the first range is not behind the stable offset")
    return Done(row.committed_offset, ranges)
