"""A topic of a Fetch response without construct, where the rows of its partitions are written already.

A property test holds it against the table (`codecs/messages/fetch.py`).

Source: FetchResponse.json; KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import Final
from uuid import UUID

from kordon.codecs.primitives import uvarint

_FLEXIBLE: Final = 12
_IDS: Final = 13
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_NO_TAGS: Final = b"\0"


def build_topic(version: int, topic: str, topic_id: UUID, rows: Collection[bytes]) -> bytes:
    """Writes a topic.

    Args:
        version: 0 to 18.
        topic: Its name, of versions up to 12.
        topic_id: Of the others.
        rows: Of its partitions, as the version writes them.
    """
    if version >= _IDS:
        begin = topic_id.bytes + uvarint(len(rows) + 1)
    elif version >= _FLEXIBLE:
        name = topic.encode()
        begin = uvarint(len(name) + 1) + name + uvarint(len(rows) + 1)
    else:
        name = topic.encode()
        begin = _INT16.pack(len(name)) + name + _INT32.pack(len(rows))
    return b"".join((begin, *rows, _NO_TAGS)) if version >= _FLEXIBLE else b"".join((begin, *rows))
