"""Kordon's own topics of one partition: they are made where they are missing, and it is told what they are like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.own_topics.layouts_topic import REPLICAS

log = structlog.get_logger(__name__)


class Found(NamedTuple):
    """What a topic is like."""

    partitions: int
    configs: Mapping[str, str | None]


def compacted_configs(replicas: int) -> dict[str, str]:
    """Returns the topic configs of a new topic that keeps the last record of each key."""
    return {
        "cleanup.policy": "compact",
        "min.insync.replicas": "2" if replicas >= REPLICAS else "1",
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "max.message.bytes": str(1024 * 1024),
        "segment.bytes": str(16 * 1024 * 1024),  # only closed segments are compacted, and readers read them all
    }


async def made(brokers: Brokers, topic: str, configs: Callable[[int], Mapping[str, str]], event: str) -> Found:
    """Creates a topic where it is missing.

    Args:
        configs: Returns those of a new topic, by its number of replicas.
        event: That is logged when it is created.

    Raises:
        UpstreamUnavailable: The cluster does not answer, or does not let Kordon create it.
    """
    admin = TopicsAdmin(brokers)
    found = await brokers.metadata([topic])
    if found.topics[0].error_code:
        replicas = min(REPLICAS, len(found.brokers))
        if await admin.create_topic(topic, partitions=1, replicas=replicas, configs=configs(replicas)):
            log.info(event, topic=topic, replicas=replicas)
    leaders = await admin.wait_for_leaders(topic, partitions=1)
    return Found(len(leaders), await admin.topic_configs(topic))
