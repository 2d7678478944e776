"""ShareGroupDescribe: members of share groups name topics in place of faces, in both views."""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import ShareGroupDescribeRequest as Request
from kordon.codecs.bodies import ShareGroupDescribeResponse as Response
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import to_topic


class ShareGroupDescribe(TranslatedApi[Request, Response]):
    """Renames what members subscribe to and what they are assigned."""

    key = apis.SHARE_GROUP_DESCRIBE
    answers_always = True

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Names topics in place of faces."""
        rename = to_topic(topics)
        for member in (member for group in value.groups for member in group.members):
            member.subscribed_topic_names = list(map(rename, member.subscribed_topic_names))
            for row in member.assignment.topic_partitions:
                row.topic_name = rename(row.topic_name)
