"""The errors that the dialect adds to aiokafka's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokafka.errors import (
    BrokerResponseError,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownProducerId,
    kafka_errors,
)
from aiokafka.structs import TopicPartition

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


FORGOTTEN: Final = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch, ProducerFenced)
"""What is said where a batch does not fit what is known of its identity; ProducerFenced is aiokafka's name of one."""


class OutcomeUnknownError(KafkaError):
    """Records may be written or not, and nobody can tell any more.

    They were sent, no answer came, and when they were sent again the brokers did not know their producer's sequences:
    these have expired (`producer.id.expiration.ms`), or a log was cut by an unclean election. So the records are not
    sent once more, which could double them. The producer continues; whoever has to know reads the topic, and sends what
    is not there.
    """

    def __init__(self, tp: TopicPartition, cause: BaseException) -> None:
        super().__init__(
            f"records of {tp.topic}-{tp.partition} may be written or not: an earlier attempt was not answered, and the "
            f"brokers have forgotten their producer since ({type(cause).__name__}); look whether they are there before "
            "you send them again"
        )
        self.__cause__ = cause
        self._made_of = (tp, cause)

    def __reduce__(self) -> tuple[type[OutcomeUnknownError], tuple[TopicPartition, BaseException]]:
        """Copies it, as aiokafka does for each record."""
        return type(self), self._made_of


class TransactionRefusedError(InvalidTxnState):
    """A topic takes nothing of a transaction, or the transaction is over.

    Nothing of it is committed: abort it, and do its work again.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        named = self._topics = tuple(sorted(topics))
        super().__init__(
            f"{', '.join(named)}: the transaction is refused. Either it is over, because it took longer than "
            "transaction_timeout_ms: abort it, and do its work again. Or the topic takes none: set "
            "ordering.transactions to true in all proxies, and look for transaction_refused and transactions_refused "
            "in Kordon's log, which name other causes and cures (docs/transactions.md)"
        )

    def __reduce__(self) -> tuple[type[TransactionRefusedError], tuple[tuple[str, ...]]]:
        """Copies it, as aiokafka does for each record."""
        return type(self), (self._topics,)


class TransactionAbortableError(BrokerResponseError):
    """The transaction cannot continue; the producer can.

    Nothing of it is committed: abort it, and do its work again.
    """

    errno = 120
    message = "TRANSACTION_ABORTABLE"
    description = "The transaction cannot continue, and nothing of it is committed: abort it, and do its work again."

    def __init__(self, *said: object) -> None:
        super().__init__(*(said or (self.description,)))


# aiokafka looks answers' error codes up in this table, and made it before these classes were.
kafka_errors[InvalidPartitionMetadataError.errno] = InvalidPartitionMetadataError
kafka_errors[TransactionAbortableError.errno] = TransactionAbortableError
