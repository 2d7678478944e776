"""What the groups of a cluster subscribe to and have committed: asked of their coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from kordon.codecs.bodies import (
    ConsumerGroupDescribeRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponseGroup,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import consumer_group_describe, list_groups, offset_fetch
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import refuse
from kordon.proxy.kafka.expressions import matches
from kordon.proxy.ordering.takeover import Subscriber

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

_LIST_VERSIONS: Final = range(3, 6)
_FETCH_VERSIONS: Final = range(8, 10)
"""Several groups in one request (Kafka 3.0), topics by their names."""
_DESCRIBE_VERSIONS: Final = range(2)
_AT_ONCE: Final = 100
"""Groups of a request."""
_ALL_AT_ONCE: Final = 20
"""Groups of a request for all their commits, which may be many."""
_KIP_848: Final = "consumer"
"""The type of groups whose coordinator knows what members subscribe to."""


class ListedGroup(NamedTuple):
    """A group, and where it is coordinated."""

    name: str
    node_id: int
    type: str
    """Empty before Kafka 3.8."""
    state: str = ""
    """As brokers say it; without members it is Empty."""


class GroupOffsets:
    """Asks brokers about groups."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def groups(self) -> list[ListedGroup]:
        """Returns all groups of the cluster.

        Raises:
            UpstreamUnavailable: A broker does not answer, or is just about to coordinate some.
        """
        nodes = [broker.node_id for broker in (await self._brokers.metadata([])).brokers]
        found = await asyncio.gather(*(self._of(node) for node in nodes))
        return [group for each in found for group in each]

    async def committed(
        self, groups: Collection[ListedGroup], names: Sequence[str], partitions: Collection[int]
    ) -> dict[str, dict[int, int]]:
        """Returns by group and partition what is committed; groups and partitions without a commit are missing.

        Args:
            groups: The result of `groups`.
            names: Of one topic; where a group has commits under several, those under the first count (COMMITS-FOUND).

        Raises:
            UpstreamUnavailable: A broker does not answer, or a coordinator is just being moved.
        """
        topics = [OffsetFetchRequestGroupTopic(name=name, partition_indexes=list(partitions)) for name in names]
        found: dict[str, dict[int, int]] = {}
        for node_id, some in _portions(groups):
            rows = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in some]
            asked = OffsetFetchRequest(groups=rows)
            answer = await self._ask(node_id, offset_fetch.API, _FETCH_VERSIONS, asked)
            for group in answer.groups:
                if group.error_code != Code.GROUP_ID_NOT_FOUND:  # deleted meanwhile
                    refuse(f"commits of group {group.group_id}", group)
                    found[group.group_id] = _offsets(group, names)
        return {group: offsets for group, offsets in found.items() if offsets}

    async def all_committed(self, groups: Collection[ListedGroup]) -> list[OffsetFetchResponseGroup]:
        """Returns a row for each group, with all its commits or an error code, as its coordinator tells it.

        Args:
            groups: The result of `groups`; a few at a time, because answers are read while clients wait.

        Raises:
            UpstreamUnavailable: A broker does not answer, or cannot be asked about several groups at once.
        """
        found: list[OffsetFetchResponseGroup] = []
        for node_id, some in _portions(groups, _ALL_AT_ONCE):
            rows = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in some]
            asked = OffsetFetchRequest(groups=rows)
            found += (await self._ask(node_id, offset_fetch.API, _FETCH_VERSIONS, asked)).groups
        return found

    async def subscribers(self, groups: Collection[ListedGroup], topic: str) -> list[Subscriber]:
        """Returns the members of KIP-848 groups that their coordinators have under this very name of a topic.

        Raises:
            UpstreamUnavailable: A broker does not answer, or a coordinator is just being moved.
        """
        found: list[Subscriber] = []
        for node_id, some in _portions([group for group in groups if group.type.lower() == _KIP_848]):
            asked = ConsumerGroupDescribeRequest(group_ids=some)
            answer = await self._ask(node_id, consumer_group_describe.API, _DESCRIBE_VERSIONS, asked)
            for group in answer.groups:
                if group.error_code != Code.GROUP_ID_NOT_FOUND:
                    refuse(f"members of group {group.group_id}", group)
                    found += [
                        Subscriber(group.group_id, member.member_id, names, member.subscribed_topic_regex or None)
                        for member in group.members
                        if topic in (names := tuple(member.subscribed_topic_names))
                        or matches(member.subscribed_topic_regex or "", topic)
                    ]
        return found

    async def _of(self, node_id: int) -> list[ListedGroup]:
        listed = await self._ask(node_id, list_groups.API, _LIST_VERSIONS, ListGroupsRequest())
        refuse(f"groups of broker {node_id}", listed)
        return [
            ListedGroup(row.group_id, node_id, row.get("group_type", ""), row.get("group_state", ""))
            for row in listed.groups
        ]

    async def _ask(self, node_id: int, api: Api[_Request, _Response], versions: range, body: _Request) -> _Response:
        client = await self._brokers.to(node_id)
        return await client.ask(api, client.version(api.key, versions), body)


def _portions(groups: Collection[ListedGroup], most: int = _AT_ONCE) -> Iterator[tuple[int, list[str]]]:
    """Returns the groups of each coordinator, as many at once as fit into a request."""
    for node_id in sorted({group.node_id for group in groups}):
        names = [group.name for group in groups if group.node_id == node_id]
        for at in range(0, len(names), most):
            yield node_id, names[at : at + most]


def _offsets(group: OffsetFetchResponseGroup, names: Sequence[str]) -> dict[int, int]:
    by_name = {topic.name: topic for topic in group.topics}
    found: dict[int, int] = {}
    for name in reversed(names):
        for row in by_name[name].partitions if name in by_name else ():
            if row.error_code == Code.NONE and row.committed_offset >= 0:
                found[row.partition_index] = row.committed_offset
    return found
