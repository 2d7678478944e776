"""Gives a batch another producer and the CRC that belongs to it, without a pass over its records (DAMAGE-STAYS).

A CRC is linear: the effect of a change depends on the changed bytes and on how many bytes follow, but not on what
follows. So the new CRC is the old one xor that effect. A batch that arrived damaged stays damaged, and the broker
refuses it. A CRC computed from scratch would make it look sound.

The n bytes that follow count as n zero bytes. The last few thousand of them are computed one by one. For the others
there is a table for each power of two, which tells what that many zero bytes make of each byte of a CRC.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final, TypeAlias

import google_crc32c

from kordon.codecs.look import Buffer
from kordon.codecs.records import CRC_AT, CRC_FROM, LOG_OVERHEAD, WritableBuffer

PRODUCER_AT: Final = 43
"""The position of producer_id, producer_epoch and base_sequence in a batch."""
_PRODUCER: Final = Layout(">qhi")
_BEHIND_PRODUCER: Final = PRODUCER_AT + _PRODUCER.size - LOG_OVERHEAD
"""The bytes that the batch length counts and that do not come after the producer."""
_HEAD: Final = Layout(">8xi5xI22xqhi")
"""A batch's length, CRC, producer_id, producer_epoch and base_sequence."""
_UINT32: Final = Layout(">I")
_ATTRIBUTES_AT: Final = CRC_FROM + 1
"""The position of the lower byte of the attributes."""
_TRANSACTIONAL: Final = 0x10
_SIZED: Final = Layout(">8xi5xI")
"""A batch's length and CRC."""
_BEHIND_ATTRIBUTES: Final = _ATTRIBUTES_AT + 1 - LOG_OVERHEAD
"""The bytes that the batch length counts and that do not come after the attributes."""

_POLYNOMIAL: Final = 0x82F63B78
"""CRC-32C (Castagnoli), lowest bit first."""
_ALL_ONES: Final = 0xFFFFFFFF
_DIRECT_BITS: Final = 12
"""Fewer than 2^12 zero bytes are computed one by one (0.4 us); a lookup in a table costs 0.3 us."""
_LENGTH_BITS: Final = 31

_Tables: TypeAlias = tuple[list[int], list[int], list[int], list[int]]


def crc32c(buffer: Buffer) -> int:
    """Returns the CRC-32C of bytes; a batch carries that of everything after its CRC."""
    checksum: int = google_crc32c.value(bytes(buffer))
    return checksum


def retag(buffer: WritableBuffer, at: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Gives the batch at `at` another producer, in place, and corrects its CRC; a wrong CRC stays wrong.

    Args:
        buffer: Contains the batch's header. The records need not be there, as the header has their length.
        producer_id: The id that the batch gets in the log.
        base_sequence: The sequence of its first record.
    """
    length, crc, old_id, old_epoch, old_sequence = _HEAD.unpack_from(buffer, at)
    _PRODUCER.pack_into(buffer, at + PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    change = _PRODUCER.pack(old_id ^ producer_id, old_epoch ^ producer_epoch, old_sequence ^ base_sequence)
    _UINT32.pack_into(buffer, at + CRC_AT, crc ^ effect(change, length - _BEHIND_PRODUCER))


def set_transactional(buffer: WritableBuffer, at: int, *, is_transactional: bool) -> None:
    """Says of the batch at `at` that it belongs to a transaction or to none, in place; a wrong CRC stays wrong.

    Args:
        buffer: As of `retag`.
    """
    change = buffer[at + _ATTRIBUTES_AT] & _TRANSACTIONAL ^ is_transactional * _TRANSACTIONAL
    if change:
        buffer[at + _ATTRIBUTES_AT] ^= change
        length, crc = _SIZED.unpack_from(buffer, at)
        _UINT32.pack_into(buffer, at + CRC_AT, crc ^ effect(bytes((change,)), length - _BEHIND_ATTRIBUTES))


def effect(change: bytes, follow: int) -> int:
    """Returns the value to xor to a CRC-32C when bytes change.

    Args:
        change: Old bytes xor new ones.
        follow: How many unchanged bytes follow them, below 2^31.
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
    """Returns, for 2^12, 2^13, … zero bytes, the effect on each of the four bytes of a register."""
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
