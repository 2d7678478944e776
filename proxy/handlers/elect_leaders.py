"""ElectLeaders: elects the leaders of the physical partitions on which the named virtual ones live.

In the dialect it passes.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import ElectLeadersRequest as Request
from kordon.codecs.bodies import ElectLeadersResponse as Response
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.homes import at_home, spread
from kordon.proxy.topics.managed_topics import ManagedTopics


class ElectLeaders(TranslatedApi[Request, Response]):
    """Has the leaders of physical partitions elected where a client names virtual ones."""

    key = apis.ELECT_LEADERS
    answers_always = True

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Names the homes of virtual partitions, each once."""
        changed = False
        for row in value.topic_partitions or ():
            before, row.partitions = row.partitions, at_home(row.topic, row.partitions, topics)
            changed |= row.partitions != before
        return changed

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Answers for the virtual partitions that were named, or for all that live where something was done."""
        wanted = {row.topic: row.partitions for row in asked.topic_partitions or ()}
        for row in value.replica_election_results:
            topic = topics.named(row.topic)
            if topic is not None:
                virtual = wanted.get(row.topic, range(topic.layout.v_count))
                row.partition_result = spread(row.partition_result, "partition_id", virtual, topic)
