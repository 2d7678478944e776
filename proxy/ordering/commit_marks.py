"""The mark that Kordon adds to the metadata of a commit, by which it knows the commit again (MARKED-PUSH).

    metadata    the client's own text, then the mark
    mark        `kc1:`, then base64 (url-safe, without padding) of the incarnation (8 bytes, big endian) and of a
                CRC-32 (4 bytes) of the incarnation and of whose commit it is: group, topic id, partition, offset

Tools that move a group's offsets leave no metadata, or leave it with another offset; those that copy groups leave it
with another group or topic. So a mark counts only for the commit for which it was made. It is no secret: whoever may
commit for a group can write one, and may say by that what the group has done.
"""

from __future__ import annotations

import binascii
import json
import re
import struct
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from kordon.proxy.ordering.claims import MOST_INCARNATION, PlaceKey

_PREFIX: Final = "kc1:"
_NAME: Final = struct.Struct(">q")
_PARTS: Final = struct.Struct(">qI")
_ENCODED_CHARS: Final = 16
_MARK: Final = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{{_ENCODED_CHARS}}}\Z")
MARK_CHARS: Final = len(_PREFIX) + _ENCODED_CHARS
"""Of a mark, each of them a byte: by so much less a client's own text may be long (offset.metadata.max.bytes)."""


class Read(NamedTuple):
    """What the metadata of a commit says."""

    text: str
    """The client's own, without a mark."""
    incarnation: int | None
    """None: it has no mark that counts."""


def marked(text: str | None, place: PlaceKey, offset: int, incarnation: int) -> str:
    """Returns the metadata of a commit.

    Args:
        text: The client's own; null is taken for none.
        place: Whose commit it is.
        offset: That is committed.
        incarnation: That its member was told.
    """
    parts = _PARTS.pack(incarnation, _check(place, offset, incarnation))
    return (text or "") + _PREFIX + urlsafe_b64encode(parts).decode()


def read_mark(metadata: str | None, place: PlaceKey, offset: int) -> Read:
    """Reads the metadata of a commit.

    Args:
        metadata: As the coordinator has it; anybody may have written it.
        place: Whose commit it is.
        offset: That it was found with.
    """
    found = metadata or ""
    text, mark = found[:-MARK_CHARS], found[-MARK_CHARS:]
    if len(mark) < MARK_CHARS or not mark.startswith(_PREFIX) or not mark.isascii():
        return Read(found, None)
    try:
        parts = urlsafe_b64decode(mark.removeprefix(_PREFIX))
    except binascii.Error:
        return Read(found, None)
    if len(parts) != _PARTS.size or urlsafe_b64encode(parts).decode() != mark.removeprefix(_PREFIX):
        return Read(found, None)
    incarnation, check = _PARTS.unpack(parts)
    counts = 0 < incarnation <= MOST_INCARNATION and check == _check(place, offset, incarnation)
    return Read(text, incarnation if counts else None)


def without_mark(metadata: str | None) -> str | None:
    """Returns the client's own text of a commit, for clients that know nothing of marks."""
    if metadata is None or not _MARK.search(metadata):
        return metadata
    return metadata[:-MARK_CHARS]


def _check(place: PlaceKey, offset: int, incarnation: int) -> int:
    said = json.dumps([place.group_id, str(place.topic_id), place.partition, offset])
    return zlib.crc32(_NAME.pack(incarnation) + said.encode())
