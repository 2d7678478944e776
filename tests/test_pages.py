"""The project's pages: what they link to is there, and so are the files and functions that they name."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kordon.testing.pages.named_code import is_there

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = sorted(each.name for each in ROOT.iterdir() if each.is_dir() and each.name[0] not in "._")
ROOMS = sorted(each.parent.name for each in (ROOT / "proxy").glob("*/__init__.py"))
SOURCES = {each.name for folder in FOLDERS if folder != "src" for each in (ROOT / folder).rglob("*.*")}
NAMED = re.compile(
    rf"`((?:{'|'.join((*FOLDERS, *ROOMS))})/[\w./-]*)(?:::([\w.]+))?`|`([\w-]+\.(?:py|toml))`|\b(docs/[\w/-]+\.md)\b"
)
"""A path that begins with a folder of the project or a room of the proxy, a file's name alone, a page."""


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)}


def missing(text: str) -> Iterator[str]:
    """The files and functions that a page names and that are not there."""
    for path, name, alone, page in NAMED.findall(text):
        if alone:
            if alone not in SOURCES and not (ROOT / alone).exists():
                yield alone
            continue
        found = page or next((each for each in (path, f"proxy/{path}") if (ROOT / each).exists()), "")
        if not found or not (ROOT / found).exists():
            yield page or path
        elif name and not is_there(f"{found}::{name}"):
            yield f"{path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that is there, and a heading in it."""
    for target in re.findall(r"\]\((?!\w+://)([^)\s]+)\)", page.read_text()):
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    """A file by its path from the root or from `proxy/`, or by its name alone; a function by its file."""
    assert sorted(missing(page.read_text())) == []


@pytest.mark.parametrize(
    "named",
    [
        "proxy/core/nowhere.py",
        "core/nowhere.py",
        "core/verdicts.py::nothing",
        "core/connection.py::Connection.nothing",
        "nowhere.py",
        "docs/nowhere.md",
    ],
)
def test_what_is_not_there_is_found_out(named: str) -> None:
    """Whatever it is: a file, a function, a page."""
    assert list(missing(f"See `core/verdicts.py::APIS`, `connection.py` and `{named}`.")) == [named]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_kordon_installed_from_an_index(page: Path) -> None:
    """Nothing is published yet: whoever took the name there would own the readers' machines."""
    commands = re.findall(r"^\s*\$? ?pip install .*$", page.read_text(), flags=re.MULTILINE)
    assert [command for command in commands if re.search(r"install (-\S+ )*'?kordon\b", command)] == []
