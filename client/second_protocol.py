"""Requests of transactions by their second protocol (KIP-890), which brokers with `transaction.version` 2 speak.

| | first protocol | second protocol |
| --- | --- | --- |
| a partition is in the transaction | by AddPartitionsToTxn, before its records | by Produce 12, with its records |
| a group is | by AddOffsetsToTxn, before its offsets | by TxnOffsetCommit 5, with its offsets |
| the producer's epoch rises | behind a failure, by InitProducerId | with each EndTxn 5, which tells it |

So what is late of one transaction gets into no other: it has an epoch that is over.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from aiokafka.errors import ConcurrentTransactions, ProducerFenced
from aiokafka.producer.sender import EndTxnHandler, TxnOffsetCommitHandler

from kordon.client.errors import TransactionAbortableError
from kordon.client.requests import WireRequest
from kordon.client.transactions import OrderedTransactions
from kordon.codecs.bodies import EndTxnResponse, TxnOffsetCommitResponse
from kordon.codecs.error_codes import Code

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

FEATURE: Final = "transaction.version"
LEVEL: Final = 2
"""Of the feature, from which on brokers speak it."""
PRODUCE_VERSIONS: Final = range(12, 13)
"""The first of the second protocol, which is the last that names topics."""
_END_TXN: Final = 26
_END_TXN_VERSIONS: Final = range(5, 6)
OFFSETS_VERSIONS: Final = range(5, 6)
"""Of TxnOffsetCommit: the first of the second protocol, which is the last that names topics."""
_TXN_OFFSET_COMMIT: Final = 28


class EndTransaction(EndTxnHandler):
    """EndTxn, whose answer has the identity of the next transaction."""

    def create_request(self) -> Any:
        """Makes it, by Kordon's tables."""
        transactions: OrderedTransactions = self._sender._txn_manager
        body = {
            "transactional_id": transactions.transactional_id,
            "producer_id": transactions.producer_id,
            "producer_epoch": transactions.producer_epoch,
            "committed": bool(self._commit_result),
        }
        return WireRequest(_END_TXN, _END_TXN_VERSIONS, body)

    def handle_response(self, resp: EndTxnResponse) -> float | None:
        """Continues under the identity of the next transaction; returns after how many seconds to try again, if at all.

        Raises:
            ProducerFenced: Another producer has the transactional id.
        """
        if resp.error_code == Code.PRODUCER_FENCED:
            raise ProducerFenced
        if resp.error_code == Code.NONE:
            self._sender._txn_manager.take_epoch(resp.producer_id, resp.producer_epoch)
        pause: float | None = super().handle_response(resp)
        return pause


class CommitOffsets(TxnOffsetCommitHandler):
    """TxnOffsetCommit, which adds its group to the transaction."""

    def create_request(self) -> Any:
        """Makes it, by Kordon's tables."""
        transactions: OrderedTransactions = self._sender._txn_manager
        topics: dict[str, list[dict[str, object]]] = {}
        for tp, offset in sorted(self._offsets.items()):
            row = {"partition_index": tp.partition, "committed_offset": offset.offset}
            topics.setdefault(tp.topic, []).append(row | {"committed_metadata": offset.metadata})
        body = {
            "transactional_id": transactions.transactional_id,
            "group_id": self._group_id,
            "producer_id": transactions.producer_id,
            "producer_epoch": transactions.producer_epoch,
            "member_id": "",
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        }
        return WireRequest(_TXN_OFFSET_COMMIT, OFFSETS_VERSIONS, body)

    def handle_response(self, resp: TxnOffsetCommitResponse) -> float | None:
        """Notes which offsets are committed; returns after how many seconds to try again, if at all.

        Raises:
            ProducerFenced: Another producer has the transactional id.
        """
        codes = {row.error_code for topic in resp.topics for row in topic.partitions}
        if Code.PRODUCER_FENCED in codes:
            raise ProducerFenced
        if TransactionAbortableError.errno in codes:
            self._sender._txn_manager.error_transaction(TransactionAbortableError())
            return None
        if ConcurrentTransactions.errno in codes:  # the markers of the transaction before are being written
            pause: float = self._default_backoff
            return pause
        errors = [
            (topic.name, [(row.partition_index, row.error_code) for row in topic.partitions]) for topic in resp.topics
        ]
        retry: float | None = super().handle_response(SimpleNamespace(errors=errors))
        return retry
