"""What brokers know of sources: topics without records, and restart points as the metadata of groups' commits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from kordon.codecs.bodies import (
    DescribeGroupsRequest,
    DescribeGroupsResponseMember,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
)
from kordon.codecs.consumer_protocol import ASSIGNMENT, parse_versioned
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.messages import describe_groups, offset_commit, offset_fetch
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.codecs.source_points import OFFSET, Point, UnreadPoint, build, parse
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.kafka.brokers import QUESTIONS, Brokers, CoordinatorKind
from kordon.proxy.kafka.ends import TopicsRefused, refuse
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.runtime.clock import now_ms

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

_DESCRIBE_VERSIONS: Final = range(5)
_FETCH_VERSIONS: Final = range(7, 8)
_COMMIT_VERSIONS: Final = range(5, 9)
_BY_BROKER: Final = -1
_NO_GENERATION: Final = -1
_EMPTY: Final = frozenset({"Empty", "Dead"})
_LATER: Final = frozenset({Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
_COORDINATOR_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.2
_AT_ONCE: Final = 20
"""Groups that are asked for all their commits at once."""


class _HasCode(Protocol):
    @property
    def error_code(self) -> int: ...


_Rows: TypeAlias = Callable[[_Response], Iterable[_HasCode]]


class SourceUnknown(KordonError):  # noqa: N818 - what is told to whoever asked
    """Raised where a source cannot be shown or changed; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """What is known of one source partition."""

    point: Point | None = None
    """What is on record; None: nothing that is a restart point."""
    trouble: str = ""
    """Why what stands there is no restart point."""
    owner: str = ""
    """Who has it, as the group's coordinator says."""


@dataclass(frozen=True, slots=True)
class Source:
    """A group and its source topic."""

    group_id: str
    topic: str
    state: str = ""
    members: int = 0
    partitions: Mapping[int, SourcePartition] = field(default_factory=dict[int, SourcePartition])


class SourcesClient:
    """Asks brokers, or a Kordon that stands for them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._admin = TopicsAdmin(brokers)

    async def create(self, topic: str, partitions: int) -> bool:
        """Creates a source topic; returns False where a topic of this name is there already.

        Through Kordon it refuses records. Brokers know no such config, and are asked without it.

        Raises:
            TopicsRefused: The cluster does not want it.
            UpstreamUnavailable: No broker answers.
        """
        create = partial(self._admin.create_topic, topic, partitions=partitions, replicas=_BY_BROKER)
        try:
            return await create(configs={"kordon.source": "true"})
        except TopicsRefused as error:
            if error.code != Code.INVALID_CONFIG:
                raise
            await create(configs={})
            return True

    async def grow(self, topic: str, partitions: int) -> int:
        """Gives a source topic more partitions; returns how many it had.

        Raises:
            SourceUnknown: The source already has more partitions.
            TopicsRefused: The cluster does not want it.
            UpstreamUnavailable: No broker answers.
        """
        had = await self.count(topic)
        if had > partitions:
            raise SourceUnknown(f"{topic} has {had} partitions, and no topic can have fewer than it has")
        await self._admin.create_partitions(topic, partitions)
        return had

    async def count(self, topic: str) -> int:
        """Returns how many partitions a source topic has.

        Raises:
            SourceUnknown: The topic does not exist, or may not be seen.
            UpstreamUnavailable: No broker answers.
        """
        (row,) = (await self._brokers.metadata([topic])).topics
        if row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise SourceUnknown(f"there is no topic {topic}: kordon sources create {topic} --partitions N")
        refuse(f"topic {topic}", row)
        return len(row.partitions)

    async def sources(self) -> list[Source]:
        """Returns the groups that have restart points.

        Raises:
            TopicsRefused: A coordinator does not tell them.
            UpstreamUnavailable: A broker does not answer.
        """
        groups = await self._admin.groups.groups()
        found: list[Source] = []
        for at in range(0, len(groups), _AT_ONCE):
            some = groups[at : at + _AT_ONCE]
            states = {group.name: group.state for group in some}
            for row in await self._admin.groups.all_committed(some):
                found += _sources(row, states[row.group_id])
        return sorted(found, key=lambda each: (each.group_id, each.topic))

    async def describe(self, topic: str, group_id: str) -> Source:
        """Returns what is known of each source partition.

        Raises:
            SourceUnknown: There is no such topic.
            TopicsRefused: The coordinator does not tell it.
            UpstreamUnavailable: A broker does not answer.
        """
        count = await self.count(topic)
        asked = DescribeGroupsRequest(groups=[group_id])
        told = await self._ask(group_id, describe_groups.API, _DESCRIBE_VERSIONS, asked, lambda answer: answer.groups)
        (group,) = told.groups
        refuse(f"group {group_id}", group)
        owners = {each: _name(member) for member in group.members for each in _assigned(member, topic)}
        committed = await self._committed(topic, group_id, count)
        partitions = {each: replace(row, owner=owners.get(each, "")) for each, row in committed.items()}
        return Source(group_id, topic, group.group_state, len(group.members), partitions)

    async def set_point(self, source: Source, partition: int, text: str) -> int:
        """Sets the restart point of a partition of a group without members; returns its number.

        Raises:
            SourceUnknown: The group has members, or the topic has no such partition.
            TopicsRefused: The coordinator does not want it.
            UpstreamUnavailable: A broker does not answer.
        """
        if source.state not in _EMPTY:
            raise SourceUnknown(
                f"group {source.group_id} is {source.state}, with {source.members} members: stop all of them first, "
                "because they would continue from their own restart points"
            )
        if partition not in source.partitions:
            raise SourceUnknown(
                f"{source.topic} has the partitions 0 to {len(source.partitions) - 1}, and no {partition}"
            )
        known = source.partitions[partition].point or Point()
        point = Point(known.number + 1, text, known.owner, now_ms())
        row = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=OFFSET, committed_metadata=build(point)
        )
        asked = OffsetCommitRequest(
            group_id=source.group_id,
            generation_id_or_member_epoch=_NO_GENERATION,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=source.topic, partitions=[row])],
        )
        answer = await self._ask(
            source.group_id, offset_commit.API, _COMMIT_VERSIONS, asked, lambda each: each.topics[0].partitions
        )
        refuse(f"restart point of {source.topic}-{partition}", answer.topics[0].partitions[0])
        return point.number

    async def _ask(
        self, group_id: str, api: Api[_Request, _Response], versions: range, body: _Request, rows: _Rows[_Response]
    ) -> _Response:
        """Asks a group's coordinator; a new cluster has to make the topic of commits first, and to read it.

        Args:
            rows: The parts of the answer that have an error code.
        """
        until = time.monotonic() + _COORDINATOR_SECONDS
        while True:
            try:
                coordinator = await self._brokers.coordinator(CoordinatorKind.GROUP, group_id, QUESTIONS)
                answer = await coordinator.ask(api, coordinator.version(api.key, versions), body)
            except UpstreamUnavailable:
                if time.monotonic() > until:
                    raise
            else:
                found = {row.error_code for row in rows(answer)}
                if not found & _LATER or time.monotonic() > until:
                    return answer
            await asyncio.sleep(_RETRY_SECONDS)

    async def _committed(self, topic: str, group_id: str, count: int) -> dict[int, SourcePartition]:
        wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(count)))
        asked = OffsetFetchRequest(group_id=group_id, topics=[wanted], require_stable=False)
        answer = await self._ask(
            group_id, offset_fetch.API, _FETCH_VERSIONS, asked, lambda each: [each, *each.topics[0].partitions]
        )
        refuse(f"commits of group {group_id}", answer)
        found: dict[int, SourcePartition] = {}
        for row in answer.topics[0].partitions:
            refuse(f"commit of {topic}-{row.partition_index}", row)
            found[row.partition_index] = (
                _partition(row.metadata) if row.committed_offset >= 0 else SourcePartition(Point())
            )
        return found


def _sources(row: OffsetFetchResponseGroup, state: str) -> list[Source]:
    """Returns a source for each topic of a group on which it has a restart point."""
    found: list[Source] = []
    for topic in row.topics:
        partitions = {each.partition_index: _partition(each.metadata) for each in topic.partitions}
        if any(each.point is not None for each in partitions.values()):
            found.append(Source(row.group_id, topic.name, state, 0, partitions))
    return found


def _partition(metadata: str | None) -> SourcePartition:
    try:
        return SourcePartition(parse(metadata))
    except UnreadPoint as error:
        return SourcePartition(trouble=str(error))


def _name(member: DescribeGroupsResponseMember) -> str:
    return f"{member.client_id}{member.client_host}"


def _assigned(member: DescribeGroupsResponseMember, topic: str) -> list[int]:
    """Returns the partitions of a topic that a member has; of one whose assignment is none, nothing."""
    try:
        body = parse_versioned(ASSIGNMENT, member.member_assignment).value
    except WireError:
        return []
    return [each for row in body.assigned_partitions if row.topic == topic for each in row.partitions]
