"""Breaks Kordon in one line at a time, and sees that a test notices: `python -m kordon.testing.mutations`.

`tests/mutations.toml` lists the lines, what becomes of each, and the one test that must fail then. That test alone is
run in a process that has the line changed (`forked_pytest.py`); no file is. All these tests pass on the tree as it is,
or else nothing is shown; so they are run together as well, file by file.

What was noticed is not tried again while the row, the file of its line and the file of its test stay as they are:
whoever stops a run (Ctrl-C) and begins anew goes on where it was. The test may rest on more than these two files;
`--anew` tries all.

With `--drawn SEED` mutations are tried that nobody chose (`drawn_mutations.py`), each with the quick tests that import
its module, or what imports it. What survives is a line that no quick test holds: it asks for a test, or for a reason in
`tests/equivalent_mutations.toml`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from kordon.testing.drawn_mutations import Areas, Drawn, drawn
from kordon.testing.forked_pytest import NEVER_IMPORTED, Replaced, Run, forked_pytests
from kordon.testing.noticed_before import KEPT, NoticedBefore, digest_of

ROOT: Final = Path(__file__).resolve().parents[1]
LIST: Final = Path("tests", "mutations.toml")
_NOTICED, _SURVIVED = int(pytest.ExitCode.TESTS_FAILED), int(pytest.ExitCode.OK)
_NOT_EVEN_IMPORTED: Final = (int(pytest.ExitCode.INTERRUPTED), int(pytest.ExitCode.USAGE_ERROR))
_QUICK: Final = ("-p", "kordon.testing.lanes", "--quick")


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
        """Returns the text of its file with the line changed; raises VanishedError."""
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


def listed() -> list[Mutation]:
    areas = tomllib.loads((ROOT / LIST).read_text())
    return [Mutation(area, **row) for area, rows in areas.items() for row in rows]


def _extent(text: str, within: str) -> tuple[int, int]:
    """Returns the first and the last line of a function or class; raises VanishedError."""
    node: ast.AST = ast.parse(text)
    for name in within.split("."):
        named = (each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name)
        found = next(named, None)
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            raise VanishedError(f"there is no {within}")
        node = found
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return node.lineno, node.end_lineno or node.lineno


def tried(mutation: Mutation, run: Run) -> tuple[Verdict, str]:
    """Tries one; returns what came of it, and what there is to say of one that was not noticed."""
    try:
        text = mutation.applied((ROOT / mutation.file).read_text())
    except VanishedError as error:
        return Verdict.VANISHED, str(error)
    code, words = run([mutation.test], Replaced.of(mutation.file, text))
    if code == _NOTICED:
        return Verdict.NOTICED, ""
    if code == _SURVIVED:
        return Verdict.SURVIVED, f"{mutation.file}: {mutation.old}\n    -> {mutation.new}\n    passes {mutation.test}"
    why = "it does not import the file" if code == NEVER_IMPORTED else words
    return Verdict.UNTRIED, f"{mutation.test}\n{why}"


def _digest(mutation: Mutation) -> str:
    return digest_of(ROOT, astuple(mutation), (mutation.file, mutation.test.partition("::")[0]))


def _try_all(mutations: Sequence[Mutation], processes: int, before: NoticedBefore) -> int:
    """Tries all that were not noticed before; returns how many are not noticed, or 1 if tests do not pass as it is."""
    left = [each for each in mutations if _digest(each) not in before]
    counts, failing = Counter({Verdict.NOTICED: len(mutations) - len(left)}), ""
    with forked_pytests(ROOT, processes) as run, ThreadPoolExecutor(processes) as threads:
        for one, words in threads.map(partial(_try_file, run=run), _by_file(left)):
            for mutation, (verdict, why) in one:
                counts[verdict] += 1
                if verdict is not Verdict.NOTICED:
                    print(f"{verdict}: {mutation.area}: {mutation.breaks}\n    {why}", flush=True)
            if not words:
                before.add(_digest(mutation) for mutation, (verdict, _) in one if verdict is Verdict.NOTICED)
            failing += words
            _show(f"{counts.total()} of {len(mutations)}, {counts[Verdict.NOTICED]} noticed")
    _show("")
    for area, number in Counter(each.area for each in mutations).items():
        print(f"{number:4} {area}")
    told = f"{len(mutations)} mutations: " + ", ".join(f"{counts[each]} {each}" for each in Verdict)
    print(f"{told}; {len(mutations) - len(left)} of them in an earlier run")
    if failing:
        print(f"these tests do not pass on the tree as it is:\n{failing}")
        return 1
    return len(mutations) - counts[Verdict.NOTICED]


def _by_file(mutations: Iterable[Mutation]) -> list[list[Mutation]]:
    """Puts those together whose tests stand in one file, which is collected once."""
    files: defaultdict[str, list[Mutation]] = defaultdict(list)
    for each in mutations:
        files[each.test.partition("::")[0]].append(each)
    return list(files.values())


def _try_file(mutations: Sequence[Mutation], run: Run) -> tuple[list[tuple[Mutation, tuple[Verdict, str]]], str]:
    """Tries those of one file of tests; returns what came of each, and what its tests say if they fail as it is."""
    code, words = run(sorted({each.test for each in mutations}))
    return [(each, tried(each, run)) for each in mutations], "" if code == _SURVIVED else words


def _try_drawn(seed: int, count: int, processes: int) -> int:
    """Tries mutations that are drawn; returns how many were not noticed."""
    areas, mutations, noticed = Areas(ROOT), drawn(ROOT, seed, count), 0
    with forked_pytests(ROOT, processes) as run, ThreadPoolExecutor(processes) as threads:

        def one(mutation: Drawn) -> tuple[int, str]:
            text = mutation.applied((ROOT / mutation.file).read_text())
            return run([*_QUICK, *areas.tests_of(mutation.file)], Replaced.of(mutation.file, text))

        for mutation, (code, words) in zip(mutations, threads.map(one, mutations), strict=True):
            failed = re.search(r"^(?:FAILED|ERROR) (\S+)", words, re.MULTILINE)
            if code in (_NOTICED, *_NOT_EVEN_IMPORTED):
                noticed += 1
                print(f"{Verdict.NOTICED}: {mutation}\n    by {failed[1] if failed else words}", flush=True)
            elif code == _SURVIVED:
                print(f"{Verdict.SURVIVED}: {mutation}", flush=True)
            else:
                print(f"{Verdict.UNTRIED}: {mutation}\n{words}", flush=True)
    print(f"{len(mutations)} mutations drawn by {seed}: {noticed} noticed, {len(mutations) - noticed} not")
    return len(mutations) - noticed


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
    parser.add_argument("--drawn", type=int, metavar="SEED", help="try mutations that are drawn by it instead")
    parser.add_argument("--count", type=int, default=40, help="how many of these (default: 40)")
    parser.add_argument("--anew", action="store_true", help="try those as well that were noticed before")
    asked = parser.parse_args(arguments)
    if asked.drawn is not None:
        return min(_try_drawn(asked.drawn, asked.count, asked.processes), 1)
    wanted = re.compile("|".join(asked.pattern))
    mutations = [each for each in listed() if wanted.search(f"{each.area} {each.file} {each.breaks}")]
    if not mutations:
        parser.error("none is like that")
    before = ROOT / KEPT
    if asked.anew:
        before.unlink(missing_ok=True)
    return min(_try_all(mutations, asked.processes, NoticedBefore(before)), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
