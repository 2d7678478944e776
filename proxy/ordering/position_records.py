"""What stands in `__kordon.groups`: what members of consumer groups have reported, a record per member.

    key     positions/["orders-readers", "consumer-1-8f0e…"]      the group's id and the member's, as JSON
    value   {"version": 1, "generation_id": 7, "sequence": 12, "said_ms": 1790000000000,
             "topics": {"orders": {"owned": {"0": 40, "4": -1}, "wanted": [2]}}}
    none    it is no member any more, and never will be again

A record says all that its member has to say, so only the last one of a key counts and the topic is compacted.
`sequence` rises with what the member says in one generation (-1: it does not count). `owned` has the member's next
offset by partition (-1: it has not said it yet); `wanted` the partitions whose position of the group it wants to know.
A version that is not known is passed over, and so are other kinds of keys.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from kordon.proxy.ordering.positions import UNKNOWN, MemberReport, TopicReport
from kordon.proxy.ordering.versioned_values import read_value

VERSION: Final = 1
KIND: Final = "positions"
MOST_ROWS: Final = 10_000
"""Partitions that one member may own and ask for, all in all: some 250 KB as a record."""
MOST_BYTES: Final = 1024 * 1024
"""Of a value; what Kordon writes stays below the 900,000 of a batch."""
MOST_ELEMENTS: Final = 5 * MOST_ROWS
"""Of a value, by its commas; what a member may say has one or two for each row, and two for each topic."""
_Partition = Annotated[int, Field(ge=0, lt=1 << 31)]
_Position = Annotated[int, Field(ge=UNKNOWN, lt=1 << 63)]


class MemberKey(NamedTuple):
    """The key of a member's record."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class _Rows:
    owned: Mapping[_Partition, _Position]
    wanted: tuple[_Partition, ...]


@dataclass(frozen=True, slots=True)
class _PositionValue:
    version: Literal[1]
    generation_id: int
    sequence: int
    said_ms: int
    topics: Mapping[str, _Rows]


_VALUE: Final = TypeAdapter(_PositionValue)
_PLACE: Final = TypeAdapter(MemberKey)


def key_of(place: MemberKey) -> str:
    """Returns the key of a member's records."""
    return f"{KIND}/{json.dumps(place)}"


def place_of(key: str) -> MemberKey | None:
    """Returns whose record has a key; None: it is of a kind that this version does not know.

    Raises:
        ValueError: The value does not match its kind.
    """
    kind, _, place = key.partition("/")
    return _PLACE.validate_json(place) if kind == KIND else None


def dump(report: MemberReport) -> bytes:
    """Writes a record's value."""
    topics = {name: _Rows(each.owned, tuple(each.wanted)) for name, each in report.topics.items()}
    return _VALUE.dump_json(_PositionValue(VERSION, report.generation_id, report.sequence, report.said_ms, topics))


def load(value: bytes) -> MemberReport | None:
    """Reads a record's value; None: it is of a version that is not known.

    Raises:
        ValueError: The value is not a record of this version.
    """
    if len(value) > MOST_BYTES:
        raise ValueError(f"it has {len(value)} bytes, and at most {MOST_BYTES} are read")
    if (elements := value.count(b",")) > MOST_ELEMENTS:
        raise ValueError(f"it has {elements} elements, and at most {MOST_ELEMENTS} are read")
    read = read_value(value, _VALUE, VERSION)
    if read is None:
        return None
    topics = {name: TopicReport(rows.owned, array("i", rows.wanted)) for name, rows in read.topics.items()}
    return MemberReport(read.generation_id, read.sequence, topics, read.said_ms)
