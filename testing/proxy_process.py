"""A Kordon process in front of a cluster, for tests, demo and bench."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from prometheus_client.parser import text_string_to_metric_families

from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.forked_program import ForkedProgram
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.lease_waits import LEASE_WAITS
from kordon.testing.ports import free_ports

FOLDER_PREFIX: Final = "kordon-proxy-"
START_SECONDS: Final = 180.0
"""Against hanging only: beside another lane, at a low priority, Python alone was seen to need over 30 s."""
STOP_SECONDS: Final = 120.0
_NODE_IDS: Final = 8
"""Ports kept free behind the bootstrap port: brokers have node ids below this."""


class ProxyFailed(RuntimeError):  # noqa: N818 - says what happened
    """Kordon did not become ready, or ended; the message has its log."""


@dataclass(frozen=True, slots=True)
class _Launch:
    """How it is started."""

    command: Sequence[str]
    """The module that is run, and its arguments."""
    env: Mapping[str, str] | None
    log_file: Path

    def process(self, *, is_forked: bool) -> subprocess.Popen[bytes] | ForkedProgram:
        if is_forked:
            return ForkedProgram(self.command, self.log_file, os.environ if self.env is None else self.env)
        command = [*DIES_WITH_PARENT, sys.executable, "-m", *self.command]
        with self.log_file.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=self.env)


class ProxyProcess:
    """`kordon run` as its own process; use `start` as a context manager."""

    is_forked: ClassVar = False
    """Whether all are forked (`ForkedProgram`): tests start hundreds; elsewhere they are started as by an operator."""

    def __init__(self, launch: _Launch, bootstrap: str, admin: str) -> None:
        self.bootstrap = bootstrap
        """host:port for clients."""
        self.admin = admin
        """host:port of /readyz, /metrics and /status."""
        self._launch = launch
        self._process = launch.process(is_forked=self.is_forked)
        self._log_file = launch.log_file
        LEASE_WAITS.follow(launch.log_file)
        # Its log can be read after its end, so the folder goes with this object, at the latest when Python ends.
        weakref.finalize(self, remove_folder, launch.log_file.parent)

    @classmethod
    def start(
        cls,
        bootstrap: str,
        args: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        wait_ready: bool = True,
        fault: str | None = None,
        program: str = "kordon.proxy",
    ) -> ProxyProcess:
        """Starts Kordon on free ports of 127.0.0.1.

        Args:
            config: Sections of the configuration file; addresses are filled in.
            env: All environment variables it sees; by default this process's own.
            wait_ready: Wait until /readyz says so.
            fault: The promise of `kordon.testing.audits.faults` that it breaks; None: it keeps them all.
            program: The module that is run in place of Kordon's own.

        Raises:
            ProxyFailed: It did not become ready.
        """
        base = free_ports(_NODE_IDS + 2)
        listen, admin = f"127.0.0.1:{base + 1}", f"127.0.0.1:{base}"
        folder = make_folder(FOLDER_PREFIX)
        file = folder / "kordon.yaml"
        file.write_text(json.dumps(dict(config or {})))  # JSON is YAML
        faulty = ["kordon.testing.audits.faulty_proxy", fault] if fault else []
        command = [*faulty, program, "run", "--bootstrap", bootstrap, "--listen", listen]
        command += ["--admin", admin, "--log-format", "json", *(["--config", str(file)] if config else []), *args]
        launch = _Launch(command, env, folder / "kordon.log")
        proxy = cls(launch, listen, admin)
        proxy._wait_until(ready=wait_ready)
        return proxy

    def start_again(self, *, wait_ready: bool = True) -> None:
        """Starts it on the same addresses after it has ended; its log goes on; raises ProxyFailed."""
        self._process = self._launch.process(is_forked=self.is_forked)
        self._wait_until(ready=wait_ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process id; with several workers, the parent's."""
        return self._process.pid

    @property
    def config_file(self) -> Path:
        """The configuration file it was given, if any."""
        return self._log_file.with_name("kordon.yaml")

    def stop(self) -> int:
        """Lets it drain and end (SIGTERM); returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Waits for its end; returns its exit code, after killing it if `seconds` are over."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        LEASE_WAITS.look(self._log_file)

    @contextmanager
    def asleep(self) -> Generator[None, None, None]:
        """Stops it (SIGSTOP) while the block runs."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def leads(self) -> bool:
        return bool(self.status()["ordering"].get("leads"))

    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    def events(self, event: str) -> list[dict[str, Any]]:
        """Returns the lines of one event that it has logged."""
        lines = (line for line in self.log().splitlines() if line.startswith("{") and f'"{event}"' in line)
        return [found for found in map(json.loads, lines) if found["event"] == event]

    def status(self) -> dict[str, Any]:
        return self._page("status")

    def topics(self) -> dict[str, Any]:
        return self._page("topics")

    def topic(self, name: str) -> dict[str, Any]:
        """Returns /topics/NAME."""
        return self._page(f"topics/{name}")

    def _page(self, name: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.admin}/{name}", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def metric(self, name: str, **labels: str) -> float:
        """Returns what a metric says, summed over workers and over all labels that are not named."""
        # Tests ask again and again, and one metric is a hundredth of the page.
        lines = "".join(f"{line}\n" for line in self.metrics().splitlines() if line.startswith(name))
        return sum(
            sample.value
            for family in text_string_to_metric_families(lines)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def _wait_until(self, *, ready: bool) -> None:
        try:
            self._poll(ready=ready)
        except BaseException:
            self.kill()
            raise

    def _poll(self, *, ready: bool) -> None:
        page = "readyz" if ready else "livez"
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._process.poll() is not None:
                raise ProxyFailed(f"kordon ended with exit code {self._process.returncode}:\n{self.log()}")
            with suppress(OSError), urllib.request.urlopen(f"http://{self.admin}/{page}", timeout=60):
                return
            if time.monotonic() > deadline:
                raise ProxyFailed(f"kordon is not {page} after {START_SECONDS} s:\n{self.log()}")
            time.sleep(0.05)
