"""What goes out: aiokafka's sender, with Produce requests that name the count of partitions they were made for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactions,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    InvalidTxnState,
    KafkaError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    NotEnoughReplicasError,
    ProducerFenced,
    UnknownTopicOrPartitionError,
)
from aiokafka.producer.sender import BACKOFF_OVERRIDE, InitPIDHandler, Sender, SendProduceReqHandler
from aiokafka.producer.transaction_manager import TransactionResult
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from aiokafka.util import create_task

from kordon.client.batches import OrderedBatch
from kordon.client.dialect_client import DialectClient
from kordon.client.errors import FORGOTTEN, InvalidPartitionMetadataError, TransactionRefusedError
from kordon.client.homes import Stamp
from kordon.client.layouts import TopicLayout
from kordon.client.outbox import Outbox
from kordon.client.requests import WireRequest
from kordon.client.second_protocol import PRODUCE_VERSIONS, CommitOffsets, EndTransaction
from kordon.client.transactions import OrderedTransactions
from kordon.codecs.bodies import (
    InitProducerIdResponse,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.row import Row

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_PRODUCE: Final = 0
_VERSIONS: Final = range(9, 10)
"""The first that can carry the count, and names topics."""
_INIT_PRODUCER_ID: Final = 22
_INIT_VERSIONS: Final = range(5)
"""From 3 on it names the identity that a producer has, and from 4 on PRODUCER_FENCED (KIP-588)."""
_SHAPE: Final = 5
"""The version of Produce in whose shape answers are handed to aiokafka."""

_NOT_WRITTEN: Final = (
    NodeNotReadyError,
    UnknownTopicOrPartitionError,
    LeaderNotAvailableError,
    NotEnoughReplicasError,
    CorruptRecordException,
    ConcurrentTransactions,
)
"""Retriable errors that say that nothing of a batch is written by the attempt; all others leave that open."""

_MAY_NOT_WRITE: Final = (
    "an OrderedProducer is idempotent, so brokers want its user to have WRITE on one topic at least (KIP-679), or "
    "IDEMPOTENT_WRITE on the cluster"
)

Batches = dict[TopicPartition, OrderedBatch]

_log = logging.getLogger(__name__)


class OrderedSender(Sender):
    """aiokafka's sender; batches of managed topics go out in requests of their own."""

    def __init__(
        self, client: DialectClient, *, message_accumulator: Outbox, txn_manager: OrderedTransactions, **options: Any
    ) -> None:
        super().__init__(client, message_accumulator=message_accumulator, txn_manager=txn_manager, **options)
        self._outbox = message_accumulator
        self._transactions = txn_manager

    async def start(self) -> None:
        """Gets a producer id, and begins to send.

        Raises:
            ClusterAuthorizationFailedError: The client may not write to any topic.
        """
        try:
            await super().start()
        except ClusterAuthorizationFailedError as error:
            raise ClusterAuthorizationFailedError(_MAY_NOT_WRITE) from error

    async def _send_produce_req(self, node_id: int, batches: Batches) -> None:
        plain = {tp: batch for tp, batch in batches.items() if self._outbox.homes(tp.topic) is None}
        if plain:
            await _Produce(self, plain).do(node_id)
        for request in self._requests({tp: batch for tp, batch in batches.items() if tp not in plain}):
            await _OrderedProduce(self, request).do(node_id)
        self._in_flight.remove(node_id)
        for tp in batches:
            self._muted_partitions.remove(tp)

    async def _do_add_partitions_to_txn(self, tps: Collection[TopicPartition]) -> bool:
        """Adds partitions; returns whether they are, and fails the transaction where they never will be."""
        try:
            return bool(await super()._do_add_partitions_to_txn(tps))
        except InvalidTxnState:
            self._transactions.fail(TransactionRefusedError({tp.topic for tp in tps}))
            return False
        finally:
            self._outbox._wake()

    async def _do_txn_commit(self, commit_result: TransactionResult) -> None:
        """Sends what is left, and ends the transaction; after a failure it begins the next epoch.

        Records that move to another partition meanwhile need it added first, and aiokafka adds none while this runs.
        """
        transactions = self._transactions
        await self._flush()
        if commit_result is TransactionResult.COMMIT and transactions.failure is not None:
            return  # whoever commits has been told
        if transactions.is_second and not transactions.is_empty_transaction():
            kind, transactional_id = CoordinationType.TRANSACTION, transactions.transactional_id
            await EndTransaction(self, commit_result).do(await self._find_coordinator(kind, transactional_id))
        else:
            await super()._do_txn_commit(commit_result)
        if transactions.needs_epoch and transactions.needs_transaction_commit() is None:
            await self._begin_epoch()

    async def _do_txn_offset_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_id: str) -> None:
        if not self._transactions.is_second:
            await super()._do_txn_offset_commit(offsets, group_id)
            return
        try:
            node_id = await self._find_coordinator(CoordinationType.GROUP, group_id)
        except GroupAuthorizationFailedError as error:
            self._transactions.error_transaction(error)
            return
        await CommitOffsets(self, offsets, group_id).do(node_id)

    async def _flush(self) -> None:
        transactions = self._transactions
        flushed = create_task(self._outbox.flush_for_commit())
        try:
            while not flushed.done():
                if missing := transactions.partitions_to_add():
                    await self._do_add_partitions_to_txn(missing)
                else:
                    waiters = {flushed, transactions.make_task_waiter()}
                    await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            flushed.cancel()
        self._outbox.notice_answers()

    async def _begin_epoch(self) -> None:
        """Gets the next epoch, which nobody gets who was replaced (KIP-360)."""
        kind, transactional_id = CoordinationType.TRANSACTION, self._transactions.transactional_id
        while not await _NextEpoch(self).do(await self._find_coordinator(kind, transactional_id)):
            pass

    def _requests(self, batches: Batches) -> Iterator[Batches]:
        """Yields the batches that can share a request: it has one stamp per topic."""
        for batch in batches.values():
            self._outbox.course_of(batch)
        rest = batches
        while rest:
            stamps: dict[str, Stamp] = {}
            for tp, batch in rest.items():
                stamps.setdefault(tp.topic, batch.stamp)
            yield {tp: batch for tp, batch in rest.items() if batch.stamp == stamps[tp.topic]}
            rest = {tp: batch for tp, batch in rest.items() if batch.stamp != stamps[tp.topic]}


class _NextEpoch(InitPIDHandler):
    """InitProducerId that says which identity the producer has."""

    group = ConnectionGroup.COORDINATION

    def create_request(self) -> Any:
        transactions = self._sender._txn_manager
        body = {
            "transactional_id": transactions.transactional_id,
            "transaction_timeout_ms": transactions.transaction_timeout_ms,
            "producer_id": transactions.producer_id,
            "producer_epoch": transactions.producer_epoch,
        }
        return WireRequest(_INIT_PRODUCER_ID, _INIT_VERSIONS, body)

    def handle_response(self, resp: InitProducerIdResponse) -> float | None:
        if resp.error_code == Code.NONE:
            self._sender._txn_manager.take_epoch(resp.producer_id, resp.producer_epoch)
            return None
        if resp.error_code in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH):
            raise ProducerFenced
        pause: float | None = super().handle_response(resp)
        return pause


class _Produce(SendProduceReqHandler):
    """One Produce request, and what comes of it."""

    def __init__(self, sender: OrderedSender, batches: Batches) -> None:
        super().__init__(sender, batches)
        self._outbox = sender._outbox
        self._is_second = sender._transactions.is_second

    def create_request(self) -> Any:
        return self._request(PRODUCE_VERSIONS) if self._is_second else super().create_request()

    def handle_response(self, response: Any) -> None:
        """Takes an answer, of this package's table or as aiokafka reads it."""
        if isinstance(response, Row):
            answer = cast("ProduceResponse", response)
            topics = [(topic.name, [*self._rows(topic)]) for topic in answer.responses]
            response = SimpleNamespace(API_VERSION=_SHAPE, topics=topics)
        super().handle_response(response)

    def _request(self, versions: range, *, is_private: bool = False) -> WireRequest:
        topics: dict[str, ProduceRequestTopic] = {}
        for tp, batch in self._batches.items():
            if tp.topic not in topics:
                stamp = batch.stamp._asdict() if is_private else {}
                topics[tp.topic] = ProduceRequestTopic(name=tp.topic, partition_data=[], **stamp)
            row = ProduceRequestPartition(index=tp.partition, records=batch.get_data_buffer())
            topics[tp.topic].partition_data.append(row)
        body = {
            "transactional_id": self._sender._txn_manager.transactional_id,
            "acks": self._sender._acks,
            "timeout_ms": self._sender._request_timeout_ms,
            "topic_data": list(topics.values()),
        }
        return WireRequest(_PRODUCE, versions, body, private=is_private)

    def _rows(self, topic: ProduceResponseTopic) -> Iterator[tuple[int, int, int, int, int]]:
        """Returns the rows of a topic as aiokafka reads them."""
        for row in topic.partition_responses:
            yield row.index, row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset

    def _can_retry(self, error: KafkaError, batch: OrderedBatch) -> bool:
        """Whether a batch goes out again; one that its broker takes for a stranger's does so under another identity."""
        is_soon_over = isinstance(error, ConcurrentTransactions)  # markers of the transaction before are being written
        if is_soon_over:
            self._default_backoff: float = min(self._sender._retry_backoff, BACKOFF_OVERRIDE)
        if is_soon_over or super()._can_retry(error, batch):
            batch.in_doubt = batch.in_doubt or not isinstance(error, _NOT_WRITTEN)
            return True
        return isinstance(error, FORGOTTEN) and self._outbox.renew(batch)


class _OrderedProduce(_Produce):
    """One Produce request of managed topics, and what comes of it."""

    def __init__(self, sender: OrderedSender, batches: Batches) -> None:
        super().__init__(sender, batches)
        self._refused: list[OrderedBatch] = []

    def create_request(self) -> Any:
        return self._request(PRODUCE_VERSIONS if self._is_second else _VERSIONS, is_private=True)

    async def do(self, node_id: int) -> None:
        await super().do(node_id)
        if self._refused:
            await self._refresh()
            for batch in self._refused:
                self._outbox.reenqueue(batch)

    def _rows(self, topic: ProduceResponseTopic) -> Iterator[tuple[int, int, int, int, int]]:
        """Takes refusals of the count out of an answer; all the rest is as in aiokafka."""
        for row in super()._rows(topic):
            batch = self._batches.get(TopicPartition(topic.name, row[0]))
            if row[1] == InvalidPartitionMetadataError.errno and batch is not None:
                self._on_refused(batch)
            else:
                yield row

    def _on_refused(self, batch: OrderedBatch) -> None:
        if batch.question:
            _log.debug("%s: a batch of %s records moves on with its keys", batch.tp, batch.record_count)
            self._outbox.take_back(batch)
        else:
            self._refused.append(batch)

    async def _refresh(self) -> None:
        """Learns of the topics' newer layouts; waits a while where there are none to be had yet."""
        known = self._layouts()
        await self._client.force_metadata_update()
        if self._layouts() == known:
            await asyncio.sleep(self._default_backoff)

    def _layouts(self) -> Mapping[str, TopicLayout | None]:
        return {batch.tp.topic: self._client.layouts.get(batch.tp.topic) for batch in self._refused}
