"""What rules have in common when they hand over their rows: columns by schema, identities of findings, sentences."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import LATE, PASS, UNKNOWN
from kordon.spark_jobs.judging.schema import CHECKED, FINDINGS

Row: TypeAlias = Mapping[str, Any]

FOR_EVER: Final = (1 << 63) - 1
"""Stands for the end of what is open."""
QUIET_MS: Final = 24 * 60 * 60 * 1000
"""What has been silent for so long, in decisions' time, is dropped from states; if it comes back, it begins again."""
NO_FINDINGS: Final = FINDINGS.to_frame()
_NOTHING_CHECKED: Final = CHECKED.to_frame()
_BRACES: Final = re.compile(r"\{([^}]*)\}")


def shaped(table: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Returns a table with the columns of a schema alone; those that it lacks are null."""
    if table.schema == schema:
        return table
    missing = [pl.lit(None).alias(name) for name in schema if name not in table.columns]
    told = table.with_columns(missing) if missing else table
    return told.select(pl.col(name).cast(kind) for name, kind in schema.items())


def stacked(schema: pl.Schema, *tables: pl.DataFrame) -> pl.DataFrame:
    """Returns all rows of some tables in the shape of a schema."""
    return pl.concat([shaped(each, schema) for each in tables])


def together(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Returns rows with those of the same keys next to each other, in the order that they had: faster than sorting."""
    names = [name for name in rows.columns if name not in keys]
    return rows.group_by(keys, maintain_order=True).agg(pl.col(names).implode()).explode(names)


def follows(keys: Sequence[str]) -> pl.Expr:
    """Returns whether a row has the same keys as the one before it."""
    same = (pl.col(name).eq_missing(pl.col(name).shift(1)) for name in keys)
    return pl.all_horizontal(pl.int_range(pl.len()) > 0, *same)


def findings(rows: pl.DataFrame, number: int, name: str, identity: Sequence[str], facts: Facts) -> pl.DataFrame:
    """Makes findings.

    Args:
        rows: With `kind`, `verdict`, `text`, `decisions`, and what else findings have. A `text` is a template of
            `sentence`, filled in with the row's columns.
        identity: Columns that tell one finding from others, besides its rule and kind.
    """
    if rows.is_empty():
        return NO_FINDINGS
    told = rows.to_dicts()  # few: each is something wrong
    filled = rows.with_columns(
        pl.Series("finding_id", [_finding_id(row, number, identity) for row in told], dtype=pl.String),
        pl.Series("text", [sentence(row["text"], row) for row in told], dtype=pl.String),
        pl.lit(number).alias("rule"),
        pl.lit(name).alias("name"),
        pl.lit(facts.newest_ms).alias("found_ms"),
    )
    return shaped(filled, FINDINGS)


def _finding_id(row: Row, number: int, identity: Sequence[str]) -> str:
    values = ("-" if row[each] is None else str(row[each]) for each in identity)
    return hashlib.sha256("/".join([str(number), str(row["kind"]), *values]).encode()).hexdigest()


def sentence(template: str, row: Row) -> str:
    """Returns a text with the values of a row in it, each named in braces; ? where there is none.

    Args:
        template: `{column}`, or with a word in front that is told for one or several: `{record:count}` becomes "1
            record" or "3 records", and `{offset:first:last}` "offset 7" or "offsets 7 to 9".
    """
    return _BRACES.sub(lambda place: _told(place[1], row), template)


def _told(place: str, row: Row) -> str:
    match place.split(":"):
        case [word, count]:
            return f"{_text(row, count)} {word}{'' if row[count] == 1 else 's'}"
        case [word, first, last]:
            if row[first] == row[last]:
                return f"{word} {_text(row, first)}"
            return f"{word}s {_text(row, first)} to {_text(row, last)}"
        case _:
            return _text(row, place)


def _text(row: Row, name: str) -> str:
    return "?" if row[name] is None else str(row[name])


def checked(rows: pl.DataFrame) -> pl.DataFrame:
    """Sums up what was looked at.

    Args:
        rows: With `topic`, `partition`, `stream`, `first_offset`, `last_offset` where they have them, and `verdict`;
            those that failed are left out, as findings tell of them.
    """
    if rows.is_empty():
        return _NOTHING_CHECKED
    looked_at = shaped(rows, CHECKED).filter(pl.col("verdict").is_in([PASS, UNKNOWN, LATE]))
    summed = looked_at.group_by("topic", "partition", "stream", "verdict").agg(
        pl.min("first_offset"), pl.max("last_offset"), pl.len().alias("count")
    )
    return shaped(summed, CHECKED)


def decision(worker: str = "worker", number: str = "number") -> pl.Expr:
    """Returns how findings name a decision: `worker:number`, of the columns that are named; null where one is null."""
    return pl.concat_str(pl.col(worker), pl.lit(":"), pl.col(number).cast(pl.String))


def named(*decisions: pl.Expr) -> pl.Expr:
    """Returns a list of decisions, without those that are null."""
    return pl.concat_list(*decisions).list.drop_nulls()


def evidence(path: str, column: str = "evidence") -> pl.Expr:
    """Returns what JSON text has at a path such as `$.layout`: words as they are, all else as JSON; or null."""
    return pl.col(column).str.json_path_match(path)
