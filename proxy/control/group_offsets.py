"""What all groups of a cluster have committed on a topic: asked of their coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kordon.proxy import apis
from kordon.proxy.control.brokers import Brokers
from kordon.proxy.control.codes import Code
from kordon.proxy.control.ends import refuse

LIST_GROUPS: Final = 16
_LIST_VERSIONS: Final = range(3, 6)
_FETCH_VERSIONS: Final = range(8, 10)
"""Several groups in one request (Kafka 3.0), topics by their names."""
_AT_ONCE: Final = 100
"""Groups of a request."""


class GroupOffsets:
    """Asks brokers for commits.

    Args:
        brokers: Where they are found.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def committed(self, names: Sequence[str], partitions: Collection[int]) -> dict[str, dict[int, int]]:
        """Returns by group and partition what is committed; groups and partitions without a commit are missing.

        Args:
            names: Of one topic; where a group has commits under several, those under the first count (rule A3).
            partitions: Of which.

        Raises:
            UpstreamUnavailable: A broker does not answer, or a coordinator is just being moved.
        """
        nodes = [broker.node_id for broker in (await self._brokers.metadata([])).brokers]
        found = await asyncio.gather(*(self._of_coordinator(node, names, partitions) for node in nodes))
        return {group: offsets for each in found for group, offsets in each.items() if offsets}

    async def _of_coordinator(
        self, node_id: int, names: Sequence[str], partitions: Collection[int]
    ) -> dict[str, dict[int, int]]:
        client = await self._brokers.to(node_id)
        fields: dict[str, Any] = {"states_filter": [], "types_filter": []}
        listed = await client.ask(LIST_GROUPS, client.version(LIST_GROUPS, _LIST_VERSIONS), fields)
        refuse(f"groups of broker {node_id}", listed)
        groups = [row.group_id for row in listed.groups]
        found: dict[str, dict[int, int]] = {}
        topics = [{"name": name, "partition_indexes": list(partitions)} for name in names]
        for at in range(0, len(groups), _AT_ONCE):
            rows = [{"group_id": group, "topics": topics} for group in groups[at : at + _AT_ONCE]]
            version = client.version(apis.OFFSET_FETCH, _FETCH_VERSIONS)
            answer = await client.ask(apis.OFFSET_FETCH, version, {"groups": rows, "require_stable": False})
            for group in answer.groups:
                if group.error_code != Code.GROUP_ID_NOT_FOUND:  # deleted meanwhile
                    refuse(f"commits of group {group.group_id}", group)
                    found[group.group_id] = _offsets(group, names)
        return found


def _offsets(group: Any, names: Sequence[str]) -> dict[int, int]:
    by_name: Mapping[str, Any] = {topic.name: topic for topic in group.topics}
    found: dict[int, int] = {}
    for name in reversed(names):
        for row in by_name[name].partitions if name in by_name else ():
            if row.error_code == Code.NONE and row.committed_offset >= 0:
                found[row.partition_index] = row.committed_offset
    return found
