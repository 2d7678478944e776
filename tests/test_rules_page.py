"""docs/rules.md: it defines each rule that is cited, and what it says of code and tests is so."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from kordon.testing.mutations import Mutation
from kordon.testing.mutations import listed as read_list
from kordon.testing.pages.named_code import is_there, tree
from kordon.testing.simulation.rules import OF_DELIVERING, OF_WRITERS, PLACES
from kordon.testing.transactions.rules import PLACES as OF_TRANSACTIONS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "rules.md").read_text()
AUDITS_OWN = frozenset(re.findall(r"^### \d+\. ([A-Z-]+)$", (ROOT / "docs" / "audit.md").read_text(), re.MULTILINE))
CODE = ("proxy", "client", "codecs", "spark_jobs", "testing", "bench", "tests")
DOCS = ("docs", "deploy")
NAME = re.compile(r"\b[A-Z]{2,}(?:-[A-Z]{2,})+\b(?!-?\w)")
OTHERS_WORDS = {"CMD-SHELL", "CURRENT-OFFSET", "LOG-END-OFFSET"}
"""They look like names of rules, and are Docker's and Kafka's."""
FORMER = re.compile(r"\b[Rr]ules? [A-Z]\d|\((?:[CIFG]\d{1,2}|A[1-4])(?:, [A-Z]\d{1,2})*\)|\b(?:design|facts) §\d")
"""How rules were cited before they had names, and pages that are not here."""
SIMULATED = frozenset(name.partition(":")[0] for name in (*PLACES, *OF_WRITERS, *OF_DELIVERING, *OF_TRANSACTIONS))
SHORTEST_REASON = 15


class Row(NamedTuple):
    """What the page says of one rule."""

    rule: str
    kept_by: str
    simulated: str
    tested: str
    tested_with_brokers: str


def sections(page: str) -> dict[str, str]:
    """The rules that the page defines, and what it says of each."""
    found = re.findall(r"^### ([A-Z-]+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return dict(found)


def rows(page: str) -> list[Row]:
    """The rows of the table of tests; links and code without their marks."""
    table = page.partition("## What shows that they hold")[2]
    lines = [line for line in table.splitlines() if line.startswith("| [")]
    return [Row(*(_plain(cell) for cell in line.strip("|").split("|"))) for line in lines]


def _plain(cell: str) -> str:
    return re.sub(r"^\[(.*)\]\(#.*\)$", r"\1", cell.strip()).strip("`")


def texts(*folders: str) -> Iterator[Path]:
    """The project's own text files; the page and this test cite nothing."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".html", ".json"}
                and "node_modules" not in path.parts
            ):
                yield path
    if "docs" in folders:
        yield from sorted(ROOT.glob("*.md"))


@cache
def cited(*folders: str) -> dict[str, str]:
    own = {ROOT / "docs" / "rules.md", Path(__file__)}
    found: dict[str, str] = {}
    for path in texts(*folders):
        if path not in own:
            for name in set(NAME.findall(path.read_text())) - OTHERS_WORDS:
                found.setdefault(name, str(path.relative_to(ROOT)))
    return found


def uses_brokers(place: str) -> bool | None:
    """Whether a `file::test` is one with real brokers, by its marks and fixtures; None: there is no such test."""
    file, _, name = place.partition("::")
    module = tree(file)
    found = _functions(module).get(name) if module is not None else None
    if module is None or found is None:
        return None
    files = [module, *(tree(str(Path(each, "conftest.py"))) for each in Path(file).parents)]
    known = {
        name: each
        for conftest in reversed(files)
        if conftest is not None
        for name, each in _functions(conftest).items()
    }
    gets, left = set[str](), [found]
    while left:
        new = {each.arg for each in ast.walk(left.pop()) if isinstance(each, ast.arg)} - gets
        gets |= new
        left += [known[each] for each in new if each in known]
    is_marked = any("mark.broker" in ast.unparse(each) for each in (*found.decorator_list, *_marks(module)))
    return is_marked or any("cluster" in each for each in gets)


def _functions(module: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {each.name: each for each in module.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def _marks(module: ast.Module) -> Iterator[ast.stmt]:
    return (
        each for each in module.body if isinstance(each, ast.Assign) and "pytestmark" in ast.unparse(each.targets[0])
    )


@cache
def listed() -> list[Mutation]:
    """The lines that `make mutate` breaks."""
    return read_list()


def complaints(page: str) -> list[str]:
    return [*_of_names(page), *(each for row in rows(page) for each in _of_row(row))]


def _of_names(page: str) -> Iterator[str]:
    defined, listed = sections(page), [row.rule for row in rows(page)]
    everywhere = {**cited(*CODE, *DOCS), **dict.fromkeys(SIMULATED, "testing/simulation/rules.py")}
    for name, file in sorted(everywhere.items()):
        if name not in defined and name not in AUDITS_OWN:
            yield f"{name} is cited ({file}) and not defined"
    for name in sorted({*NAME.findall(page)} - OTHERS_WORDS - AUDITS_OWN - {*defined}):
        yield f"{name} is cited (the page) and not defined"
    for name, said in defined.items():
        if name not in cited(*CODE):
            yield f"{name} is cited nowhere in the code"
        if not re.search(r"\bWithout\s+it\b", said):
            yield f"{name} does not say what breaks without it"
        if listed.count(name) != 1:
            yield f"{name} has {listed.count(name)} rows"
    for name in listed:
        if name not in defined:
            yield f"{name} has a row and is not defined"


def _of_row(row: Row) -> Iterator[str]:
    if not is_there(row.kept_by):
        yield f"{row.rule}: there is no {row.kept_by}"
    if (row.simulated == "yes") is not (row.rule in SIMULATED):
        yield f"{row.rule}: the simulation says otherwise"
    shown = (row.simulated, row.tested, row.tested_with_brokers)
    reasons = [cell.removeprefix("none:").strip() for cell in shown if cell.startswith("none:")]
    if any(len(reason) < SHORTEST_REASON for reason in reasons):
        yield f"{row.rule}: a cell is empty without a reason"
    if len(reasons) == len(shown):
        yield f"{row.rule} has no test at all"
    for cell, has_brokers in ((row.tested, False), (row.tested_with_brokers, True)):
        if not cell.startswith("none:"):
            yield from _of_test(row.rule, cell, has_brokers=has_brokers)


def _of_test(rule: str, place: str, *, has_brokers: bool) -> Iterator[str]:
    found = uses_brokers(place)
    if found is None:
        yield f"{rule}: there is no {place or 'test, and no reason'}"
    elif found is not has_brokers:
        yield f"{rule}: {place} belongs into the other column"
    elif not has_brokers and not any(
        f"({rule})" in each.breaks and each.test.partition("[")[0] == place for each in listed()
    ):
        yield f"{rule}: no line of tests/mutations.toml breaks it for {place}"


def test_the_page_is_right() -> None:
    """Names, functions and tests are there; each rule has a test, and each empty cell a reason."""
    assert complaints(PAGE) == []


def without_section(page: str) -> str:
    return page.replace("### LIVE-LEASE\n", "")


def without_row(page: str) -> str:
    """The page with nothing said of one rule's tests."""
    return "\n".join(line for line in page.splitlines() if not line.startswith("| [LIVE-LEASE]"))


def with_cells(rule: str, *cells: str) -> str:
    """The page with the last cells of a rule's row replaced."""
    line = next(each for each in PAGE.splitlines() if each.startswith(f"| [{rule}]"))
    kept = line.strip("|").split("|")[: -len(cells)]
    return PAGE.replace(line, f"|{'|'.join(kept)}| {' | '.join(cells)} |")


OTHER = next(row.tested for row in rows(PAGE) if row.rule == "STILL-CUT")
REASON = "none: nobody has thought of one"
UNIT, REAL = (next(row for row in rows(PAGE) if row.rule == "LIVE-LEASE")[at] for at in (3, 4))


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        (without_section(PAGE), r"LIVE-LEASE is cited \(.+\) and not defined"),
        (PAGE + "\nSee NO-SUCH-RULE.\n", r"NO-SUCH-RULE is cited \(the page\) and not defined"),
        (PAGE.replace("LIVE-LEASE", "IDLE-LEASE"), "IDLE-LEASE is cited nowhere in the code"),
        (
            PAGE.replace("Without it a worker that is paused", "A worker that is paused"),
            "LIVE-LEASE does not say what breaks",
        ),
        (without_row(PAGE), "LIVE-LEASE has 0 rows"),
        (PAGE.replace("Member.may_serve", "Member.may_sleep"), "LIVE-LEASE: there is no .*::Member.may_sleep"),
        (with_cells("LIVE-LEASE", f"{UNIT}_at_all", REAL), "LIVE-LEASE: there is no .*_at_all"),
        (with_cells("LIVE-LEASE", "tests/nowhere.py::test_it", REAL), "LIVE-LEASE: there is no tests/nowhere.py"),
        (with_cells("LIVE-LEASE", OTHER, REAL), "LIVE-LEASE: no line of tests/mutations.toml breaks it for .*"),
        (with_cells("LIVE-LEASE", REAL, REAL), "LIVE-LEASE: .* belongs into the other column"),
        (with_cells("LIVE-LEASE", UNIT, UNIT), "LIVE-LEASE: .* belongs into the other column"),
        (with_cells("LIVE-LEASE", UNIT, ""), "LIVE-LEASE: there is no test, and no reason"),
        (with_cells("LIVE-LEASE", UNIT, "none:"), "LIVE-LEASE: a cell is empty without a reason"),
        (with_cells("LIVE-LEASE", REASON, UNIT, REAL), "LIVE-LEASE: the simulation says otherwise"),
        (with_cells("ORIGIN-TAG", "yes", UNIT, REAL), "ORIGIN-TAG: the simulation says otherwise"),
        (with_cells("ORIGIN-TAG", REASON, REASON, REASON), "ORIGIN-TAG has no test at all"),
    ],
)
def test_a_page_that_is_not_right_is_found_out(page: str, wanted: str) -> None:
    """Whatever it is: a name, a function, a test, a reason."""
    assert any(re.fullmatch(f"{wanted}.*", each) for each in complaints(page))


def test_rules_are_cited_by_name() -> None:
    """Letters and numbers say nothing; the table of what older decision logs say is the one place for them."""
    former = {ROOT / "docs" / "decisions.md", Path(__file__)}
    found = [(path.name, FORMER.findall(path.read_text())) for path in texts(*CODE, *DOCS) if path not in former]
    assert [each for each in found if each[1]] == []


def test_decisions_name_rules_that_the_page_defines() -> None:
    """The field `rule` is for people who look it up; options of limits are named where they are not constants."""
    places = [path for path in texts("proxy/handlers", "proxy/reads", "proxy/writes") if path.suffix == ".py"]
    told = {name for path in places for name in _rules_told(ast.parse(path.read_text()))}
    assert {"SHORT-FENCE", "RIGHTS-FIRST", "PARENT-FIRST", "NO-FALSE-END"} <= told
    assert told - sections(PAGE).keys() == set()


def _rules_told(module: ast.Module) -> Iterator[str]:
    """Constants that are given as `rule`, and what tables of rules hold."""
    tables = {"_RULES", "_VERDICTS", "_GATE"}
    for node in ast.walk(module):
        is_argument = isinstance(node, ast.keyword) and node.arg == "rule"
        if is_argument or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in tables):
            held = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
            yield from (each for each in held if isinstance(each, str))


def test_what_older_logs_say_has_a_name_now() -> None:
    """docs/decisions.md tells the reader of an older log where to look."""
    told = (ROOT / "docs" / "decisions.md").read_text()
    table = re.search(r"^## Older logs\n(.*?)^## ", told, re.MULTILINE | re.DOTALL)
    assert table is not None
    assert {*NAME.findall(table[1])} <= sections(PAGE).keys()
