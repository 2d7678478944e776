"""What an audit takes of the machine: processor time of its processes, and the memory that they have to themselves.

Memory is looked at by a process of its own, since to ask the kernel for it (PSS, `smaps_rollup`) takes time itself.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark import SparkContext

_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Shares:
    """Something by the kinds of processes of an audit."""

    driver: float
    jvm: float
    workers: float
    """All Python processes below the JVM."""

    @property
    def total(self) -> float:
        return self.driver + self.jvm + self.workers

    @property
    def python(self) -> float:
        return self.driver + self.workers

    def __sub__(self, other: Shares) -> Shares:
        return Shares(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


def jvm_pid() -> int:
    """Returns the process of this audit's JVM."""
    gateway: Any = SparkContext._gateway  # pyright: ignore[reportPrivateUsage]
    pid: int = gateway.proc.pid
    return pid


def cpu_seconds(jvm: int) -> Shares:
    """Returns what this process, its JVM and the Python workers have taken so far, ended ones included."""
    own = psutil.Process().cpu_times()
    java = psutil.Process(jvm)
    below = sum(_cpu_of(each) for each in java.children(recursive=True))
    times = java.cpu_times()
    return Shares(own.user + own.system, times.user + times.system, below + _of_ended(times))


def _cpu_of(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system + _of_ended(times))
    return 0.0


def _of_ended(times: Any) -> float:
    return float(times.children_user + times.children_system)


@contextmanager
def watched_memory(jvm: int) -> Iterator[Memory]:
    """Looks at the memory of this process, its JVM and the Python workers meanwhile."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_watch, args=(theirs, os.getpid(), jvm), daemon=True)
    process.start()
    try:
        yield Memory(ours)
    finally:
        ours.close()  # it ends
        process.join()


class Memory:
    """Told by the process that looks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def peak_bytes(self) -> Shares:
        """Returns what all had together at most since this was asked last."""
        self._connection.send(None)
        told: Shares = self._connection.recv()
        return told


def _watch(connection: Connection, driver: int, jvm: int) -> None:
    """Looks until the connection is closed, and tells when it is asked."""
    peak = Shares(0, 0, 0)
    with suppress(EOFError, BrokenPipeError, psutil.NoSuchProcess):
        while True:
            now = _pss(driver, jvm)
            peak = max(peak, now, key=lambda each: each.total)
            if connection.poll(_LOOK_SECONDS):
                connection.recv()
                connection.send(peak)
                peak = now


def _pss(driver: int, jvm: int) -> Shares:
    below = psutil.Process(jvm).children(recursive=True)
    return Shares(_pss_of(driver), _pss_of(jvm), sum(_pss_of(each.pid) for each in below))


def _pss_of(pid: int) -> float:
    """Returns the pages of a process, each of those that it shares counted in part."""
    with suppress(OSError):  # it has ended
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return sum(float(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0.0
