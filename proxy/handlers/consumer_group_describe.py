"""ConsumerGroupDescribe: members of KIP-848 groups name topics in place of faces, in both views.

An expression that was expanded for the coordinator is shown as the client said it (`regexes.py`).
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import ConsumerGroupDescribeRequest as Request
from kordon.codecs.bodies import ConsumerGroupDescribeResponse as Response
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.regexes import said_by_client
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import to_topic


class ConsumerGroupDescribe(TranslatedApi[Request, Response]):
    """Renames what members subscribe to and what they are assigned."""

    key = apis.CONSUMER_GROUP_DESCRIBE
    answers_always = True

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Names topics in place of faces."""
        rename = to_topic(topics)
        for member in (member for group in value.groups for member in group.members):
            member.update({"subscribed_topic_names": list(map(rename, member.subscribed_topic_names or ()))})
            if member.subscribed_topic_regex:
                member["subscribed_topic_regex"] = said_by_client(member.subscribed_topic_regex)
            for assignment in (member.assignment, member.target_assignment):
                for row in assignment.topic_partitions:
                    row.update({"topic_name": rename(row.topic_name)})
