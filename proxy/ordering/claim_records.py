"""What stands in `__kordon.individual_commits`: what groups have done of partitions, beside their commits.

    key      claims/["orders-readers", "2f0c…", 7]/9d41…-12     the group's id, the topic's, the partition; the writer
                                                               and its number, by which the record can be taken out
    value    a version (1 byte), a kind (1 byte), and then, all numbers as 8 bytes, big endian:
             start   the incarnation, the one that it ends, the stable offset; how many ended earlier (1 byte), and
                     these; ranges
             claim   the incarnation, the stable offset (-1: it says nothing of it), ranges
    none     another record says what this one said

Ranges are written as they travel (`codecs/ranges.py`). A version or kind that is not known is passed over.
"""

from __future__ import annotations

import json
import struct
from typing import Final
from uuid import UUID

from pydantic import TypeAdapter

from kordon.codecs.ranges import MOST_BYTES, MOST_OFFSET, load_stored
from kordon.proxy.ordering.claims import MOST_ENDED, MOST_INCARNATION, NO_OFFSET, Claim, Done, PlaceKey, Said, Start

KIND: Final = "claims"
VERSION: Final = 1
_START, _CLAIM = 1, 2
HEAD: Final = struct.Struct(">BB")
"""A version and a kind."""
_OF_START: Final = struct.Struct(">qqq")
_OF_CLAIM: Final = struct.Struct(">qq")
_NAME_BYTES: Final = 8
MOST_VALUE_BYTES: Final = HEAD.size + _OF_START.size + 1 + _NAME_BYTES * MOST_ENDED + 2 * MOST_BYTES
"""Longer values are not read."""
_MOST_KEY_CHARS: Final = 40_000
"""A group's id has up to 32,767 bytes."""
_PLACE: Final = TypeAdapter(tuple[str, UUID, int])


def key_of(place: PlaceKey, writer: str, number: int, kind: str = KIND) -> str:
    """Returns the key of a new record.

    Args:
        writer: A name that nobody else has, of letters and digits.
        number: That it has not used before.
        kind: Of all records of the log.
    """
    return f"{kind}/{json.dumps([place.group_id, str(place.topic_id), place.partition])}/{writer}-{number}"


def place_of(key: str, wanted: str = KIND) -> PlaceKey | None:
    """Returns whose record has a key; None: it is of a kind that this version does not know.

    Args:
        wanted: The kind that it knows.

    Raises:
        ValueError: The value does not match its kind.
    """
    kind, _, rest = key.partition("/")
    if kind != wanted:
        return None
    if len(key) > _MOST_KEY_CHARS:
        raise ValueError(f"its key has {len(key)} characters, and at most {_MOST_KEY_CHARS} are read")
    place, slash, writer = rest.rpartition("/")
    if not slash or not writer:
        raise ValueError("its key names no writer")
    found = PlaceKey(*_PLACE.validate_json(place))
    if not 0 <= found.partition < 1 << 31:
        raise ValueError(f"there is no partition {found.partition}")
    return found


def dump(said: Said) -> bytes:
    """Writes a record's value."""
    ranges = said.done.ranges.dump()
    if isinstance(said, Start):
        numbers = _OF_START.pack(said.name, said.ends, said.done.stable)
        ended = struct.pack(f">B{len(said.ended)}q", len(said.ended), *said.ended)
        return HEAD.pack(VERSION, _START) + numbers + ended + ranges
    return HEAD.pack(VERSION, _CLAIM) + _OF_CLAIM.pack(said.incarnation, said.done.stable) + ranges


def head_of(value: bytes, most_bytes: int) -> tuple[int, int]:
    """Reads the version and the kind of a record's value.

    Raises:
        ValueError: It has more bytes than are read, or too few.
    """
    if len(value) > most_bytes:
        raise ValueError(f"it has {len(value)} bytes, and at most {most_bytes} are read")
    if len(value) < HEAD.size:
        raise ValueError(f"{len(value)} bytes are too few")
    version, kind = HEAD.unpack_from(value)
    return version, kind


def load(value: bytes) -> Said | None:
    """Reads a record's value; None: it is of a version or kind that is not known.

    Raises:
        ValueError: The value is not a record of this version.
    """
    version, kind = head_of(value, MOST_VALUE_BYTES)
    if version != VERSION or kind not in (_START, _CLAIM):
        return None
    numbers = _OF_START if kind == _START else _OF_CLAIM
    if len(value) < HEAD.size + numbers.size:
        raise ValueError(f"{len(value)} bytes are too few")
    *names, stable = numbers.unpack_from(value, HEAD.size)
    if not 0 < names[0] <= MOST_INCARNATION or not all(0 <= each <= MOST_INCARNATION for each in names):
        raise ValueError(f"there is no incarnation {names}")
    if not NO_OFFSET <= stable <= MOST_OFFSET:
        raise ValueError(f"there is no offset {stable}")
    rest = value[HEAD.size + numbers.size :]
    ended, rest = _ended(rest) if kind == _START else ((), rest)
    done = Done(stable, load_stored(rest))
    if done.ranges and next(iter(done.ranges))[0] <= stable:
        raise ValueError("its first range is not behind its stable offset")
    return Start(names[0], names[1], done, ended) if kind == _START else Claim(names[0], done)


def _ended(rest: bytes) -> tuple[tuple[int, ...], bytes]:
    """Reads what ended earlier; returns it, and what follows."""
    count = rest[0] if rest else 0
    if count > MOST_ENDED:
        raise ValueError(f"it names {count} earlier incarnations, and at most {MOST_ENDED} are read")
    end = 1 + _NAME_BYTES * count
    if len(rest) < end:
        raise ValueError(f"{len(rest)} bytes are too few for {count} earlier incarnations")
    ended = struct.unpack_from(f">{count}q", rest, 1)
    if not all(0 < each <= MOST_INCARNATION for each in ended):
        raise ValueError(f"there is no incarnation among {ended}")
    return ended, rest[end:]
