"""Where control finds the brokers that it needs: any of them, a partition's leader, a coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, TypeVar

from kordon.codecs.bodies import FindCoordinatorRequest, MetadataResponse
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import find_coordinator, metadata
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import Leaders, topics_asked
from kordon.proxy.kafka.upstream import UpstreamClient

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

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

    Attributes:
        leaders: The leaders of topics, for whoever uses the same connections.
    """

    def __init__(self, links: BrokerConnections) -> None:
        self._links = links
        self.leaders = Leaders(links)

    async def to(self, node_id: int) -> UpstreamClient:
        """Returns the connection to a broker for what is answered at once.

        Raises:
            UpstreamUnavailable: Nobody knows this broker, or it cannot be reached.
        """
        return await self._links.to(node_id, QUESTIONS)

    async def leader(self, topic: str, partition: int, purpose: str) -> UpstreamClient:
        """Returns a connection to a partition's leader, which is looked up with each call.

        Raises:
            UpstreamUnavailable: There is no leader now, no such partition, or nobody answers.
        """
        await self.leaders.renew(topic)
        return await self.leaders.connection(topic, partition, purpose)

    async def coordinator(self, kind: CoordinatorKind, key: str, purpose: str) -> UpstreamClient:
        """Returns a connection to a group's or transactional id's coordinator, which is looked up with each call.

        Raises:
            UpstreamUnavailable: There is none now, or nobody answers.
        """
        asked = FindCoordinatorRequest(key=key, key_type=kind)
        answer = await self.ask_any(find_coordinator.API, _COORDINATOR_VERSIONS, asked)
        if answer.error_code != Code.NONE:
            raise UpstreamUnavailable(f"no coordinator of {key}: {name_of(answer.error_code)}")
        self._links.topology.learn({answer.node_id: (answer.host, answer.port)})
        return await self._links.to(answer.node_id, purpose)

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        """Asks any broker for topics; none is created by asking.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        answer = await self.ask_any(metadata.API, _METADATA_VERSIONS, topics_asked(topics))
        self._links.topology.learn({broker.node_id: (broker.host, broker.port) for broker in answer.brokers})
        return answer

    async def ask_any(self, api: Api[_Request, _Response], versions: range, body: _Request) -> _Response:
        """Asks whichever broker answers.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return await self._links.ask_any(QUESTIONS, api, versions, body)
