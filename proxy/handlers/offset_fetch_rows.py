"""The rows of OffsetFetch by one name for all versions: before version 8 a message is about one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kordon.codecs.bodies import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopicPartition,
)
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import NO_ID, with_real_id

AskedGroup: TypeAlias = OffsetFetchRequest | OffsetFetchRequestGroup
"""A group in a request; before version 8 a message is about one group."""
AskedTopic: TypeAlias = OffsetFetchRequestTopic | OffsetFetchRequestGroupTopic
ToldGroup: TypeAlias = OffsetFetchResponse | OffsetFetchResponseGroup
"""The same in a response."""
Commit: TypeAlias = OffsetFetchResponsePartition | OffsetFetchResponseTopicPartition
ToldTopic: TypeAlias = OffsetFetchResponseTopic | OffsetFetchResponseGroupTopic


def asked_groups(value: OffsetFetchRequest) -> Sequence[AskedGroup]:
    """Returns the groups of a request."""
    return value.groups if "groups" in value else (value,)


def told_groups(value: OffsetFetchResponse) -> Sequence[ToldGroup]:
    """Returns the groups of a response."""
    return value.groups if "groups" in value else (value,)


def answered_topic(row: ToldTopic, topics: ManagedTopics) -> tuple[ManagedTopic | None, bool]:
    """Returns the managed topic that a row is about, and whether it is its face's."""
    if "topic_id" in row:
        topic_id = row.get("topic_id", NO_ID)
        face = topics.with_face_id(topic_id)
        return face or with_real_id(topics, topic_id), face is not None
    return topics.named(row.name.removeprefix(OWN_PREFIX)), row.name.startswith(OWN_PREFIX)
