"""The topic of the layouts as every proxy reads it, and as members write to it: acknowledgements and wishes.

By its `read_to_end` ONE-CONTROLLER, READ-BEFORE-SERVE, LATE-ANSWER and NO-FALSE-END have the layouts read to their end.
"""

from __future__ import annotations

from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.own_log import OwnLog
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC, ensure_layouts_topic


class LayoutsLog(OwnLog):
    """The layouts topic; it need not exist.

    Args:
        brokers: Where brokers are found.
        topic: Its name.
    """

    def __init__(self, brokers: Brokers, topic: str = LAYOUTS_TOPIC) -> None:
        super().__init__(brokers, topic, "layouts")

    async def create(self) -> None:
        """Creates the topic, or checks that the one that is there is fit for it.

        Raises:
            LayoutsTopicUnfit: It is not; the message says what to change.
            UpstreamUnavailable: The cluster does not answer or refuses.
        """
        await ensure_layouts_topic(self.brokers, TopicsAdmin(self.brokers), self.topic)
        await self.exists()
