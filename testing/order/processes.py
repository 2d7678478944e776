"""The clients' processes: started together, listened to, told to finish and to stop, and gone for sure afterwards."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from kordon.testing.jars import jars_dir, kafka_version
from kordon.testing.java_process import DIES_WITH_PARENT, java_command
from kordon.testing.java_programs import java_program
from kordon.testing.order.client import Settings, State

JAVA_CLIENTS: Final = Path(__file__).parent / "java" / "OrderClients.java"
PRODUCERS: Final = ("librdkafka", "java", "aiokafka")
GROUPS: Final = ("librdkafka-group", "java-classic", "java-kip848")
DIALECT_PRODUCERS: Final = ("dialect",)
"""Beside the others: they know partitions by other numbers, so histories of both kinds are judged apart."""
DIALECT_GROUPS: Final = ("dialect-group", "cooperative-dialect")
_PYTHON_CLIENTS: Final = {
    "librdkafka": "produce_librdkafka",
    "aiokafka": "produce_aiokafka",
    "dialect": "produce_dialect",
    "dialect-group": "consume_dialect",
    "librdkafka-group": "consume_librdkafka",
    "cooperative": "consume_cooperative",
    "cooperative-dialect": "consume_cooperative",
    "share": "consume_share",
}
COOPERATIVE_GROUPS: Final = ("cooperative", "cooperative-dialect", "share")
"""They finish records out of the order of offsets, and are judged by `cooperative.py`."""
JAVA_SHARE_GROUP: Final = "share-java"
"""Of Java's share consumers, judged likewise: each record is started as soon as it is given."""
_PROTOCOLS: Final = {"java-classic": "classic", "java-kip848": "consumer"}
_END_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_SILENCE_SECONDS: Final = 1.0


class ClientFailed(RuntimeError):  # noqa: N818 - says what happened
    """A client ended, or did not do in time what it must; the message has what it wrote."""


class _Client:
    """One process, which is one client or several."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.states: dict[str, State] = {}
        self._errors = folder / f"{name}.errors"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*DIES_WITH_PARENT, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._listener = threading.Thread(target=self._listen, name=f"{name} listener", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                state = State.from_line(line)
                self.states[state.name] = state
            else:  # what Java's clients log
                with self._errors.open("a") as errors:
                    errors.write(line)

    def order(self, what: str) -> None:
        """Writes a line to its standard input; one that has ended hears nothing, which `check` tells."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()

    def check(self) -> None:
        if self._process.poll() is not None:
            raise ClientFailed(f"{self.name} ended with exit code {self._process.returncode}:\n{self.complaints()}")

    def complaints(self) -> str:
        """Returns the end of what it wrote to standard error."""
        return self._errors.read_text(errors="replace")[-2000:]

    def end(self, deadline: float) -> bool:
        """Waits for its end until a time (of time.monotonic), then kills it; returns whether it ended well."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            code = self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._listener.join(_END_SECONDS)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        return code == 0


class Clients:
    """All clients of a run; use as a context manager."""

    def __init__(self, settings: Settings, bootstraps: Sequence[str], producers: Sequence[str], groups: Sequence[str]):
        self._settings = settings
        self._bootstraps = bootstraps
        self._producers = producers
        self._groups = groups
        self._clients: list[_Client] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def _start(self) -> None:
        for name, module in _PYTHON_CLIENTS.items():
            if name in (*self._producers, *self._groups):
                # aiokafka never goes back to its bootstrap addresses, so it is given only the one that no action cuts
                bootstraps = self._bootstraps[:1] if name == "aiokafka" else ()
                after = [name] if name in COOPERATIVE_GROUPS else []
                command = sys.executable, "-m", f"kordon.testing.order.{module}"
                self._add(name, *command, after=after, bootstraps=bootstraps)
        java = [word for name in ("java",) if name in self._producers for word in ("producer", name)]
        java += [
            word for name, protocol in _PROTOCOLS.items() if name in self._groups for word in ("group", name, protocol)
        ]
        if java:
            self._add_java("java", JAVA_CLIENTS, java)
        if JAVA_SHARE_GROUP in self._groups:  # a program of its own: Kafka 3 has no share consumers
            self._add_java(JAVA_SHARE_GROUP, JAVA_CLIENTS.with_name("OrderShareGroup.java"), [JAVA_SHARE_GROUP])

    def _add_java(self, name: str, program: Path, after: Sequence[str]) -> None:
        jars = jars_dir(kafka_version())
        begin = java_command(jars, self._settings.folder, tool=True)
        self._add(name, *begin, *java_program(program, jars), after=after)

    def _add(self, name: str, *command: str, after: Sequence[str] = (), bootstraps: Sequence[str] = ()) -> None:
        """Starts a process; with several ways to the cluster, each begins at another one."""
        turn = len(self._clients) % len(self._bootstraps)
        bootstrap = ",".join(bootstraps or [*self._bootstraps[turn:], *self._bootstraps[:turn]])
        told = replace(self._settings, bootstrap=bootstrap).arguments()
        self._clients.append(_Client(name, [*command, *told, *after], self._settings.folder))

    def states(self) -> list[State]:
        return [state for client in self._clients for state in list(client.states.values())]

    def order(self, what: str) -> None:
        """Tells all of them to "finish" or to "stop"."""
        for client in self._clients:
            client.order(what)

    def wait(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Waits until something holds, while all clients run; raises ClientFailed."""
        deadline = time.monotonic() + seconds
        while not holds():
            for client in self._clients:
                client.check()
            if time.monotonic() > deadline:
                told = "".join(f"\n{state.name}: {state.records} records" for state in self.states())
                told += "".join(f"\n{client.name}: {client.complaints()}" for client in self._clients)
                raise ClientFailed(f"{what}: not within {seconds:g} s{told}")
            time.sleep(_POLL_SECONDS)

    def wait_working(self, seconds: float) -> None:
        """Waits until every producer has had an answer and every group a record."""
        expected = len(self._producers) + len(self._groups)
        self.wait("all clients at work", lambda: sum(s.records > 0 for s in self.states()) == expected, seconds)

    def wait_produced(self, seconds: float) -> None:
        """Waits until producers that were told to finish have their last answer."""
        self.wait("producers done", lambda: all(s.done for s in self.states() if s.kind == "producer"), seconds)

    def wait_caught_up(self, seconds: float) -> None:
        """Waits until each group has processed each partition up to what was acknowledged last, and gets no more."""
        came, since = -1, time.monotonic()

        def caught_up() -> bool:
            nonlocal came, since
            records = sum(state.records for state in self.states())
            if records != came or any(self.backlogs().values()):
                came, since = records, time.monotonic()
            # Where the last acknowledgement had no offset, only silence tells that it has been read.
            return time.monotonic() - since > _SILENCE_SECONDS

        self.wait("groups caught up", caught_up, seconds)

    def backlogs(self) -> dict[str, int]:
        """Returns by group how many offsets are acknowledged and not processed yet."""
        states = self.states()
        ends = {is_dialect: _ends(states, is_dialect=is_dialect) for is_dialect in (False, True)}
        return {
            state.name: sum(
                max(0, end - state.ends.get(partition, -1))
                for partition, end in ends[state.name in DIALECT_GROUPS].items()
            )
            for state in states
            if state.kind == "group"
        }

    def acknowledged(self) -> int:
        return sum(state.records for state in self.states() if state.kind == "producer")

    def stop(self) -> list[str]:
        """Lets all of them end; returns who did not end well, with what it wrote."""
        self.order("stop")
        deadline = time.monotonic() + _END_SECONDS
        ended, self._clients = self._clients, []
        return [f"{each.name} did not end well: {each.complaints()}" for each in ended if not each.end(deadline)]

    def kill(self) -> None:
        for client in self._clients:
            client.end(0)
        self._clients = []


def _ends(states: Iterable[State], *, is_dialect: bool) -> dict[int, int]:
    """Returns the highest offset that was acknowledged by partition, as clients with or without the SDK number them."""
    ends: dict[int, int] = {}
    for state in states:
        if state.kind == "producer" and (state.name in DIALECT_PRODUCERS) == is_dialect:
            for partition, offset in state.ends.items():
                ends[partition] = max(ends.get(partition, -1), offset)
    return ends
