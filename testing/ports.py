"""Free ports on this machine."""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack
from functools import lru_cache
from typing import Final

_LOWEST: Final = 15_000
"""Below the range from which the kernel takes ports for outgoing connections (net.ipv4.ip_local_port_range)."""
_DISTRICTS: Final = 32
_DISTRICT_PORTS: Final = 500
"""Of each, the first one is the sign that somebody has it."""


class _District:
    """A run of ports that other processes leave alone, and give out to nobody.

    Whoever starts a server names its ports before it listens on them, and a server that was killed takes them again.
    No other process may take them meanwhile. So each process gives out ports of a district of its own, by turns, and
    holds it for as long as it lives: it is bound to the first port of it.
    """

    def __init__(self) -> None:
        self._sign = socket.socket()
        self._first = self._take()
        self._next = self._first + 1

    def free(self, count: int) -> int:
        """Returns the first of so many free ports in a row; raises OSError."""
        for _ in range(_DISTRICT_PORTS):
            if self._next + count > self._first + _DISTRICT_PORTS:
                self._next = self._first + 1
            base = self._next
            if _all_free(base, count):
                self._next += count
                return base
            self._next += 1
        raise OSError(f"no {count} free ports in a row from {self._first} to {self._first + _DISTRICT_PORTS - 1}")

    def _take(self) -> int:
        """Takes a district that nobody has; raises OSError."""
        firsts = [_LOWEST + number * _DISTRICT_PORTS for number in range(_DISTRICTS)]
        for first in random.sample(firsts, _DISTRICTS):
            try:
                self._sign.bind(("127.0.0.1", first))
            except OSError:
                continue
            return first
        raise OSError(f"all {_DISTRICTS} districts of ports from {_LOWEST} on are taken")


def free_ports(count: int) -> int:
    """Finds `count` ports in a row that nothing listens on, and that no other process finds; returns the first.

    Raises:
        OSError: There are none.
    """
    return _district_of(os.getpid()).free(count)


@lru_cache(maxsize=1)
def _district_of(_: int) -> _District:
    """Takes a district for a process: a fork, which has all that its parent had, takes another one."""
    return _District()


def _all_free(base: int, count: int) -> bool:
    with ExitStack() as sockets:
        for port in range(base, base + count):
            sock = sockets.enter_context(socket.socket())
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
