"""What a producer holds until it is answered: aiokafka's accumulator, following the homes of managed topics."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiokafka.errors import KafkaTimeoutError, ProducerClosed
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.structs import TopicPartition

from kordon.client.batches import Header, HeldRecord, OrderedBatch
from kordon.client.homes import Homes, Stamp
from kordon.client.identities import Identities
from kordon.client.layouts import Layouts, TopicLayout

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

PlaceOf = Callable[[TopicLayout, bytes | None], int]


class Outbox(MessageAccumulator):
    """aiokafka's accumulator; records of managed topics go to the homes of their places, and move with these.

    Args:
        cluster: What is known of the cluster.
        layouts: What is known of its managed topics.
        place_of: Tells the place of a key, where a batch was filled before its topic was managed.
        options: The parent's.
    """

    def __init__(self, cluster: Any, layouts: Layouts, place_of: PlaceOf, *args: Any, **options: Any) -> None:
        super().__init__(cluster, *args, **options)
        assert self._txn_manager is not None, "an OrderedProducer is always idempotent"
        self._identities = Identities(self._txn_manager)
        self._layouts = layouts
        self._place_of = place_of
        self._topics: dict[str, Homes | None] = {}
        """Of the topics that are written to; None: it is not managed."""
        self._unanswered: dict[TopicPartition, OrderedBatch] = {}
        """What was sent and has no answer that says whether it is written: one batch per partition at most."""

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
    ) -> Any:
        """Adds a record to the batch of its place's home; waits while that is full.

        Returns:
            The future of its metadata.

        Raises:
            ProducerClosed: The producer was stopped.
            KafkaTimeoutError: There was no room in time.
        """
        while True:
            self._refuse_if_closed()
            batch = self._last_batch(TopicPartition(homes.layout.topic, homes.home(place)))
            future = batch.append_at(place, key, value, timestamp_ms, headers)
            if future is not None:
                return future
            timeout_seconds = await self._wait_for_room(batch, timeout_seconds)

    async def add_message(  # noqa: PLR0917  as the parent
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timeout: float,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Any:
        """Adds a record to a topic that is not managed, as the parent does; it may become so while there is no room.

        Returns:
            The future of its metadata.

        Raises:
            ProducerClosed: The producer was stopped.
            KafkaTimeoutError: There was no room in time.
        """
        while (homes := self._topics.get(tp.topic)) is None:
            self._refuse_if_closed()
            batch = self._last_batch(tp)
            future = batch.append(key, value, timestamp_ms, headers=headers)
            if future is not None:
                return future
            timeout = await self._wait_for_room(batch, timeout)
        return await self.add(
            homes,
            self._find_place(homes.layout, tp.partition, key),
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
            course = homes.course(batch.tp.partition, self._places(batch, homes.layout), batch.stamp)
            batch.stamp, batch.question = course

    def take_back(self, batch: OrderedBatch) -> None:
        """A batch that was sent is not written and never will be: its records begin anew, in front of all others."""
        tp = batch.tp
        homes = self._topics.get(tp.topic)
        if homes is None:  # let go meanwhile: it is written as it is
            self.reenqueue(batch)
            return
        self._identities.give_back(batch)
        del self._unanswered[tp]
        self._batches[tp].appendleft(batch)
        self._rehouse(homes, tp)

    def renew(self, batch: OrderedBatch) -> bool:
        """Has a batch that brokers do not take under its identity go out under another; False: it has failed.

        That is done only if the refusal is all that was ever heard of it. Where an earlier attempt has no answer, it
        may be written, and whoever has forgotten its identity could not tell that it is there (KIP-360).
        """
        return not batch.in_doubt and self._identities.renew(batch)

    def drain_by_nodes(self, ignore_nodes: Any, muted_partitions: Any = frozenset()) -> Any:
        """Returns the batches that can go out now, by node; places that were late go to their new homes first."""
        for tp in self._forget_answered():
            self._settle(tp)
        if self._identities.are_missing:
            self._wake()  # the sender gets another producer id, and comes back
            return {}, False
        return super().drain_by_nodes(ignore_nodes, muted_partitions)

    async def add_batch(self, builder: Any, tp: TopicPartition, timeout: float) -> Any:
        """Adds a batch that the caller has filled; of a managed topic it is closed, and stays as it is."""
        if self._topics.get(tp.topic) is not None:
            builder.close()
        return await super().add_batch(builder, tp, timeout)

    def _append_batch(self, builder: Any, tp: TopicPartition) -> OrderedBatch:
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
        self._unanswered[tp] = batch
        return batch

    def _last_batch(self, tp: TopicPartition) -> OrderedBatch:
        waiting = self._batches.get(tp)
        return waiting[-1] if waiting else self._append_batch(self.create_builder(), tp)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ProducerClosed
        if self._exception is not None:
            raise copy.copy(self._exception)

    async def _wait_for_room(self, batch: OrderedBatch, seconds: float) -> float:
        """Waits until a full batch has gone; returns the seconds that are left."""
        self._wake()
        start = time.monotonic()
        await batch.wait_drain(seconds)
        left = seconds - (time.monotonic() - start)
        if left <= 0:
            raise KafkaTimeoutError
        return left

    def _forget_answered(self) -> list[TopicPartition]:
        """Returns the partitions that were waiting for an answer and do not any more."""
        answered = [tp for tp, batch in self._unanswered.items() if batch.future.done()]
        for tp in answered:
            if self._unanswered.pop(tp).has_failed:
                self._identities.begin_epoch(tp)
        return answered

    def _wake(self) -> None:
        if not self._waiter_future.done():
            self._waiter_future.set_result(None)

    def _places(self, batch: OrderedBatch, layout: TopicLayout) -> Sequence[int]:
        return batch.places(partial(self._find_place, layout))

    def _find_place(self, layout: TopicLayout, partition: int, key: bytes | None) -> int:
        """Returns the place of a record that was put into a partition before its topic was managed.

        What is not where its key belonged then was put there without regard to that, and goes with the partition.
        """
        place = -1 if key is None else self._place_of(layout, key)
        return place if place >= 0 and place % layout.initial_partition_count == partition else ~partition

    def _change(self, topic: str, homes: Homes | None, layout: TopicLayout) -> None:
        if homes is None:
            homes = self._topics[topic] = Homes(layout)
        elif homes.layout.virtual_partition_count != layout.virtual_partition_count:
            for batch in (*self._pending_batches, *(batch for queue in self._batches.values() for batch in queue)):
                if batch.tp.topic == topic:
                    batch.forget_places()
        self._forget_answered()
        homes.change(layout, self._unanswered_places(topic, layout))
        for tp in [tp for tp in self._batches if tp.topic == topic]:
            self._settle(tp)

    def _unanswered_places(self, topic: str, layout: TopicLayout) -> Mapping[int, set[int]]:
        return {
            tp.partition: {
                place for each in (batch, *self._batches.get(tp, ())) for place in self._places(each, layout)
            }
            for tp, batch in self._unanswered.items()
            if tp.topic == topic
        }

    def _settle(self, tp: TopicPartition) -> None:
        """Has the records of a partition move to their homes, if nothing that was sent from there is unanswered."""
        homes = self._topics.get(tp.topic)
        if homes is None or tp in self._unanswered:
            return
        homes.leave(tp.partition)
        queue = self._batches.get(tp, ())
        if not all(homes.fits(tp.partition, self._places(each, homes.layout)) and not each.opened for each in queue):
            self._rehouse(homes, tp)

    def _rehouse(self, homes: Homes, tp: TopicPartition) -> None:
        """Takes all batches of a partition apart, and puts their records where they belong now."""
        homes.leave(tp.partition)
        for batch in self._batches.pop(tp):
            for record in batch.take_apart(partial(self._find_place, homes.layout)):
                self._put(homes, record, batch)

    def _put(self, homes: Homes, record: HeldRecord, held_in: OrderedBatch) -> None:
        batch = self._last_batch(TopicPartition(homes.layout.topic, homes.home(record.place)))
        if not batch.append_held(record):
            batch = self._append_batch(self.create_builder(), batch.tp)
            batch.append_held(record)
        batch.inherit(held_in)
