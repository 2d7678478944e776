"""Kordon's own topics that keep the last record of each key: what they are like, and how they come to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin

log = structlog.get_logger(__name__)

REPLICAS: Final = 3
_POLICY: Final = "cleanup.policy"
_UNCLEAN: Final = "unclean.leader.election.enable"
_LAG: Final = "min.compaction.lag.ms"


class OwnTopicUnfit(UpstreamUnavailable):
    """Raised when a topic is there, but is not such that records are safe in it; says what to change."""


@dataclass(frozen=True)
class CompactedTopic:
    """What a topic is like.

    Attributes:
        purpose: Begins the names of log events about it (`lent_epochs_unavailable`), and names connections.
        holds: The contents of the topic, in words for messages.
        own_configs: Topic configs that others of Kordon's topics do not have.
        when_lost: Why nobody has to do anything when it is lost; empty: it must not be.
        partitions: How many it has.
        may_have_more: Whether partitions that somebody adds are left unused; otherwise the topic is unfit then.
    """

    name: str
    purpose: str
    holds: str
    own_configs: Mapping[str, str] = field(default_factory=dict)
    when_lost: str = ""
    partitions: int = 1
    may_have_more: bool = False

    def configs(self, replicas: int) -> dict[str, str]:
        """Returns the topic configs of a new one."""
        return {
            _POLICY: "compact",
            # with two copies a minimum of two would stop all writes as soon as one is away
            "min.insync.replicas": "2" if replicas >= REPLICAS else "1",
            _UNCLEAN: "false",
            "compression.type": "uncompressed",
            "max.message.bytes": str(1024 * 1024),
            "segment.bytes": str(16 * 1024 * 1024),  # only closed segments are compacted, and readers read them all
            **self.own_configs,
        }

    async def ensure(self, brokers: Brokers) -> None:
        """Creates the topic where it is missing, and checks it where it is there.

        Raises:
            OwnTopicUnfit: The topic has other configs or another number of partitions.
            UpstreamUnavailable: The cluster does not answer, or does not let Kordon create it.
        """
        admin = TopicsAdmin(brokers)
        found = await brokers.metadata([self.name])
        if found.topics[0].error_code:
            replicas = min(REPLICAS, len(found.brokers))
            made = self.configs(replicas)
            if await admin.create_topic(self.name, partitions=self.partitions, replicas=replicas, configs=made):
                log.info("own_topic_created", topic=self.name, replicas=replicas)
        leaders = await admin.wait_for_leaders(self.name, partitions=1)
        if problem := self._problem(len(leaders), await admin.topic_configs(self.name)):
            raise OwnTopicUnfit(f"{self.name}: {problem}")

    def _problem(self, partitions: int, found: Mapping[str, str | None]) -> str | None:
        if partitions != self.partitions and not (self.may_have_more and partitions > self.partitions):
            cure = f"; delete it, and Kordon makes it again: {self.when_lost}" if self.when_lost else ""
            cure = "; add partitions" if self.may_have_more else cure
            return f"has {partitions} partitions, and must have {self.partitions}{cure}"
        policy, wanted = found.get(_POLICY) or "", self.own_configs.get(_POLICY, "compact")
        if "compact" not in policy or ("delete" in policy and "delete" not in wanted):
            return f"{_POLICY} is {policy}, which loses {self.holds} or lets it grow for ever; set it to {wanted}"
        if found.get(_UNCLEAN) == "true":
            return f"{_UNCLEAN} is true, which loses {self.holds}; set it to false"
        kept_ms = int(self.own_configs.get(_LAG, "0"))
        if int(found.get(_LAG) or 0) < kept_ms:
            return f"{_LAG} is below {kept_ms}, by which a late record may be all that is left; set it to that"
        return None


LAYOUTS: Final = CompactedTopic("__kordon.layouts", "layouts", "layouts")
"""What managed topics are like (`ordering/records.py`)."""
GROUPS: Final = CompactedTopic(
    "__kordon.groups",
    "groups",
    "reports",
    # seven days, as long as brokers keep the commits of a group that nobody is in (offsets.retention.minutes)
    {_POLICY: "compact,delete", "retention.ms": str(7 * 24 * 3_600_000), "retention.bytes": "-1"},
    when_lost="members report again",
)
"""What members of groups have reported (`ordering/position_records.py`)."""
_DAY_MS: Final = 24 * 3_600_000
INDIVIDUAL_COMMITS: Final = CompactedTopic(
    "__kordon.individual_commits",
    "individual_commits",
    "claims",
    {
        _POLICY: "compact,delete",
        "retention.ms": str(7 * _DAY_MS),
        "retention.bytes": "-1",
        "segment.bytes": str(10 * 1024 * 1024),  # individual.commit.log.segment.bytes of KIP-X
    },
    when_lost="groups continue where their coordinators have them",
)
"""What members of groups have done, offset by offset (`ordering/claim_records.py`)."""
SHARE_GROUPS: Final = CompactedTopic(
    "__kordon.share_groups",
    "share_groups",
    "what share groups have done",  # nobody else has that, so nothing is taken out by its age
    {"segment.bytes": str(10 * 1024 * 1024)},
    partitions=50,  # for good: proxies that found a group in different partitions would give its records twice
    may_have_more=True,
)
"""Who has which records in hand in share groups, and what they have done (`ordering/share/lock_records.py`)."""
PRODUCERS: Final = CompactedTopic(
    "__kordon.producers",
    "lent_epochs",
    "epochs",
    # a proxy that was silent for longer may write what compaction then leaves alone
    {_LAG: str(3_600_000)},
    when_lost="brokers say what epochs there are",
)
"""The epochs that Kordon lends (`ordering/lent_epoch_records.py`)."""
SOURCE_TOPICS: Final = CompactedTopic(
    "__kordon.source_topics", "source_topics", "source topics", when_lost="proxies write again what they know"
)
"""Which topics are source topics (`ordering/source_records.py`)."""
