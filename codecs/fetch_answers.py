"""Fetch responses without construct: rows of partitions, topics, and the whole of an answer.

Property tests hold them against the table (`codecs/messages/fetch.py`).

Source: FetchResponse.json; KIP-227 (sessions), KIP-392 (preferred_read_replica), KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from kordon.codecs.look import Buffer
from kordon.codecs.primitives import uvarint

_STABLE: Final = 4
_STARTS: Final = 5
_SESSIONS: Final = 7
_REPLICAS: Final = 11
_FLEXIBLE: Final = 12
_IDS: Final = 13
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_SESSION: Final = Struct(">ihi")
"""throttle_time_ms, error_code, session_id."""
_FIRST: Final = Struct(">ihq")
"""partition_index, error_code, high_watermark."""
_WITH_STABLE: Final = Struct(">ihqqi")
"""The same with last_stable_offset and the number of aborted transactions."""
_WITH_START: Final = Struct(">ihqqqi")
"""The same with log_start_offset."""
_WITH_REPLICA: Final = Struct(">ihqqqii")
"""The same with preferred_read_replica."""
_COMPACT: Final = Struct(">ihqqqBi")
"""The same with a compact number of aborted transactions."""
_NO_REPLICA: Final = -1
_NO_TAGS: Final = b"\0"


class PartitionBounds(NamedTuple):
    """What the row of a partition says beside records."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def build_partition(version: int, told: PartitionBounds, records: Sequence[Buffer], *, is_null: bool = True) -> bytes:
    """Writes the row of a partition that has no aborted transactions.

    Args:
        version: 0 to 18.
        records: In pieces.
        is_null: Whether the aborted transactions are null, and not an empty list.
    """
    size = sum(map(len, records))
    if version >= _FLEXIBLE:
        return b"".join((_COMPACT.pack(*told, not is_null, _NO_REPLICA), uvarint(size + 1), *records, _NO_TAGS))
    aborted = -1 if is_null else 0
    if version >= _REPLICAS:
        begin = _WITH_REPLICA.pack(*told, aborted, _NO_REPLICA)
    elif version >= _STARTS:
        begin = _WITH_START.pack(*told, aborted)
    else:
        begin = _WITH_STABLE.pack(*told[:4], aborted) if version >= _STABLE else _FIRST.pack(*told[:3])
    return b"".join((begin, _INT32.pack(size), *records))


def build_topic(version: int, topic: str, topic_id: UUID, rows: Collection[bytes]) -> bytes:
    """Writes a topic.

    Args:
        version: 0 to 18.
        topic: Its name, of versions up to 12.
        topic_id: Of the others.
        rows: Of its partitions, as the version writes them.
    """
    if version >= _IDS:
        begin = topic_id.bytes + uvarint(len(rows) + 1)
    elif version >= _FLEXIBLE:
        name = topic.encode()
        begin = uvarint(len(name) + 1) + name + uvarint(len(rows) + 1)
    else:
        name = topic.encode()
        begin = _INT16.pack(len(name)) + name + _INT32.pack(len(rows))
    return b"".join((begin, *rows, _NO_TAGS)) if version >= _FLEXIBLE else b"".join((begin, *rows))


def build_answer(version: int, session_id: int, topics: Collection[bytes]) -> bytes:
    """Writes an answer without an error and without a wait.

    Args:
        version: 0 to 18.
        session_id: 0: of none.
        topics: As the version writes them.
    """
    if version >= _FLEXIBLE:
        return b"".join((_SESSION.pack(0, 0, session_id), uvarint(len(topics) + 1), *topics, _NO_TAGS))
    begin = _SESSION.pack(0, 0, session_id) if version >= _SESSIONS else bytes(4 if version else 0)
    return b"".join((begin, _INT32.pack(len(topics)), *topics))
