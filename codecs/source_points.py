"""Restart points as the metadata of commits: text that says whose it is, and is doubted when it is read. No I/O.

The text is `ks1;NUMBER;MILLISECONDS;OWNER;POINT`. Whatever else a commit of the group has for metadata is no restart
point: a stock consumer with auto commit writes an empty text, and tools leave none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kordon.codecs.shown_text import shown

OFFSET: Final = 0
"""Of each commit of a restart point (OFFSET-ZERO)."""
POINT_BYTES: Final = 4_000
"""Of a restart point in UTF-8: with what stands before it, it fits what brokers take (offset.metadata.max.bytes)."""
_MOST_BYTES: Final = 64 << 10
"""Longer metadata is not read."""
_MARK: Final = "ks"
_VERSION: Final = "1"
_PARTS: Final = 5
_OWNER: Final = re.compile(r"(?:[0-9a-f]{32})?")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_MOST_NUMBER: Final = 2**63 - 1
_MOST_READ: Final = 2**62
"""A higher one is damaged: it would leave none for those who come after."""


class UnreadPoint(ValueError):  # noqa: N818  it is no error of the program
    """Metadata of a commit that is no restart point; the message says why."""


@dataclass(frozen=True, slots=True)
class Point:
    """What is on record of a source partition."""

    number: int = 0
    """How many restart points were committed; 0: none."""
    text: str | None = None
    """The restart point; None where there is none."""
    owner: str = ""
    """The owner of open transactions: what follows the group in the transactional id. Empty: there is none."""
    written_ms: int = 0
    """When this restart point was committed, by its writer's clock; milliseconds since 1970."""

    def __post_init__(self) -> None:
        if not 0 <= self.number <= _MOST_NUMBER or (self.number == 0) != (self.text is None):
            raise ValueError(f"number {self.number} does not fit the restart point {self.text!r}")


def check_text(text: object) -> str:
    """Checks what an application calls a restart point, before anything is sent.

    Raises:
        TypeError: It is no text.
        ValueError: It is too long, or cannot be written as UTF-8.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"a restart point is a str, not {type(text).__name__}: turn it into text, for example by json.dumps"
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError("a restart point is to be text that UTF-8 can write: it has a lone surrogate") from error
    if size > POINT_BYTES:
        raise ValueError(
            f"a restart point has at most {POINT_BYTES:,} bytes, and this one has {size:,}: keep what is longer in the "
            "source or in a topic, and let the restart point name it"
        )
    return text


def build(point: Point) -> str:
    """Writes what is on record of a partition as the metadata of a commit."""
    return ";".join((_MARK + _VERSION, str(point.number), str(point.written_ms), point.owner, point.text or ""))


def parse(metadata: str | None) -> Point:
    """Reads the metadata of a commit.

    Raises:
        UnreadPoint: It is no restart point, or one of a later version.
    """
    text = metadata or ""
    if len(text) > _MOST_BYTES:
        raise UnreadPoint(f"{len(text):,} characters are more than a restart point has")
    if not text.startswith(_MARK):
        raise UnreadPoint(f"{shown(text[:80])!r} is no restart point" if text else "the commit has no restart point")
    head, *parts = text.split(";", _PARTS - 1)
    if head != _MARK + _VERSION:
        raise UnreadPoint(f"{shown(head[:80])!r} is no version that is known here: use the release that wrote it")
    if len(parts) != _PARTS - 1:
        raise UnreadPoint(f"{shown(text[:80])!r} is cut short")
    number, written_ms, owner, point = parts
    is_sound = _NUMBER.fullmatch(number) and _NUMBER.fullmatch(written_ms) and _OWNER.fullmatch(owner)
    if not is_sound or int(number) > _MOST_READ:
        raise UnreadPoint(f"{shown(text[:80])!r} is damaged")
    return Point(int(number), point if int(number) else None, owner, int(written_ms))


def parsed(metadata: str | None) -> Point | None:
    """Reads the metadata of a commit, as `parse` does; None: it is no restart point, or one of a later version."""
    try:
        return parse(metadata)
    except UnreadPoint:
        return None
