"""The cluster's brokers as Kordon knows them: from its own questions, and from every response that names one.

Clients' responses tell as well as Kordon's own connection, and before it: so a cluster that lets only its clients in
is followed all the same.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.tls import explain

log = structlog.get_logger(__name__)

FORGET_SECONDS: Final = 600.0
"""A broker that the cluster has not named for so long loses its listener."""
_PROBES_AT_ONCE: Final = 16
_FIRST_RETRY_SECONDS: Final = 0.5


@dataclass(slots=True)
class Node:
    """A broker."""

    node_id: int
    address: HostPort
    """Where Kordon dials it."""
    given: bool
    """Whether the address comes from `upstream.brokers`."""
    seen: float
    """When the cluster named it last, in seconds of the monotonic clock."""
    error: str | None = None
    """Why it could not be reached the last time; None: it could."""
    probed: bool = False
    """Whether it was tried at all."""


class Topology:
    """The brokers, kept current.

    Args:
        on_node: Called with each new node id, before anything names it to a client.
        on_gone: Called with each node id that is forgotten.
        context: TLS towards brokers; None for plain TCP.
    """

    def __init__(
        self,
        config: Upstream,
        on_node: Callable[[int], None],
        on_gone: Callable[[int], None],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.config = config
        self.context = context
        self.nodes: dict[int, Node] = {}
        self.cluster_id: str | None = None
        self.refreshed: float | None = None
        """When the cluster last answered, in seconds of the monotonic clock."""
        self.error: str | None = "the cluster has not answered yet"
        """Why the cluster does not answer; None: it does."""
        self.needs_log_in = False
        """Whether the cluster answers ApiVersions but not Metadata, so that only clients' responses tell of it."""
        self._on_node = on_node
        self._on_gone = on_gone
        self._turn = 0

    def reload(self, config: Upstream, context: ssl.SSLContext | None) -> None:
        """Asks and connects by another configuration from now on, and learns the brokers that it gives."""
        self.config, self.context = config, context
        self.learn_given()

    def bootstrap_addresses(self) -> list[HostPort]:
        """Returns the bootstrap addresses, beginning with another one each time, so that connections spread."""
        addresses = list(self.config.bootstrap)
        self._turn = (self._turn + 1) % len(addresses)
        return addresses[self._turn :] + addresses[: self._turn]

    def address_of(self, node_id: int) -> HostPort | None:
        """Returns where a broker is dialled, None if it is not known."""
        node = self.nodes.get(node_id)
        return node.address if node else None

    def learn(self, nodes: dict[int, tuple[str, int]]) -> None:
        """Takes what a response says about brokers; returns when listeners for new ones are open."""
        now = time.monotonic()
        for node_id, (host, port) in nodes.items():
            given = self.config.brokers.get(node_id)
            known = self.nodes.get(node_id)
            if known is None:
                address = given or HostPort(host, port)
                self.nodes[node_id] = Node(node_id, address, given is not None, now)
                log.info("broker_learned", node_id=node_id, address=str(address))
                self._on_node(node_id)
                continue
            known.seen = now
            if not known.given and (known.address.host, known.address.port) != (host, port):
                log.info("broker_moved", node_id=node_id, before=str(known.address), address=f"{host}:{port}")
                known.address = HostPort(host, port)

    def learn_given(self) -> None:
        """Takes the brokers that the configuration names."""
        for node_id, address in self.config.brokers.items():
            if node_id in self.nodes:
                self.nodes[node_id].address, self.nodes[node_id].given = address, True
        self.learn({node_id: (address.host, address.port) for node_id, address in self.config.brokers.items()})

    async def follow(self) -> None:
        """Asks the cluster forever: each `refresh_ms`, sooner while it does not answer."""
        wait = _FIRST_RETRY_SECONDS
        while True:
            await self.refresh()
            wait = min(wait * 2, self.config.refresh_ms / 1000) if self.error else self.config.refresh_ms / 1000
            await asyncio.sleep(wait)

    async def refresh(self) -> None:
        """Asks the cluster for its brokers and tries each of them; failures are kept in `error`, said once."""
        error = await self._ask_cluster()
        if error != self.error:
            if error is None:
                log.info("cluster_reached", cluster_id=self.cluster_id, nodes=sorted(self.nodes))
            else:
                log.warning("cluster_unreachable", error=error, cure="check upstream.bootstrap; Kordon keeps trying")
            self.error = error
        await self._probe_all()
        self._forget()

    async def _ask_cluster(self) -> str | None:
        known = [node.address for node in self.nodes.values() if node.error is None]
        errors: list[str] = []
        for address in dict.fromkeys((*self.bootstrap_addresses(), *known)):
            try:
                async with UpstreamClient(address, self.config, self.context) as client:
                    await self._ask_nodes(client)
                    self.refreshed = time.monotonic()
                    return None
            except UpstreamUnavailable as error:
                errors.append(str(error))
        return "; ".join(errors)

    async def _ask_nodes(self, client: UpstreamClient) -> None:
        try:
            cluster_id, nodes = await client.nodes()
        except UpstreamUnavailable as error:
            if self.config.sasl is not None:
                raise
            if not self.needs_log_in:
                self.needs_log_in = True
                cure = "give upstream.sasl or upstream.brokers, so that brokers are known before a client asks"
                log.warning("metadata_refused", error=str(error), cure=cure)
            return
        self.needs_log_in = False
        self.cluster_id = cluster_id or self.cluster_id
        self.learn(nodes)

    async def _probe_all(self) -> None:
        places = asyncio.Semaphore(_PROBES_AT_ONCE)

        async def probe(node: Node) -> None:
            async with places:
                await self._probe(node)

        await asyncio.gather(*(probe(node) for node in list(self.nodes.values())))

    async def _probe(self, node: Node) -> None:
        try:
            async with UpstreamClient(node.address, self.config, self.context):
                error = None
        except UpstreamUnavailable as failure:
            error = str(failure)
        self.tried(node.node_id, error)

    def tried(self, node_id: int, error: str | BaseException | None) -> None:
        """Notes that a broker was dialled, and what came of it; a change is logged."""
        node = self.nodes.get(node_id)
        if node is None:
            return
        reason = explain(error) if isinstance(error, BaseException) else error
        if (reason is None) != (node.error is None):
            change = "broker_up" if reason is None else "broker_down"
            (log.info if reason is None else log.warning)(
                change, node_id=node_id, address=str(node.address), error=reason
            )
        node.error = reason
        node.probed = True

    def _forget(self) -> None:
        now = time.monotonic()
        for node_id, node in list(self.nodes.items()):
            if not node.given and node.error is not None and now - node.seen > FORGET_SECONDS:
                del self.nodes[node_id]
                log.warning(
                    "broker_forgotten",
                    node_id=node_id,
                    address=str(node.address),
                    unseen_seconds=round(now - node.seen, 1),
                )
                self._on_gone(node_id)
