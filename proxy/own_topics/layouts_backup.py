"""A backup of the layouts: what `kordon layouts export` writes, as JSON that people and programs can read.

    format        1
    taken_at      when it was written, UTC
    cluster_id    of the cluster
    layouts_id    the topic id of `__kordon.layouts`
    offset        up to which `__kordon.layouts` was read
    log_ends      by topic and partition, an offset: whatever is below it was written under these layouts or older ones
    records       by key, the values of `__kordon.layouts` as `records.py` has them
    sha256        of all the rest, as `json.dumps(rest, sort_keys=True, separators=(",", ":"))` writes it

It has what outlives a proxy: layouts, images, findings, and how far janitors have come. Fences,
announcements, acknowledgements, wishes and their outcomes belong to proxies that are gone when somebody restores it.

The checksum finds damage, no forgery: a file is untrusted, and each record has to be as sound as one of the log.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json, to_jsonable_python

from kordon.proxy.ordering.images import ImageRecord
from kordon.proxy.ordering.records import MOST_BYTES, TopicRecord, Unreadable, Value, image_place, kind_of, load

FORMAT: Final = 1
MOST_FILE_BYTES: Final = 128 * 1024 * 1024
"""A file with more bytes is not read; a topic with a hundred thousand producers takes 4 MB."""
MOST_RECORDS: Final = 1_000_000
"""A file with more records is not read."""
KEPT: Final = frozenset({"topic", "image", "finding", "janitor"})
"""The kinds of records that a backup has."""
_MOST_SAID: Final = 300

_Offset = Annotated[int, Field(ge=0, lt=1 << 62)]


class BackupUnreadable(ValueError):  # noqa: N818 - what the file is
    """Raised for a file that is no backup, or one that cannot be relied on; the message says why."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Backup:
    """The layouts of a cluster as they stood at one offset of `__kordon.layouts`.

    Attributes:
        cluster_id: The cluster's id, as brokers give it.
        layouts_id: The topic id of `__kordon.layouts`.
        offset: Up to where that topic was read.
        taken_at: The time of the backup, in UTC.
        log_ends: By topic and partition, the latest end of the log while the layouts were read.
        records: The values of that topic by key.
    """

    cluster_id: Annotated[str, Field(max_length=200)]
    layouts_id: UUID
    offset: _Offset
    taken_at: Annotated[str, Field(max_length=100)]
    log_ends: Mapping[str, Mapping[_Offset, _Offset]]
    records: Annotated[Mapping[str, Mapping[str, Any]], Field(max_length=MOST_RECORDS)]
    format: Literal[1] = field(default=FORMAT)

    @cached_property
    def topics(self) -> Mapping[str, TopicRecord]:
        """The managed topics, by name."""
        values = {key: read_value(key, self.value(key)) for key in self.records if kind_of(key) == "topic"}
        return {value.layout.topic: value for value in values.values() if isinstance(value, TopicRecord)}

    def value(self, key: str) -> bytes:
        """Returns the value of a record as it stands in the log."""
        return json.dumps(self.records[key], separators=(",", ":"), ensure_ascii=False).encode()

    def keys_of(self, topic: str) -> list[str]:
        """Returns the keys of all records that are about a topic; its layout comes last."""
        return sorted((key for key in self.records if topic_in(key) == topic), key=lambda key: kind_of(key) == "topic")

    def only(self, topics: Collection[str]) -> Backup:
        """Returns the same without other topics."""
        records = {key: value for key, value in self.records.items() if topic_in(key) in topics}
        return replace(self, records=records)

    def dump(self) -> bytes:
        """Writes it as a file, with its checksum."""
        fields = to_jsonable_python(asdict(self))
        return (json.dumps({**fields, "sha256": _checksum(fields)}, indent=1, sort_keys=True) + "\n").encode()


_ADAPTER: Final = TypeAdapter(Backup)


def load_backup(raw: bytes) -> Backup:
    """Reads a file, whatever it is.

    Raises:
        BackupUnreadable: The text is not a backup, is damaged, or has an unsound record.
    """
    if len(raw) > MOST_FILE_BYTES:
        raise BackupUnreadable(f"it has more than {MOST_FILE_BYTES} bytes")
    try:
        fields = from_json(raw, allow_inf_nan=False)
        if not isinstance(fields, dict) or "sha256" not in fields:
            raise ValueError("it is no backup of kordon layouts export")
        told = fields.pop("sha256")
        if (written := fields.get("format")) != FORMAT:
            raise ValueError(f"it has format {written!r}, and this version reads format {FORMAT}")
        if told != _checksum(fields):
            raise ValueError("it does not match its checksum: it is damaged, or was changed by hand")
        backup = _ADAPTER.validate_python(fields)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise BackupUnreadable(f"{'.'.join(map(str, found['loc']))}: {found['msg']}"[:_MOST_SAID]) from None
    except (ValueError, RecursionError) as error:
        raise BackupUnreadable(str(error)[:_MOST_SAID]) from None
    values = {key: _sound(key, backup.value(key)) for key in backup.records}
    for key, value in values.items():
        if problem := _misplaced(key, value, values):
            raise BackupUnreadable(f"{key}: {problem}")
    return backup


def read_value(key: str, value: bytes) -> Value | Unreadable | None:
    """Reads a record that a backup may have; one of another kind is unreadable."""
    if kind_of(key) not in KEPT:
        return Unreadable(key, "no backup has such a record", None)
    return load(key, value)


def topic_in(key: str) -> str:
    """Returns the topic that a key of a backup names."""
    return key.split("/", 2)[1] if "/" in key else ""


def kept_of(records: Iterable[tuple[str, bytes]]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Sorts what stands in the log.

    Args:
        records: The last value of each key; none of them is a tombstone.

    Returns:
        The values that a backup has, by key, and why topics are left out, by topic.
    """
    values = {key: (raw, load(key, raw)) for key, raw in records if kind_of(key) in KEPT}
    unreadable = ((key, each.why) for key, (_, each) in values.items() if isinstance(each, Unreadable))
    left_out = {topic_in(key): f"{key}: {why}" for key, why in unreadable}
    managed = {each.layout.topic: each.layout for _, each in values.values() if isinstance(each, TopicRecord)}
    kept: dict[str, dict[str, Any]] = {}
    for key, (raw, value) in values.items():
        layout = managed.get(topic_in(key))
        if layout is None or topic_in(key) in left_out:
            continue
        if isinstance(value, ImageRecord) and value.begins > layout.epoch:
            continue  # it was written ahead of a layout that was not there yet
        kept[key] = from_json(raw)
    return kept, left_out


def _sound(key: str, raw: bytes) -> Value:
    value = read_value(key, raw) if len(raw) <= MOST_BYTES else Unreadable(key, "it is too large", None)
    if isinstance(value, Unreadable):
        raise BackupUnreadable(f"{key[:_MOST_SAID]}: {value.why}")
    if value is None:
        raise BackupUnreadable(f"{key[:_MOST_SAID]}: its kind is not known")
    return value


def _misplaced(key: str, value: Value, values: Mapping[str, Value]) -> str:
    """Says why a record that is sound by itself does not belong to the others; empty if it does."""
    record = values.get(f"topic/{topic_in(key)}")
    if not isinstance(record, TopicRecord):
        return "there is no layout of its topic"
    if not record.layout.is_managed:
        return "its topic is not managed yet"
    place = image_place(key)
    if isinstance(value, ImageRecord) and place is not None and not record.layout.knows(place[1]):
        return "its layout knows no such stream"
    return ""


def _checksum(fields: Mapping[str, Any]) -> str:
    return sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
