"""Free ports on this machine."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

_TRIES = 200
_LOWEST, _HIGHEST = 15000, 31000
"""Below the range from which the kernel takes ports for outgoing connections (net.ipv4.ip_local_port_range)."""


def free_ports(count: int) -> int:
    """Finds `count` ports in a row that nothing listens on; returns the first; raises OSError."""
    for _ in range(_TRIES):
        base = random.randrange(_LOWEST, _HIGHEST - count)  # noqa: S311 - spreads runs, guards nothing
        if _all_free(base, count):
            return base
    raise OSError(f"no {count} free ports in a row between {_LOWEST} and {_HIGHEST}")


def _all_free(base: int, count: int) -> bool:
    with ExitStack() as sockets:
        for port in range(base, base + count):
            sock = sockets.enter_context(socket.socket())
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
