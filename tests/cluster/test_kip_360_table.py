"""The table of KIP-360's cases and its page, without brokers."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from kordon.testing.demo_kip_360 import cells, show_kip_360
from kordon.testing.jars import VERSIONS
from kordon.testing.kip_360 import page
from kordon.testing.kip_360.page import PATH, printed, reasons
from kordon.testing.kip_360.table import COORDINATOR, EXPIRED_IDS, EXPIRED_PRODUCERS, OVERFLOWS, PRODUCE, Row, Where

ROWS = (*COORDINATOR, *OVERFLOWS, *EXPIRED_IDS, *PRODUCE, *EXPIRED_PRODUCERS)


def test_the_page_is_what_the_table_says() -> None:
    """`python -m kordon.testing.kip_360.page` writes it."""
    assert PATH.read_text() == printed(PATH.read_text())


def test_another_answer_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever row has it."""
    text = PATH.read_text()
    for name, (rows, places) in page.SECTIONS.items():
        for number, row in enumerate(rows):
            changed = (*rows[:number], replace(row, answer="another"), *rows[number + 1 :])
            monkeypatch.setitem(page.SECTIONS, name, (changed, places))
            assert printed(text) != text, row.case
        monkeypatch.setitem(page.SECTIONS, name, (rows, places))


def test_a_page_without_a_place_is_refused() -> None:
    """So that no table is lost when the page is edited."""
    with pytest.raises(ValueError, match="no place for produce"):
        printed(PATH.read_text().replace("<!-- printed: produce -->", ""))


def test_no_case_stands_twice() -> None:
    """Tests find rows by their case."""
    assert len({row.case for row in ROWS}) == len(ROWS)


def test_ordinary_topics_differ_in_nothing() -> None:
    """The table cannot even say so of one."""
    assert not {Where.DIRECT, Where.UNTOUCHED} & {where for row in ROWS for where in row.differs}


def test_what_is_named_as_different_differs() -> None:
    """In front of the newest brokers of the table."""
    for row in ROWS:
        for where, (words, _) in row.differs.items():
            assert words != row.told(Where.DIRECT, page.BROKERS[0]), (row.case, where)


def test_each_reason_has_a_title_of_its_own_in_the_page_of_differences() -> None:
    """docs/differences.md leads to each."""
    told = (PATH.parent / "differences.md").read_text()
    assert [why.title for why in reasons() if why.title not in told] == []


@pytest.mark.parametrize(
    ("version", "wanted"), [("4.4.0", "new"), ("4.3.0", "new"), ("3.9.2", "old"), ("2.8.0", "old"), ("2.4.1", "oldest")]
)
def test_older_brokers_have_the_answer_of_the_next_version_that_is_named(version: str, wanted: str) -> None:
    """Versions count as numbers."""
    assert Row("case", "new", older={"2.4": "oldest", "3.9": "old"}).told(Where.DIRECT, version) == wanted


def test_the_page_has_versions_that_tests_can_run_with() -> None:
    """By the short names that `make test KAFKA=` takes."""
    assert set(page.BROKERS) <= VERSIONS.keys()
    assert re.findall(r"^\| case \| Kafka (\S+) ", PATH.read_text(), re.MULTILINE) == [page.BROKERS[0]] * len(
        page.SECTIONS
    )


def test_the_demo_shows_each_case_of_the_coordinator() -> None:
    """By the brokers that the page has, and by Kordon in front of the oldest of them."""
    output = StringIO()
    show_kip_360(Console(file=output, width=200))
    shown = [line.strip().split("  ")[0] for line in output.getvalue().splitlines()]
    assert [each for each in shown if each in {row.case for row in COORDINATOR}] == [row.case for row in COORDINATOR]
    (repeated,) = (row for row in COORDINATOR if row.case == "2b: and again")
    assert list(cells(repeated)) == ["A 1", "=", "not there", "="]
