"""DescribeTopicPartitions: as Metadata, but in pages.

In the dialect a managed topic has those of its physical partitions that the broker's page holds.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import DescribeTopicPartitionsRequest as Request
from kordon.codecs.bodies import DescribeTopicPartitionsRequestCursor as RequestCursor
from kordon.codecs.bodies import DescribeTopicPartitionsRequestTopic as RequestTopic
from kordon.codecs.bodies import DescribeTopicPartitionsResponse as Response
from kordon.codecs.bodies import DescribeTopicPartitionsResponseNextCursor as NextCursor
from kordon.codecs.bodies import DescribeTopicPartitionsResponseTopic as ResponseTopic
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.shown_topics import NO_TOPIC, NO_TOPICS, ShownTopics, set_epoch, show_unserved, show_virtual
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopic, ManagedTopics, is_own
from kordon.proxy.topics.names import NO_ID

_MOST_PARTITIONS: Final = 2000
"""Partitions of one answer at most: the default of the brokers' max.request.partition.size.limit."""


class DescribeTopicPartitions(ShownTopics[Request, Response]):
    """Shows managed topics as their virtual partitions.

    A broker's page must hold all physical partitions of a managed topic, or none: then each virtual one is there.
    """

    key = apis.DESCRIBE_TOPIC_PARTITIONS

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Has the broker begin with a whole topic, and end with one as far as it can."""
        named = [topics.named(row.name) for row in value.topics] if value.topics else list(topics)
        managed = [topic for topic in named if topic is not None]
        if value.topics:
            rows = [row for row in value.topics if not is_own(row.name)]
            value.topics = rows or [RequestTopic(name=NO_TOPIC)]  # none would mean all
        widest = max((_physical_count(topic) for topic in managed), default=1)
        value.response_partition_limit = max(value.response_partition_limit, widest)
        if value.cursor is not None and topics.named(value.cursor.topic_name) is not None:
            value.cursor.partition_index = min(value.cursor.partition_index, 0)
        return True

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Shows managed topics as clients see them, as many partitions as the client asked for."""
        room = max(1, min(asked.response_partition_limit, _MOST_PARTITIONS))  # brokers tell one at least
        page = _Page(room, asked.cursor, value.next_cursor)
        for row in value.topics:
            if is_own(row.name) or row.name == NO_TOPIC:
                continue
            name = row.name or ""
            show_virtual(row, topics.served(name), topics)
            if not page.add(row, name, managed=topics.named(name) is not None):
                break
        own = [] if asked.cursor else [_absent(row.name) for row in asked.topics if is_own(row.name)]
        value.topics, value.next_cursor = [*page.rows, *own], page.next_cursor


class DialectDescribeTopicPartitions(ShownTopics[Request, Response]):
    """Shows managed topics as their physical partitions."""

    key = apis.DESCRIBE_TOPIC_PARTITIONS

    def __init__(self) -> None:
        self._hidden = DescribeTopicPartitions()

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Does not ask for what is Kordon's own."""
        return self._hidden.request(version, value, NO_TOPICS)

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Shows of managed topics what a page holds of their partitions."""
        self._hidden.response(version, value, NO_TOPICS, asked)
        for row in value.topics:
            topic = topics.served(row.name or "")
            if topic is None:
                show_unserved(row, topics)
            elif not row.error_code:
                for each in row.partitions:
                    set_epoch(topic.layout, each)


def _absent(name: str) -> ResponseTopic:
    return ResponseTopic(error_code=Code.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_id=NO_ID, partitions=[])


def _physical_count(topic: ManagedTopic) -> int:
    return 1 + max(segment.id.partition for segment in topic.layout.segments)


class _Page:
    """What a client gets of a broker's page.

    Args:
        begin: The client's cursor, None: from the beginning.
        next_cursor: The broker's, where its page ended before all was told.
    """

    def __init__(self, room: int, begin: RequestCursor | None, next_cursor: NextCursor | None) -> None:
        self.rows: list[ResponseTopic] = []
        self.next_cursor = _past_own(next_cursor)
        self._room = room
        self._begin = begin
        self._broken = next_cursor.topic_name if next_cursor is not None and next_cursor.partition_index > 0 else None

    def add(self, row: ResponseTopic, name: str, *, managed: bool) -> bool:
        """Adds a topic, or a part of it; False: the page is full, and `next_cursor` says where to continue."""
        begin = self._begin
        first = begin.partition_index if begin is not None and begin.topic_name == name else 0
        partitions = [each for each in row.partitions if each.partition_index >= first]
        if managed and name == self._broken:
            if self.rows:
                return self._end(name, 0)
            self.next_cursor = _cursor(name + "!", 0)  # behind it: "!" sorts before all that names may hold
        if partitions and not self._room:
            return self._end(name, partitions[0].partition_index)
        row.partitions = partitions[: self._room]
        self.rows.append(row)
        if len(partitions) > self._room:
            return self._end(name, partitions[self._room].partition_index)
        self._room -= len(partitions)
        return True

    def _end(self, name: str, partition: int) -> bool:
        self.next_cursor = _cursor(name, partition)
        return False


def _cursor(name: str, partition: int) -> NextCursor:
    return NextCursor(topic_name=name, partition_index=partition)


def _past_own(cursor: NextCursor | None) -> NextCursor | None:
    """Keeps the name of a topic of Kordon's own out of a cursor: "/" is what follows "." in the order of names."""
    if cursor is None or not is_own(cursor.topic_name):
        return cursor
    return _cursor(OWN_PREFIX[:-1] + "/", 0)
