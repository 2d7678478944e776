"""ListOffsets: for managed topics Kordon asks the leaders along the chain of each partition and answers itself.

Clients need the right to describe the topic. In the virtual view numbers mean virtual partitions and offsets virtual
ones, in the dialect's physical ones. Timestamps with a meaning that the request's version does not have are refused
with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from kordon.codecs import apis
from kordon.codecs.bodies import ListOffsetsRequest as Request
from kordon.codecs.bodies import ListOffsetsResponse as Response
from kordon.codecs.bodies import ListOffsetsResponsePartition as ResponsePartition
from kordon.codecs.bodies import ListOffsetsResponseTopic as ResponseTopic
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.settle import LocatedStream, SettlePlan, Unsettled, find_place, found_in, settle
from kordon.proxy.handlers.topic_rows import ServedApi, TopicRows
from kordon.proxy.kafka.leader_requests import Form, PartitionLeaderRequests, PartitionQuestion, Row
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.lookups import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOTHING,
    FoundOffset,
    partitions_to_ask,
    resolve,
    visible,
)
from kordon.proxy.reads.stable_ends import StableEnds
from kordon.proxy.reads.timed_offsets import NOWHERE, TimedOffsets
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.views import VIRTUAL, View

_LIST_OFFSETS: Final = Form(apis.LIST_OFFSETS, range(4, 12), "name", "partition_index", "queries")
_NEWEST: Final = 11
_MEANINGS: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""By timestamp with a meaning, the first version of ListOffsets that has it."""
_ERRORS: Final[Mapping[int, int]] = {
    Code.UNKNOWN_LEADER_EPOCH: 4,
    Code.FENCED_LEADER_EPOCH: 4,
    Code.OFFSET_NOT_AVAILABLE: 5,
}
"""First versions of ListOffsets that have these error codes (KafkaApis.handleListOffsetRequest)."""


_Told: TypeAlias = WeakKeyDictionary[ManagedTopic, dict[int, int]]
"""The end that was told last, by topic and partition."""


@dataclass(frozen=True, slots=True)
class OffsetWish:
    """One offset that is looked for."""

    topic: str
    partition: int
    """By which the client knows it."""
    timestamp: int
    """A time in milliseconds since 1970, or one of `lookups`' negative ones."""
    current_leader_epoch: int = -1


class ListOffsets(ServedApi[Request, Response]):
    """Answers ListOffsets.

    Args:
        read_layouts_to_end: Returns when all layouts that were durable at the call are adopted; called before a client
            is told a lower end than one before (NO-FALSE-END). Raises UpstreamUnavailable.
        may_serve: Whether this worker's lease lives.
        reads: The worker's reads, which know what brokers do not know of topics with transactions.
    """

    key = apis.LIST_OFFSETS
    right = Operation.DESCRIBE
    rows = TopicRows("topics", "name", "topics")

    def __init__(
        self,
        topics: ManagedTopics,
        questions: PartitionLeaderRequests,
        read_layouts_to_end: Callable[[], Awaitable[object]] | None = None,
        may_serve: Callable[[], bool] = lambda: True,
        view: View = VIRTUAL,
        *,
        reads: WorkerReads | None = None,
    ) -> None:
        self._view = view
        self._stable = StableEnds(reads) if reads is not None else None
        self._timed = TimedOffsets(reads) if reads is not None else None
        self._read_layouts_to_end = read_layouts_to_end
        self._may_serve = may_serve
        self._topics = topics
        self._questions = questions
        self._told: _Told = WeakKeyDictionary()
        self._told_stable: _Told = WeakKeyDictionary()
        """To read_committed readers of topics with transactions."""

    async def serve(self, version: int, request: Request, client: Client) -> Response:
        """Answers a request that names managed topics only."""
        wishes = [
            OffsetWish(topic.name, row.partition_index, row.timestamp, row.get("current_leader_epoch", -1))
            for topic in request.topics
            for row in topic.partitions
        ]
        fields = {name: request[name] for name in ("isolation_level", "timeout_ms") if name in request}
        found = await self.find(wishes, fields, version)
        rows = map(partial(_offset_row, version), wishes, found)
        topics = [
            ResponseTopic(name=each.name, partitions=[next(rows) for _ in each.partitions]) for each in request.topics
        ]
        return Response(topics=topics)

    async def find(
        self, wishes: Sequence[OffsetWish], fields: Mapping[str, object] | None = None, version: int = _NEWEST
    ) -> list[FoundOffset]:
        """Looks for offsets.

        Args:
            fields: The fields isolation_level and timeout_ms of the requests to brokers.
            version: The version of the client's request, which says which special timestamps have a meaning.

        Returns:
            What was found of each.
        """
        asked = {"replica_id": -1, **(fields or {})}
        if not asked.get("isolation_level"):
            return await self._find_rising(wishes, asked, version, self._told)
        of_transactions = [number for number, wish in enumerate(wishes) if _has_transactions(self._topics, wish.topic)]
        others = [wish for number, wish in enumerate(wishes) if number not in of_transactions]
        # The last stable offset of ordinary data lies below the end, and may do so for long.
        found = iter(await self._settled(others, asked, version) if others else [])
        mine = [wishes[number] for number in of_transactions]
        # Brokers know nothing of these transactions but the last stable offset of all neighbours together.
        stable = iter(await self._find_rising(mine, asked | {"isolation_level": 0}, version, self._told_stable))
        return [next(stable if number in of_transactions else found) for number in range(len(wishes))]

    async def _find_rising(
        self, wishes: Sequence[OffsetWish], asked: Mapping[str, object], version: int, told: _Told
    ) -> list[FoundOffset]:
        """Looks for offsets, and makes sure of ends that are lower than before."""
        found = await self._settled(wishes, asked, version, told)
        lower = [number for number, wish in enumerate(wishes) if self._is_lower(wish, found[number], told)]
        if lower:
            again = await self._find_again([wishes[number] for number in lower], asked, version, told)
            found = [again.pop(0) if number in lower else each for number, each in enumerate(found)]
        for wish, each in zip(wishes, found, strict=True):
            self._remember(wish, each, told)
        return found

    async def _settled(
        self, wishes: Sequence[OffsetWish], asked: Mapping[str, object], version: int, told: _Told | None = None
    ) -> list[FoundOffset]:
        plans = [partial(self._plan, version, wish) for wish in wishes]
        found = await settle(self._questions, _LIST_OFFSETS, plans, asked, self._may_serve)
        if not any(_has_transactions(self._topics, wish.topic) for wish in wishes):
            return found
        timed = await asyncio.gather(*map(self._by_time, wishes, found))
        if told is not self._told_stable:
            return timed
        return await asyncio.gather(*map(self._committed, wishes, timed))

    async def _by_time(self, wish: OffsetWish, found: FoundOffset) -> FoundOffset:
        """Returns the client's answer if a search by time has found a witness or a marker."""
        is_timed = wish.timestamp >= 0 and found.offset >= 0 and not found.error
        if self._timed is None or not is_timed or not _has_transactions(self._topics, wish.topic):
            return found
        try:
            place = find_place(self._topics, wish.topic, wish.partition, self._view)
        except Unsettled as error:
            return FoundOffset(error=error.code)
        offset = await self._timed.of(place.topic, place.stream, found.offset, wish.timestamp)
        if offset is None or not (place.is_current and self._may_serve()):
            return FoundOffset(error=Code.LEADER_NOT_AVAILABLE)
        if offset == NOWHERE:
            return NOTHING
        return found if offset == found.offset else FoundOffset(offset, wish.timestamp)

    async def _committed(self, wish: OffsetWish, found: FoundOffset) -> FoundOffset:
        """Returns a read_committed reader's answer for a topic with transactions."""
        if found.error or self._stable is None or wish.timestamp != LATEST:
            return found
        try:
            place = find_place(self._topics, wish.topic, wish.partition, self._view)
        except Unsettled as error:
            return FoundOffset(error=error.code)
        stable = await self._stable.of(place.topic, place.stream, found.offset - place.home.delta)
        if stable is None or not (place.is_current and self._may_serve()):
            return FoundOffset(error=Code.LEADER_NOT_AVAILABLE)
        return found._replace(offset=min(found.offset, stable))

    async def _find_again(
        self, wishes: Sequence[OffsetWish], asked: Mapping[str, object], version: int, told: _Told
    ) -> list[FoundOffset]:
        """Makes sure that an end is really lower than before: a log was cut short, or its topic is another one."""
        try:
            if self._read_layouts_to_end is not None:
                await self._read_layouts_to_end()
        except UpstreamUnavailable:
            return [FoundOffset(error=Code.UNKNOWN_LEADER_EPOCH)] * len(wishes)
        for topic in {wish.topic for wish in wishes}:
            self._questions.forget(topic)  # a leader that has been deposed may not know it yet
        return await self._settled(wishes, asked, version, told)

    def _is_lower(self, wish: OffsetWish, found: FoundOffset, told: _Told) -> bool:
        topic = self._topics.named(wish.topic)
        if topic is None or wish.timestamp != LATEST or found.error:
            return False
        return found.offset < told.get(topic, {}).get(wish.partition, 0)

    def _remember(self, wish: OffsetWish, found: FoundOffset, told: _Told) -> None:
        topic = self._topics.named(wish.topic)
        if topic is not None and wish.timestamp == LATEST and not found.error:
            told.setdefault(topic, {})[wish.partition] = found.offset

    def _plan(self, version: int, wish: OffsetWish) -> SettlePlan:
        if wish.timestamp < 0 and version < _MEANINGS.get(wish.timestamp, version + 1):
            raise Unsettled(Code.UNSUPPORTED_VERSION)
        place = find_place(self._topics, wish.topic, wish.partition, self._view)
        current = place.home_epoch(wish.current_leader_epoch)
        place.limit()  # no need to ask when it is not known
        asked = {
            q: _offset_question(wish, q, current if q == place.home.partition else -1)
            for q in partitions_to_ask(visible(place.chain, place.floor), wish.timestamp)
        }
        return SettlePlan(place, asked, partial(self._read, wish, place))

    def _read(self, wish: OffsetWish, place: LocatedStream, rows: Mapping[int, Row]) -> FoundOffset:
        answers = {q: found_in(row, "offset") for q, row in rows.items()}
        found = resolve(visible(place.chain, place.floor, place.limit()), wish.timestamp, answers)
        if wish.timestamp != LATEST or found.error:
            return found
        return found._replace(offset=max(place.floor, found.offset))


def _has_transactions(topics: ManagedTopics, name: str) -> bool:
    topic = topics.named(name)
    return topic is not None and topic.layout.has_transactions


def _offset_question(wish: OffsetWish, partition: int, current_leader_epoch: int) -> PartitionQuestion:
    fields = (("current_leader_epoch", current_leader_epoch), ("timestamp", wish.timestamp))
    return PartitionQuestion(wish.topic, partition, fields)


def _offset_row(version: int, wish: OffsetWish, found: FoundOffset) -> ResponsePartition:
    legible = version >= _ERRORS.get(found.error, 0)
    return ResponsePartition(
        partition_index=wish.partition,
        error_code=found.error if legible else Code.LEADER_NOT_AVAILABLE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.epoch,
        old_style_offsets=[found.offset] if found.offset >= 0 else [],
    )
