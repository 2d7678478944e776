"""Breaks Kordon in one line at a time, and sees that a test notices: `python -m kordon.testing.mutations`.

`tests/mutations.toml` lists the lines, what becomes of each, and the one test that must fail then. Each is tried on a
copy of the tree, in a fresh process that runs that test alone. All these tests pass on the tree as it is, or else
nothing is shown; so they are run once together as well.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
LIST: Final = Path("tests", "mutations.toml")
_LEFT_OUT: Final = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "node_modules", "docs")
_PYTEST: Final = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60")
_NOTICED, _SURVIVED = int(pytest.ExitCode.TESTS_FAILED), int(pytest.ExitCode.OK)


class VanishedError(Exception):
    """Raised when a line to be changed is not there, or more than once."""


@dataclass(frozen=True)
class Mutation:
    """One line of the product, broken.

    Attributes:
        area: What of the product it belongs to.
        breaks: What Kordon does then, for a reader.
        file: Relative to the root.
        old: The line without its indentation; it stands in the file, or in the function, exactly once.
        new: What takes its place, at the same indentation.
        test: The node id of the test that must fail.
        within: The function or class in which the line is looked for, as `Class.method`; empty: the whole file.
    """

    area: str
    breaks: str
    file: str
    old: str
    new: str
    test: str
    within: str = ""

    def applied(self, text: str) -> str:
        """Returns the text of its file with the line changed.

        Raises:
            VanishedError: The line is not there exactly once.
        """
        lines = text.splitlines(keepends=True)
        first, last = _extent(text, self.within) if self.within else (1, len(lines))
        found = [number for number in range(first - 1, last) if lines[number].strip() == self.old]
        if len(found) != 1:
            place = self.within or self.file
            raise VanishedError(f"{self.file}: {len(found)} times in {place}, not once: {self.old}")
        line = lines[found[0]]
        lines[found[0]] = line.replace(self.old, self.new)
        return "".join(lines)


class Verdict(StrEnum):
    """What came of a mutation."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    VANISHED = "vanished"
    UNTRIED = "untried"
    """The test did not run."""


def listed(root: Path = ROOT) -> list[Mutation]:
    """Reads the list."""
    areas = tomllib.loads((root / LIST).read_text())
    return [Mutation(area, **row) for area, rows in areas.items() for row in rows]


def _extent(text: str, within: str) -> tuple[int, int]:
    """Returns the first and the last line of a function or class.

    Raises:
        VanishedError: There is none of that name.
    """
    node: ast.AST = ast.parse(text)
    for name in within.split("."):
        named = (each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name)
        found = next(named, None)
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            raise VanishedError(f"there is no {within}")
        node = found
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return node.lineno, node.end_lineno or node.lineno


class Copy:
    """A copy of the tree, in which tests are run.

    Args:
        folder: Of its own; empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        shutil.copytree(ROOT, self.folder, symlinks=True, ignore=_LEFT_OUT)
        for package in ("codecs", "proxy", "client", "testing"):
            # By its hash, because a changed file may have the size and the second of the one before.
            compileall.compile_dir(self.folder / package, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)

    @contextmanager
    def broken(self, mutation: Mutation) -> Iterator[None]:
        """Has a line changed while this lasts.

        Raises:
            VanishedError: The line is not there.
        """
        file = self.folder / mutation.file
        text = file.read_text()
        file.write_text(mutation.applied(text))
        try:
            yield
        finally:
            file.write_text(text)

    def run(self, tests: Iterable[str]) -> tuple[int, str]:
        """Runs tests; returns pytest's exit code, and what it said."""
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src")}
        ran = subprocess.run(
            [*_PYTEST, *tests], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        return ran.returncode, ran.stdout + ran.stderr


def tried(mutation: Mutation, copy: Copy) -> tuple[Verdict, str]:
    """Tries one; returns what came of it, and what there is to say of one that was not noticed."""
    try:
        with copy.broken(mutation):
            code, words = copy.run([mutation.test])
    except VanishedError as error:
        return Verdict.VANISHED, str(error)
    if code == _NOTICED:
        return Verdict.NOTICED, ""
    if code == _SURVIVED:
        return Verdict.SURVIVED, f"{mutation.file}: {mutation.old}\n    -> {mutation.new}\n    passes {mutation.test}"
    return Verdict.UNTRIED, f"{mutation.test}\n{words}"


def _try_all(mutations: Sequence[Mutation], processes: int) -> int:
    """Tries all; returns how many were not noticed, or 1 if the tests do not pass as it is."""
    counts = Counter[Verdict]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as threads:
        copies = SimpleQueue[Copy]()
        for number in range(processes):
            copies.put(Copy(Path(folder, str(number))))

        def one(mutation: Mutation) -> tuple[Verdict, str]:
            copy = copies.get()
            try:
                return tried(mutation, copy)
            finally:
                copies.put(copy)

        def unbroken() -> tuple[int, str]:
            copy = copies.get()
            try:
                return copy.run(sorted({each.test for each in mutations}))
            finally:
                copies.put(copy)

        as_it_is = threads.submit(unbroken)
        for mutation, (verdict, words) in zip(mutations, threads.map(one, mutations), strict=True):
            counts[verdict] += 1
            if verdict is not Verdict.NOTICED:
                print(f"{verdict}: {mutation.area}: {mutation.breaks}\n    {words}", flush=True)
            _show(f"{counts.total()} of {len(mutations)}, {counts[Verdict.NOTICED]} noticed")
        code, words = as_it_is.result()
    _show("")
    for area, number in Counter(each.area for each in mutations).items():
        print(f"{number:4} {area}")
    print(f"{len(mutations)} mutations: " + ", ".join(f"{counts[each]} {each}" for each in Verdict))
    if code != _SURVIVED:
        print(f"these tests do not pass on the tree as it is:\n{words}")
        return 1
    return len(mutations) - counts[Verdict.NOTICED]


def _show(progress: str) -> None:
    if sys.stdout.isatty():
        print(f"\r\033[K{progress}", end="", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Tries the mutations that are asked for.

    Returns:
        0: all were noticed. 1: one was not, its line has gone, or its test does not pass without it.
    """
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.mutations", description=summary, epilog=rest)
    parser.add_argument("pattern", nargs="*", help="only those in whose area, file or words this is found")
    parser.add_argument("--processes", type=int, default=2, help="tried at once (default: 2)")
    asked = parser.parse_args(arguments)
    wanted = re.compile("|".join(asked.pattern))
    mutations = [each for each in listed() if wanted.search(f"{each.area} {each.file} {each.breaks}")]
    if not mutations:
        parser.error("none is like that")
    return min(_try_all(mutations, asked.processes), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
