"""Metadata and DescribeTopicPartitions: a managed topic as its V virtual partitions, Kordon's own topics not at all.

A virtual partition has the leader, the replicas and the ISR of the physical one on which it lives. While a topic with
data is taken over an answer that names it waits until it is known what clients see of it from now on (TAKEOVER-WAITS).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.codecs.turns import rows_done
from kordon.proxy.handlers.settle import HOLD_SECONDS
from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.takeover import may_be_shown
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopic, ManagedTopics, is_own

NO_ID: Final = UUID(int=0)
NO_TOPIC: Final = "/"
"""Is no legal name: asked for in place of nothing where asking for nothing would mean all topics."""
_ASKED_BY_ID: Final = 12
"""From this version of Metadata on a topic can be asked for by its id (KIP-516); 10 and 11 have the field already."""
_MOST_PARTITIONS: Final = 2000
"""Of a DescribeTopicPartitions answer: max.request.partition.size.limit as brokers have it by default."""


def virtual_partitions(topic: ManagedTopic, physical: Iterable[Any]) -> list[dict[str, Any]]:
    """Makes the rows of a topic's virtual partitions out of those of its physical ones."""
    by_index = {row.partition_index: row for row in physical}
    rows: list[dict[str, Any]] = []
    for v, chain in enumerate(topic.layout.chains):
        rows_done(1)
        assert chain.home is not None  # or else it may not be shown
        row = by_index.get(chain.home.partition, UNLED)
        epoch = virtual_epoch(chain.home.move, row.get("leader_epoch", -1))
        rows.append({**row, "partition_index": v, "leader_epoch": epoch})
    return rows


UNLED: Final[Mapping[str, Any]] = {
    "error_code": Code.LEADER_NOT_AVAILABLE,
    "leader_id": -1,
    "replica_nodes": [],
    "isr_nodes": [],
    "offline_replicas": [],
}
"""A partition that the broker has not heard of yet."""


async def wait_until_shown(answer: Any, topics: ManagedTopics) -> None:
    """Returns when clients may be told of all topics that an answer names; of what may still not be, in a moment.

    Args:
        answer: To Metadata or DescribeTopicPartitions, as brokers give it.
        topics: What is managed.
    """
    try:
        async with asyncio.timeout(HOLD_SECONDS):
            for row in answer.topics:
                while (topic := topics.served(row.name)) is not None and not may_be_shown(topic.layout):
                    await topic.wait_for_change()
    except TimeoutError:
        return  # it is said to have no leader, which clients ask for again


class MetadataTranslation:
    """Translates Metadata."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Asks by the real topics' ids where a client asks by those of faces, and not for what is Kordon's own."""
        if _asks_all(version, value):
            return False
        rows = [row for row in value.topics if _is_for_broker(version, row, topics)]
        changed = len(rows) < len(value.topics)
        for row in rows:
            topic = topics.with_face_id(_asked_id(version, row))
            if topic is not None:
                row["topic_id"] = topic.layout.topic_id
                changed = True
        if not rows and version == 0:
            rows = [{"name": NO_TOPIC}]
        value["topics"] = rows
        return changed

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Shows managed topics as clients see them, and says of what is Kordon's own that it does not exist."""
        by_id = {topic.layout.topic_id: topic for topic in topics}
        rows = [
            _seen(unless_unserved(row, topics), topics.served(row.name) or by_id.get(row.get("topic_id", NO_ID)))
            for row in value.topics
            if not is_own(row.name) and row.name != NO_TOPIC
        ]
        if not _asks_all(version, asked):
            rows += [_absent(version, row) for row in asked.topics if not _is_for_broker(version, row, topics)]
            known = {row["topic_id"] for row in rows if "topic_id" in row}
            ids = [row for row in asked.topics if _asked_id(version, row) not in (NO_ID, *known)]
            rows += [_absent(version, row) for row in ids]  # of Kordon's own topics
        value["topics"] = rows
        return True


def _asks_all(version: int, request: Any) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _asked_id(version: int, row: Any) -> UUID:
    """Returns the id by which a topic is asked for; brokers refuse all of a request with an id in an older version."""
    topic_id: UUID = row.get("topic_id", NO_ID) if version >= _ASKED_BY_ID else NO_ID
    return topic_id


def _is_for_broker(version: int, row: Any, topics: ManagedTopics) -> bool:
    """Whether a broker may be asked: not for Kordon's own, nor by an id that a topic had before it was managed."""
    topic_id = _asked_id(version, row)
    if topic_id == NO_ID:
        return not is_own(row.name)
    return all(topic.layout.topic_id != topic_id for topic in topics)


def _absent(version: int, row: Any) -> dict[str, Any]:
    topic_id = _asked_id(version, row)
    code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic_id == NO_ID else Code.UNKNOWN_TOPIC_ID
    return {"error_code": code, "name": row.name if topic_id == NO_ID else None, "topic_id": topic_id}


def unless_unserved(row: Any, topics: ManagedTopics) -> Any:
    """Shows of a topic whose layout cannot be read that it is there, and nothing to write to or to read from."""
    name = row.get("name") or ""
    if name not in topics.unserved or topics.served(name) is not None:
        return row
    code = row["error_code"] or Code.LEADER_NOT_AVAILABLE
    return {**row, "error_code": code, "topic_id": NO_ID, "partitions": []}


def _seen(row: Any, topic: ManagedTopic | None) -> Any:
    """Shows one topic; `topic` is None where it is not managed."""
    rows_done(1)
    if topic is None:
        return row
    if not may_be_shown(topic.layout):
        return row if row.error_code else {**row, "error_code": Code.LEADER_NOT_AVAILABLE, "partitions": []}
    topic_id = row.get("topic_id", NO_ID)
    shown = {**row, "topic_id": NO_ID if topic_id == NO_ID else topic.face_id}
    if row.error_code:
        return shown
    if topic_id not in (NO_ID, topic.layout.topic_id):
        # Deleted and made again: not the one whose layout this is (SAME-TOPIC). Clients wait until that has been seen.
        return {**shown, "error_code": Code.LEADER_NOT_AVAILABLE, "partitions": []}
    return {**shown, "is_internal": False, "partitions": virtual_partitions(topic, row.partitions)}


class DescribeTopicPartitionsTranslation:
    """Translates DescribeTopicPartitions, whose answers come in pages.

    A broker's page must hold all physical partitions of a managed topic, or none: then each virtual one is there.
    """

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Has the broker begin with a whole topic, and end with one as far as it can."""
        named = [topics.named(row.name) for row in value.topics] if value.topics else list(topics)
        managed = [topic for topic in named if topic is not None]
        if value.topics:
            rows = [row for row in value.topics if not is_own(row.name)]
            value["topics"] = rows or [{"name": NO_TOPIC}]  # none would mean all
        widest = max((_physical_count(topic) for topic in managed), default=1)
        value["response_partition_limit"] = max(value.response_partition_limit, widest)
        if value.cursor is not None and topics.named(value.cursor.topic_name) is not None:
            value.cursor["partition_index"] = min(value.cursor.partition_index, 0)
        return True

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Shows managed topics as clients see them, as many partitions as the client asked for."""
        room = max(1, min(asked.response_partition_limit, _MOST_PARTITIONS))  # brokers tell one at least
        page = _Page(room, asked.cursor, value.next_cursor)
        for row in value.topics:
            if is_own(row.name) or row.name == NO_TOPIC:
                continue
            shown = _seen(unless_unserved(row, topics), topics.served(row.name))
            if not page.add(shown, managed=topics.named(row.name) is not None):
                break
        own = [{"name": row.name, **_DOES_NOT_EXIST} for row in asked.topics if is_own(row.name) and not asked.cursor]
        value["topics"], value["next_cursor"] = [*page.rows, *own], page.next_cursor
        return True


_DOES_NOT_EXIST: Final[Mapping[str, Any]] = {"error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "topic_id": NO_ID}


def _physical_count(topic: ManagedTopic) -> int:
    return 1 + max(segment.id.partition for segment in topic.layout.segments)


class _Page:
    """What a client gets of a broker's page.

    Args:
        room: Partitions that it takes.
        begin: The client's cursor, None: from the beginning.
        next_cursor: The broker's, where its page ended before all was told.
    """

    def __init__(self, room: int, begin: Any, next_cursor: Any) -> None:
        self.rows: list[Any] = []
        self.next_cursor = _past_own(next_cursor)
        self._room = room
        self._begin = begin
        self._broken = next_cursor.topic_name if next_cursor is not None and next_cursor.partition_index > 0 else None

    def add(self, row: Any, *, managed: bool) -> bool:
        """Adds a topic, or a part of it; False: the page is full, and `next_cursor` says where to go on."""
        partitions = [each for each in row.get("partitions", []) if each["partition_index"] >= self._first_of(row)]
        if managed and row["name"] == self._broken:
            if self.rows:
                return self._end(row["name"], 0)
            self.next_cursor = _cursor(row["name"] + "!", 0)  # behind it: "!" sorts before all that names may hold
        if partitions and not self._room:
            return self._end(row["name"], partitions[0]["partition_index"])
        self.rows.append({**row, "partitions": partitions[: self._room]})
        if len(partitions) > self._room:
            return self._end(row["name"], partitions[self._room]["partition_index"])
        self._room -= len(partitions)
        return True

    def _first_of(self, row: Any) -> int:
        begin = self._begin
        return begin.partition_index if begin is not None and begin.topic_name == row["name"] else 0

    def _end(self, name: str, partition: int) -> bool:
        self.next_cursor = _cursor(name, partition)
        return False


def _cursor(name: str, partition: int) -> dict[str, Any]:
    return {"topic_name": name, "partition_index": partition}


def _past_own(cursor: Any) -> Any:
    """Keeps the name of a topic of Kordon's own out of a cursor: "/" is what follows "." in the order of names."""
    if cursor is None or not is_own(cursor.topic_name):
        return cursor
    return _cursor(OWN_PREFIX[:-1] + "/", 0)
