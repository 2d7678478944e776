"""The tables that the rules read and write, as Polars schemas.

Decisions have a column for each field of `codecs/decision.py`, by its name; the place in the log they were read from
stands behind. Column names and types are the contract between sources, rules and sinks.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final, TypeAlias, get_type_hints

import polars as pl

from kordon.codecs.decision import Decision, Entry

Column: TypeAlias = pl.DataType | type[pl.DataType]

_SHORT_NUMBERS: Final = frozenset(
    {"generation_id", "api_key", "stream", "partition", "layout_epoch", "move", "producer_epoch", "isolation_level"}
)
"""Fields of decisions that Kafka, or a layout, keeps in 32 bits or fewer. All others are 64 bits wide, also
sequences."""


def columns(*others: pl.Schema, **own: Column) -> pl.Schema:
    """Returns a schema of the columns of others, and more."""
    every: dict[str, Column] = {name: kind for other in others for name, kind in other.items()}
    return pl.Schema({**every, **own})


def _columns(of: type[Decision] | type[Entry]) -> dict[str, Column]:
    hints = get_type_hints(of)
    return {each.name: _type(each.name, hints[each.name]) for each in fields(of) if each.name != "decision"}


def _type(name: str, hint: object) -> Column:
    if hint in (int, int | None):
        return pl.Int32 if name in _SHORT_NUMBERS else pl.Int64
    return pl.String  # words; kinds as their word, evidence as the JSON text that it was


DECISIONS: Final = columns(**_columns(Entry), **_columns(Decision), log_partition=pl.Int32, log_offset=pl.Int64)
"""One row per record of the decision log. `evidence` is JSON text or null; `log_partition` and `log_offset` are those
of `__kordon.decisions`, or -1 and null for files."""

NUMBERS: Final = columns(
    worker=pl.String,
    number=pl.Int64,
    last_number=pl.Int64,
    host=pl.String,
    kind=pl.String,
    reason=pl.String,
    layouts_offset=pl.Int64,
    at_ms=pl.Int64,
    newest_ms=pl.Int64,
)
"""Numbers of a worker that follow on each other, of decisions about whatever topic: [number, last_number]. `host`,
`kind`, `reason` and `at_ms` are those of the first; `newest_ms` is the newest time of all. A row begins with a missing
number, and wherever a decision rests on more of the layouts topic than all before it: up to `layouts_offset`."""

BATCHES: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    base_offset=pl.Int64,
    last_offset=pl.Int64,
    leader_epoch=pl.Int32,
    producer_id=pl.Int64,
    v=pl.Int32,
    move=pl.Int32,
    client_producer_id=pl.Int64,
    producer_epoch=pl.Int32,
    base_sequence=pl.Int64,
    last_sequence=pl.Int64,
    records=pl.Int64,
    bytes=pl.Int64,
    max_timestamp_ms=pl.Int64,
    attributes=pl.Int32,
    is_control=pl.Boolean,
    is_transactional=pl.Boolean,
    protocol=pl.Int8,
    event=pl.String,
)
"""One row per record batch of a managed topic, as it stands on the broker. `producer_id` is what the log has; `v`,
`move` and `client_producer_id` are what it says (null: it does not come from Kordon). `v` 32766: written to the
physical partition as such, `move` is the layout epoch modulo 256; 32765: a marker of the janitor.

`protocol`: of the transaction that Kordon wrote the batch in, 1 or 2 (KIP-890); null: in none. `event`: what the batch
says of a transaction, as `transaction_events.py` has it; null: nothing."""

KEYS: Final = columns(
    topic=pl.String, partition=pl.Int32, base_offset=pl.Int64, murmur2=pl.UInt32, crc32=pl.UInt32, fnv1a=pl.UInt32
)
"""One row per key of a batch that was opened (`key_sample.py`), by its hashes, each once. Null: the batch is of the
sample, and cannot be opened."""

PLACED: Final = columns(
    BATCHES,
    seen_ms=pl.Int64,
    kind=pl.String,
    stream=pl.Int32,
    home_move=pl.Int32,
    home_start=pl.Int64,
    compacted=pl.Boolean,
    given_as=pl.Int32,
)
"""Batches, and what they are (`rules/belonging.py`); `stream` and `home_…` of those that are somebody's. `seen_ms`: the
newest decision's time when it came. `given_as`: the stream whose readers get it, which is another one while a takeover
shares old partitions (TAKEOVER-SHARES)."""

OF_STREAM: Final = columns(
    topic=pl.String, partition=pl.Int32, first_offset=pl.Int64, last_offset=pl.Int64, records=pl.Int64, stream=pl.Int32
)
"""Batches, each of one stream."""

WRITTEN: Final = columns(OF_STREAM, is_committed=pl.Boolean)
"""Batches of transactions. `stream` null: readers of virtual partitions get them record by record. `is_committed` null:
nobody can say, or not yet."""

SEGMENTS: Final = columns(
    topic=pl.String,
    layout_epoch=pl.Int32,
    partition=pl.Int32,
    start=pl.Int64,
    end=pl.Int64,
    kept_end=pl.Int64,
    predecessors=pl.List(pl.Struct({"partition": pl.Int32, "epoch": pl.Int32})),
    undeleted_partition_count=pl.Int32,
    compacted=pl.Boolean,
)
"""As of the newest layout known of each topic. `layout_epoch`: of the segment's opening. `end` null: written to;
`kept_end`: where its records end, before `end` where the log got shorter. `undeleted_partition_count`: in force when
it was opened; -1: partitions are not chosen by it. `compacted`: the topic's janitor is on."""

STAYS: Final = columns(
    topic=pl.String,
    stream=pl.Int32,
    move=pl.Int32,
    partition=pl.Int32,
    start=pl.Int64,
    end=pl.Int64,
    kept_end=pl.Int64,
    tagged=pl.Boolean,
    place=pl.Int32,
    floor=pl.Int64,
    compacted=pl.Boolean,
    shortened=pl.Boolean,
    shared_from=pl.Int64,
    shared_to=pl.Int64,
)
"""Where each stream (a virtual partition, or ~q) lives and has lived. `move` of ~q: the layout epoch of its segment.
`tagged`: batches name their stream. `place`: in the order of the stream's stays. `floor`: the offset below which its
records were deleted on request (DeleteRecords), or `start`. `shortened`: it ended, or lost records, as its log got
shorter (BEYOND-LOSS). `shared_from`, `shared_to`: offsets in which all that stands there is given out as the virtual
partition of the physical one's number (TAKEOVER-SHARES); null: there are none, or no end yet."""

READ_TO: Final = columns(topic=pl.String, partition=pl.Int32, log_start=pl.Int64, next_offset=pl.Int64)
"""How far the batches of each partition have been read behind this micro-batch, and where its log began then."""

GAPS: Final = columns(worker=pl.String, first_number=pl.Int64, last_number=pl.Int64)
"""Decisions that are known to be missing."""

FINDINGS: Final = columns(
    finding_id=pl.String,
    rule=pl.Int32,
    name=pl.String,
    verdict=pl.String,
    kind=pl.String,
    topic=pl.String,
    partition=pl.Int32,
    stream=pl.Int32,
    group_id=pl.String,
    connection=pl.Int64,
    layout_epoch=pl.Int32,
    first_offset=pl.Int64,
    last_offset=pl.Int64,
    text=pl.String,
    decisions=pl.List(pl.String),
    found_ms=pl.Int64,
)
"""`finding_id`: SHA-256 of the rule and of what identifies the finding, so that it is the same whenever it is found.
`decisions`: those that prove it, as `worker:number`. `found_ms`: the newest decision's time when it was found."""

CHECKED: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    stream=pl.Int32,
    first_offset=pl.Int64,
    last_offset=pl.Int64,
    count=pl.Int64,
    verdict=pl.String,
)
"""What a rule has looked at in this micro-batch and found to hold (`pass`), or could not judge (`unknown`)."""
