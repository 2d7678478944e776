"""Kordons that tests start by forking a process that has imported their code already.

Half of what a short-lived Kordon costs is to begin Python and to import. What differs from `python -m kordon.proxy` is
that alone: `tests/proxy/test_service.py` starts the real command.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from kordon.testing.java_process import die_with_parent

_CONTEXT: Final = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["kordon.testing.forking"])


class ForkedProgram:
    """A module of Python that runs as a program; is used as a `subprocess.Popen` is.

    It is killed when this process ends, however that happens.

    Args:
        command: The module, and its arguments.
        log_file: What it says on standard output and standard error is added to this.
        environment: All environment variables it sees.
    """

    def __init__(self, command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> None:
        log_file.touch()
        told = ([*command], str(log_file), dict(environment))
        self._process = _CONTEXT.Process(target=_run, args=told, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """As `poll`."""
        return self.poll()

    def poll(self) -> int | None:
        """Returns its exit code, negative for a signal that ended it; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Waits for its end; returns its exit code.

        Raises:
            subprocess.TimeoutExpired: It did not end in time.
        """
        self._process.join(seconds)
        code = self.poll()
        if code is None:
            assert seconds is not None
            raise subprocess.TimeoutExpired(str(self.pid), seconds)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once (SIGKILL)."""
        self.send_signal(signal.SIGKILL)


def _run(command: list[str], log_file: str, environment: dict[str, str]) -> None:
    die_with_parent()
    os.environ.clear()
    os.environ.update(environment)
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    module, *arguments = command
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
