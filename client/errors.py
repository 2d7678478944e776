"""The errors that the dialect adds to aiokafka's."""

from __future__ import annotations

from aiokafka.errors import BrokerResponseError, kafka_errors

from kordon.codecs.dialect import INVALID_PARTITION_METADATA


class InvalidPartitionMetadataError(BrokerResponseError):
    """The topic's partitions are not those that the client believes: refresh the metadata, then try again.

    KIP-253's InvalidPartitionMetadataException, an InvalidMetadataException. The clients of this package deal with it
    themselves; who sends requests of his own sees it.
    """

    errno = INVALID_PARTITION_METADATA
    message = "INVALID_PARTITION_METADATA"
    description = "The topic has another number of undeleted partitions than the client believes."
    retriable = True
    invalid_metadata = True


# aiokafka looks answers' error codes up in this table, and made it before this class was.
kafka_errors[InvalidPartitionMetadataError.errno] = InvalidPartitionMetadataError
