"""The topic of the epochs that Kordon lends: its name, what it must be like, and how it comes to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.own_topics.one_partition import compacted_configs, made

PRODUCERS_TOPIC: Final = "__kordon.producers"
KEPT_MS: Final = 3_600_000
"""For which all records are kept: a proxy that was silent for longer may write what compaction then leaves alone."""


class ProducersTopicUnfit(UpstreamUnavailable):
    """Raised when the topic is there, but is not such that epochs are safe in it; says what to change."""


def producers_configs(replicas: int) -> dict[str, str]:
    """Returns the topic configs of a new topic of lent epochs."""
    return compacted_configs(replicas) | {"min.compaction.lag.ms": str(KEPT_MS)}


async def ensure_producers_topic(brokers: Brokers, topic: str = PRODUCERS_TOPIC) -> None:
    """Creates the topic where it is missing, and checks it where it is there.

    Raises:
        ProducersTopicUnfit: It exists with other configs or more than one partition.
        UpstreamUnavailable: The cluster does not answer, or does not let Kordon create it.
    """
    found = await made(brokers, topic, producers_configs, "producers_topic_created")
    if problem := _problem(*found):
        raise ProducersTopicUnfit(f"{topic}: {problem}")


def _problem(partitions: int, configs: Mapping[str, str | None]) -> str | None:
    if partitions != 1:
        return f"has {partitions} partitions, and must have one; delete it, and Kordon makes it anew"
    if (policy := configs.get("cleanup.policy") or "") != "compact":
        return f"cleanup.policy is {policy}, by which it grows for ever or forgets producers; set it to compact"
    if configs.get("unclean.leader.election.enable") == "true":
        return "unclean.leader.election.enable is true, which loses epochs; set it to false"
    if int(configs.get("min.compaction.lag.ms") or 0) < KEPT_MS:
        return (
            f"min.compaction.lag.ms is below {KEPT_MS}, by which a late record may be all that is left; set it to that"
        )
    return None
