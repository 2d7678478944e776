"""Looks, while a client runs, at which ports its processes are connected to."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil


class SocketWatch:
    """Samples the connections of a process and all its children until it is left.

    A connection shorter than the interval can be missed; that is why `peers_of_port` looks from the other side too.
    """

    def __init__(self, pid: int, interval_ms: int = 50) -> None:
        self._root = psutil.Process(pid)
        self._interval_ms = interval_ms
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="socket-watch", daemon=True)
        self.ports: set[int] = set()
        """Remote ports seen so far."""
        self.samples = 0
        """How often it has looked."""

    def __enter__(self) -> SocketWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._interval_ms / 1000):
            self._sample()

    def _sample(self) -> None:
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        self.samples += 1
        for process in processes:
            try:
                connections = process.net_connections("tcp")
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            self.ports.update(connection.raddr.port for connection in connections if connection.raddr)


def peers_of_port(port: int) -> set[int]:
    """Returns the processes of this machine that are connected to a port now.

    Args:
        port: The remote port of their connections.
    """
    connections = psutil.net_connections("tcp")
    return {each.pid for each in connections if each.pid and each.raddr and each.raddr.port == port}
