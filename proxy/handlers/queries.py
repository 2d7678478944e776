"""ListOffsets and OffsetForLeaderEpoch of managed topics: asked along the chain of each partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers.settle import LocatedStream, Plan, Unsettled, find_place, settle
from kordon.proxy.kafka.questions import Form, PartitionQuestion, Questions, Row
from kordon.proxy.ordering.lookups import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOTHING,
    FoundOffset,
    epoch_end,
    epoch_question,
    partitions_to_ask,
    resolve,
    visible,
)
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.targets import Target, virtual_partition

_LIST_OFFSETS: Final = Form(apis.LIST_OFFSETS, range(4, 12), "name", "partition_index", "queries")
_LEADER_EPOCHS: Final = Form(apis.OFFSET_FOR_LEADER_EPOCH, range(2, 5), "topic", "partition", "queries")
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


@dataclass(frozen=True, slots=True)
class OffsetWish:
    """One offset that is looked for."""

    topic: str
    partition: int
    """By which the client knows it."""
    timestamp: int
    """A time in milliseconds since 1970, or one of `lookups`' negative ones."""
    current_leader_epoch: int = -1


class ListOffsets:
    """Answers ListOffsets.

    Args:
        topics: What is managed.
        questions: Asks the brokers.
        read_layouts_to_end: Returns when all layouts that were durable at the call are adopted; called before a client
            is told a lower end than one before (NO-FALSE-END). Raises UpstreamUnavailable.
        may_serve: Whether this worker's lease lives.
        target: What clients mean by the number of a partition.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        questions: Questions,
        read_layouts_to_end: Callable[[], Awaitable[object]] | None = None,
        may_serve: Callable[[], bool] = lambda: True,
        target: Target = virtual_partition,
    ) -> None:
        self._target = target
        self._read_layouts_to_end = read_layouts_to_end
        self._may_serve = may_serve
        self._topics = topics
        self._questions = questions
        self._told: WeakKeyDictionary[ManagedTopic, dict[int, int]] = WeakKeyDictionary()
        """The end that was told last, by partition."""

    async def serve(self, version: int, request: Any) -> dict[str, Any]:
        """Answers a request that names managed topics only; returns the response's fields."""
        wishes = [
            OffsetWish(topic.name, row.partition_index, row.timestamp, row.get("current_leader_epoch", -1))
            for topic in request.topics
            for row in topic.partitions
        ]
        fields = {name: request[name] for name in ("isolation_level", "timeout_ms") if name in request}
        found = await self.find(wishes, fields, version)
        rows = map(partial(_offset_row, version), wishes, found)
        topics = [{"name": each.name, "partitions": [next(rows) for _ in each.partitions]} for each in request.topics]
        return {"topics": topics}

    async def find(
        self, wishes: Sequence[OffsetWish], fields: Mapping[str, Any] | None = None, version: int = _NEWEST
    ) -> list[FoundOffset]:
        """Looks for offsets.

        Args:
            wishes: What is looked for.
            fields: Of the requests to brokers: isolation_level, timeout_ms.
            version: Of the client's request: it tells which timestamps have a meaning.

        Returns:
            What was found of each.
        """
        asked = {"replica_id": -1, **(fields or {})}
        plans = [partial(self._plan, version, wish) for wish in wishes]
        found = await settle(self._questions, _LIST_OFFSETS, plans, asked, self._may_serve)
        if asked.get("isolation_level"):
            return found  # the last stable offset lies below the end, and may do so for long
        lower = [number for number, wish in enumerate(wishes) if self._is_lower(wish, found[number])]
        if lower:
            again = await self._find_again([wishes[number] for number in lower], [plans[n] for n in lower], asked)
            found = [again.pop(0) if number in lower else each for number, each in enumerate(found)]
        for wish, each in zip(wishes, found, strict=True):
            self._remember(wish, each)
        return found

    async def _find_again(
        self, wishes: Sequence[OffsetWish], plans: Sequence[Callable[[], Plan]], asked: Mapping[str, Any]
    ) -> list[FoundOffset]:
        """Makes sure that an end is really lower than before: a log was cut short, or its topic is another one."""
        try:
            if self._read_layouts_to_end is not None:
                await self._read_layouts_to_end()
        except UpstreamUnavailable:
            return [FoundOffset(error=Code.UNKNOWN_LEADER_EPOCH)] * len(wishes)
        for topic in {wish.topic for wish in wishes}:
            self._questions.forget(topic)  # a leader that has been deposed may not know it yet
        return await settle(self._questions, _LIST_OFFSETS, plans, asked, self._may_serve)

    def _is_lower(self, wish: OffsetWish, found: FoundOffset) -> bool:
        topic = self._topics.named(wish.topic)
        if topic is None or wish.timestamp != LATEST or found.error:
            return False
        return found.offset < self._told.get(topic, {}).get(wish.partition, 0)

    def _remember(self, wish: OffsetWish, found: FoundOffset) -> None:
        topic = self._topics.named(wish.topic)
        if topic is not None and wish.timestamp == LATEST and not found.error:
            self._told.setdefault(topic, {})[wish.partition] = found.offset

    def _plan(self, version: int, wish: OffsetWish) -> Plan:
        if wish.timestamp < 0 and version < _MEANINGS.get(wish.timestamp, version + 1):
            raise Unsettled(Code.UNSUPPORTED_VERSION)
        place = find_place(self._topics, wish.topic, wish.partition, self._target)
        current = place.home_epoch(wish.current_leader_epoch)
        place.limit()  # no need to ask when it is not known
        asked = {
            q: _offset_question(wish, q, current if q == place.home.partition else -1)
            for q in partitions_to_ask(visible(place.chain, place.floor), wish.timestamp)
        }
        return Plan(place, asked, partial(self._read, wish, place))

    def _read(self, wish: OffsetWish, place: LocatedStream, rows: Mapping[int, Row]) -> FoundOffset:
        answers = {q: _told(row, "offset") for q, row in rows.items()}
        found = resolve(visible(place.chain, place.floor, place.limit()), wish.timestamp, answers)
        if wish.timestamp != LATEST or found.error:
            return found
        return found._replace(offset=max(place.floor, found.offset))


class OffsetForLeaderEpoch:
    """Answers OffsetForLeaderEpoch: where a leader epoch of a partition ends (RISING-EPOCH).

    Args:
        topics: What is managed.
        questions: Asks the brokers.
        may_serve: Whether this worker's lease lives.
        target: What clients mean by the number of a partition.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        questions: Questions,
        may_serve: Callable[[], bool] = lambda: True,
        target: Target = virtual_partition,
    ) -> None:
        self._target = target
        self._topics = topics
        self._questions = questions
        self._may_serve = may_serve

    async def serve(self, version: int, request: Any) -> dict[str, Any]:
        """Answers a request that names managed topics only; returns the response's fields."""
        asked = [(topic.topic, row) for topic in request.topics for row in topic.partitions]
        plans = [partial(self._plan, name, row) for name, row in asked]
        found = iter(await settle(self._questions, _LEADER_EPOCHS, plans, {"replica_id": -1}, self._may_serve))
        answers = [
            {"topic": topic.topic, "partitions": [_epoch_row(row.partition, next(found)) for row in topic.partitions]}
            for topic in request.topics
        ]
        return {"topics": answers}

    def _plan(self, name: str, row: Any) -> Plan:
        place = find_place(self._topics, name, row.partition, self._target)
        current = place.home_epoch(row.get("current_leader_epoch", -1))
        wanted = epoch_question(place.chain, row.leader_epoch)
        if wanted is None:
            return Plan(place, {}, lambda _: NOTHING)
        q = wanted.stay.partition
        fields = (("current_leader_epoch", current if wanted.stay.end is None else -1), ("leader_epoch", wanted.epoch))

        def read(rows: Mapping[int, Row]) -> FoundOffset:
            found = epoch_end(wanted, _told(rows[q], "end_offset"))
            limit = place.limit() if wanted.stay.end is None else None
            if limit is None or found.offset <= limit + wanted.stay.delta:
                return found
            if place.is_withheld:
                return found._replace(offset=limit + wanted.stay.delta)
            # A shorter answer would have a client that read on through another worker begin there again.
            raise Unsettled(Code.UNKNOWN_LEADER_EPOCH)

        return Plan(place, {q: PartitionQuestion(name, q, fields)}, read)


def _offset_question(wish: OffsetWish, partition: int, current_leader_epoch: int) -> PartitionQuestion:
    fields = (("current_leader_epoch", current_leader_epoch), ("timestamp", wish.timestamp))
    return PartitionQuestion(wish.topic, partition, fields)


def _told(row: Row, offset: str) -> FoundOffset:
    if row["error_code"]:
        return FoundOffset(error=row["error_code"])
    return FoundOffset(row[offset], row.get("timestamp", -1), row.get("leader_epoch", -1))


def _offset_row(version: int, wish: OffsetWish, found: FoundOffset) -> dict[str, Any]:
    legible = version >= _ERRORS.get(found.error, 0)
    return {
        "partition_index": wish.partition,
        "error_code": found.error if legible else Code.LEADER_NOT_AVAILABLE,
        "timestamp": found.timestamp,
        "offset": found.offset,
        "leader_epoch": found.epoch,
        "old_style_offsets": [found.offset] if found.offset >= 0 else [],
    }


def _epoch_row(partition: int, found: FoundOffset) -> dict[str, Any]:
    return {"partition": partition, "error_code": found.error, "leader_epoch": found.epoch, "end_offset": found.offset}
