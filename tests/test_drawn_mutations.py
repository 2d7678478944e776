"""Mutations that are drawn: what is changed, and what is not."""

import tomllib

import pytest

from kordon.testing.drawn_mutations import EQUIVALENT, Areas, drawn, mutations_of
from kordon.testing.mutations import ROOT


def changes(text: str) -> set[tuple[str, str]]:
    """Returns what is changed in a function's text, and into what."""
    body = "\n".join(f"    {line}" for line in text.splitlines())
    found = mutations_of("any.py", f"def function():\n{body}\n")
    for each in found:
        compile(each.applied(f"def function():\n{body}\n"), "any.py", "exec")
    return {(each.old, each.new) for each in found}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b", {("<", "<=")}),
        ("x = (a) >= (b)", {(">=", ">")}),
        ("x = a < b == c", {("<", "<="), ("==", "!=")}),
        ("x = a is not None", {("is not", "is")}),
        ("x = a not in b", {("not in", "in")}),
        ("x = a and b and c", {("and", "or")}),
        ("x = not (a)", {("not", "")}),
        ("x = 4", {("4", "3"), ("4", "5")}),
        ("x = min(a, b)", {("min", "max")}),
        ("a.append(b)", {("a.append(b)", "pass")}),
        ("a.b = c", {("a.b = c", "pass")}),
        ("x += y", {("x += y", "pass")}),
        ("return a", {("return a", "pass")}),
        ("x = a", set()),
        ("x: Literal[1] = a", set()),
        ("assert a < b", set()),
        ("log.info(a < b)", set()),
        ("if a < b:\n    log.info(a)", set()),
        ("if a < b:\n    log.info(a)\nelse:\n    x = c", {("<", "<=")}),
        ("'''Says what it does.'''", set()),
    ],
)
def test_one_token_changes(text: str, expected: set[tuple[str, str]]) -> None:
    """What readers and type checkers alone see, and what is logged, is left as it is."""
    assert changes(text) == expected


def test_bytes_are_counted_and_not_characters() -> None:
    """Texts have characters of several bytes."""
    text = "def function():\n    x = 'ä→' if a < b else 'ö'\n"
    (only,) = mutations_of("any.py", text)
    assert only.applied(text) == text.replace("<", "<=")
    assert (only.line, only.within) == (2, "function")


def test_a_seed_draws_the_same_again() -> None:
    """As long as the modules stay as they are."""
    first = drawn(ROOT, 1, 40)
    assert first == drawn(ROOT, 1, 40)
    assert len(set(first)) == 40


def test_each_that_is_drawn_is_python() -> None:
    """Of many."""
    for each in drawn(ROOT, 7, 300):
        compile(each.applied((ROOT / each.file).read_text()), each.file, "exec")


def test_what_is_excused_is_there_and_has_a_reason() -> None:
    """A row whose line has changed goes: another mutation stands there now."""
    for row in tomllib.loads((ROOT / EQUIVALENT).read_text()).get("mutation", []):
        found = mutations_of(row["file"], (ROOT / row["file"]).read_text())
        assert (row["within"], row["old"], row["new"]) in {(each.within, each.old, each.new) for each in found}
        assert row["reason"]


def test_tests_of_an_area_import_the_module_or_what_imports_it() -> None:
    """The nearest first."""
    tests = Areas(ROOT).tests_of("proxy/ordering/under_way.py")
    assert tests[0] == "tests/ordering/test_under_way.py"
    assert "tests/writes/test_writes_keep_the_rules.py" in tests
