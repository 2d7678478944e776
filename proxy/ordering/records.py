"""What stands in `__kordon.layouts`: the whole state of Kordon, a compacted log of JSON values.

    topic/<name>                the layout in force, and the id of the topic's face            controller
    image/<name>/<v>/<part>     of the image of a virtual partition's last move                controller
    fence/<name>                a procedure under way                                          controller
    ack/<fence>/<incarnation>   a proxy holds what the fence names                             that proxy
    gone/<incarnation>          a proxy has stopped serving, and will not begin again          that proxy
    wish/<id>                   somebody wants a topic managed, resized, …                     any proxy
    outcome/<id>                what came of it                                                controller
    finding/<name>              what was found wrong with a topic last                         controller
    janitor/<name>              how far a compacted topic was looked through                   controller

The controller writes in transactions, so that a layout, its images and the end of its fence are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import TypeAdapter

from kordon.proxy.ordering.images import ImageRecord
from kordon.proxy.ordering.layout import Epoch, Layout
from kordon.proxy.ordering.takeover import Takeover
from kordon.proxy.ordering.wishes import Wish


@dataclass(frozen=True)
class TopicRecord:
    """A managed topic."""

    layout: Layout
    face_id: UUID
    takeover: Takeover | None = None
    """While a topic with data is being taken over: what is left to do (rule A2)."""


@dataclass(frozen=True)
class FenceRecord:
    """A change of a layout that is being prepared: all proxies hold writes to `sealed` and acknowledge."""

    id: str
    """Of this attempt."""
    topic: str
    following: Epoch
    """What the layout is to become."""
    sealed: frozenset[int]
    taking_over: TopicRecord | None = None
    """Of a topic that is not managed yet: as it has been all along (rule A1)."""


@dataclass(frozen=True)
class AckRecord:
    """A proxy writes nothing more to what a fence names, and has nothing unanswered there."""

    fence: str
    incarnation: str
    """Of the proxy's process."""
    told: Mapping[int, int] | None = None
    """Where a log has got shorter: up to which offset of it readers may have been told of here (rule C10)."""


@dataclass(frozen=True)
class GoneRecord:
    """A proxy that ended in order; nobody need wait for its lease."""

    incarnation: str


@dataclass(frozen=True)
class OutcomeRecord:
    """What came of a wish; error_code 0 is success."""

    error_code: int
    message: str


@dataclass(frozen=True)
class WishRecord:
    """What somebody wants of a topic."""

    wish: Wish


FindingKind = Literal["topic_deleted", "topic_replaced", "records_lost", "compacted_without_janitor"]


@dataclass(frozen=True)
class FindingRecord:
    """Something that went wrong with a topic, and that its people have to know of."""

    kind: FindingKind
    topic: str
    text: str
    found_ms: int
    """When, in milliseconds since 1970."""


@dataclass(frozen=True)
class JanitorRecord:
    """How far a compacted topic was looked through (KIP-253 9)."""

    looked_to: Mapping[int, int]
    """By physical partition, the next offset; to look again does no harm."""


Value = (
    TopicRecord
    | ImageRecord
    | FenceRecord
    | AckRecord
    | GoneRecord
    | WishRecord
    | OutcomeRecord
    | FindingRecord
    | JanitorRecord
)

_KINDS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "topic": TypeAdapter(TopicRecord),
    "image": TypeAdapter(ImageRecord),
    "fence": TypeAdapter(FenceRecord),
    "ack": TypeAdapter(AckRecord),
    "gone": TypeAdapter(GoneRecord),
    "wish": TypeAdapter(WishRecord),
    "outcome": TypeAdapter(OutcomeRecord),
    "finding": TypeAdapter(FindingRecord),
    "janitor": TypeAdapter(JanitorRecord),
}


def image_key(topic: str, stream: int, part: int) -> str:
    """Returns the key of a part of the image of a stream."""
    return f"image/{topic}/{stream}/{part}"


def kind_of(key: str) -> str:
    """Returns what a record is about."""
    return key.partition("/")[0]


def dump(value: Value) -> bytes:
    """Writes a record's value."""
    kind = type(value).__name__.removesuffix("Record").lower()
    return _KINDS[kind].dump_json(value)


def load(key: str, value: bytes) -> Value | None:
    """Reads a record's value; None: a kind that this version does not know.

    Raises:
        ValueError: The value is not what its key says.
    """
    adapter = _KINDS.get(kind_of(key))
    return adapter.validate_json(value) if adapter is not None else None
