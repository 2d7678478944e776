"""Commits on managed topics: they are the face's (FACE-COMMITS), and before it has one, the topic's (COMMITS-FOUND).

The face has as many partitions as clients see, so commits and lag are the broker's own work. A group's commits from
before its topic was managed stand under the topic's own name. They are not copied: OffsetFetch asks for both at once,
and takes the old commit where there is no new one.

OffsetDelete deletes the face's commits only, so that an old one shows again if its partition had one: whether it may be
deleted as well is known when the broker has answered, and a refused deletion must leave all that was there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.layout import Layout, Placement
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopic, ManagedTopics, face_of
from kordon.proxy.topics.names import NO_ID, asked_by_real_id, to_face, to_topic, with_real_id

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


def partitions_before(layout: Layout) -> int:
    """Returns how many of the first virtual partitions are what the topic's partitions were before it was managed."""
    return layout.n if layout.epochs[0].placement is Placement.UNMANAGED else 0


class TopicRows:
    """Requests and responses with a row per topic.

    Args:
        rows: Returns the rows of a request or response.
    """

    answers_always = False

    def __init__(self, rows: Callable[[Any], Iterable[Any]]) -> None:
        self._rows = rows

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names faces in place of managed topics."""
        rename = to_face(topics)
        changes = [_rename(row, rename) or _to_face_id(row, topics) for row in self._rows(value)]
        return any(changes)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names managed topics in place of faces."""
        rename = to_topic(topics)
        real_ids = asked_by_real_id(self._rows(asked), topics)
        for row in self._rows(value):
            _rename(row, rename)
            _show_id(row, real_ids)
        return True


class OffsetFetch:
    """Commits of one group or of several, of some topics or of all."""

    answers_always = True  # all topics may be asked for

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Asks for the commits of faces in place of managed topics, and for those from before."""
        changed = False
        for group in groups_of(value):
            rows = group.topics or ()
            managed = [_asked_topic(row, topics) for row in rows]
            if any(managed):
                pairs = zip(rows, managed, strict=True)
                group["topics"] = [each for row, topic in pairs for each in (_both(row, topic) if topic else (row,))]
                changed = True
        return changed

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Shows each managed topic once; Kordon's own topics are not shown."""
        real_ids = asked_by_real_id((row for group in groups_of(asked) for row in group.topics or ()), topics)
        for group in groups_of(value):
            group["topics"] = merged(group.topics or (), topics)
            for row in group.topics:
                _show_id(row, real_ids)
        return True


def groups_of(value: Any) -> Iterable[Any]:
    """Returns the groups of an OffsetFetch, request or response; before version 8 the message is about one."""
    groups: Iterable[Any] = value.groups if "groups" in value else (value,)
    return groups


def _asked_topic(row: Any, topics: ManagedTopics) -> ManagedTopic | None:
    if "topic_id" in row:
        return topics.with_face_id(row.topic_id) or with_real_id(topics, row.topic_id)
    return topics.named(row.name)


def _both(row: Any, topic: ManagedTopic) -> Iterable[Any]:
    """Returns what to ask: the face, and the topic itself for partitions that may have commits from before."""
    yield {**row, **_names(row, face_of(topic.name), topic.face_id)}
    before = [v for v in row.partition_indexes if v < partitions_before(topic.layout)]
    if before:
        yield {**row, **_names(row, topic.name, topic.layout.topic_id), "partition_indexes": before}


def _names(row: Any, name: str, topic_id: Any) -> dict[str, Any]:
    return {"topic_id": topic_id} if "topic_id" in row else {"name": name}


def merged(rows: Iterable[Any], topics: ManagedTopics) -> list[Any]:
    """Puts the rows of a face and of its topic together, behind those of other topics.

    Args:
        rows: Of one group, as its coordinator tells them; those from before are changed.
        topics: What is managed.

    Returns:
        The rows as clients see them: topics by their names, and none that is Kordon's own.
    """
    left: list[Any] = []
    of_faces: dict[str, Any] = {}
    from_before: dict[str, Any] = {}
    for row in rows:
        topic, is_face = _answered_topic(row, topics)
        if topic is not None:
            shown = {**row, **_names(row, topic.name, topic.face_id)}
            if not is_face:
                limit = partitions_before(topic.layout)
                old = [each for each in row.partitions if each.partition_index < limit and _tells(each)]
                shown["partitions"] = [_until_moved(topic.layout, each) for each in old]
            (of_faces if is_face else from_before)[topic.name] = shown
        elif not (row.get("name") or "").startswith(OWN_PREFIX):
            left.append(row)
    for name, row in {**from_before, **of_faces}.items():
        face = of_faces.get(name, {"partitions": ()})["partitions"]
        old = from_before.get(name, {"partitions": ()})["partitions"]
        row["partitions"] = _newest(face, old)
        left += (row,) if row["partitions"] else ()
    return left


def _newest(face: Iterable[Any], before: Iterable[Any]) -> list[Any]:
    rows = {row.partition_index: row for row in face}
    for row in before:
        known = rows.get(row.partition_index)
        if known is None or (known.committed_offset == _NO_OFFSET and not known.error_code):
            rows[row.partition_index] = row
    return list(rows.values())


def _until_moved(layout: Layout, row: Any) -> Any:
    """Takes an old commit back to where the virtual partition left the partition of its number, if it is behind that.

    Only a group of the dialect commits there: what it has read of that partition since is other virtual partitions'.
    """
    end: int | None = None
    for stay in layout.chains[row.partition_index].stays:
        if stay.partition != row.partition_index or stay.delta:
            break
        end = stay.end
        if end is None:
            return row
    if end is not None and row.committed_offset > end:
        row.update({"committed_offset": end, "committed_leader_epoch": _NO_EPOCH})
    return row


def _tells(row: Any) -> bool:
    """Whether there is a commit or will be soon; a topic that is gone or hidden has none."""
    return row.error_code == Code.UNSTABLE_OFFSET_COMMIT or (not row.error_code and row.committed_offset != _NO_OFFSET)


def _answered_topic(row: Any, topics: ManagedTopics) -> tuple[ManagedTopic | None, bool]:
    """Returns the managed topic that a row is about, and whether it is its face's."""
    if "topic_id" in row:
        face = topics.with_face_id(row.topic_id)
        return face or with_real_id(topics, row.topic_id), face is not None
    is_face = row.name.startswith(OWN_PREFIX)
    return topics.named(row.name.removeprefix(OWN_PREFIX)), is_face


def _rename(row: Any, rename: Callable[[str], str]) -> bool:
    name = row.get("name")
    if not name or rename(name) == name:
        return False
    row["name"] = rename(name)
    return True


def _to_face_id(row: Any, topics: ManagedTopics) -> bool:
    topic = with_real_id(topics, row.get("topic_id") or NO_ID)
    if topic is not None:
        row["topic_id"] = topic.face_id
    return topic is not None


def _show_id(row: Any, real_ids: dict[Any, Any]) -> None:
    """Names a topic by the id by which the client did."""
    if row.get("topic_id") in real_ids:
        row["topic_id"] = real_ids[row["topic_id"]]
