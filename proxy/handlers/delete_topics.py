"""DeleteTopics: a managed topic is let go once its broker has deleted it, and a source topic is one no longer.

The broker judges whether the client may. Clients may name the topic by the id that they know, which is the face's, or
by the id from before it was managed; the broker is asked by its real id.
"""

from __future__ import annotations

from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.bodies import DeleteTopicsRequest as Request
from kordon.codecs.bodies import DeleteTopicsRequestTopic as Topic
from kordon.codecs.bodies import DeleteTopicsResponse as Response
from kordon.proxy.handlers.topic_wishes import AnyWish, TakenOut, WishedApi
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.source_records import SourceWish
from kordon.proxy.ordering.wishes import Delete
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import NO_ID, with_real_id


class DeleteTopics(WishedApi[Request, Response]):
    """Notes managed topics that are deleted."""

    key = apis.DELETE_TOPICS
    right = None
    answered = "responses"

    def take(self, value: Request, topics: ManagedTopics) -> TakenOut | None:
        """Finds managed topics; all of the request stays for the broker."""
        wishes: dict[str, AnyWish | OutcomeRecord] = {}
        ids: dict[UUID, tuple[str, UUID]] = {}
        for row in value.get("topics", list[Topic]()):
            managed = _by_any_id(row.topic_id, topics) if row.name is None else _by_name_alone(row, topics)
            source = topics.sources.name_of(row.topic_id) if row.name is None else row.name
            if source in topics.sources:
                wishes[source] = SourceWish(source, on=False)
                if row.name is None:
                    ids[row.topic_id] = source, row.topic_id
            elif managed is not None:
                wishes[managed.name] = Delete(managed.name)
                if row.name is None:
                    ids[managed.layout.topic_id] = managed.name, row.topic_id
                    row.topic_id = managed.layout.topic_id
        for name in value.get("topic_names", list[str]()):
            if name in topics.sources:
                wishes[name] = SourceWish(name, on=False)
            elif topics.named(name) is not None:
                wishes[name] = Delete(name)
        return TakenOut(wishes, True, ids) if wishes else None


def _by_any_id(topic_id: UUID, topics: ManagedTopics) -> ManagedTopic | None:
    """Finds a topic by the id that clients know, or by its id from before it was managed."""
    return topics.with_face_id(topic_id) or with_real_id(topics, topic_id)


def _by_name_alone(row: Topic, topics: ManagedTopics) -> ManagedTopic | None:
    """Finds a topic by its name; with an id beside it the broker refuses it."""
    return topics.named(row.name or "") if row.topic_id == NO_ID else None
