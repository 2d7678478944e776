"""The name of the topic that holds the layouts, and which topics have a face, as brokers tell without it."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import MetadataRequest
from kordon.codecs.messages import metadata
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.own_topics.compacted_topic import LAYOUTS
from kordon.proxy.topics.managed_topics import topic_of_face

LAYOUTS_TOPIC: Final = LAYOUTS.name
_METADATA_VERSIONS: Final = range(1, 13)
"""Version 0 takes no list for an empty one."""


async def topics_with_faces(brokers: Brokers) -> list[str]:
    """Returns the topics that have a face, in the order of their names, without reading the layouts.

    Raises:
        UpstreamUnavailable: No broker answers.
    """
    asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    rows = (await brokers.ask_any(metadata.API, _METADATA_VERSIONS, asked)).topics
    return sorted(topic for row in rows if (topic := topic_of_face(row.name or "")) is not None)
