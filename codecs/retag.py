"""Another producer in a batch's header, and the CRC that goes with it, without a pass over records (DAMAGE-STAYS).

A CRC is linear: what a change of some bytes does to it depends on these bytes and on how many follow, not on what
follows. So the new CRC is the old one xor the effect of the changed bytes, and a batch that arrived damaged stays
damaged, for the broker to refuse; computing the CRC anew would call it sound.

The effect of n bytes that follow is that of n zero bytes. The last few thousand of them are computed as they are; for
the others there is a table per power of two: what so many zero bytes make of each byte of a CRC.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final, TypeAlias

import google_crc32c

from kordon.codecs.records import CRC_AT, LOG_OVERHEAD, WritableBuffer
from kordon.codecs.schema import Buffer

PRODUCER_AT: Final = 43
"""Where producer_id, producer_epoch and base_sequence stand in a batch."""
_PRODUCER: Final = Layout(">qhi")
_BEHIND_PRODUCER: Final = PRODUCER_AT + _PRODUCER.size - LOG_OVERHEAD
"""Bytes that the batch length counts and that do not lie behind the producer."""
_HEAD: Final = Layout(">8xi5xI22xqhi")
"""Of a batch: its length, CRC, producer_id, producer_epoch, base_sequence."""
_UINT32: Final = Layout(">I")

_POLYNOMIAL: Final = 0x82F63B78
"""CRC-32C (Castagnoli), lowest bit first."""
_ALL_ONES: Final = 0xFFFFFFFF
_DIRECT_BITS: Final = 12
"""Fewer zero bytes than 2^12 are computed as they are (0.4 us); one look into a table costs 0.3 us."""
_LENGTH_BITS: Final = 31

_Tables: TypeAlias = tuple[list[int], list[int], list[int], list[int]]


def crc32c(buffer: Buffer) -> int:
    """Returns the CRC-32C of bytes, as batches carry it of all that lies behind it."""
    checksum: int = google_crc32c.value(bytes(buffer))
    return checksum


def retag(buffer: WritableBuffer, at: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Gives the batch at `at` another producer, in place, and corrects its CRC; a wrong CRC stays wrong.

    Args:
        buffer: Holds the batch's header; the records need not be there, their length is in it.
        producer_id: As it is to stand in the log.
        base_sequence: Of its first record.
    """
    length, crc, old_id, old_epoch, old_sequence = _HEAD.unpack_from(buffer, at)
    _PRODUCER.pack_into(buffer, at + PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    change = _PRODUCER.pack(old_id ^ producer_id, old_epoch ^ producer_epoch, old_sequence ^ base_sequence)
    _UINT32.pack_into(buffer, at + CRC_AT, crc ^ effect(change, length - _BEHIND_PRODUCER))


def effect(change: bytes, follow: int) -> int:
    """Returns what to xor to a CRC-32C when bytes are changed.

    Args:
        change: Old bytes xor new ones.
        follow: How many unchanged bytes lie behind them, below 2^31.
    """
    direct = follow & ((1 << _DIRECT_BITS) - 1)
    # the library's register begins and ends inverted; the effect is that of a register that begins with zeros
    crc: int = google_crc32c.extend(_ALL_ONES, change.ljust(len(change) + direct, b"\0")) ^ _ALL_ONES
    rest, tables = follow >> _DIRECT_BITS, iter(_AFTER_ZEROS)
    while rest:
        first, second, third, fourth = next(tables)
        if rest & 1:
            crc = first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24]
        rest >>= 1
    return crc


def _after_zeros() -> tuple[_Tables, ...]:
    """Returns, for 2^12, 2^13, … zero bytes, what they make of each of the four bytes of a register."""
    bits = [1 << place for place in range(32)]
    for _ in range(8):  # a zero byte
        bits = [bit >> 1 ^ (_POLYNOMIAL if bit & 1 else 0) for bit in bits]
    powers: list[_Tables] = []
    for power in range(_LENGTH_BITS):
        tables = (_table(bits[:8]), _table(bits[8:16]), _table(bits[16:24]), _table(bits[24:]))
        if power >= _DIRECT_BITS:
            powers.append(tables)
        first, second, third, fourth = tables
        bits = [first[b & 255] ^ second[b >> 8 & 255] ^ third[b >> 16 & 255] ^ fourth[b >> 24] for b in bits]
    return tuple(powers)


def _table(bits: list[int]) -> list[int]:
    """Returns, for each byte, the sum of what its bits become."""
    table = [0]
    for bit in bits:
        table += [value ^ bit for value in table]
    return table


_AFTER_ZEROS: Final = _after_zeros()
