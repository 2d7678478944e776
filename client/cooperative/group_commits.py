"""OffsetCommit and OffsetFetch of a member by Kordon's tables, with the fields that aiokafka's own leave out."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar

from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    IllegalGenerationError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaError,
    NoError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.structs import TopicPartition

from kordon.client.requests import API_VERSIONS, WireRequest
from kordon.codecs import apis, dialect

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)

T = TypeVar("T")

_TAGGED: Final = range(8, 9)
"""The first versions with tagged fields; newer ones are for other kinds of groups, or name no topics."""
_FETCH: Final = range(1, _TAGGED.stop)
_COMMIT: Final = range(2, _TAGGED.stop)
_RETRY_SECONDS: Final = 0.1
_ELSEWHERE: Final = (GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError, RequestTimedOutError)
_FENCED: Final = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)


class CommitRow(Protocol):
    """What a coordinator has of a partition; rows of a dictionary that have attributes, too."""

    committed_offset: int
    metadata: str | None
    error_code: int

    def get(self, name: str, default: Any) -> Any:
        """Returns a field that only some versions have."""
        ...


class GroupCommits:
    """The commits of a consumer's group.

    Args:
        consumer: A member; started before anything is called.
        group_id: The group's id.
    """

    def __init__(self, consumer: AIOKafkaConsumer, group_id: str) -> None:
        self._consumer = consumer
        self._group_id = group_id

    @property
    def is_member(self) -> bool:
        """Whether the group still counts the consumer as a member, as far as is known here."""
        coordinator = self._consumer._coordinator
        return isinstance(coordinator, GroupCoordinator) and coordinator.generation > 0

    async def serves_ranges(self) -> bool:
        """Whether a Kordon answers that keeps individual commits (the feature `kordon.cooperative`).

        Raises:
            KafkaError: The coordinator's answer cannot be obtained.
        """
        return await self._answered(self._serves_ranges)

    async def _serves_ranges(self) -> bool:
        body = {"client_software_name": "kordon-client", "client_software_version": "1"}
        try:
            answer: Any = await self._coordinator._send_req(WireRequest(API_VERSIONS, range(3, 5), body))
        except IncompatibleBrokerVersion:
            return False
        return any(
            row.name == dialect.COOPERATIVE and row.min_version <= dialect.VERSION <= row.max_version
            for row in answer.supported_features
        )

    async def fetch(
        self, partitions: Collection[TopicPartition], *, with_ranges: bool = False
    ) -> dict[TopicPartition, CommitRow]:
        """Returns what the group has committed, as soon as its coordinator knows; -1: nothing.

        Raises:
            KafkaError: The coordinator's answer cannot be obtained.
        """
        return await self._answered(lambda: self._fetch(partitions, with_ranges=with_ranges))

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks the coordinator until it answers, wherever it goes: a proxy or broker may die meanwhile."""
        while True:
            await self._coordinator.ensure_coordinator_known()
            try:
                return await ask()
            except KafkaError as error:
                if not error.retriable:
                    raise
                _log.debug("The coordinator is asked again: %r", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _fetch(
        self, partitions: Collection[TopicPartition], *, with_ranges: bool
    ) -> dict[TopicPartition, CommitRow]:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for tp in partitions:
            by_topic[tp.topic].append(tp.partition)
        topics = [{"name": topic, "partition_indexes": numbers} for topic, numbers in by_topic.items()]
        own = {"group_id": self._group_id, "topics": topics}
        body = {**own, "groups": [own], "with_ranges": with_ranges}  # the versions that have one lack the other
        request = WireRequest(apis.OFFSET_FETCH, _TAGGED if with_ranges else _FETCH, body)
        answer: Any = await self._coordinator._send_req(request)
        group = answer.groups[0] if answer.get("groups") else answer
        self._check(group.get("error_code", 0), self._group_id)
        found: dict[TopicPartition, CommitRow] = {}
        for topic in group.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if for_code(row.error_code) is UnknownTopicOrPartitionError:
                    continue
                self._check(row.error_code, tp)
                found[tp] = row
        return found

    async def commit(self, rows: Mapping[TopicPartition, Mapping[str, object]]) -> list[tuple[TopicPartition, int]]:
        """Commits, and returns the errors that only a Kordon answers, by partition.

        Args:
            rows: Fields of the request by partition.

        Raises:
            CommitFailedError: The group has moved on.
            KafkaError: The commit may be there or not.
        """
        coordinator = self._coordinator
        generation = coordinator.generation
        if not self.is_member:
            raise CommitFailedError("this consumer is not a member of its group now")
        await coordinator.ensure_coordinator_known()
        if coordinator.generation != generation:
            # it would pass for one of the next assignment, and set back what another member has committed
            raise CommitFailedError("the group has rebalanced meanwhile")
        by_topic: dict[str, list[dict[str, object]]] = defaultdict(list)
        for tp, fields in rows.items():
            by_topic[tp.topic].append({"partition_index": tp.partition, **fields})
        body = {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": generation,
            "member_id": coordinator.member_id,
            "group_instance_id": coordinator._group_instance_id,
            "topics": [{"name": topic, "partitions": each} for topic, each in by_topic.items()],
        }
        versions = _TAGGED if any("incarnation" in fields for fields in rows.values()) else _COMMIT
        try:
            return list(self._errors(await coordinator._send_req(WireRequest(apis.OFFSET_COMMIT, versions, body))))
        except _FENCED as error:
            raise CommitFailedError("the group has rebalanced, and others may own the partitions") from error

    def ask_again(self) -> None:
        """Joins the group again: what is in hand is drained, and the group's commits are read again."""
        self._coordinator.request_rejoin()

    @property
    def _coordinator(self) -> GroupCoordinator:
        coordinator = self._consumer._coordinator
        if not isinstance(coordinator, GroupCoordinator):
            raise IllegalStateError("the consumer is not started, or has no group")
        return coordinator

    def _errors(self, answer: Any) -> Iterator[tuple[TopicPartition, int]]:
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if dialect.is_private(row.error_code):
                    yield tp, row.error_code
                else:
                    self._check(row.error_code, tp)

    def _check(self, code: int, what: object) -> None:
        """Raises an error of an answer, when aiokafka has been told what it has to do about it."""
        error: type[KafkaError] = for_code(code)
        if error is NoError:
            return
        if error is RebalanceInProgressError:
            self._coordinator.request_rejoin()
        elif error in _FENCED:
            self._coordinator.reset_generation()
        elif error in _ELSEWHERE:
            self._coordinator.coordinator_dead()
        if error is GroupAuthorizationFailedError:
            raise error(self._group_id)
        if error is TopicAuthorizationFailedError and isinstance(what, TopicPartition):
            raise error({what.topic})
        raise error(f"{what}: code {code}")
