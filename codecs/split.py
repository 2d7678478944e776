"""The hot path of reading: the batches of a Fetch answer by their headers, and what is put in the place of others.

`split` reads of a header what says whose a batch is and where it stands; a batch costs about a microsecond, whatever
its size. A filler is a batch that holds nothing for a consumer and moves it on (STEP-OVER).

Source: Kafka documentation, "Record Batch", "Control Batches"; DefaultRecordBatch.java, DefaultRecord.java.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from struct import error as struct_error
from typing import Final, NamedTuple

import google_crc32c

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import uvarint
from kordon.codecs.records import CURRENT_MAGIC, HEADER_BYTES, LOG_OVERHEAD, patch_base_offset, patch_leader_epoch

CONTROL: Final = 0x20
"""The attribute bit of a control batch."""
COMPRESSION: Final = 0x07
"""The attribute bits of the compression codec."""
MOST_FILLED: Final = 2**31 - 1
"""Offsets that one filler can cover: the last offset is written as a difference of 31 bits."""

_LOOK: Final = Struct(">qiib4xhi16xq6xi")
"""base_offset, batch_length, leader_epoch, magic, attributes, last_offset_delta, producer_id, records_count."""
_FRONT: Final = Struct(">qiibI")
"""base_offset, batch_length, partition_leader_epoch, magic, crc."""
_FILLER: Final = Struct(">hiqqqhii")
"""What the CRC covers of a header: attributes, last_offset_delta, timestamps, producer, records_count."""
_LOOK_BYTES: Final = _LOOK.size
_BODY: Final = HEADER_BYTES - LOG_OVERHEAD
_OLD_SMALLEST: Final = {0: 14, 1: 22}
_FILLER_ATTRIBUTES: Final = CONTROL | 0x10  # control batches of transactions are transactional
_COMMIT_MARKER: Final = bytes.fromhex("08 0000 0001 0c 0000 00000000 00")
"""Key (version 0, type COMMIT), value (version 0, coordinator epoch 0), no headers; each behind its length."""


class LogBatch(NamedTuple):
    """A batch as it lies in a Fetch answer's records."""

    start: int
    """The position of its first byte."""
    end: int
    """Byte behind the last."""
    base_offset: int
    next_offset: int
    """The offset behind the batch's last."""
    producer_id: int
    """The producer id; -1: the producer is not idempotent."""
    attributes: int
    leader_epoch: int
    magic: int
    """Messages of magic 0 and 1 have neither producer nor leader epoch."""
    records: int = 1
    """As its header counts them; of messages of magic 0 and 1 always 1, whatever a compressed one holds."""


def split(buffer: Buffer) -> list[LogBatch]:
    """Walks over the records of a Fetch answer by their headers.

    What is cut off at the end is left out: brokers cut at a number of bytes.

    Args:
        buffer: The value of a records field.

    Returns:
        The batches as they follow each other.

    Raises:
        WireError: A length or an offset is impossible, or the magic unknown.
    """
    at, size = 0, len(buffer)
    found: list[LogBatch] = []
    make, look, found_one = LogBatch._make, _LOOK.unpack_from, found.append
    while size - at >= _LOOK_BYTES:
        base_offset, length, leader_epoch, magic, attributes, last_delta, producer_id, count = look(buffer, at)
        if magic != CURRENT_MAGIC:
            old = _old_message(buffer, at)
            if old.end > size:
                break
            found_one(old)
            at = old.end
            continue
        if length < _BODY or last_delta < 0 or base_offset < 0:
            raise _error(f"no batch: length {length}, base offset {base_offset}, last delta {last_delta}", at)
        end = at + LOG_OVERHEAD + length
        if end > size:
            break
        next_offset = base_offset + last_delta + 1
        found_one(make((at, end, base_offset, next_offset, producer_id, attributes, leader_epoch, magic, count)))
        at = end
    if at < size:
        found += _old_tail(buffer, at)
    return found


def patch(buffer: bytearray | memoryview, batch: LogBatch, base_offset: int, leader_epoch: int) -> None:
    """Gives a batch another place: in the buffer in which it lies, its CRC stays right.

    Messages of magic 0 and 1 keep their bytes: these have their offsets inside of what their CRC or compression covers.
    """
    if batch.magic == CURRENT_MAGIC:
        patch_base_offset(buffer, batch.start, base_offset)
        patch_leader_epoch(buffer, batch.start, leader_epoch)


def filler(base_offset: int, next_offset: int, leader_epoch: int) -> bytes:
    """Makes the batch that moves a consumer from one offset to another: a marker that nobody delivers (STEP-OVER).

    Args:
        next_offset: Where it is to go on; at most `MOST_FILLED` further.

    Raises:
        ValueError: It would not move forwards, or too far.
    """
    last_delta = next_offset - base_offset - 1
    if not 0 <= last_delta < MOST_FILLED:
        raise ValueError(f"no filler leads from {base_offset} to {next_offset}")
    # attributes and timestamp delta are 0; the record stands at the batch's last offset, for readers that go by records
    inner = b"\0\0" + _zigzag(last_delta) + _COMMIT_MARKER
    record = _zigzag(len(inner)) + inner
    covered = _FILLER.pack(_FILLER_ATTRIBUTES, last_delta, -1, -1, -1, -1, -1, 1) + record
    crc = google_crc32c.value(covered)
    return _FRONT.pack(base_offset, _BODY + len(record), leader_epoch, CURRENT_MAGIC, crc) + covered


def _old_tail(buffer: Buffer, at: int) -> list[LogBatch]:
    """Reads messages of magic 0 and 1 that are shorter than what `split` looks at."""
    found: list[LogBatch] = []
    while True:
        try:
            old = _old_message(buffer, at)
        except struct_error:
            return found
        if old.magic == CURRENT_MAGIC or old.end > len(buffer):
            return found
        found.append(old)
        at = old.end


def _old_message(buffer: Buffer, at: int) -> LogBatch:
    """Reads a message of magic 0 or 1; of a compressed one, the offset is that of the last inside."""
    offset, length, _, magic = unpack_from(">qiIb", buffer, at)
    if magic == CURRENT_MAGIC:
        return LogBatch(at, at, offset, offset, -1, 0, -1, magic)
    if length < _OLD_SMALLEST.get(magic, length + 1) or offset < 0:
        raise _error(f"no message: magic {magic}, length {length}, offset {offset}", at)
    return LogBatch(at, at + LOG_OVERHEAD + length, offset, offset + 1, -1, 0, -1, magic)


def _zigzag(value: int) -> bytes:
    """Returns a non-negative number as a signed varint."""
    return uvarint(value << 1)


def _error(reason: str, offset: int) -> WireError:
    return WireError(reason, message="RecordBatch", offset=offset)
