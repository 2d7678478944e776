"""Opens compressed batches within a bound: a few kilobytes can hold gigabytes, whoever wrote them.

    batch as the broker has it          ├ header ┼ compressed records ┤
    the same, plain                     ├ header ┼ records … ┤          never more than the bound

The codec writes into memory of the bound's size, of which the system gives only what is written to, and stops where it
ends. So nothing is believed of what a frame says about its own size, and memory beyond the bound is never taken. The
codecs release the interpreter's lock while they work.

Source: Kafka documentation, "Record Batch", "Old Message Format"; KIP-57 (LZ4 framing); CompressionType.java,
AbstractLegacyRecordBatch.java in Kafka 4.3; the framing of snappy-java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from mmap import mmap
from struct import Struct as Layout
from struct import error as struct_error
from typing import Final, NamedTuple, Protocol, TypeAlias

import cramjam
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecordBatch

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.records import CURRENT_MAGIC, HEADER_BYTES, LOG_OVERHEAD, MAGIC_AT, Span, batches, look_batch

RECORD_COST_BYTES: Final = 128
"""What a record of a compressed batch counts at least: very many very small ones cost time, not bytes."""

_Codec: TypeAlias = Callable[[memoryview, memoryview], int]
"""Unpacks the first into the second; returns how much it was."""

_COMPRESSION: Final = 0x07
_LENGTH_AT: Final = 8
_ATTRIBUTES_AT: Final = 21
_INT16: Final = Layout(">h")
_INT32: Final = Layout(">i")
_INT64: Final = Layout(">q")

_OLD_ATTRIBUTES_AT: Final = MAGIC_AT + 1
_OLD_TIMESTAMP_AT: Final = 18
_OLD_KEY_AT: Final = {0: 18, 1: 26}
"""By magic, where a message's key begins, with its length."""
_OLD_APPEND_TIME: Final = 0x08

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_LZ4_CHECKSUM_AT: Final = 6
_LZ4_EXTRAS: Final = 0x09
"""Flags of a content size and a dictionary, which old clients do not write."""
_LZ4_OF_NOTHING: Final = bytes.fromhex("00000000 055dcc02")
"""The end of a frame, and the checksum of no bytes."""
_LZ4_HAS_CHECKSUM: Final = 0x04
_NO_ROOM: Final = "write whole buffer"
"""What codecs say when the output does not fit."""


class OpenedRecord(Protocol):
    """A record of a batch of any magic, as aiokafka's own records have it."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp(self) -> int | None: ...  # noqa: D102
    @property
    def key(self) -> bytes | memoryview | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | memoryview | None: ...  # noqa: D102
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...  # noqa: D102


class OldRecord(NamedTuple):
    """A message of magic 0 or 1, by the names that aiokafka gives records."""

    offset: int
    timestamp: int | None
    """None in magic 0, which has none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[()] = ()


class UnpackedTooLarge(WireError):  # noqa: N818 - a finding about a batch, named as operators say it
    """Raised if a batch holds more than the bound. Its bytes are sound, but Kordon must not open them."""


def records_of(batch: Buffer, limit_bytes: int) -> Iterator[OpenedRecord]:
    """Opens one whole batch (or, of magic 0 and 1, one message), whatever its compression.

    Args:
        batch: Is read while the records are taken.
        limit_bytes: See `unpacked`.

    Returns:
        Its records, with `offset`, `timestamp`, `key`, `value` and `headers`.

    Raises:
        BatchTooLarge: It holds more than `limit_bytes`.
        WireError: It cannot be read.
    """
    return records_in(unpacked(batch, limit_bytes))


def records_in(plain: memoryview) -> Iterator[OpenedRecord]:
    """Reads the records of what `unpacked` returns.

    Raises:
        WireError: It cannot be read.
    """
    try:
        if plain[MAGIC_AT] == CURRENT_MAGIC:
            yield from DefaultRecordBatch(plain)
        else:
            yield from (_old_record(plain[span.start : span.end], span.magic) for span in batches(plain))
    except (CorruptRecordException, UnsupportedCodecError, ValueError, IndexError, RuntimeError, struct_error) as error:
        raise _error(f"the records of a batch cannot be read: {error}") from error


def unpacked(batch: Buffer, limit_bytes: int, room: memoryview | None = None) -> memoryview:
    """Returns a batch with its records as they are without compression.

    Args:
        batch: One whole batch, or of magic 0 and 1 one message.
        limit_bytes: Most bytes of records; each of them counts 128 at least. What is not compressed has no limit: it is
            here already.
        room: Memory for the copy, by default new one: `room_for(limit_bytes)`. The next batch may have the same again,
            once this one is not looked at any more; what is unpacked into new memory costs several times as much.

    Returns:
        The batch itself, where it is not compressed. Else a copy that says that it is not, with the checksum of before.
        Of magic 0 and 1 the messages that were in it, each with its own offset and the timestamp that counts.

    Raises:
        BatchTooLarge: There is more in it.
        WireError: It cannot be read.
    """
    view = memoryview(batch)
    try:
        magic = view[MAGIC_AT]
        if magic == CURRENT_MAGIC:
            return _unpacked(view, limit_bytes, room)
        return _unpacked_message(view, magic, limit_bytes)
    except (struct_error, IndexError, KeyError, cramjam.DecompressionError) as error:
        raise _error(f"a batch cannot be unpacked: {error}") from error


def room_for(limit_bytes: int) -> memoryview:
    """Returns memory for a batch of so many bytes of records. It takes up what has been written to it."""
    return memoryview(mmap(-1, HEADER_BYTES + limit_bytes))


def _unpacked(batch: memoryview, limit_bytes: int, room: memoryview | None) -> memoryview:
    header = look_batch(batch, 0)
    if not header.compression:
        return batch
    if header.records_count * RECORD_COST_BYTES > limit_bytes:
        raise UnpackedTooLarge(f"{header.records_count} records in one batch", message="RecordBatch")
    room = room_for(limit_bytes) if room is None else room[: HEADER_BYTES + limit_bytes]
    size = _unpack(_CODECS[header.compression], batch[HEADER_BYTES:], room[HEADER_BYTES:])
    room[:HEADER_BYTES] = batch[:HEADER_BYTES]
    _INT32.pack_into(room, _LENGTH_AT, HEADER_BYTES - LOG_OVERHEAD + size)
    _INT16.pack_into(room, _ATTRIBUTES_AT, header.attributes & ~_COMPRESSION)
    return room[: HEADER_BYTES + size]


def _unpacked_message(message: memoryview, magic: int, limit_bytes: int) -> memoryview:
    """Unpacks what old clients wrapped: messages in the value of a message."""
    compression = message[_OLD_ATTRIBUTES_AT] & _COMPRESSION
    if not compression:
        return message
    _, value_at = _old_bytes(message, _OLD_KEY_AT[magic])
    value, _ = _old_bytes(message, value_at)
    if value is None:
        raise _error("a compressed message has no value")
    room = memoryview(mmap(-1, limit_bytes))
    codec = _lz4_of_old if (magic, compression) == (0, _LZ4) else _CODECS[compression]
    messages = room[: _unpack(codec, value, room)]
    spans = _plain_spans(messages, limit_bytes)
    if magic and spans:
        _settle(message, messages, spans)
    return messages


def _plain_spans(messages: memoryview, limit_bytes: int) -> list[Span]:
    spans: list[Span] = []
    for span in batches(messages):
        if span.magic == CURRENT_MAGIC or messages[span.start + _OLD_ATTRIBUTES_AT] & _COMPRESSION:
            raise _error("a compressed message holds something other than plain messages")
        spans.append(span)
        if len(spans) * RECORD_COST_BYTES > limit_bytes:
            raise UnpackedTooLarge(f"more than {len(spans) - 1} messages in one", message="RecordBatch")
    return spans


def _settle(wrapper: memoryview, messages: memoryview, spans: list[Span]) -> None:
    """Gives messages of magic 1 their offsets, which count from the first, and the wrapper's time where it rules."""
    last = _INT64.unpack_from(messages, spans[-1].start)[0]
    base = _INT64.unpack_from(wrapper, 0)[0] - last
    append_time = wrapper[_OLD_ATTRIBUTES_AT] & _OLD_APPEND_TIME
    for span in spans:
        _INT64.pack_into(messages, span.start, base + _INT64.unpack_from(messages, span.start)[0])
        if append_time:
            at = span.start + _OLD_TIMESTAMP_AT
            messages[at : at + 8] = wrapper[_OLD_TIMESTAMP_AT : _OLD_TIMESTAMP_AT + 8]


def _old_record(message: memoryview, magic: int) -> OldRecord:
    timestamp = _INT64.unpack_from(message, _OLD_TIMESTAMP_AT)[0] if magic else None
    key, value_at = _old_bytes(message, _OLD_KEY_AT[magic])
    value, _ = _old_bytes(message, value_at)
    offset = _INT64.unpack_from(message, 0)[0]
    return OldRecord(offset, timestamp, _copy(key), _copy(value))


def _copy(data: memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def _old_bytes(message: memoryview, at: int) -> tuple[memoryview | None, int]:
    """Reads a key or value behind its length; returns it, and where it ends."""
    length = _INT32.unpack_from(message, at)[0]
    end = at + 4 + max(length, 0)
    if length < -1 or end > len(message):
        raise _error(f"a key or value of {length} bytes does not fit into its message")
    return None if length < 0 else message[at + 4 : end], end


def _unpack(codec: _Codec, packed: memoryview, room: memoryview) -> int:
    try:
        return codec(packed, room)
    except cramjam.DecompressionError as error:
        if _NO_ROOM in str(error):
            raise _no_room(len(packed), len(room)) from None
        raise


def _snappy(packed: memoryview, room: memoryview) -> int:
    """Raw, or in the blocks of snappy-java, which Java clients write."""
    if bytes(packed[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(packed, room)
    at, size = _XERIAL_HEADER_BYTES, 0
    while at < len(packed):
        length = _INT32.unpack_from(packed, at)[0]
        at += 4
        if not 0 < length <= len(packed) - at:
            raise _error(f"a snappy block cannot have the length {length}")
        size += _snappy_block(packed[at : at + length], room[size:])
        at += length
    return size


def _snappy_block(block: memoryview, room: memoryview) -> int:
    size = cramjam.snappy.decompress_raw_len(block)  # of which the codec writes no byte more
    if size > len(room):
        raise _no_room(len(block), len(room))
    return cramjam.snappy.decompress_raw_into(block, room) if size else 0


def _lz4_of_old(packed: memoryview, room: memoryview) -> int:
    """Reads frames whose header has the checksum of more than the header, as Kafka wrote it in magic 0 (KIP-57)."""
    frame = bytearray(packed)
    if len(frame) > _LZ4_CHECKSUM_AT and not frame[4] & _LZ4_EXTRAS:
        frame[_LZ4_CHECKSUM_AT] = _lz4_checksum(bytes(frame[:_LZ4_CHECKSUM_AT]))
    return cramjam.lz4.decompress_into(frame, room)


@lru_cache(16)  # block sizes and flags that clients choose
def _lz4_checksum(header: bytes) -> int:
    """Finds the byte with which the codec takes a header, in frames of nothing."""
    end = _LZ4_OF_NOTHING if header[4] & _LZ4_HAS_CHECKSUM else _LZ4_OF_NOTHING[:4]
    for checksum in range(256):
        try:
            cramjam.lz4.decompress_into(header + bytes([checksum]) + end, bytearray(1))
        except cramjam.DecompressionError:
            continue
        return checksum
    raise _error("the header of an lz4 frame cannot be read")


def _no_room(packed_bytes: int, limit_bytes: int) -> UnpackedTooLarge:
    return UnpackedTooLarge(f"{packed_bytes} bytes unpack to more than {limit_bytes}", message="RecordBatch")


def _error(reason: str) -> WireError:
    return WireError(reason, message="RecordBatch")


_LZ4: Final = 3
_CODECS: Final[Mapping[int, _Codec]] = {
    1: cramjam.gzip.decompress_into,
    2: _snappy,
    _LZ4: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
