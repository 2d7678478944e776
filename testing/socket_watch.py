"""Looks, while a client runs, at which ports its processes are connected to.

Where a socket leads is asked once in its life, as the kernel has to go through all connections of the machine for it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_CONNECTION: Final = re.compile(rb"^ *\d+: \S+ [0-9A-F]+:([0-9A-F]{4}) (?:\S+ ){4} *\d+ +\d+ ([1-9]\d*) ", re.MULTILINE)
"""A line of these tables: the remote port in hexadecimal, and the socket; that of a closed connection is 0."""
_LOCAL: Final = Path("/proc/net/unix")
_LOCAL_SOCKET: Final = re.compile(rb"^[0-9a-f]+: (?:\S+ ){5} *(\d+)", re.MULTILINE)
_SOCKET: Final = "socket:["


class _Connection(NamedTuple):
    """What the kernel knows of a connection."""

    socket: int
    port: int
    """The remote one."""


class SocketWatch:
    """Samples the connections of a process and all its children until it is left.

    A connection shorter than the interval can be missed; that is why `Peers` looks from the other side too.
    """

    def __init__(self, pid: int, interval_ms: int = 50) -> None:
        self._pid = pid
        self._interval_ms = interval_ms
        self._known: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="socket-watch", daemon=True)
        self.ports: set[int] = set()
        """Remote ports seen so far."""
        self.samples = 0
        """How often it has looked."""

    def __enter__(self) -> SocketWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._interval_ms / 1000):
            self._sample()

    def _sample(self) -> None:
        self.samples += 1
        new = {socket for pid in _family(self._pid) for socket in _sockets(pid)} - self._known
        if new:
            leading = {each.socket: each.port for each in _connections() if each.socket in new}
            self.ports.update(leading.values())
            self._known |= leading.keys() | _local()  # the others have not been connected yet


class Peers:
    """The processes of this machine that are connected to a port.

    Args:
        known: Processes that are not looked for again.
    """

    def __init__(self, port: int, known: frozenset[int] = frozenset()) -> None:
        self._port = port
        self._known = known
        self._of_known: set[int] = set()

    def now(self) -> set[int]:
        """Returns them, without those that are known."""
        sockets = {each.socket for each in _connections() if each.port == self._port}
        if sockets - self._of_known:
            self._of_known = {socket for pid in self._known for socket in _sockets(pid)}
        strange = sockets - self._of_known
        return {pid for pid in psutil.pids() if not strange.isdisjoint(_sockets(pid))} if strange else set()


def _connections() -> Iterator[_Connection]:
    for table in _TABLES:
        if table.exists():
            for port, socket in _CONNECTION.findall(table.read_bytes()):
                yield _Connection(int(socket), int(port, 16))


def _local() -> set[int]:
    return {int(socket) for socket in _LOCAL_SOCKET.findall(_LOCAL.read_bytes())}


def _family(pid: int) -> Iterator[int]:
    """A process and its descendants, as far as they live."""
    yield pid
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in (thread / "children").read_text().split():
                    yield from _family(int(child))


def _sockets(pid: int) -> Iterator[int]:
    """The sockets that a process has open; none of one that has ended or that may not be looked at."""
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
        for file in files:
            with suppress(OSError):
                # without a Path: Java has hundreds of files open, and each is looked at 20 times a second
                leads_to = os.readlink(file.path)  # noqa: PTH115
                if leads_to.startswith(_SOCKET):
                    yield int(leads_to[len(_SOCKET) : -1])
