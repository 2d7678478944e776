"""Batches of which a reader is to have some records only: their records by key, and the same batch with fewer of them.

A batch keeps its offsets, times, producer and transaction whatever is left out, as compaction leaves it. What is built
anew is not compressed.

Source: Kafka documentation, "Record Batch", "Record"; DefaultRecordBatch.java, DefaultRecord.java in Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from struct import Struct
from typing import Final, NamedTuple

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.records import CRC_AT, CRC_FROM, CURRENT_MAGIC, HEADER_BYTES, LOG_OVERHEAD, MAGIC_AT, look_batch
from kordon.codecs.retag import crc32c
from kordon.codecs.unpack import records_in, unpacked

_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_CRC: Final = Struct(">I")
_COUNT: Final = Struct(">i")
_COUNT_AT: Final = HEADER_BYTES - 4
_LONGEST_VARINT: Final = 10


class PickedRecord(NamedTuple):
    """The place of a record in its batch."""

    offset: int
    key: bytes | None
    start: int
    end: int


class PickableBatch:
    """A batch of data records as it came, with its records found.

    Args:
        data: One whole batch, or of magic 0 and 1 one message; kept.
        limit_bytes: Most bytes of records that it may hold if it is compressed (`unpack.py::unpacked`).

    Raises:
        WireError: It cannot be read, or holds more.
    """

    def __init__(self, data: Buffer, limit_bytes: int) -> None:
        self.data = bytes(data)
        self.records: tuple[PickedRecord, ...] = ()
        plain = unpacked(self.data, limit_bytes)
        self._plain = plain if plain.obj is self.data else memoryview(bytes(plain))  # its room is larger than it
        if self.data[MAGIC_AT] == CURRENT_MAGIC:
            self.records = tuple(_records(self._plain))
        else:  # a message each, of which there is nothing to leave out but in what wraps several
            found = ((each.offset, each.key) for each in records_in(self._plain))
            self.records = tuple(
                PickedRecord(offset, None if key is None else bytes(key), 0, 0) for offset, key in found
            )

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        packed = 0 if self._plain.obj is self.data else len(self._plain)
        return len(self.data) + packed + 200 * len(self.records)

    def only(self, offsets: Collection[int]) -> bytes:
        """Returns the batch with some of its records only, at least one; as it came if that is all of them.

        Messages of magic 0 and 1 are returned whole: clients take of them what they are given.
        """
        kept = [each for each in self.records if each.offset in offsets]
        if len(kept) == len(self.records) or self.data[MAGIC_AT] != CURRENT_MAGIC:
            return self.data
        plain = self._plain
        made = bytearray(plain[:HEADER_BYTES])
        for each in kept:
            made += plain[each.start : each.end]
        _LENGTH.pack_into(made, _LENGTH_AT, len(made) - LOG_OVERHEAD)
        _COUNT.pack_into(made, _COUNT_AT, len(kept))
        _CRC.pack_into(made, CRC_AT, crc32c(memoryview(made)[CRC_FROM:]))
        return bytes(made)


def _records(plain: memoryview) -> Iterator[PickedRecord]:
    """Finds the records of a batch that is not compressed."""
    header = look_batch(plain, 0)
    at = HEADER_BYTES
    for _ in range(header.records_count):
        start = at
        size, at = _varint(plain, at)
        end = at + size
        if size < 0 or end > len(plain):
            raise _error(f"a record of {size} bytes does not fit into its batch")
        _, at = _varint(plain, at + 1)  # attributes, and the difference of time
        delta, at = _varint(plain, at)
        length, at = _varint(plain, at)
        if at + max(length, 0) > end or not 0 <= delta < header.next_offset - header.base_offset:
            raise _error(f"a record with a key of {length} bytes and the offset delta {delta} is none of its batch")
        yield PickedRecord(
            header.base_offset + delta, bytes(plain[at : at + length]) if length >= 0 else None, start, end
        )
        at = end


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Reads a number; returns it, and where it ends."""
    found = shift = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(data))):
        byte = data[place]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), place + 1
        shift += 7
    raise _error("a number in a record does not end")


def _error(reason: str) -> WireError:
    return WireError(reason, message="RecordBatch")
