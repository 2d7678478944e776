"""What a producer holds until it is answered: aiokafka's accumulator, following the homes of managed topics."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaTimeoutError, ProducerClosed
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator
from aiokafka.structs import RecordMetadata, TopicPartition

from kordon.client.batches import Header, OrderedBatch
from kordon.client.homes import Homes, Stamp
from kordon.client.identities import Identities
from kordon.client.layouts import Layouts, TopicLayout
from kordon.client.transactions import OrderedTransactions
from kordon.client.unanswered import PlaceOf, Places, Unanswered

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.


class Outbox(MessageAccumulator):
    """aiokafka's accumulator; records of managed topics go to the homes of their places, and move with these.

    Args:
        cluster: The known state of the cluster.
        layouts: The known layouts of its managed topics.
        place_of: Tells the place of a key, where a batch was filled before its topic was managed.
    """

    def __init__(
        self,
        cluster: ClusterMetadata,
        layouts: Layouts,
        place_of: PlaceOf,
        *args: float,
        txn_manager: OrderedTransactions,
        linger_ms: int,
    ) -> None:
        super().__init__(cluster, *args, txn_manager=txn_manager, linger_ms=linger_ms)
        self._identities = Identities(txn_manager)
        self._layouts = layouts
        self._places = Places(place_of)
        self._topics: dict[str, Homes | None] = {}
        """The homes of each topic that is written to; None: the topic is not managed."""
        self._unanswered = Unanswered(self._identities, self._places)

    def homes(self, topic: str) -> Homes | None:
        """Returns the homes of a topic's places; None if it is not managed."""
        return self._topics.get(topic)

    async def add(
        self,
        homes: Homes,
        place: int,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
        headers: Sequence[Header],
        timeout_seconds: float,
    ) -> asyncio.Future[RecordMetadata]:
        """Adds a record to the batch of its place's home; waits while that is full.

        Returns:
            The future of its metadata.

        Raises:
            ProducerClosed: The producer was stopped.
            KafkaTimeoutError: There was no room in time.
            IllegalOperation: The transaction has ended, or has failed, while there was no room.
        """
        while True:
            self._require_open()
            batch = self._last_batch(TopicPartition(homes.layout.topic, homes.home(place)))
            future = batch.append_at(place, key, value, timestamp_ms, headers)
            if future is not None:
                return future
            self._wake()
            timeout_seconds = await _wait_for_room(batch, timeout_seconds)

    async def add_message(  # noqa: PLR0917  as the parent
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timeout: float,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Adds a record to a topic that is not managed, as the parent does; it may become so while there is no room.

        Returns:
            The future of its metadata.

        Raises:
            ProducerClosed: The producer was stopped.
            KafkaTimeoutError: There was no room in time.
            IllegalOperation: The transaction has ended, or has failed, while there was no room.
        """
        while (homes := self._topics.get(tp.topic)) is None:
            self._require_open()
            batch = self._last_batch(tp)
            future: asyncio.Future[RecordMetadata] | None = batch.append(key, value, timestamp_ms, headers=headers)
            if future is not None:
                return future
            self._wake()
            timeout = await _wait_for_room(batch, timeout)
        return await self.add(
            homes,
            self._places.find(homes.layout, tp.partition, key),
            key=key,
            value=value,
            timestamp_ms=timestamp_ms,
            headers=headers,
            timeout_seconds=timeout,
        )

    def refresh(self) -> None:
        """Takes in the newest layouts of all topics that are written to."""
        for topic in self._topics:
            self.refresh_topic(topic)

    def refresh_topic(self, topic: str) -> None:
        """Takes in the newest layout of a topic, from now on with each refresh."""
        layout, homes = self._layouts.get(topic), self._topics.get(topic)
        if layout is None:
            self._topics[topic] = None
        elif homes is None or homes.layout is not layout:
            self._change(topic, homes, layout)

    def course_of(self, batch: OrderedBatch) -> None:
        """Decides how a batch goes out next: sets its stamp, and whether it is a question."""
        homes = self._topics.get(batch.tp.topic)
        if homes is not None:
            course = homes.course(batch.tp.partition, self._places.of(batch, homes.layout), batch.stamp)
            batch.stamp, batch.question = course

    def take_back(self, batch: OrderedBatch) -> None:
        """A batch that was sent is not written and never will be: its records begin again, in front of all others."""
        tp = batch.tp
        homes = self._topics.get(tp.topic)
        if homes is None:  # let go meanwhile: it is written as it is
            self.reenqueue(batch)
            return
        self._identities.give_back(batch)
        self._unanswered.remove(tp)
        self._batches[tp].appendleft(batch)
        self._rehouse(homes, tp)

    def notice_answers(self) -> None:
        """Takes in what has been answered, as `drain_by_nodes` does before it gives batches out."""
        for tp in self._unanswered.forget_answered():
            self._settle(tp)

    def renew(self, batch: OrderedBatch) -> bool:
        """Gives a batch another identity because brokers refuse its own; False: the batch has failed.

        That is done only if the refusal is all that was ever heard of it. Where an earlier attempt has no answer, it
        may be written, and whoever has forgotten its identity could not tell that it is there (KIP-360).
        """
        return not batch.in_doubt and self._identities.renew(batch)

    def drain_by_nodes(
        self, ignore_nodes: Collection[int], muted_partitions: Any = frozenset()
    ) -> tuple[defaultdict[int, dict[TopicPartition, OrderedBatch]], bool]:
        """Returns the batches that can go out now, by node; places that were late go to their new homes first."""
        self.notice_answers()
        if (lost := self._identities.lost) is not None:
            _give_up(self._batches, self._pending_batches, lost)
        if self._identities.are_missing:
            self._wake()  # the sender gets another producer id, and comes back
            return defaultdict(dict), False
        nodes, are_unknown = super().drain_by_nodes(ignore_nodes, muted_partitions)
        return nodes, are_unknown

    async def add_batch(
        self, builder: BatchBuilder, tp: TopicPartition, timeout: float
    ) -> asyncio.Future[RecordMetadata]:
        """Adds a batch that the caller has filled; of a managed topic it is closed, and stays as it is."""
        if self._topics.get(tp.topic) is not None:
            builder.close()
        future: asyncio.Future[RecordMetadata] = await super().add_batch(builder, tp, timeout)
        return future

    def _append_batch(self, builder: BatchBuilder, tp: TopicPartition) -> OrderedBatch:
        self._identities.join_transaction(tp)
        batch = OrderedBatch(tp, builder, self._batch_ttl, self._linger_time)
        if self._topics.get(tp.topic) is not None:
            batch.pin()
        self._batches[tp].append(batch)
        self._wake()
        return batch

    def _pop_batch(self, tp: TopicPartition) -> OrderedBatch:
        batch: OrderedBatch = super()._pop_batch(tp)
        homes = self._topics.get(tp.topic)
        if batch.retry_count == 1:
            self._identities.give(batch)
        if homes is not None and tp not in self._unanswered:
            # not that of when it was begun: since then records may have come to it that were not at home here then
            batch.stamp = Stamp.of(homes.layout)
        self._unanswered.add(tp, batch)
        return batch

    def _last_batch(self, tp: TopicPartition) -> OrderedBatch:
        waiting = self._batches.get(tp)
        return waiting[-1] if waiting else self._append_batch(self.create_builder(), tp)

    def _require_open(self) -> None:
        if self._closed:
            raise ProducerClosed
        if self._exception is not None:
            raise copy.copy(self._exception)
        self._identities.require_transaction()

    def _wake(self) -> None:
        if not self._waiter_future.done():
            self._waiter_future.set_result(None)

    def _change(self, topic: str, homes: Homes | None, layout: TopicLayout) -> None:
        if homes is None:
            homes = self._topics[topic] = Homes(layout)
        elif homes.layout.virtual_partition_count != layout.virtual_partition_count:
            for batch in (*self._pending_batches, *(batch for queue in self._batches.values() for batch in queue)):
                if batch.tp.topic == topic:
                    batch.forget_places()
        for batch in (batch for tp, queue in self._batches.items() if tp.topic == topic for batch in queue):
            self._places.of(batch, layout)  # opens what is from before the topic was managed: nothing more comes to it
        self._unanswered.forget_answered()
        homes.change(layout, self._unanswered.places(topic, layout, self._batches))
        for tp in [tp for tp in self._batches if tp.topic == topic]:
            self._settle(tp)

    def _settle(self, tp: TopicPartition) -> None:
        """Moves the records of a partition to their homes, if everything that was sent from there is answered."""
        homes = self._topics.get(tp.topic)
        if homes is None or tp in self._unanswered:
            return
        homes.leave(tp.partition)
        queue = self._batches.get(tp, ())
        if not all(homes.fits(tp.partition, self._places.of(each, homes.layout)) and not each.opened for each in queue):
            self._rehouse(homes, tp)

    def _rehouse(self, homes: Homes, tp: TopicPartition) -> None:
        """Takes all batches of a partition apart, and puts their records where they belong now."""
        homes.leave(tp.partition)
        for batch in self._batches.pop(tp):
            for record in batch.take_apart(partial(self._places.find, homes.layout)):
                housed = self._last_batch(TopicPartition(homes.layout.topic, homes.home(record.place)))
                if not housed.append_held(record):
                    housed = self._append_batch(self.create_builder(), housed.tp)
                    housed.append_held(record)
                housed.inherit(batch)


async def _wait_for_room(batch: OrderedBatch, seconds: float) -> float:
    """Waits until a full batch has gone; returns the seconds that are left."""
    start = time.monotonic()
    await batch.wait_drain(seconds)
    left = seconds - (time.monotonic() - start)
    if left <= 0:
        raise KafkaTimeoutError
    return left


def _give_up(
    queues: dict[TopicPartition, deque[OrderedBatch]], pending: set[OrderedBatch], lost: BaseException
) -> None:
    """Fails what waits to be sent in a transaction that has failed."""
    batches = [batch for queue in queues.values() for batch in queue]
    queues.clear()
    for batch in batches:
        if batch.retry_count:
            pending.add(batch)  # which it leaves when it ends
        batch.failure(lost)
