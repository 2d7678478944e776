"""A Fetch request without construct: its topics are found by stepping over the rows of their partitions.

Rows of partitions have a fixed size but for tagged fields, which clients do not send there. A request with others is
left to the table (`codecs/messages/fetch.py`), and so is one that cannot be read: property tests prove that both find
the same. Nothing here copies.

Source: FetchRequest.json; KIP-227 (sessions), KIP-516 (topic ids).
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from kordon.codecs.errors import TooManyRows
from kordon.codecs.look import REQUEST_LOOK_BYTES, Buffer
from kordon.codecs.primitives import RowBudget
from kordon.codecs.stepping import count_at, text_at

_FLEXIBLE: Final = 12
_IDS: Final = 13
_SESSIONS: Final = 7
_EPOCHS: Final = 9
_RACKS: Final = 11
_REPLICA_ID_IN_TAGS: Final = 15
_ID_BYTES: Final = 16
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_SESSION: Final = Struct(">ii")
_MOST_TOPICS: Final = 5_000
"""Stepping over so many takes some 5 ms."""
_NO_BOUND_BYTES: Final = 2**31 - 1
"""What a whole answer may have where requests do not say (before version 3)."""
_NO_SESSION: Final = -1
_NO_EPOCH: Final = -1
OWN_SESSIONS: Final = range(0x7B00_0000, 0x7B80_0000)
"""Ids of sessions that Kordon keeps. One of 256 of a broker's own ids is among them, as these are drawn at random: so
what has such an id is looked at, but need not be Kordon's."""

# What a row has of partition, current_leader_epoch, fetch_offset and partition_max_bytes. log_start_offset came with
# version 5 and last_fetched_epoch with 12; tagged fields end a row from then on.
_ROWS: Final = ((12, Struct(">iiq12xix")), (9, Struct(">iiq8xi")), (5, Struct(">iq8xi")), (0, Struct(">iqi")))

FetchPartition: TypeAlias = tuple[int, int, int, int]
"""partition, current_leader_epoch (-1: not told), fetch_offset, partition_max_bytes."""


class FetchTopic:
    """A topic of a request.

    Attributes:
        topic: Its name, from version 13 on its id.
        count: How many partitions are named.
        version: Of the request.
        rows: Of its partitions, as they came.
    """

    __slots__ = ("_layout", "count", "rows", "topic", "version")

    def __init__(self, topic: str | UUID, count: int, version: int, rows: memoryview) -> None:
        self.topic = topic
        self.count = count
        self.version = version
        self.rows = rows
        self._layout = _row(version)

    @property
    def stride(self) -> int:
        """Bytes of each row."""
        return self._layout.size

    def partition(self, number: int) -> FetchPartition:
        """Reads one row."""
        return _told(self._layout.unpack_from(self.rows, number * self._layout.size))

    def partitions(self) -> list[FetchPartition]:
        """Reads all rows."""
        rows = self._layout.iter_unpack(self.rows)
        return [*rows] if self.version >= _EPOCHS else [_told(each) for each in rows]


class FetchLook(NamedTuple):
    """What is read of a request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]

    @property
    def begins_session(self) -> bool:
        """Whether it names all its partitions, so that it continues no session."""
        return self.session_epoch <= 0


def look_fetch(version: int, body: Buffer, rows: RowBudget | None = None) -> FetchLook | None:
    """Reads the body of a Fetch request.

    Args:
        version: 0 to 18.
        rows: How many topics and partitions may be read.

    Returns:
        None: it has tagged fields, forgets partitions of a session, has too many topics, or cannot be read.

    Raises:
        TooManyRows: There are more.
    """
    try:
        return _look(memoryview(body), version, rows)
    except TooManyRows:
        raise
    except (IndexError, ValueError, struct.error):
        return None


def look_fetch_frame(frame: Buffer, at: int, end: int, version: int) -> FetchLook | None:
    """Does what `look_fetch` does, with a whole request whose size lies at `at`, and which ends at `end`."""
    view = memoryview(frame)[:end]
    try:
        body_at = at + REQUEST_LOOK_BYTES + max(int(_INT16.unpack_from(view, at + REQUEST_LOOK_BYTES - 2)[0]), 0)
        if version >= _FLEXIBLE:
            if view[body_at]:
                return None
            body_at += 1
        return _look(view[body_at:], version, None)
    except (IndexError, ValueError, struct.error):
        return None


def _look(view: memoryview, version: int, budget: RowBudget | None) -> FetchLook | None:
    at = 4 if version < _REPLICA_ID_IN_TAGS else 0
    max_wait_ms, min_bytes = _INT32.unpack_from(view, at)[0], _INT32.unpack_from(view, at + 4)[0]
    at += 8
    max_bytes, isolation_level, session_id, session_epoch = _NO_BOUND_BYTES, 0, 0, _NO_SESSION
    if version >= 3:
        max_bytes = _INT32.unpack_from(view, at)[0]
        at += 4
    if version >= 4:
        isolation_level = view[at]
        at += 1
    if version >= _SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(view, at)
        at += 8
    topics: list[FetchTopic] = []
    end = _read_topics(view, at, version, budget, topics)
    if end is None or not _ends(view, end, version):
        return None
    return FetchLook(max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics)


def _read_topics(
    view: memoryview, at: int, version: int, budget: RowBudget | None, topics: list[FetchTopic]
) -> int | None:
    """Adds the topics; returns where they end, None if there is something else."""
    count, at = count_at(view, at, flexible=version >= _FLEXIBLE)
    if not 0 <= count <= _MOST_TOPICS:
        return None
    if budget is not None:
        budget.take(count, at)
    stride = _row(version).size
    for _ in range(count):
        topic, at = _topic(view, at, version)
        rows, at = count_at(view, at, flexible=version >= _FLEXIBLE)
        behind = at + stride * rows
        if rows < 0 or behind > len(view):
            return None
        if budget is not None:
            budget.take(rows, at)
        topics.append(FetchTopic(topic, rows, version, view[at:behind]))
        if version >= _FLEXIBLE:
            tags = view[at + stride - 1 : behind : stride]
            if tags.tobytes().count(0) != rows or view[behind]:
                return None
            behind += 1
        at = behind
    return at


def _ends(view: memoryview, at: int, version: int) -> bool:
    """Whether what follows the topics is the rest of a request that forgets no partition and has no tagged fields."""
    if version >= _SESSIONS:
        forgotten, at = count_at(view, at, flexible=version >= _FLEXIBLE)
        if forgotten:
            return False
    if version >= _RACKS:
        _, at = text_at(view, at, flexible=version >= _FLEXIBLE)
    return version < _FLEXIBLE or not view[at]


def _row(version: int) -> Struct:
    return next(layout for since, layout in _ROWS if version >= since)


def _told(row: tuple[int, ...]) -> FetchPartition:
    """Returns a row, with the leader epoch that it does not tell before version 9."""
    partition, *epoch, offset, most = row
    return partition, epoch[0] if epoch else _NO_EPOCH, offset, most


def _topic(view: memoryview, at: int, version: int) -> tuple[str | UUID, int]:
    """Returns a topic's name or id, and the position behind it."""
    if version >= _IDS:
        return UUID(bytes=bytes(view[at : at + _ID_BYTES])), at + _ID_BYTES
    return text_at(view, at, flexible=version >= _FLEXIBLE)
