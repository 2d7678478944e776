"""Where control finds the brokers that it needs: any of them, a partition's leader, a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from kordon.proxy import apis
from kordon.proxy.config import HostPort
from kordon.proxy.control.codes import Code, name_of
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.topology import Topology
from kordon.proxy.upstream import UpstreamClient

_METADATA_VERSIONS: Final = range(7, 13)
"""7 tells leader epochs, 10 topic ids, 12 tells them of every topic."""
_COORDINATOR_VERSIONS: Final = range(1, 4)
"""4 asks for several keys at once."""


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates (FindCoordinator's key type)."""

    GROUP = 0
    TRANSACTION = 1


class Brokers:
    """Makes connections for control's own use.

    Args:
        topology: Knows where brokers are dialled, `upstream.brokers` included.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._one_at_a_time = asyncio.Lock()
        self._asking: UpstreamClient | None = None
        self._kept: dict[int, UpstreamClient] = {}
        self._dialling: dict[int, asyncio.Lock] = {}

    def close(self) -> None:
        """Closes the connections that are shared."""
        self._forget_asking()
        for client in self._kept.values():
            client.close()
        self._kept.clear()

    async def to(self, node_id: int) -> UpstreamClient:
        """Returns an open connection to a broker, shared by all who ask it short questions.

        Raises:
            UpstreamUnavailable: Nobody knows this broker, it cannot be reached, or does not let Kordon in.
        """
        async with self._dialling.setdefault(node_id, asyncio.Lock()):
            kept = self._kept.get(node_id)
            if kept is None or kept.closed:
                kept = self._kept[node_id] = await self.connect(self.client(node_id))
            return kept

    def client(self, node_id: int) -> UpstreamClient:
        """Returns a connection to a broker, to be entered.

        Raises:
            UpstreamUnavailable: Nobody knows this broker.
        """
        address = self._topology.address_of(node_id)
        if address is None:
            raise UpstreamUnavailable(f"broker {node_id} is not known")
        return self._client(address)

    @staticmethod
    async def connect(client: UpstreamClient) -> UpstreamClient:
        """Opens a connection that is to be kept, and returns it.

        Raises:
            UpstreamUnavailable: The broker cannot be reached, or does not let Kordon in.
        """
        await client.open()
        return client

    async def leader(self, topic: str, partition: int) -> UpstreamClient:
        """Returns a connection to a partition's leader, to be entered.

        Raises:
            UpstreamUnavailable: There is no leader now, no such partition, or nobody answers.
        """
        (found,) = (await self.metadata([topic])).topics
        for each in found.partitions:
            if each.partition_index == partition and each.leader_id >= 0:
                return self.client(each.leader_id)
        raise UpstreamUnavailable(f"{topic}-{partition} has no leader ({name_of(found.error_code)})")

    async def coordinator(self, kind: CoordinatorKind, key: str) -> UpstreamClient:
        """Returns a connection to a group's or transactional id's coordinator, to be entered.

        Raises:
            UpstreamUnavailable: There is none now, or nobody answers.
        """
        fields = {"key": key, "key_type": kind}
        answer = await self.ask_any(apis.FIND_COORDINATOR, _COORDINATOR_VERSIONS, fields)
        if answer.error_code != Code.NONE:
            raise UpstreamUnavailable(f"no coordinator of {key}: {answer.error_message or name_of(answer.error_code)}")
        self._topology.learn({answer.node_id: (answer.host, answer.port)})
        return self.client(answer.node_id)

    async def metadata(self, topics: Sequence[str]) -> Any:
        """Asks any broker for topics; none is created by asking.

        Returns:
            A Metadata response.

        Raises:
            UpstreamUnavailable: Nobody answers.
        """
        fields = {"topics": [{"name": name} for name in topics], "allow_auto_topic_creation": False}
        answer = await self.ask_any(apis.METADATA, _METADATA_VERSIONS, fields)
        self._topology.learn({broker.node_id: (broker.host, broker.port) for broker in answer.brokers})
        return answer

    async def ask_any(self, api_key: int, wanted: range, fields: Mapping[str, Any]) -> Any:
        """Asks whichever broker answers; each of them is tried.

        Raises:
            UpstreamUnavailable: None answers.
        """
        failure = UpstreamUnavailable("no broker is known")
        async with self._one_at_a_time:
            for address in [None, *self._addresses()]:
                try:
                    client = await self._any(address)
                    return await client.ask(api_key, client.version(api_key, wanted), fields)
                except UpstreamUnavailable as error:
                    failure = error
                self._forget_asking()
        raise failure

    async def _any(self, address: HostPort | None) -> UpstreamClient:
        """Returns the connection of the last question, else a new one."""
        if self._asking is None:
            if address is None:
                raise UpstreamUnavailable("no connection yet")
            self._asking = await self.connect(self._client(address))
        return self._asking

    def _forget_asking(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def _addresses(self) -> list[HostPort]:
        known = [node.address for node in self._topology.nodes.values() if node.error is None]
        return list(dict.fromkeys((*known, *self._topology.bootstrap_addresses())))

    def _client(self, address: HostPort) -> UpstreamClient:
        return UpstreamClient(address, self._topology.config, self._topology.context)
