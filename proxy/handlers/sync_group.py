"""SyncGroup: assignments name faces to the coordinator, and topics to the members (FACE-NAMES).

In the dialect SyncGroup passes: there the topics' own names stand.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import SyncGroupRequest as Request
from kordon.codecs.bodies import SyncGroupResponse as Response
from kordon.codecs.primitives import RowBudget
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.member_bytes import MOST_ROWS, change_field, rename_assignment, speaks_consumer
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import to_face, to_topic


class SyncGroup(TranslatedApi[Request, Response]):
    """Renames the topics of assignments."""

    key = apis.SYNC_GROUP
    answers_always = True

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Names faces in what the leader assigns."""
        if not speaks_consumer(value):
            return False
        face, left = to_face(topics), RowBudget(MOST_ROWS)
        changes = [change_field(row, "assignment", rename_assignment, face, left) for row in value.assignments]
        return any(changes)

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Names topics in what the member is assigned."""
        if speaks_consumer(value, asked):
            change_field(value, "assignment", rename_assignment, to_topic(topics))
