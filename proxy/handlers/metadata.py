"""Metadata: a managed topic as its V virtual partitions, Kordon's own topics not at all.

In the dialect a topic has its physical partitions, and its layout in brief:

    0 … U - 1      as brokers tell of them, but for the leader epoch, which rises with each change of their keys
    U and above    retired ones, until retention or DeleteRecords has left nothing in them

Tagged fields say N, U, V, the layout epoch, and whether delivery is ordered (docs/dialect.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.bodies import MetadataRequest as Request
from kordon.codecs.bodies import MetadataRequestTopic as RequestTopic
from kordon.codecs.bodies import MetadataResponse as Response
from kordon.codecs.bodies import MetadataResponseTopic as ResponseTopic
from kordon.codecs.error_codes import Code
from kordon.codecs.metadata_requests import look_names
from kordon.proxy.core.interception import Translate
from kordon.proxy.handlers.api_handler import Handled, HeldRequest
from kordon.proxy.handlers.retired_partitions import RetiredPartitions
from kordon.proxy.handlers.shown_topics import NO_TOPIC, NO_TOPICS, ShownTopics, show_physical, show_virtual
from kordon.proxy.topics.managed_topics import ManagedTopics, is_own
from kordon.proxy.topics.names import NO_ID

_ASKED_BY_ID: Final = 12
"""From this version of Metadata on a topic can be asked for by its id (KIP-516); 10 and 11 have the field already."""


class _MetadataView(ShownTopics[Request, Response]):
    """What both views have in common."""

    key = apis.METADATA

    def decide(self, held: HeldRequest) -> Handled:
        """Passes an answer on unread if its request names only topics that clients see as brokers show them."""
        names = look_names(held.version, held.body, held.budget())
        if names is None or not _are_strange(names, held.topics):
            return super().decide(held)
        streams = partial(_are_strange, names, held.topics)
        return Translate(None, self.translation(held, bytes(held.body)), streams=streams)


class Metadata(_MetadataView):
    """Shows managed topics as their virtual partitions."""

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Asks by the real topics' ids where a client asks by those of faces, and not for what is Kordon's own."""
        if value.topics is None or asks_all(version, value):
            return False
        rows = [row for row in value.topics if _is_for_broker(version, row, topics)]
        changed = len(rows) < len(value.topics)
        for row in rows:
            topic = topics.with_face_id(_asked_id(version, row))
            if topic is not None:
                row.topic_id = topic.layout.topic_id
                changed = True
        if not rows and version == 0:
            rows = [RequestTopic(name=NO_TOPIC)]
        value.topics = rows
        return changed

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Shows managed topics as clients see them, and says of what is Kordon's own that it does not exist."""
        by_id = {topic.layout.topic_id: topic for topic in topics}
        rows = [row for row in value.topics if not is_own(row.name) and row.name != NO_TOPIC]
        for row in rows:
            topic = topics.served(row.name or "") or by_id.get(row.get("topic_id", NO_ID))
            show_virtual(row, topic, topics, version)
        if asked.topics is not None and not asks_all(version, asked):
            rows += [_absent(version, row) for row in asked.topics if not _is_for_broker(version, row, topics)]
            known = {NO_ID, *(row.get("topic_id", NO_ID) for row in rows)}
            ids = [row for row in asked.topics if _asked_id(version, row) not in known]
            rows += [_absent(version, row) for row in ids]  # of Kordon's own topics
        value.topics = rows


class DialectMetadata(_MetadataView):
    """Shows managed topics as their physical partitions.

    Args:
        retired: Takes retired partitions out of answers; None: nobody does.
    """

    def __init__(self, retired: RetiredPartitions | None = None) -> None:
        self._hidden = Metadata()
        self._retired = retired

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Does not ask for what is Kordon's own."""
        return self._hidden.request(version, value, NO_TOPICS)

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Shows managed topics with their layouts."""
        self._hidden.response(version, value, NO_TOPICS, asked)
        for row in value.topics:
            show_physical(row, topics)

    def takes_time(self, topics: ManagedTopics) -> bool:
        """Whether retired partitions may have to be looked at, or anything else takes time."""
        return self._retired is not None or super().takes_time(topics)

    async def complete(self, answer: Response) -> None:
        """Leaves out what is retired and empty."""
        if self._retired is not None:
            await self._retired.complete(answer)


def asks_all(version: int, request: Request) -> bool:
    """Whether all topics are asked for."""
    return request.topics is None or (version == 0 and not request.topics)


def _are_strange(names: Iterable[str], topics: ManagedTopics) -> bool:
    """Whether all of some topics are neither managed nor Kordon's own; one that is coming counts as managed."""
    return not any(topics.is_held(name) or is_own(name) for name in names)


def _asked_id(version: int, row: RequestTopic) -> UUID:
    """Returns the id by which a topic is asked for; brokers refuse all of a request with an id in an older version."""
    return row.get("topic_id", NO_ID) if version >= _ASKED_BY_ID else NO_ID


def _is_for_broker(version: int, row: RequestTopic, topics: ManagedTopics) -> bool:
    """Whether a broker may be asked: not for Kordon's own, nor by an id that a topic had before it was managed."""
    topic_id = _asked_id(version, row)
    if topic_id == NO_ID:
        return not is_own(row.name)
    return all(topic.layout.topic_id != topic_id for topic in topics)


def _absent(version: int, row: RequestTopic) -> ResponseTopic:
    topic_id = _asked_id(version, row)
    if topic_id == NO_ID:
        return ResponseTopic(error_code=Code.UNKNOWN_TOPIC_OR_PARTITION, name=row.name, topic_id=NO_ID, partitions=[])
    return ResponseTopic(error_code=Code.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[])
