"""Tests of one file that run again and again, each time in a fork of a process that has collected the file already.

A run costs what the test costs, and not the import of Kordon, which is most of a quick test. The forks have functions
of Kordon changed in place (`swapped_code.py`). What cannot be told so is for whoever imports Kordon anew
(`forked_pytest.py`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import pytest

from kordon.testing.bounded_runs import bound, end_of, longest_seconds
from kordon.testing.swapped_code import swap

_UNKNOWN: Final = 98
"""The code of a fork that could tell nothing."""


class WarmTests:
    """The tests of a file, in a process of their own.

    Args:
        file: Relative to the root.
        options: Of pytest.
    """

    def __init__(self, file: str, options: Sequence[str]) -> None:
        self.file = file
        self.passed: set[str] = set()
        """Those that were run as they are, and passed."""
        asked, ask = os.pipe()
        tell, told = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(ask)
            os.close(tell)
            _serve(file, options, os.fdopen(asked), os.fdopen(told, "w"))
        os.close(asked)
        os.close(told)
        self._ask, self._tell = os.fdopen(ask, "w"), os.fdopen(tell)

    def run(self, tests: Sequence[str], replaced: dict[str, str] | None) -> int | None:
        """Runs tests until one fails; returns pytest's exit code.

        None: that cannot be told so, or nothing would be shown, as the tests were not run before as they are.
        """
        if replaced is not None and not self.passed.issuperset(tests):
            return None
        with suppress(BrokenPipeError):
            print(json.dumps({"tests": tests, "replaced": replaced}), file=self._ask, flush=True)
        answer = self._tell.readline()
        code = json.loads(answer) if answer else _UNKNOWN
        if code == 0 and replaced is None:
            self.passed.update(tests)
        return None if code == _UNKNOWN else int(code)

    def end(self) -> None:
        """Ends the process."""
        with suppress(BrokenPipeError):
            self._ask.close()
        self._tell.close()
        os.waitpid(self._process, 0)


def _serve(file: str, options: Sequence[str], asked: IO[str], told: IO[str]) -> None:
    """Collects the file, and answers until nothing is asked any more; does not return."""
    try:
        with tempfile.TemporaryFile("w") as words:
            for number in (1, 2):
                os.dup2(words.fileno(), number)
            bound()
            pytest.main([*options, "--capture=no", file], plugins=[_Answering(asked, told)])
    finally:
        os._exit(0)


class _Answering:
    """A plugin of pytest that runs, of what was collected, what it is asked for."""

    def __init__(self, asked: IO[str], told: IO[str]) -> None:
        self._asked, self._told = asked, told

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for line in self._asked:
            print(json.dumps(_code(session, **json.loads(line))), file=self._told, flush=True)
        return True


def _code(session: pytest.Session, tests: Sequence[str], replaced: dict[str, str] | None) -> int:
    """Runs tests in a fork; returns 0 or 1, or `_UNKNOWN`."""
    wanted = [each for each in session.items if any(_is_of(each.nodeid, test) for test in tests)]
    if not wanted or len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 - a fork would lack these threads
        return _UNKNOWN
    if process := os.fork():
        return end_of(process, longest_seconds(is_broken=replaced is not None) * (1 + len(wanted)))
    code = _UNKNOWN
    try:
        if replaced is None or _is_swapped(**replaced):
            for item, following in zip(wanted, [*wanted[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            code = min(session.testsfailed, 1)
    finally:
        os._exit(code)


def _is_of(node_id: str, test: str) -> bool:
    """Whether a test of the file is one that was asked for by its name, or by the file's."""
    name, asked = (each.partition("::")[2] for each in (node_id, test))
    return not asked or name == asked or name.startswith((f"{asked}[", f"{asked}::"))


def _is_swapped(module: str, text: str) -> bool:
    found: Any = sys.modules.get(module)
    return found is not None and swap(found, Path(found.__file__).read_text(), text)
