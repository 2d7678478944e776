"""A Java program in the background that ends with this process, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from kordon.testing.jars import class_archive, need

START_SECONDS: Final = 240.0
STOP_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
DIES_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")
"""Puts before a command: the kernel kills it when this process ends, however that happens."""
_PR_SET_PDEATHSIG: Final = 1
_JVM: Final = ("-Xms256m", "-Xmx768m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
_TOOL_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC")
_QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:disable")
"""What lives for a minute spends most of its processor time on loading and optimising its classes."""
OPTIMISED: Final = ("-XX:TieredStopAtLevel=4",)
"""For a JVM that is measured under load: it takes the place of the quick start's."""
_LOG4J: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = LEVEL
rootLogger.appenderRef.out.ref = out
"""
_LOG4J_1: Final = """\
log4j.rootLogger=LEVEL, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
"""For Kafka before 4.0, which binds slf4j to log4j 1 or its successor reload4j."""


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ClusterFailed(RuntimeError):  # noqa: N818 - says what happened
    """A broker did not start, or died; the message ends with the last lines of its log."""


def java_command(jars: Path, folder: Path, *, tool: bool = False) -> list[str]:
    """Returns the beginning of a Java command line, up to the class.

    Args:
        tool: For a short run: little memory, quick start, errors only on its output.
    """
    level = "error" if tool else "warn"
    new, old = folder / f"log4j2-{level}.properties", folder / f"log4j-{level}.properties"
    if not old.exists():
        new.write_text(_LOG4J.replace("LEVEL", level))
        old.write_text(_LOG4J_1.replace("LEVEL", level.upper()))
    logs = (f"-Dlog4j2.configurationFile={new}", f"-Dlog4j.configuration=file:{old}")
    archive = class_archive(jars)
    classes = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return [need("java"), *(_TOOL_JVM if tool else _JVM), *_QUICK_START, *classes, *logs, "-cp", f"{jars}/*"]


class JavaProcess:
    """One process; it can be stopped, killed, paused and started again in its folder."""

    def __init__(self, name: str, ports: Collection[int], folder: Path, command: Sequence[str]) -> None:
        self.name = name
        """What messages call it."""
        self._listens_on = ports
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def log_file(self) -> Path:
        """What it has written to its output, over all its starts."""
        return self._folder / "broker.log"

    def start(self, *, wait: bool = True) -> None:
        """Starts it, and waits until it takes connections; raises ClusterFailed."""
        self._output = self.log_file.open("ab")
        command = [*DIES_WITH_PARENT, *self._command]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT, cwd=self._folder)
        if wait:
            self.wait_started()

    def wait_started(self) -> None:
        """Waits until it takes connections on every port; raises ClusterFailed."""
        deadline = time.monotonic() + START_SECONDS
        while not all(_listens(port) for port in self._listens_on):
            if self._process is None or self._process.poll() is not None:
                raise ClusterFailed(f"{self.name} died while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ClusterFailed(f"{self.name} did not start in {START_SECONDS} s:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Shuts it down as an operator would; kills it if it does not end in `STOP_SECONDS`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def pause(self) -> None:
        """Stops it, and waits until none of its threads runs any more."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-40:])


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0
