"""The steps by which a client gets in: it says something, its broker is dialled, what is managed is known.

Each step raises TurnedAway where it fails.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.core.interception import Service
from kordon.proxy.core.tally import Tally
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.relay.listener import Target
from kordon.proxy.runtime.tls import explain


class TurnedAway(KordonError):  # noqa: N818 - says what becomes of a client
    """Raised where a client does not get in.

    Attributes:
        cause: The cause, as metrics and logs name it.
        detail: The cause in words.
    """

    def __init__(self, cause: CloseCause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


async def hear(sock: socket.socket, seconds: float) -> None:
    """Waits for a plain client's first byte, without taking it.

    Raises:
        TurnedAway: The client sends nothing in time, or is gone.
    """
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, heard.set)
    try:
        async with asyncio.timeout(seconds):
            await heard.wait()
        first = sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        detail = "the client sent nothing within limits.handshake_ms"
        raise TurnedAway(CloseCause.HANDSHAKE_TIMEOUT, detail) from None
    except OSError as error:
        raise TurnedAway(CloseCause.NETWORK_ERROR, explain(error)) from error
    finally:
        loop.remove_reader(sock)
    if not first:
        raise TurnedAway(CloseCause.CLIENT_CLOSED, "the client closed the connection before it sent a request")


async def meet(
    sock: socket.socket, protocol: asyncio.BufferedProtocol, context: ssl.SSLContext, seconds: float
) -> None:
    """Does the TLS handshake with a client, whose bytes go to `protocol` from then on.

    Raises:
        TurnedAway: The handshake fails, or takes too long.
    """
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(lambda: protocol, sock, ssl=context, ssl_handshake_timeout=seconds)
    except (OSError, TimeoutError) as error:
        # uvloop says "SSL handshake is taking longer than …" as a ConnectionAbortedError
        late = isinstance(error, TimeoutError | ConnectionAbortedError)
        cause = CloseCause.HANDSHAKE_TIMEOUT if late else CloseCause.DOWNSTREAM_TLS_FAILED
        raise TurnedAway(cause, explain(error)) from error


async def know_managed(service: Service, seconds: float) -> None:
    """Waits until it is known what is managed: a client that came before would take it for ordinary topics.

    Raises:
        TurnedAway: The wait takes too long.
    """
    try:
        async with asyncio.timeout(seconds):
            await service.ready()
    except TimeoutError:
        detail = "the layouts of managed topics could not be read in time"
        raise TurnedAway(CloseCause.UPSTREAM_UNREACHABLE, detail) from None


class Dialer:
    """Dials brokers for clients.

    Args:
        topology: The topology, which says where the brokers are. It is told which of them could be reached.
    """

    def __init__(self, topology: Topology, tally: Tally) -> None:
        self._topology = topology
        self._tally = tally

    async def dial(self, target: Target, factory: Callable[[], asyncio.BufferedProtocol]) -> None:
        """Dials the addresses of a target in turn until one of them takes the connection.

        Raises:
            TurnedAway: None of the addresses takes the connection.
        """
        problem, cause = target.problem, CloseCause.UPSTREAM_UNREACHABLE
        for address in target.addresses:
            try:
                await self._connect(address.host, address.port, factory)
            except (OSError, TimeoutError, UpstreamUnavailable) as error:
                problem = f"{address}: {explain(error)}"
                cause = CloseCause.UPSTREAM_TLS_FAILED if isinstance(error, ssl.SSLError) else cause
                self._tally.upstream_connect_failures += 1
                self._note(target, problem)
                continue
            self._note(target, None)
            return
        raise TurnedAway(cause, problem)

    def _note(self, target: Target, problem: str | None) -> None:
        if target.node_id is not None:
            self._topology.tried(target.node_id, problem)

    async def _connect(self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol]) -> None:
        upstream, context = self._topology.config, self._topology.context
        name = (upstream.tls.server_name if upstream.tls else None) or host
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(upstream.connect_timeout_ms / 1000):
            transport, _ = await loop.create_connection(
                factory, host, port, ssl=context, server_hostname=name if context else None
            )
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
