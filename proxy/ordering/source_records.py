"""The records of `__kordon.source_topics`, a compacted log of JSON values: which topics are source topics.

    key     topic/db1
    value   {"version": 1, "topic_id": "0190…", "since_ms": 1764239000000}

A record says that the topic is a source topic. The id tells it from another topic of its name (SAME-TOPIC). A record
without a value says that it is none any more. Other kinds of keys are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, TypeAdapter

from kordon.proxy.ordering.versioned_values import read_value

VERSION: Final = 1
MOST_BYTES: Final = 1024
"""Of a value; what Kordon writes has some 90."""
_KIND: Final = "topic"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MOST_MS: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic that takes no records: its partitions stand for those of a source."""

    topic_id: UUID
    since_ms: int
    """When it was declared, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class SourceWish:
    """Somebody wants a topic to be a source topic, or none any more. No layout rests on it, so nobody leads it."""

    topic: str
    on: bool


@dataclass(frozen=True, slots=True)
class _SourceValue:
    __pydantic_config__ = ConfigDict(extra="forbid")
    version: Literal[1]
    topic_id: UUID
    since_ms: Annotated[int, Field(ge=0, lt=_MOST_MS)]


_VALUE: Final = TypeAdapter(_SourceValue)


def key_of(topic: str) -> str:
    """Returns the key of a source topic's record."""
    return f"{_KIND}/{topic}"


def topic_of(key: str) -> str | None:
    """Returns the topic that a record is about; None: it is of a kind that this version does not know.

    Raises:
        ValueError: The key names no topic.
    """
    kind, _, name = key.partition("/")
    if kind != _KIND:
        return None
    if _NAME.fullmatch(name) is None:
        raise ValueError("its key names no topic")
    return name


def dump(topic: SourceTopic) -> bytes:
    """Writes a record's value."""
    return _VALUE.dump_json(_SourceValue(VERSION, topic.topic_id, topic.since_ms))


def load(value: bytes) -> SourceTopic | None:
    """Reads a record's value; None: it is of a version that is not known.

    Raises:
        ValueError: The value is not a record of this version.
    """
    if len(value) > MOST_BYTES:
        raise ValueError(f"it has {len(value)} bytes, and at most {MOST_BYTES} are read")
    read = read_value(value, _VALUE, VERSION)
    return None if read is None else SourceTopic(read.topic_id, read.since_ms)
