"""The topic that holds the layouts: its name, what it must be like, and how it comes to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from kordon.codecs.bodies import MetadataRequest
from kordon.codecs.messages import metadata
from kordon.proxy.core.errors import KordonError
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.topics.managed_topics import topic_of_face

log = structlog.get_logger(__name__)

LAYOUTS_TOPIC: Final = "__kordon.layouts"
REPLICAS: Final = 3
_METADATA_VERSIONS: Final = range(1, 13)
"""Version 0 takes no list for an empty one."""


class LayoutsTopicUnfit(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when the topic is there, but is not such that layouts are safe in it; says what to change."""


def layouts_configs(replicas: int) -> dict[str, str]:
    """Returns the topic configs of a new layouts topic."""
    return {
        "cleanup.policy": "compact",
        # with two copies a minimum of two would stop all changes as soon as one is away
        "min.insync.replicas": "2" if replicas >= REPLICAS else "1",
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "segment.bytes": str(16 * 1024 * 1024),  # only closed segments are compacted, and readers read them all
    }


async def topics_with_faces(brokers: Brokers) -> list[str]:
    """Returns the topics that have a face, in the order of their names, without reading the layouts.

    Raises:
        UpstreamUnavailable: Nobody answers.
    """
    asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    rows = (await brokers.ask_any(metadata.API, _METADATA_VERSIONS, asked)).topics
    return sorted(topic for row in rows if (topic := topic_of_face(row.name or "")) is not None)


async def ensure_layouts_topic(brokers: Brokers, admin: TopicsAdmin, topic: str = LAYOUTS_TOPIC) -> None:
    """Creates the topic where it is missing, and checks it where it is there.

    Raises:
        LayoutsTopicUnfit: It exists with other configs or more than one partition.
        UpstreamUnavailable: The cluster does not answer, or does not let Kordon create it.
    """
    answer = await brokers.metadata([topic])
    replicas = min(REPLICAS, len(answer.brokers))
    configs = layouts_configs(replicas)
    if await admin.create_topic(topic, partitions=1, replicas=replicas, configs=configs):
        log.info("layouts_topic_created", topic=topic, replicas=replicas)
    leaders = await admin.wait_for_leaders(topic, partitions=1)
    if problem := _problem(len(leaders), await admin.topic_configs(topic)):
        raise LayoutsTopicUnfit(f"{topic}: {problem}")


def _problem(partitions: int, configs: Mapping[str, str | None]) -> str | None:
    if partitions != 1:
        return f"has {partitions} partitions, and must have one"
    if (policy := configs.get("cleanup.policy")) != "compact":
        return f"cleanup.policy is {policy}, which loses layouts; set it to compact"
    if configs.get("unclean.leader.election.enable") == "true":
        return "unclean.leader.election.enable is true, which loses layouts; set it to false"
    return None
