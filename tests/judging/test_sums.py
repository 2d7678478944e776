"""What lies within ranges, by running sums: the same as by looking at each row."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.spark_jobs.judging.rules.sums import sums_within

FAR: Final = 1 << 62
RANGE: Final = pl.Schema({"key": pl.Int64, "first_offset": pl.Int64, "last_offset": pl.Int64, "records": pl.Int64})


def table(rows: list[dict[str, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=RANGE)


def rows_of(chance: random.Random, key: int, start: int) -> list[dict[str, int]]:
    """Rows of a key that follow on each other, with holes."""
    rows: list[dict[str, int]] = []
    for _ in range(chance.randrange(20)):
        first = start + chance.randrange(3)
        start = first + chance.randint(1, 5)
        rows.append({"key": key, "first_offset": first, "last_offset": start - 1, "records": chance.randrange(9)})
    return rows


def looked_at(asked: dict[str, int], rows: list[dict[str, int]]) -> dict[str, Any]:
    """What of the rows a range meets, and what is inside, row by row."""
    first, last = asked["first_offset"], asked["last_offset"]
    its = [row for row in rows if row["key"] == asked["key"]]
    met = [row for row in its if row["first_offset"] <= last and row["last_offset"] >= first]
    inside = [row for row in met if row["first_offset"] >= first and row["last_offset"] <= last]
    return {f"records_{name}": sum(row["records"] for row in each) for name, each in (("met", met), ("inside", inside))}


@pytest.mark.parametrize("starts", [(0,), (FAR,), (0, 1 << 40, FAR)])
def test_sums_are_those_of_the_rows_one_by_one(starts: Sequence[int]) -> None:
    """Of keys that have nothing, too, in whatever order, at the end of all offsets, and far from each other."""
    chance = random.Random(7)
    for _ in range(50):
        rows = [row for key in (0, 3, 1 << 40) for row in rows_of(chance, key, chance.choice(starts))]
        asked = [
            {"key": chance.choice([0, 1, 3, 1 << 40, (1 << 40) + 1]), "first_offset": first, "last_offset": last}
            for start in (chance.choice(starts) for _ in range(20))
            for first, last in [sorted(start + chance.randrange(90) for _ in range(2))]
        ]
        chance.shuffle(rows)
        told = sums_within(table([{**each, "records": 0} for each in asked]), table(rows), ["records"])
        assert told.to_dicts() == [looked_at(each, rows) for each in asked]


def test_where_rows_overlap_what_is_inside_is_the_least_that_may_be() -> None:
    """The sums of what is met are right; a row that holds the range counts against what is inside."""
    rows = table([
        {"key": 0, "first_offset": 0, "last_offset": 99, "records": 5},
        {"key": 0, "first_offset": 10, "last_offset": 19, "records": 7},
        {"key": 0, "first_offset": 30, "last_offset": 39, "records": 1},
    ])  # fmt: skip
    asked = table([{"key": 0, "first_offset": first, "last_offset": 50, "records": 0} for first in (0, 5, 20)])
    told = sums_within(asked, rows, ["records"])
    assert told.to_dict(as_series=False) == {"records_met": [13, 13, 6], "records_inside": [8, 3, 0]}
