"""Under what a producer's batches go out: a producer id, and per partition an epoch with sequences from 0 (KIP-98).

A broker takes the batches of an epoch without a gap, and one that fails leaves a gap. So a partition begins its next
epoch behind a failure, as KIP-360 has it; brokers keep epochs per partition, so no other one has to.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from aiokafka.producer.transaction_manager import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PidAndEpoch
from aiokafka.structs import TopicPartition
from aiokafka.util import create_future

from kordon.client.batches import OrderedBatch
from kordon.client.transactions import OrderedTransactions

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_LAST_EPOCH: Final = (1 << 15) - 1


class Identities:
    """The identities of a producer's batches, one per partition at a time.

    Args:
        manager: Knows the producer id and counts the sequences. In transactions epochs are the coordinator's, and
            nothing is changed here: what fails there ends the transaction.
    """

    def __init__(self, manager: OrderedTransactions) -> None:
        self._manager = manager
        self._begun: dict[TopicPartition, int] = defaultdict(int)
        """The number of epochs that have begun since the first one, by partition."""

    @property
    def are_missing(self) -> bool:
        """Whether there is no producer id, so that nothing can be sent."""
        return not self._manager.has_pid()

    @property
    def lost(self) -> BaseException | None:
        """Why nothing of the transaction is sent any more; None: it continues, or there are no transactions."""
        return self._manager.failure

    def require_transaction(self) -> None:
        """Checks that the application may write.

        Raises:
            IllegalOperation: The producer must be in a transaction, and is not.
        """
        self._manager.require_open()

    def join_transaction(self, tp: TopicPartition) -> None:
        """A partition is going to be written to."""
        self._manager.join(tp)

    def failed(self, tp: TopicPartition, error: BaseException) -> None:
        """A batch of a partition has failed: the partition begins another epoch, or the transaction ends."""
        self.begin_epoch(tp)
        self._manager.fail(error)

    def give(self, batch: OrderedBatch) -> None:
        """Gives a batch that has its sequence the epoch that its partition has."""
        if self._begun and (begun := self._begun.get(batch.tp)):
            epoch = self._manager.producer_epoch + begun
            batch.take_identity(self._manager.producer_id, epoch, batch.base_sequence)

    def give_back(self, batch: OrderedBatch) -> None:
        """A batch is not written and never will be: the next one of its partition gets its sequence."""
        self._manager._sequence_numbers[batch.tp] = batch.base_sequence

    def renew(self, batch: OrderedBatch) -> bool:
        """Lets a batch that is not written begin the next epoch of its partition; returns whether there is one."""
        self.begin_epoch(batch.tp)
        if self._manager.transactional_id is not None or self.are_missing:
            return False
        self._manager.increment_sequence_number(batch.tp, batch.record_count)
        batch.take_identity(self._manager.producer_id, self._manager.producer_epoch + self._begun[batch.tp], 0)
        return True

    def begin_epoch(self, tp: TopicPartition) -> None:
        """Begins the next epoch of a partition; after the last one the sender gets a producer id first."""
        if self._manager.transactional_id is not None or self.are_missing:
            return
        self._begun[tp] += 1
        self._manager._sequence_numbers[tp] = 0
        if self._manager.producer_epoch + self._begun[tp] > _LAST_EPOCH:
            self._begun.clear()
            self._manager._sequence_numbers.clear()
            self._manager._pid_and_epoch = PidAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            self._manager._pid_waiter = create_future()
