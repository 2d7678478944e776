"""The tables that the rules read and write, as Spark types.

Decisions have a column for each field of `codecs/decision.py`, by its name; the place in the log they were read from
stands behind. Column names and types are the contract between sources, rules and sinks.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final, get_type_hints

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kordon.codecs.decision import Decision, Entry

_LONG: Final = LongType()
_INT: Final = IntegerType()
_TEXT: Final = StringType()
_FLAG: Final = BooleanType()

_SHORT_NUMBERS: Final = frozenset(
    {"generation_id", "api_key", "stream", "partition", "layout_epoch", "move", "producer_epoch"}
)
"""Fields of decisions that Kafka, or a layout, keeps in 32 bits or fewer. All others are 64 bits wide, sequences too:
rules add to them, and Spark refuses an addition that overflows."""


def _columns(of: type[Decision] | type[Entry]) -> list[StructField]:
    hints = get_type_hints(of)
    return [StructField(each.name, _type(each.name, hints[each.name])) for each in fields(of)]


def _type(name: str, hint: object) -> DataType:
    if hint in (int, int | None):
        return _INT if name in _SHORT_NUMBERS else _LONG
    return _TEXT  # words; kinds as their word, evidence as the JSON text that it was


def _table(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


DECISIONS: Final = StructType(
    [
        *(each for each in _columns(Entry) if each.name != "decision"),
        *_columns(Decision),
        StructField("log_partition", _INT),
        StructField("log_offset", _LONG),
    ]
)
"""One row per record of the decision log. `evidence` is JSON text or null; `log_partition` and `log_offset` are those
of `__kordon.decisions`, or -1 and null for files."""

BATCHES: Final = _table(
    {
        "topic": _TEXT,
        "partition": _INT,
        "base_offset": _LONG,
        "last_offset": _LONG,
        "leader_epoch": _INT,
        "producer_id": _LONG,
        "v": _INT,
        "move": _INT,
        "client_producer_id": _LONG,
        "producer_epoch": _INT,
        "base_sequence": _LONG,
        "last_sequence": _LONG,
        "records": _LONG,
        "bytes": _LONG,
        "max_timestamp_ms": _LONG,
        "attributes": _INT,
        "is_control": _FLAG,
        "is_transactional": _FLAG,
    }
)
"""One row per record batch of a managed topic, as it stands on the broker. `producer_id` is what the log has; `v`,
`move` and `client_producer_id` are what it says (null: it does not come from Kordon). `v` 32766: written to the
physical partition as such, `move` is the layout epoch modulo 256; 32765: a marker of the janitor."""

SEGMENTS: Final = StructType(
    [
        *_table({"topic": _TEXT, "layout_epoch": _INT, "partition": _INT, "start": _LONG, "end": _LONG}).fields,
        StructField("kept_end", _LONG),
        StructField("predecessors", ArrayType(_table({"partition": _INT, "epoch": _INT}))),
        StructField("undeleted_partition_count", _INT),
        StructField("compacted", _FLAG),
    ]
)
"""As of the newest layout known of each topic. `layout_epoch`: of the segment's opening. `end` null: written to;
`kept_end`: where its records end, before `end` where the log got shorter. `undeleted_partition_count`: in force when
it was opened; -1: partitions are not chosen by it. `compacted`: the topic's janitor is on."""

STAYS: Final = _table(
    {
        "topic": _TEXT,
        "stream": _INT,
        "move": _INT,
        "partition": _INT,
        "start": _LONG,
        "end": _LONG,
        "kept_end": _LONG,
        "tagged": _FLAG,
        "place": _INT,
        "floor": _LONG,
        "compacted": _FLAG,
        "shortened": _FLAG,
        "shared_from": _LONG,
        "shared_to": _LONG,
    }
)
"""Where each stream (a virtual partition, or ~q) lives and has lived. `move` of ~q: the layout epoch of its segment.
`tagged`: batches name their stream. `place`: in the order of the stream's stays. `floor`: the offset below which its
records were deleted on request (DeleteRecords), or `start`. `shortened`: it ended, or lost records, as its log got
shorter (BEYOND-LOSS). `shared_from`, `shared_to`: offsets in which all that stands there is given out as the virtual
partition of the physical one's number (TAKEOVER-SHARES); null: there are none, or no end yet."""

READ_TO: Final = _table({"topic": _TEXT, "partition": _INT, "log_start": _LONG, "next_offset": _LONG})
"""How far the batches of each partition have been read behind this micro-batch, and where its log began then."""

FINDINGS: Final = StructType(
    [
        *_table(
            {
                "finding_id": _TEXT,
                "rule": _INT,
                "name": _TEXT,
                "verdict": _TEXT,
                "kind": _TEXT,
                "topic": _TEXT,
                "partition": _INT,
                "stream": _INT,
                "group_id": _TEXT,
                "connection": _LONG,
                "layout_epoch": _INT,
                "first_offset": _LONG,
                "last_offset": _LONG,
                "text": _TEXT,
            }
        ).fields,
        StructField("decisions", ArrayType(_TEXT)),
        StructField("found_ms", _LONG),
    ]
)
"""`finding_id`: SHA-256 of the rule and of what identifies the finding, so that it is the same whenever it is found.
`decisions`: those that prove it, as `worker:number`. `found_ms`: the newest decision's time when it was found."""

CHECKED: Final = _table(
    {
        "topic": _TEXT,
        "partition": _INT,
        "stream": _INT,
        "first_offset": _LONG,
        "last_offset": _LONG,
        "count": _LONG,
        "verdict": _TEXT,
    }
)
"""What a rule has looked at in this micro-batch and found to hold (`pass`), or could not judge (`unknown`)."""
