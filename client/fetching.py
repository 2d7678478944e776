"""How an OrderedConsumer fetches: only what is not held, under the count that it believes, as a member of its group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from aiokafka.consumer.fetcher import UNKNOWN_OFFSET, Fetcher, OffsetResetStrategy
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState, TopicPartitionState
from aiokafka.errors import KafkaError, StaleMetadata
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition

from kordon.client.dialect_client import DialectClient
from kordon.client.errors import InvalidPartitionMetadataError
from kordon.client.key_move_driver import KeyMoveDriver
from kordon.client.layouts import Layouts
from kordon.client.requests import Decoder, PreparedRequest
from kordon.codecs.bodies import FetchResponse, FetchResponsePartition, FetchResponseTopic
from kordon.codecs.messages import fetch
from kordon.proxy.ordering.epochs import split_epoch

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

FETCH: Final = 1
_VERSION: Final = 12
"""The first that can carry tagged fields, and the last that names topics."""
_LEADER_EPOCH: Final = struct.Struct(">12xi")
"""Where a record batch has it."""


_log = logging.getLogger(__name__)

_ASK_METADATA: Final = (5, 74, 75, InvalidPartitionMetadataError.errno)
"""Codes upon which metadata is asked for, and the Fetch repeated a little later: LEADER_NOT_AVAILABLE (a topic is being
taken over), FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, and that of the dialect. aiokafka repeats it at once."""
KnownToGroup: TypeAlias = Callable[[str], Awaitable[bool]]
"""Says whether a group has a commit on any partition of a topic."""


_Row: TypeAlias = tuple[int, int, int, int, int, list[tuple[int, int]], int, bytes]
"""What aiokafka reads of a partition in version 11 of the answer."""


class OrderedFetchRequest(FetchRequest):
    """A Fetch that says by which layout the partitions were chosen, and who asks.

    Args:
        driver: Knows the member, the positions of a reader without group, and the segments.
    """

    def __init__(self, asked: FetchRequest, layouts: Layouts, driver: KeyMoveDriver) -> None:
        super().__init__(
            asked._max_wait_ms,
            asked._min_bytes,
            asked._max_bytes,
            asked._isolation_level,
            asked._topics,
            rack_id=asked._rack_id,
        )
        self.shows_newer_layout = False
        """Whether the answer has shown that there is one."""
        self._layouts = layouts
        self._driver = driver

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """Chooses the version; where tagged fields do not fit in it is aiokafka's own request."""
        oldest, newest = versions.get(self.API_KEY, (0, -1))
        if not oldest <= _VERSION <= newest:
            return super().prepare(dict(versions))
        return _Prepared(FETCH, _VERSION, self._body(), self)

    def taken(self, answer: FetchResponse) -> OrderedFetchAnswer:
        """Reads the answer into aiokafka's shape; rows that newer metadata may mend are left out."""
        return OrderedFetchAnswer([(topic.topic, list(self._rows(topic))) for topic in answer.responses])

    def _body(self) -> dict[str, object]:
        is_managed = any(self._layouts.get(topic) is not None for topic, _ in self._topics)
        member = self._driver.member if is_managed else None
        body: dict[str, object] = {
            "max_wait_ms": self._max_wait_ms,
            "min_bytes": self._min_bytes,
            "max_bytes": self._max_bytes,
            "isolation_level": self._isolation_level,
            "topics": [self._topic(topic, partitions) for topic, partitions in self._topics],
            "rack_id": self._rack_id,
        }
        if member is not None:
            body |= {"group_id": member.group_id, "generation_id": member.generation_id, "member_id": member.member_id}
        return body

    def _topic(self, topic: str, partitions: list[tuple[int, int, int]]) -> dict[str, object]:
        rows = [{"partition": q, "fetch_offset": at, "partition_max_bytes": most} for q, at, most in partitions]
        layout = self._layouts.get(topic)
        if layout is None:
            return {"topic": topic, "partitions": rows}
        told = self._driver.moves.told if self._driver.member is None else {}
        positions = [{"partition": tp.partition, "position": at} for tp, at in told.items() if tp.topic == topic]
        count = layout.undeleted_partition_count
        return {"topic": topic, "partitions": rows, "undeleted_partition_count": count, "positions": positions}

    def _rows(self, topic: FetchResponseTopic) -> Iterator[_Row]:
        for row in topic.partitions:
            if self._does_not_fit(TopicPartition(topic.topic, row.partition_index), row):
                self.shows_newer_layout = True
                continue
            aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
            yield (
                row.partition_index,
                row.error_code,
                row.high_watermark,
                row.last_stable_offset,
                row.log_start_offset,
                aborted,
                row.preferred_read_replica,
                bytes(row.records or b""),
            )

    def _does_not_fit(self, tp: TopicPartition, row: FetchResponsePartition) -> bool:
        records = row.records or b""
        if row.error_code in _ASK_METADATA:
            return True
        if self._layouts.get(tp.topic) is None or len(records) < _LEADER_EPOCH.size:
            return False
        # an answer never holds two segments of a partition, so its first batch tells of all
        (leader_epoch,) = _LEADER_EPOCH.unpack_from(records)
        return self._driver.known.segments.is_newer(tp, self._offset(tp), split_epoch(leader_epoch)[0])

    def _offset(self, tp: TopicPartition) -> int:
        asked = next(partitions for topic, partitions in self._topics if topic == tp.topic)
        offset: int = next(at for q, at, _ in asked if q == tp.partition)
        return offset


@dataclass(frozen=True, slots=True)
class _Prepared(PreparedRequest):
    asked: OrderedFetchRequest

    @property
    def RESPONSE_TYPE(self) -> Decoder:  # noqa: N802  aiokafka's name
        return Decoder(lambda body: self.asked.taken(fetch.RESPONSE.parse(_VERSION, body)))


class OrderedFetchAnswer:
    """An answer to Fetch as aiokafka's Fetcher reads it.

    Attributes:
        topics: (topic, rows), rows as of version 11.
    """

    API_VERSION: Final = 11

    def __init__(self, topics: list[tuple[str, list[_Row]]]) -> None:
        self.topics = topics


class _Admitted:
    """What of an assignment may be fetched now, in place of it."""

    def __init__(self, assignment: Assignment, tps: frozenset[TopicPartition]) -> None:
        self.tps = tps
        self.state_value: Callable[[TopicPartition], TopicPartitionState] = assignment.state_value


class OrderedFetcher(Fetcher):
    """Fetcher that leaves out what is held.

    Args:
        known_to_group: Whether a group has commits of a topic.
    """

    def __init__(
        self,
        client: DialectClient,
        subscriptions: SubscriptionState,
        *,
        driver: KeyMoveDriver,
        known_to_group: KnownToGroup | None,
        **options: Any,
    ) -> None:
        self._driver = driver
        self._known_to_group = known_to_group
        super().__init__(client, subscriptions, **options)

    def resume(self) -> None:
        """Looks at once which partitions may be fetched."""
        self._notify(self._wait_consume_future)

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops what was fetched of partitions and not delivered yet: it is fetched again when it may be."""
        for tp in partitions:
            self._records.pop(tp, None)

    def seek_to(self, tp: TopicPartition, offset: int) -> None:
        """Goes to an offset; the driver has seen where the member stood before."""
        self._driver.goes_elsewhere()
        super().seek_to(tp, offset)

    def request_offset_reset(self, tps: Collection[TopicPartition], strategy: int) -> asyncio.Future[list[Any]]:
        """Goes to a beginning or an end, likewise; returns what is done when the offsets are known."""
        self._driver.goes_elsewhere()
        waiting: asyncio.Future[list[Any]] = super().request_offset_reset(tps, strategy)
        return waiting

    def _get_actions_per_node(self, assignment: Assignment) -> Any:
        tps = frozenset(tp for tp in assignment.tps if self._is_admitted(assignment, tp))
        requests, *others = super()._get_actions_per_node(_Admitted(assignment, tps))
        return [(node, self._ordered(request)) for node, request in requests], *others

    def _is_admitted(self, assignment: Assignment, tp: TopicPartition) -> bool:
        state = assignment.state_value(tp)
        return not state.has_valid_position or self._driver.admits(assignment, tp, state.position)

    def _ordered(self, request: FetchRequest) -> FetchRequest:
        """Says what it knows of layouts; of none it says nothing, but may be answered that there is one by now."""
        if not self._client.cluster.ordered:
            return request
        return OrderedFetchRequest(request, self._client.layouts, self._driver)

    async def _proc_fetch_request(self, assignment: Assignment, node_id: int, request: FetchRequest) -> bool:
        needs_wakeup: bool = await super()._proc_fetch_request(assignment, node_id, request)
        if assignment.active:
            asked = {TopicPartition(topic, q) for topic, rows in request.topics for q, *_ in rows}
            self.withhold(tp for tp in asked & assignment.tps if not self._is_admitted(assignment, tp))
        if isinstance(request, OrderedFetchRequest) and request.shows_newer_layout:
            self._driver.is_out_of_date()
            with contextlib.suppress(asyncio.CancelledError):  # as the parent does: whoever ends this awaits it
                await asyncio.sleep(self._retry_backoff)
        return needs_wakeup

    async def _update_fetch_positions(self, assignment: Assignment, node_id: int, tps: list[TopicPartition]) -> bool:
        try:
            await self._settle_beginnings(assignment, tps)
        except asyncio.CancelledError:
            return False  # as the parent does: whoever ends this awaits it
        except KafkaError as error:
            _log.warning("Where %s begin is not known yet: %r", tps, error)
            return False
        needs_wakeup: bool = await super()._update_fetch_positions(assignment, node_id, tps)
        self._driver.look()
        return needs_wakeup

    async def _settle_beginnings(self, assignment: Assignment, tps: list[TopicPartition]) -> None:
        if not await self._driver.known.segments.refresh({tp.topic for tp in tps}):
            await asyncio.sleep(self._retry_backoff)
            raise StaleMetadata("segments")
        for tp in tps:
            await self._begin_at_birth(assignment, tp)

    async def _begin_at_birth(self, assignment: Assignment, tp: TopicPartition) -> None:
        """Lets a group that has read a topic read a partition that is added to it from its start (KIP-1327)."""
        state = assignment.state_value(tp)
        is_new = not state.has_valid_position and not state.awaiting_reset
        if not is_new or self._default_reset_strategy != OffsetResetStrategy.LATEST or self._known_to_group is None:
            return
        known = self._driver.known.segments.get(tp.topic)
        birth = known.birth(tp.partition) if known is not None else None
        if birth is None:
            return
        committed = await state.fetch_committed()
        if committed.offset == UNKNOWN_OFFSET and await self._known_to_group(tp.topic) and not state.has_valid_position:
            state.reset_to(birth)
