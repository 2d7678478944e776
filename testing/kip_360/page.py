"""Prints the table into docs/kip-360.md: `python -m kordon.testing.kip_360.page`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kordon.testing.jars import PROJECT
from kordon.testing.kip_360 import table
from kordon.testing.kip_360.table import Row, Where, Why

PATH: Final = PROJECT / "docs" / "kip-360.md"
BROKERS: Final = ("4.3", "3.9", "2.4")
"""The versions that the page tells of; tests are run with each."""
SECTIONS: Final[dict[str, tuple[tuple[Row, ...], tuple[Where, ...]]]] = {
    "coordinator": (table.COORDINATOR, (Where.LENT,)),
    "overflows": (table.OVERFLOWS, (Where.LENT,)),
    "expired ids": (table.EXPIRED_IDS, (Where.LENT,)),
    "produce": (table.PRODUCE, (Where.MANAGED, Where.OTHER_PROXY, Where.MOVED)),
    "expired producers": (
        table.EXPIRED_PRODUCERS,
        (Where.MANAGED, Where.OTHER_PROXY, Where.MOVED, Where.FORGOTTEN_LATER),
    ),
}
"""By the name that the page has in a comment before each: the rows, and where Kordon may differ."""
_SAME: Final = "="
_NOT_THERE: Final = "not there"


def printed(text: str) -> str:
    """Returns the page with its tables and reasons as they have to be."""
    for name, (rows, places) in SECTIONS.items():
        text = _replaced(text, name, _lines(rows, places))
    return _replaced(text, "reasons", _reasons())


def _replaced(text: str, name: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    mark = f"<!-- printed: {name} -->"
    pattern = re.compile(rf"{re.escape(mark)}\n.*?<!-- end -->", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{PATH.name} has no place for {name}")
    return pattern.sub(lambda _: f"{mark}\n{body}\n<!-- end -->", text)


def _lines(rows: Iterable[Row], places: tuple[Where, ...]) -> Iterator[str]:
    heads = ["case", *(f"Kafka {each}" for each in BROKERS), *(each.value for each in places)]
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join([row.case, *_cells(row, places)])} |"


def _cells(row: Row, places: tuple[Where, ...]) -> Iterator[str]:
    newest = row.told(Where.DIRECT, BROKERS[0])
    assert newest is not None
    yield newest
    older = (row.told(Where.DIRECT, each) for each in BROKERS[1:])
    managed = (row.told(each, BROKERS[0]) for each in places)
    for words in (*older, *managed):
        yield _NOT_THERE if words is None else _SAME if words == newest else words


def _reasons() -> Iterator[str]:
    for why in reasons():
        yield f"- **{why.title}** ({', '.join(_cases_of(why))}): {why.text}"


def reasons() -> list[Why]:
    """Returns all reasons for which some case differs, in the order of the table."""
    return list(dict.fromkeys(why for row in _rows() for _, why in row.differs.values()))


def _cases_of(why: Why) -> list[str]:
    return [f"*{row.case}*" for row in _rows() if any(each is why for _, each in row.differs.values())]


def _rows() -> Iterator[Row]:
    for rows, _ in SECTIONS.values():
        yield from rows


def main() -> None:
    PATH.write_text(printed(PATH.read_text()))


if __name__ == "__main__":
    main()
