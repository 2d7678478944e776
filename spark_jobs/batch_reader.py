"""Reads the batches of a partition by their headers, as columns; of every n-th one also the keys (`key_sample.py`).

The walk over a Fetch answer touches 12 bytes of each batch; all else is done with numpy on all batches of the answer
at once, but for the few that transactions need (`transaction_events.py`). Messages of magic 0 and 1, which a topic may
hold from before it was managed, go the slow way of `codecs/split.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched
from kordon.codecs.records import HEADER_BYTES, LOG_OVERHEAD
from kordon.codecs.split import split
from kordon.spark_jobs.brokers import EARLIEST, BrokersUnavailable, Cluster, PartitionKey
from kordon.spark_jobs.judging.schema import BATCHES, READ_TO
from kordon.spark_jobs.judging.shipments import What
from kordon.spark_jobs.key_sample import KeySample
from kordon.spark_jobs.transaction_events import EVENTS, events_of

FETCH_BYTES: Final = 8 << 20
"""What is asked for at once, and so, with its columns, what a reader keeps in memory."""
_AT_ONCE: Final = 16_384
"""Batches that become a table at once: each column costs something, however short it is."""
_NO_END: Final = 1 << 62
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
_CLIENT_BITS: Final = 38
_MOVE_BITS: Final = 40
_V_BITS: Final = 48
_MOVES: Final = 1 << (_V_BITS - _MOVE_BITS)
_IN_TRANSACTION: Final = 1 << 39
_SEQUENCES: Final = 1 << 31
"""Sequences continue at 0 behind 2^31 - 1."""
_READ: Final = (
    "base_offset",
    "leader_epoch",
    "attributes",
    "last_offset_delta",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)
_CAST: Final = [pl.col(name).cast(kind) for name, kind in BATCHES.items()]


class _Headers(NamedTuple):
    """The headers of some batches."""

    header: npt.NDArray[Any]
    """The headers as `HEADER`."""
    sizes: npt.NDArray[np.int64]
    """The size of each whole batch, in bytes."""
    events: npt.NDArray[np.int8] | None
    """What each says of a transaction, by the numbers of `transaction_events.EVENTS`; None: none says anything."""


def read_partition(
    cluster: Cluster, place: PartitionKey, start: int | None, end: int, *, one_in: int = 0
) -> Iterator[tuple[What, pl.DataFrame]]:
    """Reads the batches that begin in offsets [start, end), and says at last how far it was read.

    Args:
        start: The first offset; None: the log's beginning.
        end: The offset behind the last one, at most a high watermark that the log has had. Where the log is shorter
            now, the missing part is passed over.
        one_in: The number of batches of which one is opened, for its keys; 0: no batch is opened.

    Yields:
        `What.BATCHES` and `BATCHES`, one table after the other; at last `What.KEYS` with `KEYS`, and `What.READ_TO`
        with `READ_TO`.

    Raises:
        BrokersUnavailable: The brokers did not answer for a minute.
        WireError: The brokers' answer is no Kafka log.
    """
    at = start if start is not None else _patiently(lambda: cluster.ends([place], EARLIEST)[place])
    log_start = 0
    keys = KeySample(place, one_in)
    read: list[_Headers] = []
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
        found = _headers_in(told, at, end, keys)
        if found is None:
            if told.high_watermark <= at:
                break
            time.sleep(_PAUSE_SECONDS)  # a follower became leader, and learns its high watermark
            continue
        headers, at = found
        read.append(headers)
        if sum(len(each.header) for each in read) >= _AT_ONCE:
            yield What.BATCHES, _table(place, read)
            read = []
    if read:
        yield What.BATCHES, _table(place, read)
    yield What.KEYS, keys.table()
    yield What.READ_TO, pl.DataFrame([(*place, log_start, end)], schema=READ_TO, orient="row")


def columns(told: Fetched, place: PartitionKey) -> tuple[pl.DataFrame, int] | None:
    """Turns an answer's batches into a table.

    Returns:
        `BATCHES`, and the offset behind the last whole batch; None: there is no whole batch.

    Raises:
        WireError: The bytes are no batches.
    """
    found = _headers_in(told, 0, _NO_END)
    return None if found is None else (_table(place, [found[0]]), found[1])


def _headers_in(told: Fetched, start: int, end: int, keys: KeySample | None = None) -> tuple[_Headers, int] | None:
    """Returns the headers of an answer's batches that begin in [start, end), and the offset behind the last whole one.

    Args:
        keys: The sample of keys, which is given these batches, too.
    """
    starts, ends, current = _walk(told.records)
    if not starts:
        return None
    header = _headers(told.records, starts) if current else _old_headers(told.records)
    spans = np.column_stack([np.asarray(each, dtype=np.int64) for each in (starts, ends)])
    base = header["base_offset"].astype(np.int64)
    last = base + header["last_offset_delta"]
    kept = (base >= start) & (base < end)
    header, spans = header[kept], spans[kept]
    if keys is not None and current:
        keys.open(told.records, header, spans)
    events = events_of(told.records, header, spans) if current else None
    return _Headers(header, spans[:, 1] - spans[:, 0], events), int(last[-1]) + 1


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


def _table(place: PartitionKey, read: Sequence[_Headers]) -> pl.DataFrame:
    header, sizes = (np.concatenate(each) for each in zip(*(each[:2] for each in read), strict=True))
    native = {name: header[name].astype(header[name].dtype.newbyteorder("=")) for name in _READ}
    producer_id, is_tagged = native["producer_id"], pl.col("producer_id") >= 1 << _V_BITS
    tag = {
        "v": (producer_id >> _V_BITS) - 1,
        "move": producer_id >> _MOVE_BITS & _MOVES - 1,
        "client_producer_id": producer_id & (1 << _CLIENT_BITS) - 1,
    }
    last_offset = pl.col("base_offset") + pl.col("last_offset_delta")
    attributes, first = pl.col("attributes"), pl.col("base_sequence").cast(pl.Int64)
    last = pl.when(first < 0).then(-1).otherwise((first + pl.col("last_offset_delta")) % _SEQUENCES)
    told = pl.DataFrame(native | tag).with_columns(
        pl.lit(place.topic).alias("topic"),
        pl.lit(place.partition).alias("partition"),
        pl.Series("bytes", sizes),
        last_offset.alias("last_offset"),
        last.alias("last_sequence"),
        *(pl.when(is_tagged).then(name).alias(name) for name in tag),
        (attributes & _CONTROL != 0).alias("is_control"),
        (attributes & _TRANSACTIONAL != 0).alias("is_transactional"),
        _protocol(producer_id).alias("protocol"),
        _events(read).alias("event"),
    )
    return told.rename({"records_count": "records", "max_timestamp": "max_timestamp_ms"}).select(_CAST)


def _protocol(producer_id: npt.NDArray[np.int64]) -> pl.Expr:
    """Returns by which protocol batches are in a transaction, as their tags say; null: they are in none."""
    if not ((producer_id >= 1 << _V_BITS) & (producer_id & _IN_TRANSACTION != 0)).any():
        return pl.lit(None, pl.Int8)
    bits = pl.lit(pl.Series((producer_id >> _CLIENT_BITS & 3).astype(np.int8)))
    is_transactional = (pl.col("producer_id") >= 1 << _V_BITS) & (bits >= 2)
    return pl.when(is_transactional).then(bits - 1)


def _events(read: Sequence[_Headers]) -> pl.Expr:
    """Returns what batches say of transactions, in words."""
    if all(each.events is None for each in read):
        return pl.lit(None, pl.String)
    numbers = [np.zeros(len(each.header), dtype=np.int8) if each.events is None else each.events for each in read]
    return pl.lit(pl.Series(np.concatenate(numbers))).replace_strict(range(len(EVENTS)), EVENTS, return_dtype=pl.String)


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
