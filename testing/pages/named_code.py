"""Code as pages and lists name it: `file::function`, `file::Class.method`, `file::CONSTANT`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


@cache
def tree(file: str) -> ast.Module | None:
    """Returns a file of the project, read; None: there is none."""
    path = ROOT / file
    return ast.parse(path.read_text()) if path.is_file() else None


def is_there(place: str) -> bool:
    """Whether a file of the project has what a place names; a place begins at the project's root."""
    file, _, name = place.partition("::")
    node: ast.AST | None = tree(file)
    for part in name.split("."):
        inner = ast.iter_child_nodes(node) if node is not None else ()
        node = next((each for each in inner if part in _names_of(each)), None)
    return node is not None


def _names_of(node: ast.AST) -> list[str]:
    """Returns what a statement gives a name to."""
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return [name]
        case ast.AnnAssign(ast.Name(name)):
            return [name]
        case ast.Assign(targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case _:
            return []
