"""Steps over what is not fixed in size: for messages that are read where they lie, without construct.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_LAST_SHIFT: Final = 28


def count_at(view: memoryview, at: int, *, flexible: bool) -> tuple[int, int]:
    """Reads the count of an array, or a compact length.

    Returns:
        The number, -1 where it is null, and the position behind it. Nothing is believed of the number.

    Raises:
        IndexError: It is not whole, or longer than five bytes.
        struct.error: It is not whole.
    """
    if not flexible:
        return _INT32.unpack_from(view, at)[0], at + _INT32.size
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, at
        shift += 7
        if shift > _LAST_SHIFT:
            raise IndexError(at)


def text_at(view: memoryview, at: int, *, flexible: bool) -> tuple[str, int]:
    """Reads a text; returns it and the position behind it.

    Raises:
        IndexError: It is null, or is not whole.
        struct.error: It is not whole.
        ValueError: It is no UTF-8.
    """
    if flexible:
        length, at = count_at(view, at, flexible=True)
    else:
        length, at = _INT16.unpack_from(view, at)[0], at + _INT16.size
    if not 0 <= length <= len(view) - at:
        raise IndexError(at)
    return str(view[at : at + length], "utf-8"), at + length
