"""A Metadata request without construct: which topics it names.

One that asks for all topics, or for topics by their ids, is left to the table (`codecs/messages/metadata.py`), and so
is one with tagged fields. Property tests prove that both find the same. Nothing here copies.

Source: MetadataRequest.json; KIP-516 (topic ids).
"""

from __future__ import annotations

import struct
from typing import Final

from kordon.codecs.errors import TooManyRows
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import RowBudget
from kordon.codecs.stepping import count_at, text_at

_FLEXIBLE: Final = 9
_IDS: Final = 10
_NO_ID: Final = bytes(16)
_CREATION: Final = 4
_OPERATIONS: Final = 8
_CLUSTER_OPERATIONS: Final = range(8, 11)
_MOST_TOPICS: Final = 5_000
"""Stepping over so many takes some 5 ms."""


def look_names(version: int, body: Buffer, rows: RowBudget | None = None) -> list[str] | None:
    """Reads the body of a Metadata request.

    Args:
        version: 0 to 13.
        rows: How many topics may be read.

    Returns:
        The names of all topics that it asks for. None: it asks for others too, has tagged fields or too many topics, or
        cannot be read.

    Raises:
        TooManyRows: There are more.
    """
    try:
        return _look(memoryview(body), version, rows)
    except TooManyRows:
        raise
    except (IndexError, ValueError, struct.error):
        return None


def _look(view: memoryview, version: int, budget: RowBudget | None) -> list[str] | None:
    flexible = version >= _FLEXIBLE
    count, at = count_at(view, 0, flexible=flexible)
    if not 0 <= count <= _MOST_TOPICS or (version == 0 and not count):
        return None
    if budget is not None:
        budget.take(count, at)
    names: list[str] = []
    for _ in range(count):
        if version >= _IDS:
            if bytes(view[at : at + len(_NO_ID)]) != _NO_ID:
                return None
            at += len(_NO_ID)
        name, at = text_at(view, at, flexible=flexible)
        names.append(name)
        if flexible:
            if view[at]:
                return None
            at += 1
    at += (version >= _CREATION) + (version >= _OPERATIONS) + (version in _CLUSTER_OPERATIONS)
    if flexible and view[at]:
        return None
    return names if at <= len(view) else None
