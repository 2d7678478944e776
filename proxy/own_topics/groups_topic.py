"""The topic that holds what members of groups have reported: its name, what it must be like, and how it comes to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.own_topics.layouts_topic import REPLICAS

log = structlog.get_logger(__name__)

GROUPS_TOPIC: Final = "__kordon.groups"
RETENTION_MS: Final = 7 * 24 * 3_600_000
"""As long as brokers keep the commits of a group that nobody is in (offsets.retention.minutes)."""


class GroupsTopicUnfit(UpstreamUnavailable):
    """Raised when the topic is there, but is not such that reports are safe in it; says what to change."""


def groups_configs(replicas: int) -> dict[str, str]:
    """Returns the topic configs of a new groups topic."""
    return {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": "-1",
        "min.insync.replicas": "2" if replicas >= REPLICAS else "1",
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "max.message.bytes": str(1024 * 1024),
        "segment.bytes": str(16 * 1024 * 1024),  # only closed segments are compacted, and readers read them all
    }


async def ensure_groups_topic(brokers: Brokers, topic: str = GROUPS_TOPIC) -> None:
    """Creates the topic where it is missing, and checks it where it is there.

    Raises:
        GroupsTopicUnfit: It exists with other configs or more than one partition.
        UpstreamUnavailable: The cluster does not answer, or does not let Kordon create it.
    """
    admin = TopicsAdmin(brokers)
    found = await brokers.metadata([topic])
    if found.topics[0].error_code:
        replicas = min(REPLICAS, len(found.brokers))
        if await admin.create_topic(topic, partitions=1, replicas=replicas, configs=groups_configs(replicas)):
            log.info("groups_topic_created", topic=topic, replicas=replicas)
    leaders = await admin.wait_for_leaders(topic, partitions=1)
    if problem := _problem(len(leaders), await admin.topic_configs(topic)):
        raise GroupsTopicUnfit(f"{topic}: {problem}")


def _problem(partitions: int, configs: Mapping[str, str | None]) -> str | None:
    if partitions != 1:
        return f"has {partitions} partitions, and must have one"
    if "compact" not in (policy := configs.get("cleanup.policy") or ""):
        return f"cleanup.policy is {policy}, by which it grows for ever or forgets members; set it to compact,delete"
    if configs.get("unclean.leader.election.enable") == "true":
        return "unclean.leader.election.enable is true, which loses reports; set it to false"
    return None
