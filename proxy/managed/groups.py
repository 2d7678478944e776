"""Groups on managed topics: the coordinator sees the topic's face, clients see the topic (rules G1, G2, A3).

The face has as many partitions as clients see, so commits, assignments and lag are the broker's own work. Names inside
of what consumers tell each other (ConsumerProtocol) are changed as well: a coordinator reads them, and lets the commits
of a living group on a topic that it does not find there expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kordon.codecs.consumer_protocol import (
    build_assignment,
    build_subscription,
    parse_assignment,
    parse_subscription,
)
from kordon.codecs.errors import WireError
from kordon.proxy import apis
from kordon.proxy.managed.topics import OWN_PREFIX, ManagedTopics, face_of

CONSUMER: Final = "consumer"
"""The protocol type whose members speak ConsumerProtocol."""
_NEWEST_INNER: Final = 3
Rename = Callable[[str], str]


def to_face(topics: ManagedTopics) -> Rename:
    """Returns what gives a managed topic the name of its face, and leaves other names alone."""
    return lambda name: face_of(name) if topics.named(name) is not None else name


def to_topic(topics: ManagedTopics) -> Rename:
    """Returns what gives the face of a managed topic the topic's name, and leaves other names alone."""

    def rename(name: str) -> str:
        topic = name.removeprefix(OWN_PREFIX)
        return topic if topic != name and topics.named(topic) is not None else name

    return rename


class TopicRows:
    """Requests and responses with a row per topic, wherever these are.

    Args:
        asked: Returns the rows of a request, None where it names none.
        answered: Returns the rows of a response.
        answers_always: Whether a response may name topics though its request does not.
    """

    def __init__(
        self,
        asked: Callable[[Any], Iterable[Any]],
        answered: Callable[[Any], Iterable[Any]],
        *,
        answers_always: bool = False,
    ) -> None:
        self.answers_always = answers_always
        self._asked = asked
        self._answered = answered

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names faces in place of managed topics."""
        return _rename_rows(self._asked(value), to_face(topics))

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names managed topics in place of faces."""
        return _rename_rows(self._answered(value), to_topic(topics))


class JoinGroup:
    """Subscriptions inside of JoinGroup: one for each protocol, and in the leader's answer one for each member."""

    answers_always = True  # others may subscribe to more than the leader

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names faces in what a member joins with."""
        if value.protocol_type != CONSUMER:
            return False
        changes = [_change(row, "metadata", _subscription, to_face(topics)) for row in value.protocols]
        return any(changes)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names topics in what the leader learns of the members."""
        changes = [_change(row, "metadata", _subscription, to_topic(topics)) for row in value.members]
        return any(changes)


class SyncGroup:
    """Assignments inside of SyncGroup."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names faces in what the leader assigns."""
        if (value.get("protocol_type") or CONSUMER) != CONSUMER:
            return False
        changes = [_change(row, "assignment", _assignment, to_face(topics)) for row in value.assignments]
        return any(changes)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names topics in what the member is assigned."""
        if (value.get("protocol_type") or CONSUMER) != CONSUMER:
            return False
        return _change(value, "assignment", _assignment, to_topic(topics))


class DescribeGroups:
    """Subscriptions and assignments as admin clients see them."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names no topics."""
        return False

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names topics in place of faces."""
        rename = to_topic(topics)
        changes = [
            _change(member, name, change, rename)
            for group in value.groups
            if group.protocol_type == CONSUMER
            for member in group.members
            for name, change in (("member_metadata", _subscription), ("member_assignment", _assignment))
        ]
        return any(changes)


class ConsumerGroupHeartbeat:
    """Subscriptions of KIP-848 groups; assignments name topic ids, which for clients are the faces' anyway."""

    answers_always = False

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Subscribes to faces in place of managed topics."""
        names = value.subscribed_topic_names
        renamed = list(map(to_face(topics), names or ()))
        if not names or renamed == list(names):
            return False
        value.update({"subscribed_topic_names": renamed})
        return True

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names no topics."""
        return False


class ConsumerGroupDescribe:
    """Members of KIP-848 groups as admin clients see them."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names no topics."""
        return False

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names topics in place of faces."""
        rename = to_topic(topics)
        for member in (member for group in value.groups for member in group.members):
            member.update({"subscribed_topic_names": list(map(rename, member.subscribed_topic_names or ()))})
            for assignment in (member.assignment, member.target_assignment):
                for row in assignment.topic_partitions:
                    row.update({"topic_name": rename(row.topic_name)})
        return True


def _fetched_rows(value: Any) -> Iterable[Any]:
    """Returns the topics of OffsetFetch, of one group or of several."""
    groups = value.groups if "groups" in value else [value]
    return [row for group in groups for row in group.topics or ()]


class OffsetFetch(TopicRows):
    """Commits: those of a managed topic are the face's; what stands under the topic's own name is from before."""

    def __init__(self) -> None:
        super().__init__(_fetched_rows, _fetched_rows, answers_always=True)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names managed topics in place of faces, once each where all topics were asked for."""
        for group in value.groups if "groups" in value else [value]:
            faces = {name for row in group.topics or () if (name := row.get("name") or "").startswith(OWN_PREFIX)}
            left = [row for row in group.topics or () if face_of(row.get("name") or "") not in faces]
            group.update({"topics": left})
        return super().response(version, value, topics, asked)


def _rename_rows(rows: Iterable[Any], rename: Rename) -> bool:
    changed = False
    for row in rows:
        name = row.get("name")
        if name and (other := rename(name)) != name:
            row.update({"name": other})
            changed = True
    return changed


def _change(row: Any, field: str, change: Callable[[bytes, Rename], bytes], rename: Rename) -> bool:
    """Changes the names inside of a field's bytes; bytes that are not what they should be stay as they are."""
    before = bytes(row[field] or b"")
    try:
        after = change(before, rename)
    except WireError:
        return False
    row.update({field: after})
    return after != before


def _subscription(data: bytes, rename: Rename) -> bytes:
    version, value = parse_subscription(data)
    renamed = list(map(rename, value.topics))
    owned = value.get("owned_partitions") or ()
    changed = renamed != list(value.topics)
    for row in owned:
        changed |= rename(row.topic) != row.topic
        row.update({"topic": rename(row.topic)})
    if not changed:
        return data
    value.update({"topics": renamed})
    return build_subscription(min(version, _NEWEST_INNER), value)


def _assignment(data: bytes, rename: Rename) -> bytes:
    version, value = parse_assignment(data)
    if all(rename(row.topic) == row.topic for row in value.assigned_partitions):
        return data
    for row in value.assigned_partitions:
        row.update({"topic": rename(row.topic)})
    return build_assignment(min(version, _NEWEST_INNER), value)


def _topics(value: Any) -> Iterable[Any]:
    rows: Iterable[Any] = value.topics
    return rows


TRANSLATIONS: Final[Mapping[int, Any]] = {
    apis.OFFSET_COMMIT: TopicRows(_topics, _topics),
    apis.OFFSET_FETCH: OffsetFetch(),
    apis.JOIN_GROUP: JoinGroup(),
    apis.SYNC_GROUP: SyncGroup(),
    apis.DESCRIBE_GROUPS: DescribeGroups(),
    apis.TXN_OFFSET_COMMIT: TopicRows(_topics, _topics),
    apis.OFFSET_DELETE: TopicRows(_topics, _topics),
    apis.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeat(),
    apis.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribe(),
}
"""By api key."""
