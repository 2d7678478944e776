"""Where clients find each broker: the proxy's own addresses, a pure function of the node id.

They depend on configuration alone, so that they outlive restarts and are the same in every replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

HIGHEST_PORT: Final = 65535
NO_PORT: Final = 0
"""Advertised for a node id that no port can be given to; `Proxy.unready` names it and the cure."""


@dataclass(frozen=True, slots=True)
class Advertised:
    """The addresses in responses, in place of the brokers' own hosts and ports."""

    host: str
    """Host that clients dial; ignored where an SNI pattern tells brokers apart by name."""
    base_port: int
    """Broker n is at this port + n, unless `ports` or `sni_pattern` says otherwise."""
    ports: dict[int, int] = field(default_factory=dict[int, int])
    """Ports given one by one, by node id."""
    sni_pattern: str | None = None
    """Host name with `$(node_id)` in it: every broker is then at `base_port`, told apart by TLS server name."""

    def of(self, node_id: int) -> tuple[str, int]:
        """Returns (host, port) under which clients reach a broker.

        Args:
            node_id: The broker's id; kept in every response.
        """
        if self.sni_pattern is not None:
            return self.sni_pattern.replace("$(node_id)", str(node_id)), self.base_port
        return self.host, self.port_of(node_id)

    def port_of(self, node_id: int) -> int:
        """Returns the port of a broker's listener, `NO_PORT` if there is none to give."""
        port = self.ports.get(node_id, self.base_port + node_id)
        return port if 0 < port <= HIGHEST_PORT else NO_PORT

    def at(self, host: str) -> Advertised:
        """Returns the same for clients that reach the proxy under `host`."""
        return replace(self, host=host)
