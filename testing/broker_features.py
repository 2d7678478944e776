"""What brokers can since which Kafka: tests of what the one under test cannot are left out, and say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kordon.testing.jars import kafka_version


@dataclass(frozen=True)
class Feature:
    """Something that brokers can."""

    what: str
    major: int
    minor: int

    @property
    def is_missing(self) -> bool:
        """Whether the Kafka under test is older."""
        return not self.is_in(kafka_version())

    def is_in(self, version: str) -> bool:
        """Says whether a version of Kafka, such as 4.3 or 4.3.0, is as new."""
        major, minor = version.split(".")[:2]
        return (int(major), int(minor)) >= (self.major, self.minor)

    @property
    def reason(self) -> str:
        """Why a test of it is left out."""
        return f"{self.what} came with Kafka {self.major}.{self.minor}"


DESCRIBED_PRODUCERS: Final = Feature("answers to DescribeProducers (KIP-664), which managed topics need,", 2, 8)
TOPIC_IDS: Final = Feature("ids of topics (KIP-516), by which one that was made again is known,", 2, 8)
BUMPED_EPOCHS: Final = Feature("InitProducerId with the id and epoch of the producer (KIP-360)", 2, 5)
PEM_FILES: Final = Feature("certificates in PEM files (KIP-651)", 2, 7)
FORGOTTEN_PRODUCERS: Final = Feature("a time of its own after which producers are forgotten (KIP-854)", 3, 5)
PRODUCE_BY_ID: Final = Feature("writes to topics by id (KIP-516)", 4, 1)
NEW_GROUPS: Final = Feature("KIP-848 groups", 4, 0)
LISTED_CONFIGS: Final = Feature("lists of what has configurations of its own (KIP-1142)", 4, 1)
PENDING_UPLOADS: Final = Feature("offsets of what is still to be uploaded (KIP-1023)", 4, 2)
VERIFIED_TRANSACTIONS: Final = Feature(
    "verification of transactions (KIP-890), which those on managed topics need,", 3, 6
)
SECOND_PROTOCOL: Final = Feature("the second protocol of transactions (KIP-890)", 4, 0)
SHARE_GROUPS: Final = Feature("share groups (KIP-932), as Kordon's tables have them,", 4, 1)
MEANT_NODES: Final = Feature("answers to clients that mean another node (KIP-1242)", 4, 4)
REASONS_IN_TRANSACTIONS: Final = Feature("Java producers that say why a transaction was refused (KIP-890)", 4, 0)

GROUP_PROTOCOLS: Final = ("classic",) if NEW_GROUPS.is_missing else ("classic", "consumer")
"""What a consumer's `group.protocol` can be."""
