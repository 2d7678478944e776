"""Kordon's own fetches without construct: requests, and where the records of each partition lie in an answer.

They use version 11 alone: every broker from 2.3 on speaks it, and it names topics and leader epochs. Nothing is copied.

Source: FetchRequest.json, FetchResponse.json; version 11 is not flexible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from kordon.codecs.errors import WireError

VERSION: Final = 11

_ASKED_TOP: Final = Struct(">iiiibiii")
"""replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, number of topics."""
_ASKED_PARTITION: Final = Struct(">iiqqi")
"""partition, current_leader_epoch, fetch_offset, log_start_offset, partition_max_bytes."""
_ASKED_END: Final = bytes(6)
"""No forgotten partitions, and an empty rack_id."""
_NO_SESSION: Final = -1
_TOP: Final = Struct(">ihii")
"""throttle_time_ms, error_code, session_id, number of topics."""
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ihqqqi")
"""partition_index, error_code, high_watermark, last_stable_offset, log_start_offset, number of aborted transactions."""
_ABORTED_BYTES: Final = 16
_REPLICA_BYTES: Final = 4
_LEAST_TOPIC: Final = 6
_LEAST_PARTITION: Final = _PARTITION.size + _REPLICA_BYTES + 4


class Fetched(NamedTuple):
    """What a broker says of one partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    """A part of the response's own memory."""
    last_stable_offset: int = -1
    """Below it the broker knows no open transaction."""


class FetchAnswer(NamedTuple):
    """A whole response."""

    throttle_time_ms: int
    error_code: int
    partitions: dict[tuple[str, int], Fetched]
    """By topic and partition."""


def build_fetch(
    topics: Mapping[str, Sequence[tuple[int, int, int]]], *, max_wait_ms: int, max_bytes: int, partition_bytes: int
) -> bytes:
    """Builds the body of a Fetch request of version 11, which continues no session.

    Args:
        topics: By name, partitions with the leader epoch that is believed in (-1: none) and the offset.
        max_wait_ms: How long the broker may wait for a byte; 0: it does not wait.
        partition_bytes: Most bytes of each.
    """
    pieces = [_ASKED_TOP.pack(-1, max_wait_ms, int(max_wait_ms > 0), max_bytes, 0, 0, _NO_SESSION, len(topics))]
    for name, partitions in topics.items():
        written = name.encode()
        pieces += (_INT16.pack(len(written)), written, _INT32.pack(len(partitions)))
        pieces += [_ASKED_PARTITION.pack(*each, -1, partition_bytes) for each in partitions]
    pieces.append(_ASKED_END)
    return b"".join(pieces)


def parse_fetched(body: memoryview) -> FetchAnswer:
    """Reads the body of a Fetch response of version 11.

    Args:
        body: All of it behind the header.

    Raises:
        WireError: It cannot be read.
    """
    found: dict[tuple[str, int], Fetched] = {}
    try:
        throttle_time_ms, error_code, _, topics = _TOP.unpack_from(body)
        at = _TOP.size
        for _ in range(_count(body, topics, _LEAST_TOPIC, at)):
            length = _INT16.unpack_from(body, at)[0]
            name, at = _text(body, at + 2, length)
            partitions = _INT32.unpack_from(body, at)[0]
            at += 4
            for _ in range(_count(body, partitions, _LEAST_PARTITION, at)):
                at = _partition(body, at, name, found)
    except struct_error:
        raise _error("ends too early", len(body)) from None
    if at != len(body):
        raise _error(f"{len(body) - at} bytes too many", at)
    return FetchAnswer(throttle_time_ms, error_code, found)


def _partition(body: memoryview, at: int, topic: str, found: dict[tuple[str, int], Fetched]) -> int:
    index, error_code, high_watermark, stable, log_start_offset, aborted = _PARTITION.unpack_from(body, at)
    at += _PARTITION.size
    at += _ABORTED_BYTES * _count(body, max(aborted, 0), _ABORTED_BYTES, at) + _REPLICA_BYTES
    size: int = max(_INT32.unpack_from(body, at)[0], 0)
    at += 4
    if size > len(body) - at:
        raise _error(f"records of {size} bytes, but only {len(body) - at} remain", at)
    found[topic, index] = Fetched(error_code, high_watermark, log_start_offset, body[at : at + size], stable)
    return at + size


def _text(body: memoryview, at: int, length: int) -> tuple[str, int]:
    if not 0 <= length <= len(body) - at:
        raise _error(f"a name of {length} bytes", at)
    try:
        return str(body[at : at + length], "utf-8"), at + length
    except UnicodeDecodeError:
        raise _error("a name that is not UTF-8", at) from None


def _count(body: memoryview, count: int, least_bytes: int, at: int) -> int:
    if not 0 <= count * least_bytes <= len(body) - at:
        raise _error(f"{count} elements, but only {len(body) - at} bytes remain", at)
    return count


def _error(reason: str, offset: int) -> WireError:
    return WireError(reason, message="FetchResponse", version=VERSION, offset=offset)
