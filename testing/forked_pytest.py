"""Runs pytest many times over, each time in a fork of a process that has imported pytest and what is not Kordon's.

A fork imports Kordon and its tests itself, anew, with the text of one file replaced where that is asked for. So each
run costs what the tests cost, and nothing of one run is seen by another. Of tests of one file that follow each other,
Kordon is imported once, and changed in place (`warm_pytest.py`). What that cannot tell is tried anew: a change that was
not noticed, a test that fails as it is, and what cannot be changed in place.

As a program (`python -m kordon.testing.forked_pytest`) it reads requests from its standard input, a JSON object a line,
and answers each with another.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path, PurePath
from queue import SimpleQueue
from types import CodeType, ModuleType
from typing import IO, Any, Final

import pytest

from kordon.testing.bounded_runs import bound, end_of, longest_seconds
from kordon.testing.warm_pytest import WarmTests

PASSED, FAILED = int(pytest.ExitCode.OK), int(pytest.ExitCode.TESTS_FAILED)
NEVER_IMPORTED: Final = 99
"""The code of a run whose tests have not imported the file that was replaced."""
_OF_THIS_PROCESS: Final = frozenset(
    f"kordon.testing{name}" for name in ("", ".bounded_runs", ".forked_pytest", ".swapped_code", ".warm_pytest")
)
_IMPORTED_BEFORE: Final = "ignore::pytest.PytestAssertRewriteWarning"
"""pytest cannot rewrite the assertions of plugins that were imported before the fork, and need not."""
_OPTIONS: Final = (
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:faulthandler",
    "-W",
    _IMPORTED_BEFORE,
)
_OF_OTHERS: Final = (
    "_hypothesis_pytestplugin",
    "_pytest.doctest",
    "_pytest.junitxml",
    "aiokafka",
    "confluent_kafka.admin",
    "google_crc32c",
    "http.server",
    "hypothesis.stateful",
    "multiprocessing.forkserver",
    "prometheus_client",
    "psutil",
    "pydantic",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "re2",
    "scramp",
    "structlog",
    "trustme",
    "uvloop",
)
"""What most tests import that is not Kordon's."""


@dataclass(frozen=True)
class Replaced:
    """A file of Kordon as no disk has it."""

    module: str
    text: str

    @classmethod
    def of(cls, file: str, text: str) -> Replaced:
        """Names the module of a file, which is relative to the root, as in `proxy/ordering/gate.py`."""
        return cls(".".join(("kordon", *PurePath(file).with_suffix("").parts)), text)


class _Loader(SourceFileLoader):
    """Imports a module by another text than its file's."""

    def __init__(self, module: str, path: str, text: str) -> None:
        super().__init__(module, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """Compiles the text; nothing is read, and nothing cached."""
        del fullname
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the one module that is replaced."""

    def __init__(self, replaced: Replaced) -> None:
        self._replaced = replaced
        self.is_imported = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds it where it is found otherwise, and has it loaded by its other text."""
        if fullname != self._replaced.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._replaced.text)
            self.is_imported = True
        return spec


class ForkedPytest:
    """A process that runs tests in forks of itself, one run at a time."""

    def __init__(self, root: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(root / "src")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kordon.testing.forked_pytest"],
            cwd=root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tests: Iterable[str], replaced: Replaced | None = None) -> tuple[int, str]:
        """Runs tests until one fails; returns pytest's exit code or `NEVER_IMPORTED`, and what pytest said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"tests": list(tests), "replaced": asdict(replaced) if replaced is not None else None}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return answer["code"], answer["words"]

    def close(self) -> None:
        assert self._process.stdin is not None
        with self._process:  # which closes its other end, and waits
            self._process.stdin.close()


Run = Callable[..., tuple[int, str]]
"""Runs tests as `ForkedPytest.run` does."""


@contextmanager
def forked_pytests(root: Path, count: int) -> Iterator[Run]:
    """Starts several; gives what runs tests in one of them, always the same for a thread, and for as many threads."""
    with ExitStack() as stack:
        free = SimpleQueue[ForkedPytest]()
        for _ in range(count):
            free.put(stack.enter_context(closing(ForkedPytest(root))))
        of_thread = threading.local()

        def run(tests: Iterable[str], replaced: Replaced | None = None) -> tuple[int, str]:
            if not hasattr(of_thread, "forked"):
                of_thread.forked = free.get_nowait()
            forked: ForkedPytest = of_thread.forked
            return forked.run(tests, replaced)

        yield run


def _run(asked: dict[str, Any], words: IO[str]) -> int:
    """Runs tests in a fork of this process; returns the code."""
    child = os.fork()
    if child:
        return end_of(child, longest_seconds(is_broken=asked["replaced"] is not None) * (1 + len(asked["tests"])))
    code = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(words.fileno(), 1)
        os.dup2(words.fileno(), 2)
        code = _run_here(asked)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_here(asked: dict[str, Any]) -> int:
    bound()
    finder = None
    if asked["replaced"] is not None:
        finder = _Finder(Replaced(**asked["replaced"]))
        sys.meta_path.insert(0, finder)
    seconds = longest_seconds(is_broken=finder is not None)
    code = _code_of([*_OPTIONS, f"--timeout={seconds}", *asked["tests"]])
    return code if finder is None or finder.is_imported else NEVER_IMPORTED


class _Ended:
    """A plugin of pytest that hears how the tests have ended."""

    code: int | None = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.code = int(exitstatus)


def _code_of(arguments: Sequence[str]) -> int:
    """Runs pytest; returns its exit code, that of failed tests also if pytest itself fails over what they left open."""
    ended = _Ended()
    try:
        return int(pytest.main([*arguments], plugins=[ended]))
    except Exception:
        if ended.code != pytest.ExitCode.TESTS_FAILED:
            raise
        traceback.print_exc()
        return ended.code


def main() -> int:
    """Answers requests until there are no more."""
    for name in _OF_OTHERS:
        with suppress(ImportError):
            importlib.import_module(name)
    assert {name for name in sys.modules if name.startswith("kordon.")} <= _OF_THIS_PROCESS
    warm: WarmTests | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        warm = _warm(asked["tests"], warm)
        told = warm.run(asked["tests"], asked["replaced"]) if warm is not None else None
        if told is None or told != (FAILED if asked["replaced"] is not None else PASSED):
            with tempfile.TemporaryFile("w+") as words:
                told = _run(asked, words)
                words.seek(0)
                print(json.dumps({"code": told, "words": words.read()}), flush=True)
        else:
            print(json.dumps({"code": told, "words": ""}), flush=True)
    if warm is not None:
        warm.end()
    return 0


def _warm(tests: Sequence[str], before: WarmTests | None) -> WarmTests | None:
    """Returns the process for the file of these tests, the last one if it is that; None: they are of several files."""
    files = {each.partition("::")[0] for each in tests}
    if before is not None and files == {before.file}:
        return before
    if before is not None:
        before.end()
    if len(files) > 1:
        return None
    return WarmTests(files.pop(), [*_OPTIONS, f"--timeout={longest_seconds(is_broken=False)}"])


if __name__ == "__main__":
    sys.exit(main())
