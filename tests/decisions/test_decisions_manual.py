"""docs/decisions.md says what there is: every field with its type, every kind, and nothing else."""

import re
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

from kordon.codecs.decision import Decision, Entry, Kind

DOCS = Path(__file__).parents[2] / "docs" / "decisions.md"


def table(heading: str) -> list[list[str]]:
    """The rows of the table that begins so, cell by cell."""
    lines = iter(DOCS.read_text().splitlines())
    assert any(line.startswith(f"| {heading} |") for line in lines), f"no table of {heading}s"
    next(lines)
    rows: list[list[str]] = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))])
    return rows


def type_of(hint: Any) -> str:
    """A field's type as the manual names it."""
    names = {int: "int", str: "str", Kind: "str"}
    (one,) = [each for each in typing.get_args(hint) or (hint,) if each is not type(None)][:1]
    return names.get(one, "object") if typing.get_origin(hint) is not typing.Mapping else "object"


def test_every_field_is_documented_in_its_order() -> None:
    """Name and type; a field that is new has to be told of."""
    expected = {"schema": "int"}
    for model in (Entry, Decision):
        hints = typing.get_type_hints(model)
        for field in fields(model):
            if field.name not in ("decision", "evidence"):
                expected[field.name] = type_of(hints[field.name])
    expected["evidence"] = "object"
    assert [(row[0].strip("`"), row[1]) for row in table("field")] == list(expected.items())
    assert all(row[2] for row in table("field"))


def test_every_kind_is_documented_in_its_order() -> None:
    """By the name that stands in the log."""
    assert [row[0].strip("`") for row in table("kind")] == [kind.value for kind in Kind]
