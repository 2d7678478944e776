"""The records of `__kordon.layouts`, a compacted log of JSON values that has the whole state of Kordon.

    topic/<name>                the layout in force, and the id of the topic's face            controller
    image/<name>/<v>/<part>     of the image of a virtual partition's last move                controller
    fence/<name>                a procedure under way                                          controller
    ack/<fence>/<incarnation>   a proxy holds what the fence names                             that proxy
    gone/<incarnation>          a proxy has stopped serving, and will not begin again          that proxy
    wish/<id>                   somebody wants a topic managed, resized, …                     any proxy
    outcome/<id>                what came of it                                                controller
    finding/<name>/<kind>       what was found wrong with a topic                              controller
    janitor/<name>              how far a compacted topic was looked through                   controller
    behind/<name>               how far groups are from the cuts of a takeover                 controller
    announcement/<name>         a change to come of a topic with transactions (DOUBLE-ADD)     controller

The controller writes in transactions, so that a layout, its images and the end of its fence are one.

Proxies of several versions share the log while they are upgraded. Each value says by `format` by which rules it is
written; without it, by those of 1. The rule for additions, within a format:

- A field or a value that this version does not know makes the record unreadable, because it may be what keeps an
  order. A later version that can do without being understood names the field in the record's list `optional`.
- So does a kind of key that is not known, unless its record says `"optional": true`. Behind the kind, its key names the
  topic that it is about.
- A record that cannot be read stops the service of its topic here until another record, or a tombstone, takes its key:
  `topic`, `image`, `fence`, `announcement` and kinds to come. All others are passed over: what they say is missed, and
  nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import not_
from typing import Annotated, Final, Literal, get_args
from uuid import UUID

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import ErrorDetails, from_json

from kordon.proxy.ordering.hashing import LARGEST_VIRTUAL_PARTITIONS
from kordon.proxy.ordering.images import PRODUCERS_OF_A_PART, ImageRecord
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Epoch
from kordon.proxy.ordering.share.policy import is_default
from kordon.proxy.ordering.soundness import why_full, why_impossible, why_unsound
from kordon.proxy.ordering.takeover import Takeover
from kordon.proxy.ordering.wishes import Wish

FORMAT: Final = 1
"""The rules by which this version writes and reads."""
MOST_BYTES: Final = 1024 * 1024
"""A value with more bytes is not read; what Kordon writes stays below the 900,000 of a batch."""
MOST_WISHED_BYTES: Final = 800_000
"""A layout that is wished for has at most so many bytes; one that mends a topic may have more."""
MOST_WRITTEN_BYTES: Final = 890_000
"""Any layout has at most so many bytes, which with its key is less than the 900,000 of a batch."""
MOST_ELEMENTS: Final = 100_000
"""A value with more commas is not read; the largest layout has some 80,000."""
_MOST_OF_IMAGES: Final = 3 * PRODUCERS_OF_A_PART
"""The same for a part of an image, which has two commas for each producer."""
_MOST_FAULTS: Final = 10_000
"""So many faults of a value are looked at one by one: a layout has as many segments, each with a field to come."""
_MOST_SAID: Final = 200
"""So many characters of what is wrong with a record are told."""


@dataclass(frozen=True)
class TopicRecord:
    """A managed topic."""

    layout: Layout
    face_id: UUID
    takeover: Takeover | None = None
    """What is left to do of the takeover of a topic with data (TAKEOVER-WAITS); None: nothing."""


@dataclass(frozen=True)
class FenceRecord:
    """A change of a layout that is being prepared: all proxies hold writes to `sealed` and acknowledge."""

    id: str
    """The name of this attempt."""
    topic: str
    following: Epoch
    """The epoch that the layout is to continue with."""
    sealed: frozenset[int]
    taking_over: TopicRecord | None = None
    """A topic that is not managed yet, as it has been all along (PAST-STAYS); None: the topic is managed."""


@dataclass(frozen=True)
class AckRecord:
    """A proxy writes nothing more to what a fence names, and has nothing unanswered there."""

    fence: str
    incarnation: str
    """Names the proxy's process."""
    told: Mapping[int, int] | None = None
    """By partition whose log got shorter, the offset up to which readers may have been told of it (BEYOND-LOSS)."""


@dataclass(frozen=True)
class GoneRecord:
    """A proxy that has ended in order, so that nobody need wait for its lease."""

    incarnation: str
    word: Annotated[str, Field(exclude_if=not_)] = ""
    """The word whose seal it has told the proxies' group (`presence.sealed`): nobody else can write this record."""


@dataclass(frozen=True)
class OutcomeRecord:
    """The outcome of a wish; error_code 0 is success."""

    error_code: int
    message: str


@dataclass(frozen=True)
class WishRecord:
    """A wish that somebody has for a topic."""

    wish: Annotated[Wish, Field(discriminator="kind")]


FindingKind = Literal[
    "topic_deleted",
    "topic_replaced",
    "records_lost",
    "not_mended",
    "compacted_without_janitor",
    "transactions_unverified",
    "layout_unreadable",
    "layout_lost",
]


@dataclass(frozen=True)
class FindingRecord:
    """Something that went wrong with a topic, and that its operators have to know."""

    kind: FindingKind
    topic: str
    text: str
    found_ms: int
    """When it was found, in milliseconds since 1970."""


@dataclass(frozen=True)
class JanitorRecord:
    """How far a compacted topic was looked through (KIP-253 9)."""

    looked_to: Mapping[int, int]
    """The next offset by physical partition; to look at records again does no harm."""


@dataclass(frozen=True)
class BehindRecord:
    """How far groups are from the cuts of a takeover. People read it; no order rests on it."""

    groups: int
    """With commits on the topic."""
    to_go: Mapping[str, int]
    """By group that is waited for, the offsets before the cuts that it has not committed."""


@dataclass(frozen=True)
class AnnouncementRecord:
    """A change to come of a topic with transactions, or that none is to come any more (DOUBLE-ADD).

    A topic has one as soon as all proxies know that it has transactions, and takes none before.
    """

    id: str
    """Names it in acknowledgements."""
    topic: str
    number: int
    """Another one with each announcement and each withdrawal."""
    coming: Mapping[int, int]
    """By virtual partition that moves, its coming home; empty: nothing is to come, and nobody acknowledges it."""
    ends: Mapping[int, int] | None = None
    """By physical partition that something leaves, the log end when all proxies had acknowledged it (OLDER-FIRST);
    None: they have not yet."""


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
    | BehindRecord
    | AnnouncementRecord
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that this version cannot read."""

    key: str
    why: str
    topic: str | None
    """The topic that must not be served unless the record is read; None: the record is passed over."""


_STRICT: Final = with_config(ConfigDict(extra="forbid"))
"""A value with an unknown field is not understood, nor is one that has such a value within."""


def _word(kind: type[Value]) -> str:
    """Returns what keys of a kind of records begin with."""
    return kind.__name__.removesuffix("Record").lower()


_KINDS: Final[Mapping[str, TypeAdapter[Value]]] = {_word(kind): TypeAdapter(_STRICT(kind)) for kind in get_args(Value)}
KINDS: Final = frozenset(_KINDS)
"""The words that keys begin with."""
OTHER: Final = "other"
"""Stands for a kind that this version does not know."""
_PASSED_OVER: Final = frozenset({"ack", "gone", "wish", "outcome", "finding", "janitor", "behind"})
"""Kinds of records that no topic needs to be served."""
_OPTIONAL: Final = frozenset({"behind"})
"""Kinds that older versions do not know, and can do without."""
_WITH_TRANSACTIONS: Final = "layout_with_transactions"
"""The field of a layout whose topic has transactions. Version 0.1.0 passes over fields that it does not know, and knows
no transactions; without the field `layout` it serves nothing."""
_LARGEST_OFFSET: Final = 1 << 62
LARGEST_NUMBER: Final = 1 << 53
"""Of an announcement; behind it they begin with 1 again."""
_IMAGE_KEY: Final = re.compile(r"image/([^/]+)/(-?\d{1,9})/(\d{1,9})", re.ASCII)
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def image_key(topic: str, stream: int, part: int) -> str:
    """Returns the key of a part of the image of a stream."""
    return f"image/{topic}/{stream}/{part}"


def image_place(key: str) -> tuple[str, int, int] | None:
    """Returns topic, stream and part of a key that `image_key` can have made; None for any other."""
    found = _IMAGE_KEY.fullmatch(key)
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def finding_key(finding: FindingRecord) -> str:
    """Returns the key of what was found wrong with a topic. Former versions left the kind out of it."""
    return f"finding/{finding.topic}/{finding.kind}"


def kind_of(key: str) -> str:
    """Returns what a record is about."""
    return key.partition("/")[0]


def topic_of(key: str) -> str | None:
    """Returns the topic that is not served without a record; None where it can be passed over."""
    kind, *names = key.split("/", 2)
    is_topic = kind not in _PASSED_OVER and names and _TOPIC_NAME.fullmatch(names[0])
    return names[0] if is_topic else None


def dump(value: Value) -> bytes:
    """Writes a record's value."""
    kind = _word(type(value))
    optional = b'"optional":true,' if kind in _OPTIONAL else b""
    if isinstance(value, TopicRecord) and not is_default(value.layout.share):
        optional = b'"optional":["share"],'  # versions that do not know it serve no share groups
    fields = _KINDS[kind].dump_json(value).removeprefix(b"{")
    if isinstance(value, TopicRecord) and value.layout.has_transactions:
        fields = b'"%s":' % _WITH_TRANSACTIONS.encode() + fields.removeprefix(b'"layout":')
    return b'{"format":%d,%s' % (FORMAT, optional) + fields


def load(key: str, value: bytes) -> Value | Unreadable | None:
    """Reads a record's value, whatever it is.

    Args:
        value: The record's value, which is no tombstone.

    Returns:
        The value; None: its kind is unknown to this version, and need not be known.
    """
    try:
        if len(value) > MOST_BYTES:
            raise ValueError(f"it has {len(value)} bytes, and at most {MOST_BYTES} are read")
        most = _MOST_OF_IMAGES if kind_of(key) == "image" else MOST_ELEMENTS
        if (elements := value.count(b",")) > most:
            raise ValueError(f"it has {elements} elements, and at most {most} are read")
        fields = from_json(value)
        if not isinstance(fields, dict):
            raise ValueError("it is no object")
        return _read(key, fields)
    except (ValueError, ArithmeticError) as error:  # the latter by numbers that no producer has
        return Unreadable(key, _said(error), topic_of(key))


def _read(key: str, fields: dict[str, object]) -> Value | None:
    """Reads a value by the rule for additions; raises ValueError if it is not understood."""
    written, optional = fields.pop("format", FORMAT), fields.pop("optional", ())
    if written != FORMAT:
        raise ValueError(f"it has format {written!r}, and this version reads format {FORMAT}")
    adapter = _KINDS.get(kind_of(key))
    if adapter is None:
        if optional is True:
            return None
        raise ValueError("its kind is not known")
    if kind_of(key) == "topic" and "layout" not in fields and _WITH_TRANSACTIONS in fields:
        fields["layout"] = fields.pop(_WITH_TRANSACTIONS)
    value = _understood(adapter, fields, optional)
    if problem := _mismatch(key, value):
        raise ValueError(problem)
    return value


def _understood(adapter: TypeAdapter[Value], fields: dict[str, object], optional: object) -> Value:
    try:
        return adapter.validate_python(fields)
    except ValidationError as error:
        if error.error_count() > _MOST_FAULTS:
            raise ValueError(f"{error.error_count()} of its fields are not understood") from None
        unknown = [each for each in error.errors(include_url=False) if each["type"] in _UNKNOWN_FIELD]
        names = set(optional) if isinstance(optional, Sequence) else set[object]()
        if not unknown or any(each["loc"][-1] not in names for each in unknown):
            raise
        for each in unknown:
            _take_out(fields, each["loc"])
        return adapter.validate_python(fields)


_UNKNOWN_FIELD: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


def _take_out(value: object, loc: Sequence[int | str]) -> None:
    """Takes out the field at a place, which may also name members of unions."""
    step, *rest = loc
    if isinstance(value, list) and isinstance(step, int):
        _take_out(value[step], rest)
    elif rest:
        _take_out(value.get(step, value) if isinstance(value, dict) else value, rest)
    elif isinstance(value, dict):
        value.pop(step, None)


def _mismatch(key: str, value: Value) -> str:
    """Says what is wrong with a value that could be read; empty if nothing is."""
    rest = key.partition("/")[2]
    match value:
        case TopicRecord(layout):
            return f"it is about {layout.topic}" if layout.topic != rest else why_unsound(layout)
        case FenceRecord(topic=topic, taking_over=None):
            return f"it is about {topic}" if topic != rest else ""
        case FenceRecord(topic=topic, following=following, taking_over=TopicRecord(layout)):
            is_of_others = topic != rest or layout.topic != rest
            return f"it is about {topic}" if is_of_others else why_unsound(layout) or why_impossible(layout, following)
        case AnnouncementRecord():
            return f"it is about {value.topic}" if value.topic != rest else _why_not_announced(value)
        case FindingRecord(kind, topic):
            return "" if rest in (topic, f"{topic}/{kind}") else f"it is about {kind} of {topic}"
        case ImageRecord():
            return "" if image_place(key) is not None else "its key names no part of an image"
        case _:
            return ""


def _why_not_announced(value: AnnouncementRecord) -> str:
    partitions = range(LARGEST_VIRTUAL_PARTITIONS)
    if not 0 <= value.number <= LARGEST_NUMBER:
        return f"number {value.number} is impossible"
    if odd := [each for each in {*value.coming, *value.coming.values(), *(value.ends or ())} if each not in partitions]:
        return f"partition {odd[0]} is impossible"
    return ""


def why_no_more(record: TopicRecord, following: Epoch) -> str:
    """Says why a topic cannot change once more by a wish or its janitor; empty if it can.

    A topic keeps its whole past, and a layout with more of it would not be read by anybody (`soundness`).

    Args:
        following: The epoch that it would continue with; no log has got shorter.
    """
    after = _largest_after(record, following)
    return _changed_too_often(after, why_full(after.layout) or _why_too_long(after, MOST_WISHED_BYTES))


def why_never(record: TopicRecord, following: Epoch) -> str:
    """Says why a topic cannot change whatever it is for, a log that got shorter included; empty if it can.

    Nobody would go by its layout then, or it could not even be written.

    Args:
        following: The epoch that it would continue with.
    """
    after = _largest_after(record, following)
    return _changed_too_often(after, why_unsound(after.layout) or _why_too_long(after, MOST_WRITTEN_BYTES))


def _largest_after(record: TopicRecord, following: Epoch) -> TopicRecord:
    """Returns the record of a layout to come, with offsets that are as long as can be."""
    layout, shortened = record.layout, following.shortened or {}
    cuts = dict.fromkeys(layout.change_to(following).touched, _LARGEST_OFFSET)
    told = dict.fromkeys(shortened, _LARGEST_OFFSET + 1)
    return replace(record, layout=layout.changed(following, cuts, told=told))


def _why_too_long(record: TopicRecord, most: int) -> str:
    size = len(dump(record))
    return f"it has {size} bytes, and at most {most} are written" if size > most else ""


def _changed_too_often(record: TopicRecord, why: str) -> str:
    return f"{record.layout.topic} has changed too often; of its layout as it would be: {why}" if why else ""


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(map(_fault, found[:_MOST_SAID]))
    else:
        text = str(error)
    return text[:_MOST_SAID]


def _fault(detail: ErrorDetails) -> str:
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
