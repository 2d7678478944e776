"""Classes and constructors stay small enough to be read at once, and each class has a name of its own."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("proxy", "codecs", "client", "spark_jobs")
MOST_METHODS = 20
"""Of a class, with those that it inherits from classes of the product."""
MOST_PARAMETERS = 8
"""Of `__init__`, without `self`."""


class Class(NamedTuple):
    """A class, and the names by which its module knows others."""

    node: ast.ClassDef
    known: Mapping[str, str]

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Those of its own body."""
        return (each for each in self.node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))

    @property
    def bases(self) -> Iterator[str]:
        """Their full names, as far as they were imported by name."""
        unparsed = (ast.unparse(base).partition("[")[0] for base in self.node.bases)
        return (self.known.get(each, each) for each in unparsed)


def classes_of(module: str, text: str) -> dict[str, Class]:
    """The classes of a module by full name."""
    tree = ast.parse(text)
    found = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    known = {each.name: f"{module}.{each.name}" for each in found}
    for imported in ast.walk(tree):
        if isinstance(imported, ast.ImportFrom):
            known |= {each.asname or each.name: f"{imported.module}.{each.name}" for each in imported.names}
    return {f"{module}.{each.name}": Class(each, known) for each in found}


@cache
def product() -> dict[str, Class]:
    """All classes of the product by full name."""
    found: dict[str, Class] = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(("kordon", *file.relative_to(ROOT).with_suffix("").parts))
            found |= classes_of(module, file.read_text())
    return found


def methods(name: str, classes: Mapping[str, Class]) -> set[str]:
    """The names of a class's methods, inherited ones too."""
    if name not in classes:
        return set()
    own = {each.name for each in classes[name].functions}
    return own.union(*(methods(base, classes) for base in classes[name].bases))


def too_large(classes: Mapping[str, Class]) -> dict[str, int]:
    """How many methods the classes have that have too many."""
    counts = {name: len(methods(name, classes)) for name in classes}
    return {name: count for name, count in counts.items() if count > MOST_METHODS}


def too_many(classes: Mapping[str, Class]) -> dict[str, int]:
    """How many parameters the constructors have that have too many."""
    made = {name: f.args for name, each in classes.items() for f in each.functions if f.name == "__init__"}
    counts = {name: len(a.posonlyargs + a.args + a.kwonlyargs) - 1 for name, a in made.items()}
    return {name: count for name, count in counts.items() if count > MOST_PARAMETERS}


def shared_names(classes: Iterable[str]) -> dict[str, list[str]]:
    """The names that several classes have, with their full names."""
    found: dict[str, list[str]] = {}
    for name in classes:
        found.setdefault(name.rpartition(".")[2], []).append(name)
    return {name: each for name, each in found.items() if len(each) > 1}


def test_no_two_classes_have_one_name() -> None:
    """One word has one meaning."""
    assert shared_names(product()) == {}


def test_classes_of_one_name_are_found() -> None:
    """In different modules, too."""
    assert shared_names(["one.Some", "two.Some", "two.Other"]) == {"Some": ["one.Some", "two.Some"]}


def test_no_class_has_more_than_twenty_methods() -> None:
    """Who has more does more than one thing."""
    assert too_large(product()) == {}


def test_no_constructor_has_more_than_eight_parameters() -> None:
    """What belongs together comes as one value."""
    assert too_many(product()) == {}


@pytest.mark.parametrize(("inherited", "own", "is_large"), [(10, 10, False), (10, 11, True), (0, 21, True)])
def test_inherited_methods_count(inherited: int, own: int, is_large: bool) -> None:
    """A base in another module, too."""
    base = "class Base:\n    x = 1\n" + "".join(f"    def a{n}(self): ...\n" for n in range(inherited))
    text = "from one import Base\nclass Some(Base):\n" + "".join(f"    def b{n}(self): ...\n" for n in range(own))
    found = too_large(classes_of("one", base) | classes_of("two", text))
    assert found == ({"two.Some": inherited + own} if is_large else {})


def test_parameters_are_counted_without_self() -> None:
    """Those that have to be named count, too."""
    text = "class Some:\n    def __init__(self, {}, *, i=1): ...\n"
    assert too_many(classes_of("one", text.format("a, b, c, d, e, f, g"))) == {}
    assert too_many(classes_of("one", text.format("a, b, c, d, e, f, g, h"))) == {"one.Some": 9}
