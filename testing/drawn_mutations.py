"""Mutations that nobody chose: one token of a module that keeps rules, drawn by a seed, is another or goes.

Comparisons are widened or turned round, counts go up or down by one, `and` is `or`, `not` goes, `min` is `max`, a
statement is left out. What changes nothing that Kordon promises is not drawn, each with its reason: by what it is
(`_without_effect`), or one by one in `tests/equivalent_mutations.toml`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

MODULES: Final = (
    "proxy/ordering/*.py",
    "proxy/writes/lane*.py",
    "proxy/reads/log_store.py",
    "proxy/reads/partition_fetch.py",
    "proxy/reads/stay_read.py",
    "proxy/reads/fetch_sessions.py",
    "proxy/reads/fetching.py",
    "proxy/reads/log_rest.py",
    "proxy/reads/resting.py",
    "proxy/reads/gat*.py",
    "proxy/handlers/settle.py",
    "proxy/topics/managed_topics.py",
    "proxy/writes/write_outcomes.py",
    "proxy/controller/controller_role.py",
    "proxy/controller/change_steps.py",
    "proxy/member/layout*.py",
    "proxy/member/leadership.py",
    "proxy/member/record_intake.py",
    "proxy/member/serving_lease.py",
    "proxy/member/fence_holder.py",
    "proxy/member/lease.py",
    "proxy/kafka/ends.py",
    "proxy/controller/ahead.py",
    "client/moves.py",
    "client/owned.py",
)
"""Those that keep rules."""
EQUIVALENT: Final = Path("tests", "equivalent_mutations.toml")
MOST_STEPS: Final = 2
"""A test is of a module's area if it imports it, or what imports it."""
_COMPARED: Final[Mapping[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_EXTREMES: Final = {"min": "max", "max": "min"}
_DROPPED: Final = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Continue, ast.Break, ast.Return, ast.Raise)
_LOGS: Final = ("log", "_log", "logger")


@dataclass(frozen=True)
class Drawn:
    """A mutation.

    Attributes:
        within: The function or class in which it is, as `Class.method`; empty: none.
        place: The first byte of `old`.
    """

    file: str
    within: str
    line: int
    old: str
    new: str
    place: int

    def applied(self, text: str) -> str:
        before = text.encode()
        old = self.old.encode()
        assert before[self.place : self.place + len(old)] == old, "drawn from this text"
        return (before[: self.place] + self.new.encode() + before[self.place + len(old) :]).decode()

    def __str__(self) -> str:
        old, new = (" ".join(each.split()) for each in (self.old, self.new))
        return f"{self.file}:{self.line} ({self.within}): {old} -> {new}"


def drawn(root: Path, seed: int, count: int) -> list[Drawn]:
    """Draws mutations of the modules that keep rules."""
    files = sorted({file for pattern in MODULES for file in root.glob(pattern)})
    excused = _excused(root)
    found = [
        each
        for file in files
        for each in mutations_of(str(file.relative_to(root)), file.read_text())
        if (each.file, each.within, each.old, each.new) not in excused
    ]
    return Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - chance that can be repeated


def _excused(root: Path) -> set[tuple[str, str, str, str]]:
    rows = tomllib.loads((root / EQUIVALENT).read_text()).get("mutation", [])
    return {(row["file"], row["within"], row["old"], row["new"]) for row in rows}


def mutations_of(file: str, text: str) -> list[Drawn]:
    """Finds all that can be drawn of a file, in its order."""
    return sorted(_Finder(file, text).found(), key=lambda each: (each.place, each.new))


class _Finder:
    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._bytes = text.encode()
        self._tree = ast.parse(text)
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def found(self) -> Iterator[Drawn]:
        return self._in(self._tree, "")

    def _in(self, node: ast.AST, within: str) -> Iterator[Drawn]:
        """Goes through a node and all below it but what has no effect."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = f"{within}.{node.name}".lstrip(".")
        yield from self._of(node, within)
        types = _types_of(node)
        for child in ast.iter_child_nodes(node):
            if child not in types and not _without_effect(child):
                yield from self._in(child, within)

    def _of(self, node: ast.AST, within: str) -> Iterator[Drawn]:
        match node:
            case ast.Compare():
                sides = pairwise([node.left, *node.comparators])
                for op, (left, right) in zip(node.ops, sides, strict=True):
                    yield self._between(left, right, *_COMPARED[type(op)], within)
            case ast.BoolOp(op, values):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for left, right in pairwise(values):
                    yield self._between(left, right, *words, within)
            case ast.UnaryOp(ast.Not(), operand):
                yield self._token(self._start(node), self._start(operand), "not", "", within)
            case ast.Constant(int() as value) if not isinstance(value, bool):
                for other in (value - 1, value + 1):
                    yield self._drawn(self._start(node), self._end(node), str(other), within)
            case ast.Call(ast.Name(name)) if name in _EXTREMES:
                yield self._drawn(self._start(node.func), self._end(node.func), _EXTREMES[name], within)
            case ast.stmt() if within and _can_be_dropped(node):
                yield self._drawn(self._start(node), self._end(node), "pass", within)
            case _:
                pass

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str, within: str) -> Drawn:
        return self._token(self._end(left), self._start(right), old, new, within)

    def _token(self, start: int, end: int, old: str, new: str, within: str) -> Drawn:
        """Changes a word or sign in a stretch that holds it once, beside brackets, comments and line ends."""
        bound = r"\b" if old[0].isalpha() else ""
        found = re.search(rf"{bound}{re.escape(old)}{bound}".encode(), self._bytes[start:end])
        assert found is not None, "Python has parsed it"
        return self._drawn(start + found.start(), start + found.end(), new, within)

    def _drawn(self, start: int, end: int, new: str, within: str) -> Drawn:
        line = next(number for number, each in enumerate(self._starts) if each > start)
        return Drawn(self._file, within, line, self._bytes[start:end].decode(), new, start)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _types_of(node: ast.AST) -> list[ast.AST]:
    """Returns what of a node is for type checkers alone."""
    match node:
        case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=annotation):
            return [annotation] if annotation is not None else []
        case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
            return [returns] if returns is not None else []
        case _:
            return []


def _without_effect(node: ast.AST) -> bool:
    """Whether nothing that Kordon promises rests on a node: it is for readers, for type checkers, or for the log."""
    match node:
        case ast.Assert():
            return True
        case ast.Expr(ast.Constant()):
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name)))) if name in _LOGS:
            return True
        case ast.If(ast.Name("TYPE_CHECKING")):
            return True
        case ast.If(body=body, orelse=[]):  # it only says when something is logged
            return all(isinstance(each, ast.Expr) and _without_effect(each) for each in body)
        case _:
            return False


def _can_be_dropped(node: ast.stmt) -> bool:
    """Whether what is left still runs: names go on to be bound."""
    match node:
        case ast.Assign(targets):
            return all(isinstance(each, ast.Attribute | ast.Subscript) for each in targets)
        case ast.Expr(value):
            return isinstance(value, ast.Call | ast.Await)
        case _:
            return isinstance(node, _DROPPED)


_IMPORT: Final = re.compile(r"^\s*from kordon\.(?P<module>[\w.]+) import (?P<names>\([^)]*\)|[^#\n]*)", re.MULTILINE)


class Areas:
    """Which files of tests are of a module's area."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._importers: dict[str, set[str]] = defaultdict(set)
        for folder in ("proxy", "client", "codecs", "testing", "tests"):
            for file in (root / folder).rglob("*.py"):
                name = str(file.relative_to(root))
                for imported in _imports(file.read_text()):
                    self._importers[imported].add(name)

    def tests_of(self, file: str) -> list[str]:
        """Returns the files of tests that import a module, then those that import what imports it."""
        found: dict[str, None] = {}
        reached = {file}
        for _ in range(MOST_STEPS):
            reached = {each for one in reached for each in self._importers[one]}
            found |= dict.fromkeys(sorted(each for each in reached if Path(each).name.startswith("test_")))
        return list(found)


def _imports(text: str) -> Iterable[str]:
    """Returns the files of the project that a module may import, relative to its root.

    Imports are found without reading the rest of the module, of which there are a thousand.
    """
    for found in _IMPORT.finditer(text):
        file = "/".join(found["module"].split("."))
        yield f"{file}.py"
        yield from (f"{file}/{name}.py" for name in re.findall(r"(\w+)(?: as \w+)?,?", found["names"]))
