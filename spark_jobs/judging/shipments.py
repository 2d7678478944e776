"""How tables travel to the part that judges them and are kept behind it: rows of a few columns with a table in each.

Spark moves and stores these rows without a look inside. So neither its plans nor its JVM's memory depend on how many
decisions and batches there are, and a state of another version is noticed before it is read.

    part | what                  | name                   | first               | table
    0    | decisions             | where they were read   | where that begins   | Arrow
    0    | state                 | COUNT-FENCE/acked      | place in the table  | Arrow
    0    | findings, checked     |                        |                     | Arrow
"""

from __future__ import annotations

import io
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import polars as pl
import pyarrow as pa

from kordon.spark_jobs.judging.rule import KEYS
from kordon.spark_jobs.judging.tables import stacked

VERSION: Final = 2
"""Of the states that an audit keeps; it rises when a rule cannot read those of before."""
MOST_BYTES: Final = 1 << 20
"""Of the table in one row, about, before it is compressed: rows are copied whole, and several times."""
ROWS: Final = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("what", pa.string()),
        pa.field("name", pa.string()),
        pa.field("first", pa.int64()),
        pa.field("table", pa.binary()),
    ]
)
"""Shipments as Spark has them."""
_PARTS: Final = {"topic": pl.String, "_part": pl.Int32}


RecordBatch: TypeAlias = Any
"""`pyarrow.RecordBatch`; pyarrow has no types."""


class What(StrEnum):
    """What a shipment has."""

    SETTINGS = "settings"
    """How this micro-batch is judged: `judge.SETTINGS`."""
    DECISIONS = "decisions"
    """New decisions of the part's own topics; of part 0, also those without a topic."""
    OF_ALL = "of_all"
    """New decisions that concern the topics of all parts."""
    NUMBERS = "numbers"
    """Which decisions there are, of all parts."""
    UNREADABLE = "unreadable"
    """`first` is how many records of the decision log were no decisions; there is no table."""
    BATCHES = "batches"
    READ_TO = "read_to"
    KEYS = "keys"
    STATE = "state"
    """A table that a rule, a summary or the judge itself keeps; `name` is `owner/table`."""
    FINDINGS = "findings"
    CHECKED = "checked"
    SUMMARY = "summary"
    """A table of the report, as far as it is this part's."""
    TOTALS = "totals"
    """`judge.TOTALS` of this micro-batch."""
    MANAGED = "managed"
    """The topics of the part that are managed."""


class Shipment(NamedTuple):
    """One row of `ROWS`."""

    part: int
    what: str
    name: str
    first: int
    table: bytes


def part_of(topic: str | None, parts: int) -> int:
    """Returns which part judges a topic; decisions about no topic are judged by part 0."""
    return 0 if topic is None or parts == 1 else zlib.crc32(topic.encode()) % parts


def divided(table: pl.DataFrame, parts: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yields the rows of each part that has any, by their topic; all of part 0 if the table names no topics."""
    if table.is_empty():
        return
    if parts == 1 or "topic" not in table.columns:
        yield 0, table
        return
    topics = table.get_column("topic").unique().to_list()
    numbers = pl.DataFrame([(topic, part_of(topic, parts)) for topic in topics], schema=_PARTS, orient="row")
    numbered = table.join(numbers, on="topic", how="left", nulls_equal=True, maintain_order="left")
    for (part,), rows in numbered.group_by("_part", maintain_order=True):
        yield int(str(part)), rows.drop("_part")


def shipped(part: int, what: What, table: pl.DataFrame, name: str = "", first: int = 0) -> Iterator[Shipment]:
    """Yields a table in shipments of at most some `MOST_BYTES` each; none if it has no rows."""
    if table.is_empty():
        return
    rows = max(1, int(table.height * MOST_BYTES / max(1, table.estimated_size())))
    for place, piece in enumerate(table.iter_slices(rows)):
        yield Shipment(part, what, name, first + place, packed(piece))


def packed(table: pl.DataFrame) -> bytes:
    """Returns a table in Arrow's stream format; columns without values are left out, but for those that divide it."""
    told = [each.name for each in table if each.name in KEYS or each.null_count() < table.height]
    buffer = io.BytesIO()
    # one column has to stay, or the rows are gone
    table.select(told or table.columns[:1]).write_ipc_stream(buffer, compression="zstd")
    return buffer.getvalue()


def unpacked(schema: pl.Schema, shipments: Iterable[Shipment]) -> pl.DataFrame:
    """Returns the tables of some shipments as one, in the order in which they were read or kept."""
    ordered = sorted(shipments, key=lambda each: (each.name, each.first))
    return stacked(schema, schema.to_frame(), *(pl.read_ipc_stream(io.BytesIO(each.table)) for each in ordered))


def redivided(shipments: Iterable[Shipment], parts: int) -> Iterator[Shipment]:
    """Divides states and summaries again; a table without topics is the same at all parts, but for summaries.

    Those of summaries without topics add up, so that it does not matter where they are.
    """
    tables = defaultdict[tuple[str, str], list[pl.DataFrame]](list)
    for each in shipments:
        table = pl.read_ipc_stream(io.BytesIO(each.table))
        if each.part == 0 or each.what == What.SUMMARY or "topic" in table.columns:
            tables[each.what, each.name].append(table)
    for (what, name), pieces in sorted(tables.items()):
        whole = pl.concat(pieces, how="diagonal_relaxed")
        everywhere = what == What.STATE and not set(KEYS) & set(whole.columns)
        divisions = ((part, whole) for part in range(parts)) if everywhere else divided(whole, parts)
        for part, rows in divisions:
            yield from shipped(part, What(what), rows, name)


def to_arrow(shipments: Iterable[Shipment]) -> RecordBatch:
    """Returns shipments as Spark takes them."""
    columns: Sequence[Sequence[object]] = list(zip(*shipments, strict=True)) or [()] * len(ROWS)
    arrays = [pa.array(list(values), type=kind) for values, kind in zip(columns, ROWS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def together(shipments: Iterable[Shipment]) -> Iterator[RecordBatch]:
    """Yields a few shipments at once, as each batch of rows costs something, and not all, as they take memory."""
    rows: list[Shipment] = []
    size = 0
    for each in shipments:
        rows.append(each)
        size += len(each.table)
        if size >= MOST_BYTES:
            yield to_arrow(rows)
            rows, size = [], 0
    if rows:
        yield to_arrow(rows)


def of_arrow(rows: RecordBatch) -> Iterator[Shipment]:
    """Yields the shipments of some rows of Spark's."""
    columns: Mapping[str, list[object]] = rows.to_pydict()
    yield from map(Shipment._make, zip(*(columns[name] for name in ROWS.names), strict=True))
