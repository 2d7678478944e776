"""DescribeGroups: subscriptions and assignments of members name topics in place of faces, in both views."""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import DescribeGroupsRequest as Request
from kordon.codecs.bodies import DescribeGroupsResponse as Response
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.member_bytes import CONSUMER, change_field, rename_assignment, rename_subscription
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import to_topic


class DescribeGroups(TranslatedApi[Request, Response]):
    """Renames what members have joined with and what they are assigned."""

    key = apis.DESCRIBE_GROUPS
    answers_always = True

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Names topics in place of faces."""
        rename = to_topic(topics)
        for member in (member for group in value.groups if group.protocol_type == CONSUMER for member in group.members):
            change_field(member, "member_metadata", rename_subscription, rename)
            change_field(member, "member_assignment", rename_assignment, rename)
