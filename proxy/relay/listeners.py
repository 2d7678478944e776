"""The ports on which clients come in: one for bootstrap, one per broker, or one for all with TLS server names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from kordon.proxy.config.config import Listen
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.addresses import NO_PORT, Advertised
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.relay.listener import Listener
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

BOOTSTRAP: Final = "bootstrap"
_BACKLOG: Final = 4096
_RETRY_ACCEPT_SECONDS: Final = 0.5


class Listeners:
    """The open ports of a worker.

    Args:
        advertised: The advertised addresses, which give the port of each broker.
        take: Called with the listener, the accepted socket, which it takes over, and the client's address.
        shared: Whether other processes listen on the same ports (SO_REUSEPORT).
    """

    def __init__(
        self,
        config: Listen,
        topology: Topology,
        advertised: Advertised,
        take: Callable[[Listener, socket.socket, str], None],
        *,
        shared: bool,
    ) -> None:
        self.config = config
        self.by_role: dict[str, Listener] = {}
        self._topology = topology
        self._advertised = advertised
        self._take = take
        self._tasks = Tasks()
        self._shared = shared

    def open_bootstrap(self) -> None:
        """Opens the bootstrap port.

        Raises:
            OSError: The port is in use, or Kordon lacks the right to open it.
        """
        listener = Listener(BOOTSTRAP, None, self._topology, self.config.sni)
        self._bind(listener, self.config.address.port)

    def open_node(self, node_id: int) -> None:
        """Opens a broker's port; a failure is logged and makes the proxy unready. Connections are taken from now on."""
        role = str(node_id)
        if self.config.sni is not None or role in self.by_role:
            return
        listener = self.by_role[role] = Listener(role, node_id, self._topology, None)
        port = self._advertised.port_of(node_id)
        if port == NO_PORT:
            base = self.config.first_broker_port
            listener.error = f"broker {node_id} would be on port {base} + {node_id}: give it one under listen.ports"
            log.error("listener_impossible", node_id=node_id, error=listener.error)
            return
        try:
            self._bind(listener, port)
        except OSError as error:
            listener.error = f"port {port} for broker {node_id}: {(error.strerror or str(error)).lower()}"
            log.error("listener_failed", node_id=node_id, error=listener.error)

    def close_node(self, node_id: int) -> None:
        """Closes a broker's port."""
        listener = self.by_role.pop(str(node_id), None)
        if listener is not None:
            self._close(listener)

    def close(self) -> None:
        """Closes all ports; connections stay."""
        for listener in self.by_role.values():
            self._close(listener)

    def retry(self) -> None:
        """Tries once more to open what could not be opened."""
        for listener in [each for each in self.by_role.values() if each.error and each.node_id is not None]:
            del self.by_role[listener.role]
            self.open_node(int(listener.role))

    def _bind(self, listener: Listener, port: int) -> None:
        host = self.config.address.host
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        listener.socket = sock
        listener.address = str(HostPort(host, port))
        self.by_role[listener.role] = listener
        accept = partial(self._accept, listener, sock)
        listener.accepting = self._tasks.keep(accept, name="accept clients", of=listener.address)

    async def _accept(self, listener: Listener, sock: socket.socket) -> None:
        """Takes clients in forever; without file descriptors it waits for some."""
        while True:
            try:
                accepted, peer = await asyncio.get_running_loop().sock_accept(sock)
            except OSError as error:
                log.error(
                    "accept_failed", listener=listener.role, error=error.strerror, cure="raise the limit of files"
                )
                await asyncio.sleep(_RETRY_ACCEPT_SECONDS)
                continue
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._take(listener, accepted, str(peer[0]))

    def _close(self, listener: Listener) -> None:
        if listener.accepting is not None:
            listener.accepting.cancel()
        if listener.socket is not None:
            listener.socket.close()
            listener.socket = None
