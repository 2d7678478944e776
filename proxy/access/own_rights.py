"""What Kordon's own principal has to be allowed, and the commands that allow it (docs/rights.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from kordon.codecs.bodies import (
    DescribeClusterRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    MetadataResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import describe_cluster, describe_groups, find_coordinator, metadata
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import QUESTIONS, Brokers, CoordinatorKind
from kordon.proxy.kafka.leaders import topics_asked
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.own_topics.compacted_topic import GROUPS
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.proxy.own_topics.layouts_writer import TRANSACTIONAL_ID
from kordon.proxy.topics.managed_topics import OWN_PREFIX

_COORDINATOR_SECONDS: Final = 20.0
_RETRY_SECONDS: Final = 0.2


_OF_CLUSTER: Final = (Operation.DESCRIBE, Operation.ALTER)
"""To read the ACLs of topics and to write those of faces."""
_OF_OWN: Final = (Operation.CREATE, Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE)
_OF_MANAGED: Final = (
    Operation.DESCRIBE,
    Operation.READ,
    Operation.WRITE,
    Operation.ALTER,
    Operation.DELETE,
    Operation.DESCRIBE_CONFIGS,
)
_OF_GROUP: Final = (Operation.READ, Operation.DESCRIBE)
_OF_SHARE_GROUPS: Final = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
_ANY_GROUP: Final = "__kordon.any-group"
"""A group that nobody has: what may be done with it may be done with all."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A right that Kordon has not got."""

    rights: Sequence[Operation]
    resource: str
    """The flag of kafka-acls.sh."""
    principal: str

    def __str__(self) -> str:
        """Says what is missing, and what gives it."""
        words = [right.word for right in self.rights]
        options = " ".join(f"--operation {word}" for word in words)
        command = f"kafka-acls.sh --bootstrap-server BROKER --add --allow-principal {quote(self.principal)}"
        return f"Kordon ({self.principal}) lacks {', '.join(words)}; give it by: {command} {options} {self.resource}"


class OwnRights:
    """Asks what Kordon may do.

    Args:
        principal: The principal that Kordon is to the brokers; None: it is not known.
    """

    def __init__(self, brokers: Brokers, principal: str | None, group: str) -> None:
        self._brokers = brokers
        self._principal = principal or "User:<the principal of Kordon>"
        self._group = group

    async def missing(self, topics: Iterable[str]) -> list[Missing]:
        """Returns what is missing to manage topics.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        found = [
            self._lacks(_OF_CLUSTER, await self._of_cluster(), "--cluster"),
            self._lacks(_OF_GROUP, await self._of_group(self._group), f"--group {quote(self._group)}"),
        ]
        if not await self._may_write_layouts():
            found.append(
                self._lacks((Operation.DESCRIBE, Operation.WRITE), 0, f"--transactional-id {TRANSACTIONAL_ID}")
            )
        for row in await self._of_topics([LAYOUTS_TOPIC, GROUPS.name, *topics]):
            is_own = row.name in (LAYOUTS_TOPIC, GROUPS.name)
            resource = f"--topic {OWN_PREFIX} --resource-pattern-type prefixed" if is_own else f"--topic {row.name}"
            if row.error_code in (Code.NONE, Code.TOPIC_AUTHORIZATION_FAILED):
                operations = 0 if row.error_code else row.topic_authorized_operations
                missing = self._lacks(_OF_OWN if is_own else _OF_MANAGED, operations, resource)
                found += [missing] if missing not in found else []
        return [each for each in found if each is not None]

    async def missing_for_share_groups(self) -> list[Missing]:
        """Returns what is missing to serve share groups of any name.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        lacking = self._lacks(_OF_SHARE_GROUPS, await self._of_group(_ANY_GROUP), f"--group {quote('*')}")
        return [lacking] if lacking is not None else []

    def _lacks(self, rights: Sequence[Operation], operations: int, resource: str) -> Missing | None:
        lacking = [right for right in rights if not operations >> right & 1]
        return Missing(lacking, resource, self._principal) if lacking else None

    async def _of_cluster(self) -> int:
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        return (await self._brokers.ask_any(describe_cluster.API, range(1), asked)).cluster_authorized_operations

    async def _of_group(self, group: str) -> int:
        """Asks again while there is no coordinator: a cluster that has had no group yet makes the topic for them."""
        try:
            async with asyncio.timeout(_COORDINATOR_SECONDS):
                while True:
                    operations = await self._ask_coordinator(group)
                    if operations is not None:
                        return operations
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            raise UpstreamUnavailable(f"no coordinator of {group} in {_COORDINATOR_SECONDS:g} s") from None

    async def _ask_coordinator(self, group: str) -> int | None:
        """Returns what may be done with a group; None: nobody knows it yet."""
        code = await self._find(CoordinatorKind.GROUP, group)
        if code == Code.NONE:
            client = await self._brokers.coordinator(CoordinatorKind.GROUP, group, QUESTIONS)
            asked = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
            version = client.version(describe_groups.API.key, range(3, 6))
            (told,) = (await client.ask(describe_groups.API, version, asked)).groups
            code = told.error_code
            if code == Code.NONE:
                return told.authorized_operations
        return 0 if code == Code.GROUP_AUTHORIZATION_FAILED else None

    async def _may_write_layouts(self) -> bool:
        code = await self._find(CoordinatorKind.TRANSACTION, TRANSACTIONAL_ID)
        return code != Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    async def _find(self, kind: CoordinatorKind, key: str) -> int:
        asked = FindCoordinatorRequest(key=key, key_type=kind)
        return (await self._brokers.ask_any(find_coordinator.API, range(1, 4), asked)).error_code

    async def _of_topics(self, names: Iterable[str]) -> Sequence[MetadataResponseTopic]:
        asked = topics_asked(names)
        asked.include_topic_authorized_operations = True
        return (await self._brokers.ask_any(metadata.API, range(8, 13), asked)).topics
