"""The topics that a Fetch request names, without construct: found by stepping over the rows of their partitions.

Rows of partitions have a fixed size but for tagged fields, which clients do not send there. A request with others is
left to the table (`codecs/messages/fetch.py`), and so is one that cannot be read: property tests prove that both find
the same. Nothing here copies.

Source: FetchRequest.json; KIP-227 (sessions), KIP-516 (topic ids).
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from kordon.codecs.look import REQUEST_LOOK_BYTES, Buffer

_FLEXIBLE: Final = 12
_IDS: Final = 13
_SESSIONS: Final = 7
_REPLICA_ID_IN_TAGS: Final = 15
_ID_BYTES: Final = 16
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_MOST_TOPICS: Final = 5_000
"""Stepping over so many takes some 5 ms."""


class FetchNames(NamedTuple):
    """What is found of a request."""

    begins_session: bool
    """Whether it names all its partitions, so that it continues no session."""
    topics: list[str | UUID]
    """By name, from version 13 on by id."""


def row_bytes(version: int) -> int:
    """Returns the size of a partition's row: its number, fetch_offset, partition_max_bytes, and what came later."""
    size = 16  # log_start_offset came with version 5, current_leader_epoch with 9, last_fetched_epoch and tags with 12
    return size + 8 * (version >= 5) + 4 * (version >= 9) + 5 * (version >= _FLEXIBLE)


def look_fetch_names(frame: Buffer, at: int, end: int, version: int) -> FetchNames | None:
    """Finds the topics of a whole Fetch request.

    Args:
        frame: Holds the request with its size at `at`.
        end: Where it ends.
        version: 0 to 18.

    Returns:
        None: it has tagged fields, too many topics, or cannot be read.
    """
    view = memoryview(frame)[:end]
    try:
        body_at = at + REQUEST_LOOK_BYTES + max(int(_INT16.unpack_from(view, at + REQUEST_LOOK_BYTES - 2)[0]), 0)
        if version >= _FLEXIBLE:
            if view[body_at]:
                return None
            body_at += 1
        return _names(view, body_at, version)
    except (IndexError, ValueError, struct.error):
        return None


def _names(view: memoryview, body_at: int, version: int) -> FetchNames | None:
    # replica_id up to version 14, max_wait_ms, min_bytes; max_bytes came with version 3, isolation_level with 4
    position = body_at + 4 * (version < _REPLICA_ID_IN_TAGS) + 8 + 4 * (version >= 3) + (version >= 4)
    begins_session = True
    if version >= _SESSIONS:
        begins_session = _INT32.unpack_from(view, position + 4)[0] <= 0
        position += 8
    count, position = _count(view, position, version)
    if not 0 <= count <= _MOST_TOPICS:
        return None
    topics: list[str | UUID] = []
    stride = row_bytes(version)
    for _ in range(count):
        topic, position = _topic(view, position, version)
        rows, position = _count(view, position, version)
        behind = position + stride * rows
        if rows < 0 or behind > len(view):
            return None
        if version >= _FLEXIBLE:
            tags = view[position + stride - 1 : behind : stride]
            if tags.tobytes().count(0) != rows or view[behind]:
                return None
            behind += 1
        topics.append(topic)
        position = behind
    return FetchNames(begins_session, topics)


def _topic(view: memoryview, position: int, version: int) -> tuple[str | UUID, int]:
    """Returns a topic's name or id, and the position behind it."""
    if version >= _IDS:
        return UUID(bytes=bytes(view[position : position + _ID_BYTES])), position + _ID_BYTES
    if version >= _FLEXIBLE:
        length, position = _count(view, position, version)
    else:
        length, position = _INT16.unpack_from(view, position)[0], position + _INT16.size
    if not 0 <= length <= len(view) - position:
        raise IndexError(position)
    return str(view[position : position + length], "utf-8"), position + length


def _count(view: memoryview, position: int, version: int) -> tuple[int, int]:
    """Returns a count or length, and the position behind it; -1 is null."""
    if version < _FLEXIBLE:
        return _INT32.unpack_from(view, position)[0], position + _INT32.size
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, position
        shift += 7
        if shift > 28:
            raise IndexError(position)
