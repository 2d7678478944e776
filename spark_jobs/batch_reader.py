"""Reads the batches of a partition by their headers, as columns; records are never opened.

The walk over a Fetch answer touches 12 bytes of each batch; all else is done with numpy on all batches of the answer
at once. Messages of magic 0 and 1, which a topic may hold from before it was managed, go the slow way of
`codecs/split.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched
from kordon.codecs.records import HEADER_BYTES, LOG_OVERHEAD
from kordon.codecs.split import split
from kordon.spark_jobs.brokers import EARLIEST, BrokersUnavailable, Cluster, PartitionKey

FETCH_BYTES: Final = 8 << 20
"""What is asked for at once, and so, with its columns, what a reader keeps in memory."""
OUT_OF_RANGE: Final = 1
_PATIENCE_SECONDS: Final = 60.0
"""For so long a reader tries again when brokers do not answer, before the task fails."""
_PAUSE_SECONDS: Final = 0.5
_LENGTH: Final = Struct(">i4xb")
"""Behind the base offset: batch_length and magic."""
HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)
"""As `codecs.records.BATCH_HEADER` has it; a test holds one against the other."""
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_CLIENT_BITS: Final = 40
_V_BITS: Final = 48
_SEQUENCES: Final = 1 << 31
"""Sequences go on at 0 behind 2^31 - 1."""

ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("producer_id", pa.int64()),
        ("v", pa.int32()),
        ("move", pa.int32()),
        ("client_producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("max_timestamp_ms", pa.int64()),
        ("attributes", pa.int32()),
        ("is_control", pa.bool_()),
        ("is_transactional", pa.bool_()),
        ("log_start", pa.int64()),
        ("next_offset", pa.int64()),
    ]
)
"""`schema.BATCHES`, and two more columns for the row behind a partition's batches, which has nothing in the others:
where its log begins, and how far it was read."""

RecordBatch: TypeAlias = Any
"""`pyarrow.RecordBatch`; pyarrow has no types."""


def read_partition(cluster: Cluster, place: PartitionKey, start: int | None, end: int) -> Iterator[RecordBatch]:
    """Reads the batches that begin in offsets [start, end), and says at last how far it was read.

    Args:
        start: None: from the log's beginning.
        end: At most the high watermark of some time. Where the log is shorter now, what is missing is passed over.

    Yields:
        Tables of `ARROW`.

    Raises:
        BrokersUnavailable: The brokers did not answer for a minute.
        WireError: What they have is no Kafka log.
    """
    at = start if start is not None else _patiently(lambda: cluster.ends([place], EARLIEST)[place])
    log_start = 0
    while at < end:
        told = _patiently(lambda at=at: cluster.fetch(place, at, FETCH_BYTES))
        if told.error_code == OUT_OF_RANGE:
            log_start = _patiently(lambda: cluster.ends([place], EARLIEST)[place])
            if log_start <= at:
                break  # the log got shorter
            at = log_start
            continue
        if told.error_code:
            raise BrokersUnavailable(f"{place.topic}-{place.partition}: error {told.error_code}")
        log_start = max(log_start, told.log_start_offset)
        rows = columns(told, place, at, end)
        if rows is None:
            if told.high_watermark <= at:
                break
            time.sleep(_PAUSE_SECONDS)  # a follower became leader, and learns its high watermark
            continue
        table, at = rows
        yield table
    yield _read_to(place, log_start, end)


def columns(told: Fetched, place: PartitionKey, start: int, end: int) -> tuple[RecordBatch, int] | None:
    """Turns an answer's batches that begin in [start, end) into a table.

    Returns:
        The table, and the offset behind the last whole batch; None: there is no whole batch.

    Raises:
        WireError: The bytes are no batches.
    """
    starts, ends, current = _walk(told.records)
    if not starts:
        return None
    header = _headers(told.records, starts) if current else _old_headers(told.records)
    sizes = np.asarray(ends, dtype=np.int64) - np.asarray(starts, dtype=np.int64)
    base = header["base_offset"].astype(np.int64)
    last = base + header["last_offset_delta"]
    kept = (base >= start) & (base < end)
    return _table(place, header[kept], sizes[kept]), int(last[-1]) + 1


def _walk(buffer: memoryview) -> tuple[list[int], list[int], bool]:
    """Finds the whole batches; the last flag is false where there are messages of magic 0 or 1 among them."""
    starts: list[int] = []
    ends: list[int] = []
    at, size, look = 0, len(buffer), _LENGTH.unpack_from
    while size - at >= HEADER_BYTES:
        length, magic = look(buffer, at + 8)
        if magic != 2:
            old = split(buffer)
            return [each.start for each in old], [each.end for each in old], False
        stop = at + LOG_OVERHEAD + length
        if stop - at < HEADER_BYTES:
            raise WireError(f"a batch cannot have the length {length}", message="RecordBatch", offset=at)
        if stop > size:
            break
        starts.append(at)
        ends.append(stop)
        at = stop
    return starts, ends, True


def _headers(buffer: memoryview, starts: list[int]) -> npt.NDArray[Any]:
    raw = np.frombuffer(buffer, dtype=np.uint8)
    places = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(HEADER_BYTES)
    return np.ascontiguousarray(raw[places]).view(HEADER).reshape(-1)


def _old_headers(buffer: memoryview) -> npt.NDArray[Any]:
    """Messages of magic 0 and 1 have neither producer nor leader epoch; each counts as a batch of one record."""
    found = split(buffer)
    header = np.zeros(len(found), dtype=HEADER)
    header["base_offset"] = [each.base_offset for each in found]
    header["last_offset_delta"] = [each.next_offset - each.base_offset - 1 for each in found]
    header["leader_epoch"] = [each.leader_epoch for each in found]
    header["attributes"] = [each.attributes for each in found]
    header["producer_id"] = [each.producer_id for each in found]
    header["max_timestamp"] = header["producer_epoch"] = header["base_sequence"] = -1
    header["records_count"] = header["last_offset_delta"] + 1
    return header


def _table(place: PartitionKey, header: npt.NDArray[Any], sizes: npt.NDArray[np.int64]) -> RecordBatch:
    producer_id = header["producer_id"].astype(np.int64)
    base_sequence = header["base_sequence"].astype(np.int64)
    attributes = header["attributes"].astype(np.int32)
    base_offset = header["base_offset"].astype(np.int64)
    untagged = producer_id < (1 << _V_BITS)
    last_sequence = np.where(base_sequence < 0, -1, (base_sequence + header["last_offset_delta"]) % _SEQUENCES)
    count = len(header)
    found: dict[str, Any] = {
        "topic": pa.repeat(pa.scalar(place.topic), count),
        "partition": np.full(count, place.partition, dtype=np.int32),
        "base_offset": base_offset,
        "last_offset": base_offset + header["last_offset_delta"],
        "leader_epoch": header["leader_epoch"].astype(np.int32),
        "producer_id": producer_id,
        "v": pa.array(((producer_id >> _V_BITS) - 1).astype(np.int32), mask=untagged),
        "move": pa.array(((producer_id >> _CLIENT_BITS) & 0xFF).astype(np.int32), mask=untagged),
        "client_producer_id": pa.array(producer_id & ((1 << _CLIENT_BITS) - 1), mask=untagged),
        "producer_epoch": header["producer_epoch"].astype(np.int32),
        "base_sequence": base_sequence,
        "last_sequence": last_sequence,
        "records": header["records_count"].astype(np.int64),
        "bytes": sizes,
        "max_timestamp_ms": header["max_timestamp"].astype(np.int64),
        "attributes": attributes,
        "is_control": (attributes & _CONTROL) != 0,
        "is_transactional": (attributes & _TRANSACTIONAL) != 0,
        "log_start": pa.nulls(count, pa.int64()),
        "next_offset": pa.nulls(count, pa.int64()),
    }
    return pa.RecordBatch.from_arrays([_array(found[each.name], each.type) for each in ARROW], schema=ARROW)


def _array(values: Any, kind: Any) -> Any:
    return values if isinstance(values, pa.Array) else pa.array(values, type=kind)


def _read_to(place: PartitionKey, log_start: int, next_offset: int) -> RecordBatch:
    told: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "log_start": log_start,
        "next_offset": next_offset,
    }
    return pa.RecordBatch.from_pylist([told], schema=ARROW)


def _patiently(ask: Any) -> Any:
    """Asks again while brokers come and go."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except BrokersUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SECONDS)
