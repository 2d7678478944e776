"""Groups on managed topics: the coordinator sees the topic's face, clients see the topic (FACE-COMMITS, FACE-NAMES).

The face has as many partitions as clients see, so commits, assignments and lag are the broker's own work. Names inside
of what consumers tell each other (ConsumerProtocol) are changed as well: a coordinator reads them, and lets the commits
of a living group on a topic that it does not find there expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.primitives import RowBudget
from kordon.proxy.handlers.commits import OffsetFetch, TopicRows
from kordon.proxy.handlers.member_bytes import MOST_ROWS, change_field, rename_assignment, rename_subscription
from kordon.proxy.handlers.regexes import said_by_client
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import listed, to_face, to_topic

log = client_log(__name__)

CONSUMER: Final = "consumer"
"""The protocol type whose members speak ConsumerProtocol."""
_ONE_KIND: Final = "in one group there are either OrderedConsumers or others, and these share an assignor (docs/sdk.md)"


class JoinGroup:
    """Subscriptions inside of JoinGroup: one for each protocol, and in the leader's answer one for each member."""

    answers_always = True  # others may subscribe to more than the leader

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names faces in what a member joins with."""
        if not _speaks_consumer(value):
            return False
        face, left = to_face(topics), RowBudget(MOST_ROWS)
        changes = [change_field(row, "metadata", rename_subscription, face, left) for row in value.protocols]
        return any(changes)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names topics in what the leader learns of the members."""
        if not _speaks_consumer(asked):
            return False
        if value.error_code == Code.INCONSISTENT_GROUP_PROTOCOL:  # of which clients tell their users the name only
            offered = listed([row.name for row in asked.protocols])
            log.warning("join_refused", group=asked.group_id, assignors=offered, cure=_ONE_KIND)
        changes = [change_field(row, "metadata", rename_subscription, to_topic(topics)) for row in value.members]
        return any(changes)


class SyncGroup:
    """Assignments inside of SyncGroup."""

    answers_always = True

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Names faces in what the leader assigns."""
        if not _speaks_consumer(value):
            return False
        face, left = to_face(topics), RowBudget(MOST_ROWS)
        changes = [change_field(row, "assignment", rename_assignment, face, left) for row in value.assignments]
        return any(changes)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Names topics in what the member is assigned."""
        if not _speaks_consumer(value, asked):
            return False
        return change_field(value, "assignment", rename_assignment, to_topic(topics))


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
            change_field(member, name, change, rename)
            for group in value.groups
            if group.protocol_type == CONSUMER
            for member in group.members
            for name, change in (("member_metadata", rename_subscription), ("member_assignment", rename_assignment))
        ]
        return any(changes)


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
            if member.subscribed_topic_regex:
                member["subscribed_topic_regex"] = said_by_client(member.subscribed_topic_regex)
            for assignment in (member.assignment, member.target_assignment):
                for row in assignment.topic_partitions:
                    row.update({"topic_name": rename(row.topic_name)})
        return True


def _speaks_consumer(*values: Any) -> bool:
    """Whether members speak ConsumerProtocol; the newer versions of SyncGroup and of the answers say so."""
    return all((value.get("protocol_type") or CONSUMER) == CONSUMER for value in values)


def _topics(value: Any) -> Iterable[Any]:
    rows: Iterable[Any] = value.topics
    return rows


TRANSLATIONS: Final[Mapping[int, Any]] = {
    apis.OFFSET_COMMIT: TopicRows(_topics),
    apis.OFFSET_FETCH: OffsetFetch(),
    apis.JOIN_GROUP: JoinGroup(),
    apis.SYNC_GROUP: SyncGroup(),
    apis.DESCRIBE_GROUPS: DescribeGroups(),
    apis.TXN_OFFSET_COMMIT: TopicRows(_topics),
    apis.OFFSET_DELETE: TopicRows(_topics),
    apis.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribe(),
}
"""By api key; ConsumerGroupHeartbeat is `subscriptions.py`'s."""
