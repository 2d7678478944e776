"""Record batches by their headers. Records are never opened here, but for the one record of a control batch.

    0            8            12                    16     17   21                                        61
    ├ base_offset┼batch_length┼partition_leader_epoch┼magic┼ crc ┼ attributes … records_count (40 bytes) ─┼ records
                                                                └── the CRC-32C covers all from here on ──…

Base offset and leader epoch lie outside the CRC: they can be patched in place. Magic stands at byte 16 in the message
sets of old (magic 0 and 1) as well, so these are recognised and stepped over, one message at a time.

`look_batch` reads on the hot path what `BATCH_HEADER` defines with construct; property tests prove them equal.

Source: Kafka documentation, "Record Batch", "Control Batches", "Old Message Format"; DefaultRecordBatch.java,
ControlRecordType.java, EndTxnMarker.json in Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct as Layout
from typing import Any, Final, NamedTuple, TypeAlias

import construct

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import INT8, INT16, INT32, INT64, UINT32, Codec, Frame, Sized, Stream
from kordon.codecs.schema import field, message

# construct is extended by `_parse` and `_build`, and codecs of this package call them on one another.
# pyright: reportPrivateUsage=false

WritableBuffer: TypeAlias = bytearray | memoryview

# A table reads line by line like its schema.
# fmt: off
BATCH_HEADER = message(
    "RecordBatch",
    field("base_offset", INT64, "2"),
    field("batch_length", INT32, "2"),
    field("partition_leader_epoch", INT32, "2", default=-1),
    field("magic", INT8, "2", default=2),
    field("crc", UINT32, "2"),
    field("attributes", INT16, "2"),
    field("last_offset_delta", INT32, "2"),
    field("base_timestamp", INT64, "2", default=-1),
    field("max_timestamp", INT64, "2", default=-1),
    field("producer_id", INT64, "2", default=-1),
    field("producer_epoch", INT16, "2", default=-1),
    field("base_sequence", INT32, "2", default=-1),
    field("records_count", INT32, "2"),
    versions="2",
)
# Key and value of a control record begin with their version, which their schemas leave out.
CONTROL_KEY = message(
    "ControlRecordTypeSchema",
    field("type", INT16, "0+"),
    versions="0",
)
END_TXN_MARKER = message(
    "EndTxnMarker",
    field("coordinator_epoch", INT32, "0+"),
    versions="0",
)
# fmt: on

_HEADER: Final = Layout(">qiibIhiqqqhii")
_INT64: Final = Layout(">q")
_INT32: Final = Layout(">i")

LOG_OVERHEAD: Final = 12
"""Bytes of base offset and batch length, which the batch length does not count."""
HEADER_BYTES: Final = _HEADER.size
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_FROM: Final = 21
"""First byte that the CRC covers; the last one is the batch's last."""
CURRENT_MAGIC: Final = 2
_VERSION_BYTES: Final = 2
_SMALLEST: Final = {0: 14, 1: 22, 2: HEADER_BYTES - LOG_OVERHEAD}
"""By magic, the smallest batch length (of old, message size) there can be."""


class BatchHeader(NamedTuple):
    """The header of a batch of magic 2, field by field as on the wire."""

    base_offset: int
    batch_length: int
    """Bytes behind this field."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """The base timestamp, in milliseconds since 1970."""
    max_timestamp: int
    producer_id: int
    """The producer id; -1: the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def next_offset(self) -> int:
        """The offset behind the batch's last."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & 0x07

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, which no consumer delivers."""
        return bool(self.attributes & 0x20)


class Span(NamedTuple):
    """The place of a batch in a records field."""

    start: int
    end: int
    magic: int
    header: BatchHeader | None
    """None for a message of magic 0 or 1."""


def look_batch(buffer: Buffer, at: int) -> BatchHeader:
    """Reads the header at `at`, whose 61 bytes are there; nothing is judged."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, at))


def batches(buffer: Buffer) -> Iterator[Span]:
    """Walks over a records field by its headers.

    A last batch that is cut off is left out: brokers cut at a number of bytes (Fetch), and clients know it.

    Args:
        buffer: The value of a records field.

    Yields:
        The batches in their order; for message sets of old, their messages.

    Raises:
        WireError: A length is impossible, or the magic unknown.
    """
    at, end = 0, len(buffer)
    while end - at > MAGIC_AT:
        length = _INT32.unpack_from(buffer, at + 8)[0]
        magic = buffer[at + MAGIC_AT]
        if length < _SMALLEST.get(magic, 0):
            raise _error(f"a batch of magic {magic} cannot have the length {length}", at)
        if magic not in _SMALLEST:
            raise _error(f"magic {magic} is unknown", at)
        stop = at + LOG_OVERHEAD + length
        if stop > end:
            return
        yield Span(at, stop, magic, look_batch(buffer, at) if magic == CURRENT_MAGIC else None)
        at = stop


def patch_base_offset(buffer: WritableBuffer, at: int, base_offset: int) -> None:
    """Gives the batch at `at` another base offset; its records' offsets are relative to it, its CRC stays right."""
    _INT64.pack_into(buffer, at, base_offset)


def patch_leader_epoch(buffer: WritableBuffer, at: int, leader_epoch: int) -> None:
    """Gives the batch at `at` another leader epoch; its CRC stays right."""
    _INT32.pack_into(buffer, at + LEADER_EPOCH_AT, leader_epoch)


class ControlType(IntEnum):
    """What a control record says."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class ControlRecord(NamedTuple):
    """The one record of a control batch."""

    type: ControlType
    coordinator_epoch: int | None
    """The epoch of the transaction coordinator, for ABORT and COMMIT."""


def parse_control_batch(batch: Buffer) -> ControlRecord:
    """Reads what a control batch says.

    Args:
        batch: A whole batch of magic 2 whose header `is_control`.

    Raises:
        WireError: It is not one.
    """
    if len(batch) < HEADER_BYTES:
        raise _error("control batch is shorter than its header", 0)
    header = look_batch(batch, 0)
    if header.magic != CURRENT_MAGIC or not header.is_control or header.compression:
        raise _error("batch is no uncompressed control batch", 0)
    stream = Frame(batch[HEADER_BYTES:], HEADER_BYTES)
    try:
        record = _RECORD.parse_stream(stream)
    except construct.ConstructError:
        raise stream.fail("control record ends too early") from None
    return _control_record(record.key or b"", record.value or b"")


def _control_record(key: bytes, value: bytes) -> ControlRecord:
    # newer versions may add fields at the end (ControlRecordType.java, EndTransactionMarker.java)
    number: int = CONTROL_KEY.at(0).parse(key[_VERSION_BYTES:])[0].type
    kind = ControlType(number) if number in ControlType.__members__.values() else ControlType.UNKNOWN
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(kind, None)
    return ControlRecord(kind, END_TXN_MARKER.at(0).parse(value[_VERSION_BYTES:])[0].coordinator_epoch)


class _Varint(Codec):
    """A signed varint in zig-zag, of at most `bits` bits: the integers inside of records."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self._bits = bits

    def _parse(self, stream: Stream, context: Any, path: Any) -> Any:
        value = shift = 0
        while True:
            byte = stream.take(1, "varint")[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= self._bits:
                raise stream.fail(f"varint is longer than {self._bits} bits")
        return (value >> 1) ^ -(value & 1)


_VARINT: Final = _Varint(32)
_RECORD: Final = construct.Struct(
    "length" / _VARINT,
    "attributes" / construct.Int8sb,
    "timestamp_delta" / _Varint(64),
    "offset_delta" / _VARINT,
    "key" / Sized(_VARINT, "key", nullable=True),
    "value" / Sized(_VARINT, "value", nullable=True),
    "headers_count" / _VARINT,
)


def _error(reason: str, offset: int) -> WireError:
    return WireError(reason, message="RecordBatch", offset=offset)
