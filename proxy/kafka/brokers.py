"""Where control finds the brokers that it needs: any of them, a partition's leader, a coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.links import Links
from kordon.proxy.kafka.upstream import UpstreamClient

QUESTIONS: Final = "control"
"""Purpose of the connections that carry what is answered at once."""
_METADATA_VERSIONS: Final = range(7, 13)
"""7 tells leader epochs, 10 topic ids."""
_COORDINATOR_VERSIONS: Final = range(1, 4)
"""4 asks for several keys at once."""


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates (FindCoordinator's key type)."""

    GROUP = 0
    TRANSACTION = 1


class Brokers:
    """Finds brokers for control.

    Args:
        links: The worker's connections.
    """

    def __init__(self, links: Links) -> None:
        self._links = links

    async def to(self, node_id: int) -> UpstreamClient:
        """Returns the connection to a broker for what is answered at once.

        Raises:
            UpstreamUnavailable: Nobody knows this broker, or it cannot be reached.
        """
        return await self._links.to(node_id, QUESTIONS)

    async def leader(self, topic: str, partition: int, purpose: str) -> UpstreamClient:
        """Returns a connection to a partition's leader, found anew with each call.

        Raises:
            UpstreamUnavailable: There is no leader now, no such partition, or nobody answers.
        """
        (found,) = (await self.metadata([topic])).topics
        for each in found.partitions:
            if each.partition_index == partition and each.leader_id >= 0:
                return await self._links.to(each.leader_id, purpose)
        raise UpstreamUnavailable(f"{topic}-{partition} has no leader ({name_of(found.error_code)})")

    async def coordinator(self, kind: CoordinatorKind, key: str, purpose: str) -> UpstreamClient:
        """Returns a connection to a group's or transactional id's coordinator, found anew with each call.

        Raises:
            UpstreamUnavailable: There is none now, or nobody answers.
        """
        fields = {"key": key, "key_type": kind}
        answer = await self.ask_any(apis.FIND_COORDINATOR, _COORDINATOR_VERSIONS, fields)
        if answer.error_code != Code.NONE:
            raise UpstreamUnavailable(f"no coordinator of {key}: {answer.error_message or name_of(answer.error_code)}")
        self._links.topology.learn({answer.node_id: (answer.host, answer.port)})
        return await self._links.to(answer.node_id, purpose)

    async def metadata(self, topics: Sequence[str]) -> Any:
        """Asks any broker for topics; none is created by asking.

        Returns:
            A Metadata response.

        Raises:
            UpstreamUnavailable: Nobody answers.
        """
        fields = {"topics": [{"name": name} for name in topics], "allow_auto_topic_creation": False}
        answer = await self.ask_any(apis.METADATA, _METADATA_VERSIONS, fields)
        self._links.topology.learn({broker.node_id: (broker.host, broker.port) for broker in answer.brokers})
        return answer

    async def ask_any(self, api_key: int, versions: range, fields: Mapping[str, Any]) -> Any:
        """Asks whichever broker answers.

        Raises:
            UpstreamUnavailable: None does.
        """
        return await self._links.ask_any(QUESTIONS, api_key, versions, fields)
