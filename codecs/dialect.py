"""What Kordon's dialect has of its own on the wire: the numbers from which private ones begin, and the agreed names.

Fields that Kafka's messages have only in the dialect are tagged fields of their flexible versions: who does not know a
tag skips it (KIP-482), so they may be sent to any broker and any client. Kafka numbers tags, api keys and error codes
from 0 up; Kordon's begin where no upstream schema will come soon. The tables in `messages` hold them beside Kafka's own
fields, and docs/dialect.md sets them beside KIP-253's.
"""

from __future__ import annotations

from typing import Final

FIRST_PRIVATE: Final = 16384
"""The first tag, api key and error code of Kordon's own."""
VERSION: Final = 1
"""What a client of the dialect puts into `kordon_client` of its ApiVersions request; 0 is no such client."""
ORDERED: Final = "kordon.ordered"
"""The supported feature that says in ApiVersions: KIP-253 is spoken here."""
COOPERATIVE: Final = "kordon.cooperative"
"""The supported feature that says in ApiVersions: individual commit (KIP-X) is served here."""
CONSUMER_GROUP_POSITION: Final = 16384
PARTITION_LEADER_EPOCHS_FOR_PARTITIONS: Final = 16385
INVALID_PARTITION_METADATA: Final = 16384
"""KIP-253's InvalidPartitionMetadataException, an InvalidMetadataException: refresh the metadata, then try again."""
INDIVIDUAL_COMMIT_NOT_ALLOWED: Final = 16385
"""KIP-X: this proxy does not take individual commits."""
INDIVIDUAL_COMMIT_TOO_OLD: Final = 16388
"""KIP-X: the group has begun again since its member was told where it stands; ask for its offsets again."""
MAX_INDIVIDUAL_COMMIT_REACHED: Final = 16389
"""KIP-X, retriable: some ranges were not taken, since there would be too many; continue with what closes gaps."""


def is_private(number: int | None) -> bool:
    """Whether a tag, an api key or an error code is Kordon's own; None, where there is no tag, is not.

    Example:
        >>> is_private(16384), is_private(68), is_private(None)
        (True, False, False)
    """
    return number is not None and number >= FIRST_PRIVATE
