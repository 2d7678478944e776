"""The topic of the layouts as every proxy reads it, and as members write to it: acknowledgements and wishes.

By its `read_to_end` ONE-CONTROLLER, READ-BEFORE-SERVE, LATE-ANSWER and NO-FALSE-END have the layouts read to their end.
"""

from __future__ import annotations

from dataclasses import replace

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import InternalTopicLog
from kordon.proxy.own_topics.compacted_topic import LAYOUTS
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC, topics_with_faces


class LayoutsLog(InternalTopicLog):
    """The layouts topic; it need not exist."""

    def __init__(self, brokers: Brokers, topic: str = LAYOUTS_TOPIC) -> None:
        super().__init__(brokers, topic, "layouts")

    async def faces(self) -> list[str]:
        """Returns the topics that have a face: each is managed, or is about to be.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return await topics_with_faces(self.brokers)

    async def create(self) -> None:
        """Creates the topic, or checks that the one that is there is fit for it.

        Raises:
            OwnTopicUnfit: The topic is unfit. The message says what to change.
            UpstreamUnavailable: The cluster does not answer or refuses, or the topic was there and is lost.
        """
        if not await self.exists() and (lost := await self.faces()):
            raise UpstreamUnavailable(
                f"{self.topic} is lost: it is not there, and {', '.join(lost)} have faces; restore it first:"
                " kordon layouts import"
            )
        await replace(LAYOUTS, name=self.topic).ensure(self.brokers)
        await self.exists()
