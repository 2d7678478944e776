"""Who is measured: the broker itself, the floor, Kordon, and other proxies; and what their processes take."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from kordon.testing.cluster import DIES_WITH_PARENT

START_SECONDS: Final = 60.0
"""How long a proxy may take until its port is open."""
_SAMPLE_SECONDS: Final = 0.1


class PeerError(ValueError):
    """A --peer cannot be understood, or does not start."""


@dataclass(frozen=True)
class Contender:
    """One way to the cluster."""

    name: str
    bootstrap: str
    pid: int | None = None
    """Of the proxy; None where there is none."""
    metrics: Callable[[], str] | None = None
    """Reads its metrics; of who has managed topics."""

    def cpu_seconds(self) -> float:
        """Returns the processor time, user and kernel, that its processes have taken so far."""
        times = [process.cpu_times() for process in self._processes()]
        return sum(each.user + each.system for each in times)

    def rss_bytes(self) -> int:
        """Returns the memory that its processes hold now (resident set)."""
        return sum(process.memory_info().rss for process in self._processes())

    def counted(self, family: str, label: str = "") -> float:
        """Returns a counter's value, over all of its labels or those with this one; 0 of who has no managed topics."""
        lines = self.metrics().splitlines() if self.metrics is not None else []
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{family}[ {{]", line) and label in line
        )

    def _processes(self) -> list[psutil.Process]:
        if self.pid is None:
            return []
        first = psutil.Process(self.pid)
        return [first, *first.children(recursive=True)]


@dataclass
class Usage:
    """What a contender took during a load."""

    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0


@contextmanager
def watched(contender: Contender) -> Generator[Usage, None, None]:
    """Measures a contender while the block runs; the figures are complete when it has ended."""
    usage = Usage()
    over = threading.Event()

    def sample() -> None:
        while not over.wait(_SAMPLE_SECONDS):
            usage.peak_rss_bytes = max(usage.peak_rss_bytes, contender.rss_bytes())

    sampler = threading.Thread(target=sample, name="memory samples")
    before = contender.cpu_seconds()
    if contender.pid is not None:
        sampler.start()
    try:
        yield usage
    finally:
        over.set()
        if contender.pid is not None:
            sampler.join()
            usage.peak_rss_bytes = max(usage.peak_rss_bytes, contender.rss_bytes())
            usage.cpu_seconds = contender.cpu_seconds() - before


@dataclass(frozen=True)
class Peer:
    """Another proxy, as told by `--peer NAME=PORT=COMMAND`."""

    name: str
    port: int
    command: str
    """With `{bootstrap}`, the broker, and `{advertising}`, a listener of the broker that advertises the peer's port."""

    @classmethod
    def parse(cls, text: str) -> Peer:
        """Reads the option's value; raises PeerError."""
        name, _, rest = text.partition("=")
        port, _, command = rest.partition("=")
        if not (name and port.isdigit() and command):
            raise PeerError(f"--peer {text!r}: say NAME=PORT=COMMAND, for example 'kafka-proxy=30001=kafka-proxy …'")
        return cls(name, int(port), command)

    @property
    def listener(self) -> str:
        return "PEER_" + "".join(letter if letter.isalnum() else "_" for letter in self.name.upper())

    def start(self, bootstrap: str, advertising: str, log: Path) -> subprocess.Popen[bytes]:
        """Starts its command and waits until its port is open; raises PeerError."""
        command = self.command.replace("{bootstrap}", bootstrap).replace("{advertising}", advertising)
        return start_process(shlex.split(command), self.port, log)


def start_floor(port: int, advertising: str, log: Path) -> subprocess.Popen[bytes]:
    """Starts the floor on a port, in front of the listener that advertises this port."""
    command = [sys.executable, "-m", "kordon.bench.floor", "--listen", f"127.0.0.1:{port}", "--upstream", advertising]
    return start_process(command, port, log)


def start_process(command: list[str], port: int, log: Path) -> subprocess.Popen[bytes]:
    """Starts a proxy and waits until its port is open; raises PeerError."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*DIES_WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return process
    stop_process(process)
    raise PeerError(f"{command[0]} did not open port {port}:\n{log.read_text(errors='replace')[-1500:]}")


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, by force if asking does not help."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
