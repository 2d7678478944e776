"""One port, and where the connections lead that come in by it."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from kordon.proxy.config.config import NODE_ID_PLACEHOLDER, Sni
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.runtime.log_limits import client_log

_log = client_log(__name__)

_SERVER_NAME: Final = "kordon_server_name"


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a connection."""

    node_id: int | None
    addresses: list[HostPort]
    """To be tried in order."""
    problem: str
    """What to say when there is none."""


class Listener:
    """A port on which a worker listens."""

    def __init__(self, role: str, node_id: int | None, topology: Topology, sni: Sni | None) -> None:
        self.role = role
        """`bootstrap` or the node id, as the label of metrics."""
        self.node_id = node_id
        self.address = ""
        self.error: str | None = None
        """Why it is not open; None: it is."""
        self.socket: socket.socket | None = None
        self.accepting: asyncio.Task[None] | None = None
        self._topology = topology
        self._sni = sni

    def target(self, transport: asyncio.BaseTransport | None) -> Target:
        """Says where a client's connection leads, by its port or by the name it asked for."""
        node_id = self.node_id
        if self._sni is not None and transport is not None:
            name = getattr(transport.get_extra_info("ssl_object"), _SERVER_NAME, None)
            node_id = node_of_name(self._sni, name or self._sni.bootstrap)
        if node_id is None:
            return Target(None, self._topology.bootstrap_addresses(), "upstream.bootstrap is empty")
        address = self._topology.address_of(node_id)
        return Target(node_id, [address] if address else [], f"the address of broker {node_id} is not known yet")


def node_of_name(sni: Sni, name: str) -> int | None:
    """Reads the node id out of a TLS server name.

    Returns:
        The node id; None: it is the bootstrap name.

    Raises:
        ValueError: The name is neither a broker's nor the bootstrap name.
    """
    if name.lower() == sni.bootstrap.lower():
        return None
    pattern = re.escape(sni.broker).replace(re.escape(NODE_ID_PLACEHOLDER), r"(\d{1,10})")
    match = re.fullmatch(pattern, name, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{name} is neither {sni.bootstrap} nor a name like {sni.broker}")
    return int(match[1])


def remember_server_name(context: ssl.SSLContext, sni: Sni) -> None:
    """Makes a context note the name a client asks for, and refuse names that lead nowhere."""

    def on_name(tls: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        try:
            node_of_name(sni, name or sni.bootstrap)
        except ValueError as error:
            _log.warning("server_name_unknown", error=str(error))
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        setattr(tls, _SERVER_NAME, name)
        return None

    context.sni_callback = on_name
