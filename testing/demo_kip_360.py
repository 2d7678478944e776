"""The end of `make demo`: what KIP-360 asks of InitProducerId, case by case, as brokers and Kordon answer.

Nothing is run for it. The table is that of docs/kip-360.md, which tests hold against brokers and Kordon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from kordon.testing.kip_360.table import COORDINATOR, Row, Where

_SAME: Final = "="
_NOT_THERE: Final = "not there"
_STAGES: Final = (
    ("Kafka 4.3", Where.DIRECT, "4.3"),
    ("Kafka 3.9", Where.DIRECT, "3.9"),
    ("Kafka 2.4", Where.DIRECT, "2.4"),
    ("2.4 + Kordon", Where.LENT, "4.3"),
)
"""Head of a column, where the cases are played, and the version whose answers count there."""


def show_kip_360(console: Console) -> None:
    """Prints the table."""
    table = Table("case", *(head for head, _, _ in _STAGES), box=box.SIMPLE)
    for row in COORDINATOR:
        table.add_row(row.case, *cells(row))
    console.print(table)


def cells(row: Row) -> Iterator[str]:
    """Yields what each stage answers; all but the first as compared with it."""
    newest, *others = (row.told(where, version) for _, where, version in _STAGES)
    yield newest or _NOT_THERE
    for words in others:
        yield _NOT_THERE if words is None else _SAME if words == newest else words
