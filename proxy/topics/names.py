"""The names and ids by which clients and brokers know one and the same topic (FACE-COMMITS, FACE-NAMES).

clients         brokers, where they look at topics themselves (commits, assignments)
orders          __kordon.orders, the face
the face's id   the face's id
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Final, TypeAlias
from uuid import UUID

from kordon.codecs.row import Row
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopic, ManagedTopics, face_of

NO_ID: Final = UUID(int=0)
_LONGEST: Final = 256
"""Characters of a client's text that a message repeats; topic names are shorter."""
_LISTED: Final = 5
"""Names that a message or a line of the log holds."""
Rename: TypeAlias = Callable[[str], str]


def to_face(topics: ManagedTopics) -> Rename:
    """Returns what gives a managed topic the name of its face, and leaves other names alone."""
    return lambda name: face_of(name) if _has_face(name, topics) else name


def to_topic(topics: ManagedTopics) -> Rename:
    """Returns what gives the face of a managed topic the topic's name, and leaves other names alone."""

    def rename(name: str) -> str:
        topic = name.removeprefix(OWN_PREFIX)
        return topic if topic != name and _has_face(topic, topics) else name

    return rename


def _has_face(name: str, topics: ManagedTopics) -> bool:
    return topics.named(name) is not None or name in topics.unserved


def with_real_id(topics: ManagedTopics, topic_id: UUID) -> ManagedTopic | None:
    """Finds a topic by the id that it had before it was managed, which clients may remember for a while."""
    if topic_id == NO_ID:
        return None
    return next((topic for topic in topics if topic.layout.topic_id == topic_id), None)


def asked_by_real_id(asked: Iterable[Row], topics: ManagedTopics) -> dict[UUID, UUID]:
    """Returns the real topics' ids by the faces', for the rows of a request that name topics by the former."""
    found = (with_real_id(topics, row.get("topic_id", NO_ID)) for row in asked)
    return {topic.face_id: topic.layout.topic_id for topic in found if topic is not None}


def listed(names: Collection[str]) -> str:
    """Returns names as a sentence or a line of the log has them: the first few, and how many more there are.

    >>> listed(["a", "b"]), listed(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    first = ", ".join(map(cut, islice(names, _LISTED)))
    return first if len(names) <= _LISTED else f"{first} and {len(names) - _LISTED} more"


def cut(words: str) -> str:
    """Cuts a client's text to what a message has room for."""
    return words if len(words) <= _LONGEST else words[:_LONGEST] + "…"
