"""Requests about a group's commits with a row per topic: faces stand in place of managed topics (FACE-COMMITS).

The face has as many partitions as clients see, so commits and lag are the broker's own work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

from kordon.codecs.bodies import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kordon.codecs.row import Row
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import NO_ID, Rename, asked_by_real_id, to_face, to_topic, with_real_id

_Asked: TypeAlias = OffsetCommitRequest | OffsetDeleteRequest | TxnOffsetCommitRequest
_Told: TypeAlias = OffsetCommitResponse | OffsetDeleteResponse | TxnOffsetCommitResponse


class FaceRows(TranslatedApi[_Asked, _Told]):
    """A handler that renames the rows in `topics` of requests and responses."""

    def request(self, version: int, value: _Asked, topics: ManagedTopics) -> bool:
        """Names faces in place of managed topics."""
        rename = to_face(topics)
        changes = [_rename(row, rename) or _to_face_id(row, topics) for row in value.topics]
        return any(changes)

    def response(self, version: int, value: _Told, topics: ManagedTopics, asked: _Asked) -> None:
        """Names managed topics in place of faces."""
        rename = to_topic(topics)
        real_ids = asked_by_real_id(asked.topics, topics)
        for row in value.topics:
            _rename(row, rename)
            show_id(row, real_ids)


def _rename(row: Row, rename: Rename) -> bool:
    name = row.get("name", "")
    renamed = rename(name)
    if renamed == name:
        return False
    row["name"] = renamed
    return True


def _to_face_id(row: Row, topics: ManagedTopics) -> bool:
    topic = with_real_id(topics, row.get("topic_id", NO_ID))
    if topic is not None:
        row["topic_id"] = topic.face_id
    return topic is not None


def show_id(row: Row, real_ids: Mapping[UUID, UUID]) -> None:
    """Names a topic by the id by which the client did."""
    if real_id := real_ids.get(row.get("topic_id", NO_ID)):
        row["topic_id"] = real_id
