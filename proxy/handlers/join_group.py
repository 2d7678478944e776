"""JoinGroup: subscriptions name faces to the coordinator, and topics to the group's leader (FACE-NAMES).

A coordinator reads what consumers tell each other (ConsumerProtocol), and lets the commits of a living group on a topic
that it does not find there expire. In the dialect JoinGroup passes: there the topics' own names stand.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import JoinGroupRequest as Request
from kordon.codecs.bodies import JoinGroupResponse as Response
from kordon.codecs.error_codes import Code
from kordon.codecs.primitives import RowBudget
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.member_bytes import MOST_ROWS, change_field, rename_subscription, speaks_consumer
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import listed, to_face, to_topic

log = client_log(__name__)

_ONE_KIND: Final = "in one group there are either OrderedConsumers or others, and these share an assignor (docs/sdk.md)"


class JoinGroup(TranslatedApi[Request, Response]):
    """Renames subscriptions: one for each protocol, and in the leader's answer one for each member."""

    key = apis.JOIN_GROUP
    answers_always = True  # others may subscribe to more than the leader

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Names faces in what a member joins with."""
        if not speaks_consumer(value):
            return False
        face, left = to_face(topics), RowBudget(MOST_ROWS)
        changes = [change_field(row, "metadata", rename_subscription, face, left) for row in value.protocols]
        return any(changes)

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Names topics in what the leader learns of the members."""
        if not speaks_consumer(asked):
            return
        if value.error_code == Code.INCONSISTENT_GROUP_PROTOCOL:  # of which clients tell their users the name only
            offered = listed([row.name for row in asked.protocols])
            log.warning("join_refused", group=asked.group_id, assignors=offered, cure=_ONE_KIND)
        for row in value.members:
            change_field(row, "metadata", rename_subscription, to_topic(topics))
