"""Heads of record batches, for what looks at no more than these."""

from __future__ import annotations

import struct
from typing import Final

_HEAD: Final = struct.Struct(">qiibIhi")
_REST: Final = bytes(30)


def batch_head(base: int, epoch: int, count: int = 1, magic: int = 2) -> bytes:
    """Returns a batch without records, whose head says that it has some.

    Args:
        base: The first offset.
        epoch: The leader epoch.
        count: Of records.
        magic: Of the format.
    """
    length = _HEAD.size - 12 + len(_REST)
    return _HEAD.pack(base, length, epoch, magic, 0, 0, count - 1) + _REST
