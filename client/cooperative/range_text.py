"""Finished ranges as the metadata of a commit: text that says whose it is, and is doubted when it is read. No I/O.

The text is `kr1:` and base64 of: CRC-32 of the rest and of whose it is (4 bytes), the topic's id (16), the stable
offset (uvarint), a kind (1), and the ranges. Kind 0 has the distance to each range and its length as uvarints; kind 1
has one bit for each offset from the stable one on. The shorter kind is taken: one bit for each offset always holds
24,000 offsets in the 4,096 bytes that brokers take (`offset.metadata.max.bytes`).

Such text may have been copied, restored or invented. It counts only for the group, topic, id, partition and committed
offset for which it was written. Tools that move a group's offsets leave no metadata, or leave it with another offset.
"""

from __future__ import annotations

import binascii
import itertools
import struct
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kordon.client.cooperative.ranges import Range, is_in_order

METADATA_BYTES: Final = 4096
"""What a broker takes of a commit's metadata (offset.metadata.max.bytes), unless it is configured otherwise."""
MOST_RANGES: Final = 100_000
"""More are not believed, however long the text."""
_MARK: Final = "kr"
_VERSION: Final = "1"
_PREFIX: Final = f"{_MARK}{_VERSION}:"
_CRC: Final = struct.Struct(">I")
_ID_BYTES: Final = 16
_NO_END: Final = 2**63 - 1
_PAIRS, _BITS = 0, 1


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose ranges they are."""

    group_id: str
    topic: str
    partition: int
    topic_id: UUID
    """All zeros where the cluster tells none."""


class UnreadRanges(ValueError):  # noqa: N818  it is no error of the program
    """Metadata that does not count; the message says why."""


def build(owner: Owner, stable: int, ranges: Sequence[Range], most_bytes: int = METADATA_BYTES) -> tuple[str, int]:
    """Writes as many ranges as there is room for, the lowest first.

    Args:
        owner: Whose they are.
        stable: The offset that is committed with them; all ranges lie above it.
        ranges: In order.
        most_bytes: Of the text.

    Returns:
        The text, and how many of the ranges are in it. Without ranges, or without room, it is empty.
    """
    room = (most_bytes - len(_PREFIX)) // 4 * 3 - _CRC.size
    head = owner.topic_id.bytes + _uvarint(stable)
    room -= len(head) + 1
    kind, data, count = max(
        ((_PAIRS, *_pairs(stable, ranges, room)), (_BITS, *_bits(stable, ranges, room))),
        key=lambda each: (each[2], -len(each[1])),
    )
    if not count:
        return "", 0
    body = head + bytes((kind,)) + data
    return _PREFIX + urlsafe_b64encode(_CRC.pack(_crc(owner, body)) + body).rstrip(b"=").decode(), count


def parse(owner: Owner, committed: int, text: str) -> list[Range]:
    """Reads the ranges of a commit's metadata.

    Args:
        owner: Who asks.
        committed: The offset that the metadata was found with.
        text: The metadata.

    Raises:
        UnreadRanges: It is not written by a CooperativeConsumer for this owner and offset.
    """
    if not text:
        return []
    body = _body(owner, text)
    topic_id, rest = UUID(bytes=body[:_ID_BYTES]), iter(body[_ID_BYTES:])
    if topic_id != owner.topic_id:
        raise UnreadRanges(f"they are of a topic with the id {topic_id}, and this one has {owner.topic_id}")
    stable = _read_uvarint(rest)
    if stable != committed:
        raise UnreadRanges(f"they were committed with offset {stable}, and the committed offset is {committed}")
    kind = next(rest, None)
    if kind == _PAIRS:
        ranges = _read_pairs(stable, rest)
    elif kind == _BITS:
        ranges = _read_bits(stable, bytes(rest))
    else:
        raise UnreadRanges(f"they are of an unknown kind, {kind}")
    if not is_in_order(ranges) or (ranges and not stable < ranges[0][0] <= ranges[-1][1] <= _NO_END):
        raise UnreadRanges("they are not in order above the committed offset")
    return ranges


def _body(owner: Owner, text: str) -> bytes:
    head, colon, tail = text.partition(":")
    if not colon or not head.startswith(_MARK) or not head.removeprefix(_MARK).isdecimal():
        raise UnreadRanges("the metadata is not of a CooperativeConsumer")
    if head != f"{_MARK}{_VERSION}":
        raise UnreadRanges("they are of another version of the SDK")
    try:
        data = urlsafe_b64decode(tail.encode("ascii") + b"=" * (-len(tail) % 4))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise UnreadRanges("the text is damaged") from error
    if len(data) <= _CRC.size + _ID_BYTES or _CRC.unpack_from(data)[0] != _crc(owner, data[_CRC.size :]):
        raise UnreadRanges("the text is damaged, or of another group or partition")
    return data[_CRC.size :]


def _crc(owner: Owner, body: bytes) -> int:
    whose = f"{owner.group_id}\0{owner.topic}\0{owner.partition}\0"
    return zlib.crc32(body, zlib.crc32(whose.encode("utf-8", "surrogatepass")))


def _pairs(stable: int, ranges: Sequence[Range], room: int) -> tuple[bytes, int]:
    data, at, count = bytearray(), stable, 0
    for begin, end in itertools.islice(ranges, MOST_RANGES):
        pair = _uvarint(begin - at) + _uvarint(end - begin)
        if len(data) + len(pair) > room:
            break
        data += pair
        at, count = end, count + 1
    return bytes(data), count


def _bits(stable: int, ranges: Sequence[Range], room: int) -> tuple[bytes, int]:
    """Returns the bits of the ranges for which there is room; the lowest bit is the stable offset's."""
    fitting = [each for each in itertools.islice(ranges, MOST_RANGES) if each[1] - stable <= room * 8]
    if not fitting:
        return b"", 0
    bits = bytearray((fitting[-1][1] - stable + 7) // 8)
    for begin, end in fitting:
        _set(bits, begin - stable, end - stable)
    return bytes(bits), len(fitting)


def _set(bits: bytearray, begin: int, end: int) -> None:
    first, last = begin // 8, (end - 1) // 8
    head, tail = 0xFF << begin % 8 & 0xFF, 0xFF >> (7 - (end - 1) % 8)
    if first == last:
        bits[first] |= head & tail
        return
    bits[first] |= head
    bits[last] |= tail
    bits[first + 1 : last] = b"\xff" * (last - first - 1)


def _read_pairs(stable: int, data: Iterator[int]) -> list[Range]:
    ranges: list[Range] = []
    at = stable
    for first in data:
        begin = at + _read_uvarint(itertools.chain((first,), data))
        at = begin + _read_uvarint(data)
        ranges.append((begin, at))
        if len(ranges) > MOST_RANGES or at > _NO_END:
            raise UnreadRanges("there are too many, or they reach too far")
    return ranges


def _read_bits(stable: int, data: bytes) -> list[Range]:
    if len(data) * 8 > 2 * MOST_RANGES:
        raise UnreadRanges("there are too many")
    bits = "".join(f"{byte:08b}"[::-1] for byte in data)
    ranges: list[Range] = []
    end = 0
    while (begin := bits.find("1", end)) >= 0:
        end = bits.find("0", begin)
        end = len(bits) if end < 0 else end
        ranges.append((stable + begin, stable + end))
    return ranges


def _uvarint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _read_uvarint(data: Iterator[int]) -> int:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value
        if shift > 56:
            break
    raise UnreadRanges("the text is cut short")
