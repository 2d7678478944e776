"""Tests that are collected once and run by several processes side by side: each is a fork of the one that collected."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kordon.testing.claimed_files import Claims
from kordon.testing.java_process import die_with_parent
from kordon.testing.seconds import Seconds

_NOTHING_TO_RUN: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)


class Forks:
    """A plugin of pytest that goes on in a process for each name, and ends with their joint exit code.

    Reading all tests is seconds of processor time; a process that is forked needs none of them. The first process
    writes to the output as it goes; the words of the others come when all have ended.

    Args:
        processes: By name, the lanes that a process runs tests of, in this order.
        between: An empty folder for what the processes tell each other.
        lane_of: Names the lane of a test.
        niceness: By name, how much lower the priority of a process is.
    """

    def __init__(
        self,
        processes: Mapping[str, Sequence[str]],
        between: Path,
        lane_of: Callable[[pytest.Item], str],
        niceness: Mapping[str, int],
    ) -> None:
        self._processes = processes
        self._between = between
        self._lane_of = lane_of
        self._niceness = niceness
        self._code: int | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Starts all processes and waits for them; what was collected with errors, or is only shown, is pytest's own.

        Returns:
            In a process, when it has run its tests; in the one that collected, when all have ended.
        """
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None
        if _has_threads_of_polars():
            raise pytest.UsageError("a module uses Polars while it is imported: forks would wait for its threads")
        manager = session.config.pluginmanager
        capture: Any = manager.getplugin("capturemanager")
        capture.stop_global_capturing()  # each process needs files of its own
        (self._between / "claims").mkdir()
        gc.collect()
        gc.freeze()  # so that memory stays shared, and no process looks through what none gives up
        sys.stdout.flush()
        processes: list[int] = []
        for name in self._processes:
            if not (process := os.fork()):
                self._begin(name, session)
                return Claims(self._between / "claims", self._lane_of).run(session)
            processes.append(process)
        manager.unregister(name="terminalreporter")
        ends = (outlasted(partial(_exit_code, process)) for process in processes)
        codes = [code for code in ends if code != _NOTHING_TO_RUN]
        self._code = next((code for code in codes if code), 0) if codes else _NOTHING_TO_RUN
        for name in [*self._processes][1:]:
            with self._words(name).open("rb") as words:
                shutil.copyfileobj(words, sys.stdout.buffer)
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Has the process that collected end with the exit code of those that ran the tests."""
        if self._code is not None:
            session.exitstatus = self._code

    def _begin(self, name: str, session: pytest.Session) -> None:
        """Makes this fork the process of a name, with the tests of its lanes alone, in their order."""
        die_with_parent()
        os.nice(self._niceness.get(name, 0))
        manager = session.config.pluginmanager
        capture: Any = manager.getplugin("capturemanager")
        reporter: Any = manager.getplugin("terminalreporter")
        if name != next(iter(self._processes)):
            with self._words(name).open("wb") as words:
                os.dup2(words.fileno(), 1)
                os.dup2(words.fileno(), 2)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        reporter.section(name)
        manager.register(Seconds(self._between / f"{name}.seconds"))
        lanes = self._processes[name]
        if left_out := [item for item in session.items if self._lane_of(item) not in lanes]:
            session.config.hook.pytest_deselected(items=left_out)
        mine = (item for item in session.items if self._lane_of(item) in lanes)
        session.items = sorted(mine, key=lambda item: lanes.index(self._lane_of(item)))
        session.testscollected = len(session.items)

    def _words(self, name: str) -> Path:
        """What a process writes that is not the first."""
        return self._between / f"{name}.words"


def _has_threads_of_polars() -> bool:
    """Returns whether Polars has started its threads: a fork of this process would wait for them for ever."""
    names = (each.read_text() for each in Path("/proc/self/task").glob("*/comm"))
    return any(name.startswith("polars-0") for name in names)


def _exit_code(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def outlasted(wait: Callable[[], int]) -> int:
    """Waits for a process that outlasts Ctrl-C, which reaches all of them, to clean up; returns its exit code."""
    while True:
        try:
            return wait()
        except KeyboardInterrupt:
            continue
