"""Where finished ranges are kept between two owners of a partition."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.range_text import METADATA_BYTES, Owner, UnreadRanges, build, parse
from kordon.client.cooperative.ranges import Range, settled
from kordon.client.requests import METADATA, WireRequest

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)

NO_ID: Final = UUID(int=0)
_METADATA_VERSIONS: Final = range(10, 13)
"""Those that name topics and tell their ids."""
_FENCED: Final = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)


@dataclass(frozen=True, slots=True)
class Found:
    """What a group knows of a partition."""

    offset: int
    """The committed one."""
    ranges: tuple[Range, ...] = ()
    """What is finished behind it, as far as that is believed."""


class RangeStore(Protocol):
    """Keeps what is finished of partitions; `CommitMetadata` does it on every cluster."""

    @property
    def is_member(self) -> bool:
        """Whether the group still counts this consumer as the owner of its partitions, as far as is known here."""
        ...

    async def read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Found]:
        """Returns what is known of partitions that were assigned; those without a commit are missing.

        Raises:
            KafkaError: It cannot be known.
        """
        ...

    async def write(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Keeps what is finished, in place of what was kept of these partitions before.

        Raises:
            KafkaError: It may be kept or not. CommitFailedError: the partitions may be another member's.
        """
        ...


class CommitMetadata:
    """Keeps ranges in the metadata of ordinary commits (OffsetCommit), as far as they fit.

    Args:
        consumer: A member of a group; started before `read` is called.
        group_id: Of the group.
    """

    def __init__(self, consumer: AIOKafkaConsumer, group_id: str) -> None:
        self._consumer = consumer
        self._group_id = group_id
        self._ids: dict[str, UUID] = {}
        self._most_bytes = METADATA_BYTES
        self._cut_short: set[TopicPartition] = set()
        """Partitions whose ranges do not fit; each is warned of once, until they fit again."""

    @property
    def is_member(self) -> bool:
        """Whether the group still counts this consumer as a member, as far as is known here."""
        coordinator = self._consumer._coordinator
        return isinstance(coordinator, GroupCoordinator) and coordinator.generation > 0

    async def read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Found]:
        """Returns what is known of partitions that were assigned; those without a commit are missing.

        Raises:
            KafkaError: The commits cannot be known. Ranges that cannot be judged are not believed instead.
        """
        if not partitions:
            return {}
        await self._learn_ids({tp.topic for tp in partitions})
        commits: Mapping[TopicPartition, Any] = await self._coordinator.fetch_committed_offsets(list(partitions))
        found = {tp: Found(each.offset, self._ranges(tp, each)) for tp, each in commits.items()}
        return await self._from_the_start_of_the_log(await self._within_the_log(found))

    async def write(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commits the stable offsets, with the ranges behind them as metadata.

        Raises:
            CommitFailedError: The group has moved on.
            KafkaError: The commit may be there or not.
        """
        assignment: Any = self._consumer._subscription.subscription.assignment
        generation: int = self._coordinator.generation
        if assignment is None or not self.is_member:
            raise CommitFailedError("this consumer is not a member of its group now")
        offsets = {tp: OffsetAndMetadata(each.stable, self._text(tp, each)) for tp, each in progress.items()}
        try:
            await self._coordinator.ensure_coordinator_known()
            if self._coordinator.generation != generation:
                # aiokafka would send it as one of the next assignment, and set back what another member has committed
                raise CommitFailedError("the group has rebalanced meanwhile")
            await self._coordinator._do_commit_offsets(assignment, offsets)
        except _FENCED as error:
            raise CommitFailedError("the group has rebalanced, and others may own the partitions") from error
        except OffsetMetadataTooLargeError:
            self._most_bytes //= 2
            _log.warning(
                "The broker takes less than %d bytes of metadata (offset.metadata.max.bytes): less of what is finished "
                "behind a gap is committed from now on",
                self._most_bytes * 2,
            )
            raise

    @property
    def _coordinator(self) -> GroupCoordinator:
        coordinator = self._consumer._coordinator
        if not isinstance(coordinator, GroupCoordinator):
            raise IllegalStateError("the consumer is not started, or has no group")
        return coordinator

    def _text(self, tp: TopicPartition, progress: Progress) -> str:
        text, count = build(self._owner(tp), progress.stable, progress.ranges, self._most_bytes)
        if count == len(progress.ranges):
            self._cut_short.discard(tp)
        elif tp not in self._cut_short:
            self._cut_short.add(tp)
            _log.warning(
                "%s has %d finished ranges behind offset %d, and a commit has room for %d: what is finished behind "
                "them is handled again if this consumer dies. Look at what holds that offset (oldest_gap)",
                tp,
                len(progress.ranges),
                progress.stable,
                count,
            )
        return text

    def _ranges(self, tp: TopicPartition, commit: OffsetAndMetadata) -> tuple[Range, ...]:
        try:
            return tuple(parse(self._owner(tp), commit.offset, commit.metadata or ""))
        except UnreadRanges as error:
            _log.warning(
                "What is finished of %s behind offset %d is not known, and is handled again: %s",
                tp,
                commit.offset,
                error,
            )
            return ()

    def _owner(self, tp: TopicPartition) -> Owner:
        return Owner(self._group_id, tp.topic, tp.partition, self._ids.get(tp.topic, NO_ID))

    async def _learn_ids(self, topics: Collection[str]) -> None:
        """Asks for the topics' ids: a topic that was deleted and made again has another one."""
        for topic in topics:
            self._ids.pop(topic, None)
        rows = [{"topic_id": NO_ID, "name": topic} for topic in topics]
        request = WireRequest(METADATA, _METADATA_VERSIONS, {"topics": rows, "allow_auto_topic_creation": False})
        client: AIOKafkaClient = self._consumer._client
        try:
            node = client.get_random_node()
            if node is None:
                raise NodeNotReadyError
            answer: Any = await client.send(node, request, group=ConnectionGroup.DEFAULT)
        except IncompatibleBrokerVersion:
            return  # before Kafka 2.8 topics have no ids
        except KafkaError as error:
            _log.warning("The ids of %s are not known, so finished ranges are not believed: %r", sorted(topics), error)
            return
        self._ids.update((row.name, row.topic_id) for row in answer.topics if not row.error_code)

    async def _within_the_log(self, found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, Found]:
        """Drops the ranges of a log that ends before them: it is shorter than it was, so its offsets are used again."""
        doubtful = [tp for tp, each in found.items() if each.ranges]
        ends: Mapping[TopicPartition, int] = {}
        if doubtful:
            try:
                ends = await self._consumer.end_offsets(doubtful)
            except (TimeoutError, KafkaError) as error:
                _log.warning("The ends of %s are not known, so finished ranges are not believed: %r", doubtful, error)
        believed = dict(found)
        for tp in doubtful:
            reach = found[tp].ranges[-1][1]
            if reach > ends.get(tp, -1):
                believed[tp] = Found(found[tp].offset)
                _log.warning(
                    "%s ends at %d, and ranges up to %d were committed as finished: they are not believed, and are "
                    "handled again",
                    tp,
                    ends.get(tp, -1),
                    reach,
                )
        return believed

    async def _from_the_start_of_the_log(self, found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, Found]:
        """Goes on where a log begins now, if retention has taken the record that held the committed offset.

        That offset would be out of range, and `auto_offset_reset` might skip what nobody has handled. Where it is not
        known, it is left to that.
        """
        behind = dict(found)
        try:
            starts: Mapping[TopicPartition, int] = await self._consumer.beginning_offsets(list(found)) if found else {}
        except (TimeoutError, KafkaError) as error:
            _log.warning("It is not known where %s begin now: %r", sorted(found), error)
            return behind
        for tp, start in starts.items():
            if start > found[tp].offset:
                stable, ranges = settled(start, found[tp].ranges)
                behind[tp] = Found(stable, tuple(ranges))
                _log.warning(
                    "%s begins at %d, and everything was finished before %d only: the records between, as far as they "
                    "were not finished, are gone unhandled",
                    tp,
                    start,
                    found[tp].offset,
                )
        return behind
