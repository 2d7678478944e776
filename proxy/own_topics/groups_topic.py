"""The topic that holds what members of groups have reported: its name, what it must be like, and how it comes to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.own_topics.one_partition import compacted_configs, made

GROUPS_TOPIC: Final = "__kordon.groups"
RETENTION_MS: Final = 7 * 24 * 3_600_000
"""As long as brokers keep the commits of a group that nobody is in (offsets.retention.minutes)."""


class GroupsTopicUnfit(UpstreamUnavailable):
    """Raised when the topic is there, but is not such that reports are safe in it; says what to change."""


def groups_configs(replicas: int) -> dict[str, str]:
    """Returns the topic configs of a new groups topic."""
    return compacted_configs(replicas) | {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": "-1",
    }


async def ensure_groups_topic(brokers: Brokers, topic: str = GROUPS_TOPIC) -> None:
    """Creates the topic where it is missing, and checks it where it is there.

    Raises:
        GroupsTopicUnfit: It exists with other configs or more than one partition.
        UpstreamUnavailable: The cluster does not answer, or does not let Kordon create it.
    """
    found = await made(brokers, topic, groups_configs, "groups_topic_created")
    if problem := _problem(*found):
        raise GroupsTopicUnfit(f"{topic}: {problem}")


def _problem(partitions: int, configs: Mapping[str, str | None]) -> str | None:
    if partitions != 1:
        return f"has {partitions} partitions, and must have one"
    if "compact" not in (policy := configs.get("cleanup.policy") or ""):
        return f"cleanup.policy is {policy}, by which it grows for ever or forgets members; set it to compact,delete"
    if configs.get("unclean.leader.election.enable") == "true":
        return "unclean.leader.election.enable is true, which loses reports; set it to false"
    return None
