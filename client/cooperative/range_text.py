"""Finished ranges as the metadata of a commit: text that says whose it is, and is doubted when it is read. No I/O.

The text is `kr1:` and base64 of: CRC-32 of the rest and of whose it is (4 bytes), the topic's id (16), the stable
offset (8), a kind (1), and the ranges. Kind 0 has them as they travel everywhere (`codecs/ranges.py`); kind 1 has one
bit for each offset from the stable one on. The kind that says more is taken: one bit for each offset always holds
24,000 offsets in the 4,096 bytes that brokers take (`offset.metadata.max.bytes`).

Such text may have been copied, restored or invented. It counts only for the group, topic, id, partition and committed
offset for which it was written. Tools that move a group's offsets leave no metadata, or leave it with another offset.
"""

from __future__ import annotations

import binascii
import struct
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kordon.codecs.ranges import NONE, Range, Ranges, load_stored

METADATA_BYTES: Final = 4096
"""What a broker takes of a commit's metadata (offset.metadata.max.bytes), unless it is configured otherwise."""
_MOST_BYTES: Final = 16 * METADATA_BYTES
"""Longer text is not believed."""
_MARK: Final = "kr"
_VERSION: Final = "1"
_PREFIX: Final = f"{_MARK}{_VERSION}:"
_CRC: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">16sqB")
_RANGES, _BITS = 0, 1


@dataclass(frozen=True, slots=True)
class RangesOwner:
    """The group, topic, partition and offset to which ranges belong."""

    group_id: str
    topic: str
    partition: int
    topic_id: UUID
    """All zeros where the cluster tells none."""


class UnreadRanges(ValueError):  # noqa: N818  it is no error of the program
    """Metadata that does not count; the message says why."""


def build(owner: RangesOwner, stable: int, ranges: Ranges, most_bytes: int = METADATA_BYTES) -> tuple[str, Ranges]:
    """Writes as much of ranges as there is room for, the lowest first.

    Args:
        owner: The group, topic, partition and offset to which the ranges belong.
        stable: The offset that is committed with them; all ranges lie above it.
        ranges: The finished ranges after the offset.
        most_bytes: Most bytes of the text.

    Returns:
        The text, and what it says. Without ranges, or without room, it is empty.
    """
    room = (most_bytes - len(_PREFIX)) // 4 * 3 - _CRC.size - _HEAD.size
    kind, data, told = max(
        ((_RANGES, *_dumped(ranges, room)), (_BITS, *_bits(stable, ranges, room))),
        key=lambda each: (each[2].end, -len(each[1])),
    )
    if not told:
        return "", NONE
    body = _HEAD.pack(owner.topic_id.bytes, stable, kind) + data
    return _PREFIX + urlsafe_b64encode(_CRC.pack(_crc(owner, body)) + body).rstrip(b"=").decode(), told


def parse(owner: RangesOwner, committed: int, text: str) -> Ranges:
    """Reads the ranges of a commit's metadata.

    Args:
        owner: The group, topic, partition and offset for which the ranges are read.
        committed: The offset that the metadata was found with.
        text: The commit's metadata.

    Raises:
        UnreadRanges: No CooperativeConsumer has written the text for this owner and offset.
    """
    if not text:
        return NONE
    body = _body(owner, text)
    own_id, stable, kind = _HEAD.unpack_from(body)
    topic_id, data = UUID(bytes=own_id), body[_HEAD.size :]
    if topic_id != owner.topic_id:
        raise UnreadRanges(f"they are of a topic with the id {topic_id}, and this one has {owner.topic_id}")
    if stable != committed:
        raise UnreadRanges(f"they were committed with offset {stable}, and the committed offset is {committed}")
    if kind not in (_RANGES, _BITS):
        raise UnreadRanges(f"they are of an unknown kind, {kind}")
    try:
        ranges = load_stored(data) if kind == _RANGES else Ranges(_read_bits(stable, data))
    except ValueError as error:
        raise UnreadRanges(str(error)) from error
    if next(iter(ranges), (stable + 1,))[0] <= stable:
        raise UnreadRanges("they are not above the committed offset")
    return ranges


def _body(owner: RangesOwner, text: str) -> bytes:
    head, colon, tail = text.partition(":")
    if not colon or not head.startswith(_MARK) or not head.removeprefix(_MARK).isdecimal():
        raise UnreadRanges("the metadata is not of a CooperativeConsumer")
    if head != f"{_MARK}{_VERSION}":
        raise UnreadRanges("they are of another version of the SDK")
    if len(tail) > _MOST_BYTES:
        raise UnreadRanges(f"the text has {len(tail)} characters, and at most {_MOST_BYTES} are read")
    try:
        data = urlsafe_b64decode(tail.encode("ascii") + b"=" * (-len(tail) % 4))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise UnreadRanges("the text is damaged") from error
    if len(data) < _CRC.size + _HEAD.size or _CRC.unpack_from(data)[0] != _crc(owner, data[_CRC.size :]):
        raise UnreadRanges("the text is damaged, or of another group or partition")
    return data[_CRC.size :]


def _crc(owner: RangesOwner, body: bytes) -> int:
    whose = f"{owner.group_id}\0{owner.topic}\0{owner.partition}\0"
    return zlib.crc32(body, zlib.crc32(whose.encode("utf-8", "surrogatepass")))


def _dumped(ranges: Ranges, room: int) -> tuple[bytes, Ranges]:
    """Returns the ranges for which there is room, as they travel."""
    told = ranges.first(max(room, 0) // 2)  # a range has two bytes or more
    if len(told.dump()) > room:
        sizes = range(len(told) + 1)
        told = told.first(max(0, bisect_right(sizes, room, key=lambda count: len(told.first(count).dump())) - 1))
    return told.dump(), told


def _bits(stable: int, ranges: Ranges, room: int) -> tuple[bytes, Ranges]:
    """Returns the bits of the offsets for which there is room; the lowest bit is the stable offset's."""
    told = ranges.below(stable + max(room, 0) * 8)
    if not told:
        return b"", NONE
    bits = bytearray((told.end - stable + 7) // 8)
    for begin, end in told:
        _set(bits, begin - stable, end - stable)
    return bytes(bits), told


def _set(bits: bytearray, begin: int, end: int) -> None:
    first, last = begin // 8, (end - 1) // 8
    head, tail = 0xFF << begin % 8 & 0xFF, 0xFF >> (7 - (end - 1) % 8)
    if first == last:
        bits[first] |= head & tail
        return
    bits[first] |= head
    bits[last] |= tail
    bits[first + 1 : last] = b"\xff" * (last - first - 1)


def _read_bits(stable: int, data: bytes) -> list[Range]:
    bits = "".join(f"{byte:08b}"[::-1] for byte in data)
    ranges: list[Range] = []
    end = 0
    while (begin := bits.find("1", end)) >= 0:
        end = bits.find("0", begin)
        end = len(bits) if end < 0 else end
        ranges.append((stable + begin, stable + end))
    return ranges
