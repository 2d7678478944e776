"""What is in those batches of the made-up day that an audit opens: records with keys, each where its key belongs.

All batches of a virtual partition have the same records, so that they are made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kordon.bench.audit_day import Day
from kordon.codecs.records import CRC_AT, CRC_FROM, HEADER_BYTES
from kordon.codecs.retag import crc32c
from kordon.spark_jobs import key_sample
from kordon.spark_jobs.key_hashes import hashes_of

ONE_IN: Final = key_sample.ONE_IN
_SPARE_BYTES: Final = 24
_POSITIVE: Final = 0x7FFF_FFFF
_TRIED: Final = 8
"""Keys, for each that a virtual partition is to have: so that enough of them belong there."""


def fill(day: Day, buffer: npt.NDArray[np.uint8], header: npt.NDArray[Any], homes: npt.NDArray[np.int64]) -> None:
    """Puts records into the batches that an audit opens, and a checksum; the others have none.

    Args:
        buffer: A row for each batch, which begins with its header.
        header: The headers, as `batch_reader.HEADER`.
        homes: Of each batch, the virtual partition to which its keys belong.
    """
    is_opened = key_sample._are_opened(header, ONE_IN)  # pyright: ignore[reportPrivateUsage]
    for place in np.flatnonzero(is_opened).tolist():
        row = buffer[place]
        row[HEADER_BYTES:] = np.frombuffer(_records(day, int(homes[place])), dtype=np.uint8)
        row[CRC_AT:CRC_FROM] = np.frombuffer(crc32c(row[CRC_FROM:].data).to_bytes(4, "big"), dtype=np.uint8)


@lru_cache(4_096)
def _records(day: Day, v: int) -> bytes:
    """Returns records that fill a batch."""
    *keys, last = _keys(day.virtual, day.records)[v]
    room = day.batch_bytes - HEADER_BYTES
    for spare in range(_SPARE_BYTES):  # not every size can be had of one record
        made = b"".join(_record(place, key, room // day.records - len(key) - spare) for place, key in enumerate(keys))
        for more in range(_SPARE_BYTES):
            whole = made + _record(len(keys), last, max(room - len(made) - len(last) - more, 0))
            if len(whole) == room:
                return whole
    raise ValueError(f"{day.records} records do not fit into {day.batch_bytes} bytes")


def _record(place: int, key: bytes, value_bytes: int) -> bytes:
    """Returns a record, as Kafka's protocol guide has it under "Record Batch"; its value is zeros."""
    told = b"".join([b"\0\0", _varint(place), _varint(len(key)), key, _varint(value_bytes), bytes(value_bytes), b"\0"])
    return _varint(len(told)) + told


def _varint(number: int) -> bytes:
    """Returns a number that is not negative as a zigzag varint.

    >>> [_varint(number).hex() for number in (0, 1, 63, 64, 8_192)]
    ['00', '02', '7e', '8001', '808001']
    """
    rest, told = number << 1, bytearray()
    while rest >= 0x80:
        told.append(rest & 0x7F | 0x80)
        rest >>= 7
    told.append(rest)
    return bytes(told)


@lru_cache(8)
def _keys(virtual: int, count: int) -> Sequence[Sequence[bytes]]:
    """Returns some keys for each virtual partition, by the partitioner of Java's producer."""
    tried = [f"order-{number}".encode() for number in range(virtual * count * _TRIED)]
    home = (hashes_of(tried).murmur2.astype(np.int64) & _POSITIVE) % virtual
    return [[tried[place] for place in np.flatnonzero(home == v)[:count]] for v in range(virtual)]
