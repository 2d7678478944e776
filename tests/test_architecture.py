"""ARCHITECTURE.md: its drawing is the import contract's, and its walks name what is there."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from kordon.testing.pages.named_code import is_there

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
MOST_ROOMS = 8
"""Of a walk."""
WALKS = 6


def contract() -> list[list[str]]:
    """The layers of the proxy's rooms, from the top down, as `lint-imports` keeps them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = (each for each in contracts if each.get("containers") == ["kordon.proxy"])
    return [layer.split(" | ") for layer in rooms["layers"]]


def drawing(page: str) -> list[list[str]]:
    """The layers of the page's drawing: a room to a line, and a rule between two layers."""
    drawn = page.partition("```text\n")[2].partition("```")[0]
    return [re.findall(r"^(\w+)\s+\w", layer, re.MULTILINE) for layer in re.split(r"^─+\n", drawn, flags=re.MULTILINE)]


def walks(page: str) -> dict[str, list[tuple[str, str]]]:
    """The rooms of each walk, in order, and what is said of them."""
    told = page.partition("## Walks\n")[2].partition("\n## ")[0]
    found = (section.partition("\n") for section in re.split(r"^### ", told, flags=re.MULTILINE)[1:])
    return {
        title: re.findall(r"^\d\. \*\*(\w+)\*\*: (.*\n(?: +.*\n)*)", text, re.MULTILINE) for title, _, text in found
    }


def complaints(page: str) -> Iterator[str]:
    """What the walks of a page have that they should not have."""
    rooms = {room for layer in drawing(page) for room in layer}
    for title, steps in walks(page).items():
        passed = [room for room, _ in steps]
        if not 1 < len(passed) <= MOST_ROOMS:
            yield f"{title}: {len(passed)} rooms"
        yield from (f"{title}: {room} twice" for room in sorted({room for room in passed if passed.count(room) > 1}))
        yield from (f"{title}: {room} is no room" for room in passed if room not in rooms)
        for room, said in steps:
            yield from (f"{title}: there is no {room}/{place}" for place in misnamed(room, said))


def misnamed(room: str, said: str) -> Iterator[str]:
    """The functions that a step names, with their file or after it, and that are not there."""
    files = re.findall(r"`([\w.]+\.py)::", said)
    for file, name in re.findall(r"`(?:([\w.]+\.py)::)?([A-Z_a-z][\w.]*)`", said):
        is_method = re.fullmatch(r"_?[A-Z]\w*\.\w+", name)
        places = [f"proxy/{room}/{each}::{name}" for each in ([file] if file else files)]
        if (file or is_method) and not any(is_there(place) for place in places):
            yield f"{file}::{name}" if file else name


def test_the_drawing_is_the_contract() -> None:
    """Room by room and layer by layer."""
    assert drawing(PAGE) == contract()


def test_the_drawing_has_every_room() -> None:
    """A room is a package of the proxy; `__main__` alone is a module."""
    rooms = [room for layer in drawing(PAGE) for room in layer]
    assert sorted(rooms) == sorted(["__main__", *(each.parent.name for each in (ROOT / "proxy").glob("*/__init__.py"))])


def test_the_walks_are_right() -> None:
    """No room twice, few rooms, and each function where it is said to be."""
    assert len(walks(PAGE)) == WALKS
    assert list(complaints(PAGE)) == []


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("2. **core**", "2. **relay**", "A Produce entry: relay twice"),
        ("2. **core**", "2. **cellar**", "A Produce entry: cellar is no room"),
        ("::RequestLeg._begin`", "::RequestLeg._sleep`", r"there is no core/request_leg.py::RequestLeg._sleep"),
        ("`RequestLeg._begin_held`", "`RequestLeg._hold`", r"there is no core/RequestLeg._hold"),
        ("8. **decisions**: ", "8. **access**: \n9. **decisions**: ", "A Produce entry: 9 rooms"),
    ],
)
def test_a_walk_that_is_not_right_is_found_out(old: str, new: str, wanted: str) -> None:
    """Whatever it is: a room, a function, one room more."""
    assert old in PAGE
    assert any(re.search(wanted, each) for each in complaints(PAGE.replace(old, new)))


PRODUCT = ("proxy", "codecs", "client", "spark_jobs")


def imports(folder: Path) -> Mapping[str, set[str]]:
    """Returns which files of Kordon each file imports, be it for types only; a folder counts as its `__init__`."""
    files = {f"kordon.{'.'.join(each.relative_to(folder).with_suffix('').parts)}": each for each in files_of(folder)}
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    return {name: set(imported(path, modules)) - {name} for name, path in modules.items()}


def files_of(folder: Path) -> Iterator[Path]:
    for part in PRODUCT:
        yield from (folder / part).rglob("*.py")


def imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = [f"{node.module}.{each.name}" for each in node.names]
            yield from (part if part in modules else node.module for part in parts if {part, node.module} & {*modules})
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)


def test_no_files_import_each_other_in_a_circle() -> None:
    """A reader can begin with any file and need not have read one that needs it."""
    found = imports(ROOT)
    assert len(found) > 500
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
