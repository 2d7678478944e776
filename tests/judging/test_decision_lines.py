"""Records of the decision log become columns; what is no decision is counted, and hurts none beside it."""

from __future__ import annotations

import gc
import json
import reprlib
from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.spark_jobs.judging.decision_lines import decisions_of
from kordon.spark_jobs.judging.schema import DECISIONS

PLACE: Final = {"schema": 1, "host": "h", "worker": "w", "number": 1, "kind": "join", "at_ms": 5}
SOUND: Final = json.dumps(PLACE).encode()


def read(*values: bytes | None) -> tuple[list[dict[str, Any]], int]:
    """Rows without what is null, and how many are no decisions."""
    table, unreadable = decisions_of(values, [3] * len(values), list(range(len(values))))
    assert table.schema == DECISIONS
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_dicts()], unreadable


def test_all_fields_of_a_decision_are_columns() -> None:
    """As the proxy writes it, evidence as the text that it is; and where it stands."""
    decision = Decision(kind=Kind.ADMIT, topic="t\u00e9", stream=-2, producer_id=1 << 40, evidence={"a": [1, "\u00e9"]})
    entry = Entry(at_ms=5, host="h", worker="w", number=7, began_ms=4, decision=decision)
    ((row,), unreadable) = read(entry.dump())
    assert json.loads(row.pop("evidence")) == {"a": [1, "\u00e9"]}
    assert unreadable == 0
    assert row == {
        "at_ms": 5, "host": "h", "worker": "w", "number": 7, "began_ms": 4, "kind": "admit", "topic": "t\u00e9",
        "stream": -2, "producer_id": 1 << 40, "log_partition": 3, "log_offset": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"half of {",
        SOUND[:-1],
        SOUND + SOUND,
        b"[" * 100_000,
        b"\xff",
        SOUND.replace(b'"h"', b'"\xff"'),
        b"[1]",
        b"null",
        json.dumps({**PLACE, "schema": 0}).encode(),
        json.dumps({**PLACE, "kind": None}).encode(),
        json.dumps({name: value for name, value in PLACE.items() if name != "worker"}).encode(),
        json.dumps({**PLACE, "number": 1 << 70}).encode(),
        json.dumps({**PLACE, "partition": 1 << 31}).encode(),
        json.dumps({**PLACE, "at_ms": 1.5}).encode(),
        json.dumps({**PLACE, "topic": 7}).encode(),
        SOUND[:-1] + b', "evidence": {"a": }}',
        SOUND[:-1] + b', "evidence": {"a": "\xff"}}',
    ],
    ids=reprlib.repr,
)
def test_what_is_no_decision_is_counted_and_left_out(value: bytes | None) -> None:
    """Half a line, junk, a field of another type or out of its range: the lines beside it are read."""
    rows, unreadable = read(SOUND, value, SOUND)
    assert unreadable == 1
    assert [row["log_offset"] for row in rows] == [0, 2]


def test_fields_and_versions_of_later_kordons_are_passed_over() -> None:
    """The schema says that fields are only added."""
    later = {**PLACE, "schema": 2, "new": {"deep": [1]}, "kind": "another"}
    assert read(json.dumps(later).encode())[0][0]["kind"] == "another"


def test_the_collector_is_left_as_it_was() -> None:
    """It rests while lines are read."""
    assert gc.isenabled()
    read(SOUND)
    assert gc.isenabled()
