"""OffsetFetch of dialect groups: what they committed on physical partitions, else what follows from virtual ones.

The former stand under the topic's own name, the latter under its face's. A group that has changed to the dialect has
none of the former yet: then the latter say where it goes on (`ordering.inherited_positions`). Once it has committed a
partition, that is what counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.commits import OffsetFetch, groups_of
from kordon.proxy.handlers.dialect_metadata import NO_TOPICS
from kordon.proxy.ordering.inherited_positions import inherited_positions
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics, face_of

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


class DialectOffsetFetch:
    """Translates OffsetFetch; commits on virtual partitions are looked up for topics that a request names."""

    answers_always = True

    def __init__(self) -> None:
        self._hidden = OffsetFetch()

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Asks for what was committed on virtual partitions besides."""
        changed = False
        for group in groups_of(value):
            faces = [_face_row(topic) for topic in _named(group, topics)]
            if faces:
                group["topics"] = [*group.topics, *faces]
                changed = True
        return changed

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Fills in what has no commit of its own, and hides what is Kordon's own."""
        for group in groups_of(value):
            rows = {row.get("name"): row for row in group.topics}
            for topic in topics:
                row, face = rows.get(topic.name), rows.get(face_of(topic.name))
                if row is not None and face is not None:
                    row["partitions"] = _filled(topic, row.partitions, face.partitions)
        return self._hidden.response(version, value, NO_TOPICS, asked)


def _named(group: Any, topics: ManagedTopics) -> list[ManagedTopic]:
    found = (topics.named(row.get("name") or "") for row in group.topics or ())
    return [topic for topic in found if topic is not None]


def _face_row(topic: ManagedTopic) -> Mapping[str, Any]:
    return {"name": face_of(topic.name), "partition_indexes": list(range(topic.layout.v_count))}


def _filled(topic: ManagedTopic, partitions: Iterable[Any], of_face: Iterable[Any]) -> list[Any]:
    """Gives partitions without a commit what follows from those of virtual ones, or why these are not known."""
    rows = list(of_face)
    error = next((row.error_code for row in rows if row.error_code), Code.NONE)
    if error == Code.TOPIC_AUTHORIZATION_FAILED:
        error = Code.COORDINATOR_LOAD_IN_PROGRESS  # who may describe the topic may soon describe its face (`AclMirror`)
    committed = {row.partition_index: row.committed_offset for row in rows if row.committed_offset != _NO_OFFSET}
    inherited = inherited_positions(topic.layout, committed) if committed else {}
    return [
        row
        if row.error_code or row.committed_offset != _NO_OFFSET
        else {
            **row,
            "committed_offset": inherited.get(row.partition_index, _NO_OFFSET),
            "committed_leader_epoch": _NO_EPOCH,
            "error_code": error,
        }
        for row in partitions
    ]
