"""A producer's transactions. They are aiokafka's, but a record that fails ends its transaction, as in Java's producer.

    begin ──> records, offsets ──> commit ──> READY
                    │ one of them fails
                    v
              only abort is left ──(coordinator)──> READY, under the next epoch (KIP-360)

aiokafka would commit the rest of such a transaction, and later records would have a gap in their sequences. Records
that were under way when a transaction failed have the former epoch, so they cannot get into the next one.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from types import TracebackType
from typing import Final

from aiokafka.errors import IllegalOperation
from aiokafka.producer.producer import TransactionContext
from aiokafka.producer.transaction_manager import PidAndEpoch, TransactionManager, TransactionState
from aiokafka.structs import TopicPartition
from aiokafka.util import create_future

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_OPEN: Final = frozenset({TransactionState.IN_TRANSACTION, TransactionState.COMMITTING_TRANSACTION})
_NOT_OPEN: Final = (
    "no transaction is open: a producer with a transactional_id sends in transactions only, so begin one first "
    "(begin_transaction, or `async with producer.transaction()`)"
)
_OPEN_ALREADY: Final = "a transaction is open: commit or abort it before another one begins"


class OrderedTransactions(TransactionManager):
    """aiokafka's manager of a producer's identity and transactions.

    Args:
        speaks_second: Whether the brokers speak the second protocol (KIP-890) now.

    Attributes:
        failure: Why the transaction can only be aborted, or the producer only be stopped; None: it continues.
        needs_epoch: Whether something failed, so that the next transaction is to have the next epoch.
        is_second: Whether the transaction goes by the second protocol.
    """

    def __init__(
        self,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        speaks_second: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(transactional_id, transaction_timeout_ms)
        self._speaks_second = speaks_second
        self.is_second = False
        self._transaction_waiter: asyncio.Future[None] | None
        self.failure: BaseException | None = None
        self.needs_epoch = False
        self._is_known = False
        """Whether the coordinator has taken anything into the transaction."""

    def require_open(self) -> None:
        """Checks that something may be written: there are no transactions, or one is open.

        Raises:
            IllegalOperation: None is open, or it has failed.
        """
        if self.transactional_id is not None and not self.is_in_transaction():
            raise self._why_not(_NOT_OPEN)

    def begin_transaction(self) -> None:
        """Begins a transaction.

        Raises:
            IllegalOperation: One is open, or has failed and is not aborted.
        """
        if self.state is not TransactionState.READY:
            raise self._why_not(_OPEN_ALREADY)
        super().begin_transaction()
        self.is_second = self._speaks_second()

    def committing_transaction(self) -> None:
        """Begins to commit the transaction.

        Raises:
            IllegalOperation: No transaction is open.
            KafkaError: The error that made the transaction fail.
        """
        if self.failure is not None:
            raise copy.copy(self.failure)
        self.require_open()
        super().committing_transaction()

    def aborting_transaction(self) -> None:
        """Begins to abort the transaction.

        Raises:
            IllegalOperation: No transaction is open.
            KafkaError: The error that ended the producer.
        """
        if self.is_fatal_error() and self.failure is not None:
            raise copy.copy(self.failure)
        if self.state is not TransactionState.ABORTABLE_ERROR:
            self.require_open()
        super().aborting_transaction()

    def join(self, tp: TopicPartition) -> None:
        """Adds a partition to the transaction, also while it ends: its records may go to their new home by then."""
        if self.transactional_id is None or self.failure is not None or tp in self._txn_partitions:
            return
        if self.is_second:  # its records add it
            self.partition_added(tp)
        else:
            self._pending_txn_partitions.add(tp)
            self.notify_task_waiter()

    def maybe_add_partition_to_txn(self, tp: TopicPartition) -> None:
        """Adds a partition to the transaction that is open, if there are transactions."""
        if self.transactional_id is not None:
            assert self.is_in_transaction()
            self.join(tp)

    def consumer_group_to_add(self) -> str | None:
        """Returns the group to be added before its offsets; by the second protocol these add it."""
        group: str | None = super().consumer_group_to_add()
        if group is not None and self.is_second:
            self.consumer_group_added(group)
            return None
        return group

    def fail(self, error: BaseException) -> None:
        """Notes that something in the transaction has failed, so that it can only be aborted."""
        if self.transactional_id is None:
            return
        self.needs_epoch = True
        if self.state in _OPEN:
            self.error_transaction(error)
        elif self.state is TransactionState.ABORTING_TRANSACTION:
            self.failure = self.failure or error  # nothing more is sent of it: that would have a gap before it

    def error_transaction(self, exc: BaseException) -> None:
        """Notes an error after which the transaction can only be aborted."""
        if self.failure is not None:
            return
        self.failure, self.needs_epoch = exc, True
        super().error_transaction(exc)
        self._let_go_unheard()

    def fatal_error(self, exc: BaseException) -> None:
        """Notes an error after which the producer can only be stopped."""
        self.failure = exc
        self._transaction_waiter = self._transaction_waiter or create_future()
        super().fatal_error(exc)
        self._let_go_unheard()

    def complete_transaction(self) -> None:
        """Notes that the transaction has ended."""
        self.failure, self._is_known = None, False
        self._pending_txn_partitions.clear()
        super().complete_transaction()

    def partition_added(self, tp: TopicPartition) -> None:
        """Notes that the coordinator has added a partition; the transaction may have failed meanwhile."""
        self._is_known = True
        self._pending_txn_partitions.discard(tp)
        self._txn_partitions.add(tp)

    def consumer_group_added(self, group_id: str) -> None:
        """Notes that the coordinator has added a group."""
        self._is_known = True
        super().consumer_group_added(group_id)

    def offset_committed(self, tp: TopicPartition, offset: int, group_id: str) -> None:
        """Notes that the group's coordinator has an offset; the transaction may have failed meanwhile."""
        if self._pending_txn_offsets:
            super().offset_committed(tp, offset, group_id)

    def is_empty_transaction(self) -> bool:
        """Whether the coordinator knows nothing of the transaction, so that nothing has to be ended there."""
        return not self._is_known

    def take_epoch(self, producer_id: int, epoch: int) -> None:
        """Continues under another identity, with sequences from 0."""
        self._pid_and_epoch = PidAndEpoch(producer_id, epoch)
        self._sequence_numbers.clear()
        self.needs_epoch = False

    def _let_go_unheard(self) -> None:
        """Gives the error to the task that waits for the transaction's end, if there is one."""
        if self._transaction_waiter is not None:
            self._transaction_waiter.exception()

    def _why_not(self, otherwise: str) -> IllegalOperation:
        failure = self.failure
        if failure is None:
            return IllegalOperation(otherwise)
        cure = (
            "stop the producer, and start another one" if self.is_fatal_error() else "abort it, and do its work again"
        )
        error = IllegalOperation(f"the transaction has failed ({failure!r}): {cure}")
        error.__cause__ = failure
        return error


class OrderedTransactionContext(TransactionContext):
    """What `async with producer.transaction()` enters: it commits at the end, and aborts if that or the body fails."""

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the transaction."""
        try:
            await super().__aexit__(exc_type, exc_value, traceback)
        except Exception:
            manager: OrderedTransactions = self._producer._txn_manager
            if manager.state is TransactionState.ABORTABLE_ERROR:
                await self._producer.abort_transaction()
            raise
