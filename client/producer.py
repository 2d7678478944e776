"""`OrderedProducer`: AIOKafkaProducer for topics whose partitions come and go."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Self, Unpack, cast

from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import InvalidTopicError, UnknownTopicOrPartitionError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata, TopicPartition

from kordon.client import second_protocol
from kordon.client.batches import Header
from kordon.client.dialect_client import DialectClient, in_place_of
from kordon.client.homes import Homes
from kordon.client.layouts import TopicLayout
from kordon.client.options import ProducerOptions
from kordon.client.ordered_sender import OrderedSender
from kordon.client.outbox import Outbox
from kordon.client.partitioning import any_partition, chosen, hashes_like_java, key_hash
from kordon.client.starting import start_or_stop
from kordon.client.transactions import OrderedTransactionContext, OrderedTransactions

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)

_WHAT_RECORDS_ARE_MADE_OF: Final = (
    "Keys and values are bytes, or what `key_serializer` and `value_serializer` turn into bytes; headers are pairs of "
    "a str and bytes"
)
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class OrderedProducer(AIOKafkaProducer):
    """A producer that follows the partitions of managed topics without changing the order of any key (KIP-253).

    It takes what AIOKafkaProducer takes, and is used in the same way. What differs:

    - It is always idempotent, so `acks` is `"all"`.
    - On managed topics keys are hashed linearly: to one of V virtual partitions, and from there to one of those
      partitions that are written to now. A `partitioner` chooses one of the virtual ones.
    - When a topic grows or shrinks, what has not been written yet goes to where its keys now belong. Futures, headers
      and timestamps stay as they are.
    - Where a record fails in a transaction, that can only be aborted, as in Java's producer.

    Topics that are not managed, and all topics where no Kordon answers, are written to as AIOKafkaProducer does; a
    warning says so once.

    Args:
        options: Those of AIOKafkaProducer (`kordon.client.options.ProducerOptions` lists them).

    Raises:
        ValueError: Options do not fit one another, or ask for a producer that is not idempotent.
        TypeError: There is no such option.
    """

    sender_class: ClassVar[type[OrderedSender]] = OrderedSender
    """What its requests are sent by."""

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        acks = options.get("acks", "all")
        if not options.get("enable_idempotence", True):
            raise ValueError("an OrderedProducer is always idempotent: leave enable_idempotence out")
        if acks not in ("all", -1):
            raise ValueError(f'acks={acks!r}: an OrderedProducer is always idempotent, so acks is "all": leave it out')
        partitioner = options.get("partitioner") or DefaultPartitioner()
        super().__init__(**cast(Any, {**options, "enable_idempotence": True, "partitioner": partitioner}))
        self._by_hash = hashes_like_java(self._partitioner)
        self._sticky: dict[str, int] = {}
        self._plain: set[str] = set()
        self._timeout_seconds = self._request_timeout_ms / 1000
        self._follow(in_place_of(self.client))

    def _follow(self, client: DialectClient) -> None:
        """Puts what speaks the dialect in the place of what the parent has made; nothing of that has begun to run."""
        made: Any = self._message_accumulator
        made_manager = self._txn_manager
        assert made_manager is not None, "it is always idempotent"
        self._txn_manager: OrderedTransactions = OrderedTransactions(
            made_manager.transactional_id,
            made_manager.transaction_timeout_ms,
            lambda: client.finalized.levels.get(second_protocol.FEATURE, 0) >= second_protocol.LEVEL,
        )
        self.client: DialectClient = client
        self._metadata = client.cluster
        self._message_accumulator: Outbox = Outbox(
            client.cluster,
            client.layouts,
            self._place_of_key,
            made._batch_size,
            made._compression_type,
            made._batch_ttl,
            txn_manager=self._txn_manager,
            linger_ms=round(made._linger_time * 1000),
        )
        self._sender = self.sender_class(
            client,
            acks=-1,
            txn_manager=self._txn_manager,
            retry_backoff_ms=round(client._retry_backoff * 1000),
            message_accumulator=self._message_accumulator,
            request_timeout_ms=self._request_timeout_ms,
        )
        client.cluster.add_listener(self._on_metadata)

    async def __aenter__(self) -> Self:
        """Starts; what cannot be started is stopped."""
        await start_or_stop(self)
        return self

    async def start(self) -> None:
        """Connects, and learns who answers.

        Raises:
            KafkaConnectionError: No bootstrap server answers.
        """
        await super().start()
        if not self.client.cluster.ordered:
            _log.warning(
                "No Kordon answers at %s, or none that speaks the dialect (ordering.dialect): "
                "topics are written to as by AIOKafkaProducer, so when partitions are added "
                "to one, the order of its keys is not kept",
                self.client._bootstrap_servers,
            )

    async def send(  # noqa: PLR0917  as the parent
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queues a record; returns when there is room for it.

        Args:
            topic: The topic of the record.
            value: Bytes, or what `value_serializer` takes; None deletes the key in compacted topics.
            key: Bytes, or what `key_serializer` takes. Records of one key keep their order.
            partition: Instead of the one of its key. When that is retired, the record goes where its keys go.
            timestamp_ms: The timestamp of the record, in milliseconds since 1970; by default the current time.
            headers: Pairs of a name and bytes.

        Returns:
            A future of the record's RecordMetadata, done when it is written. The offset in it is -1 where it is known
            that the record is written, but not where.

        Raises:
            KafkaTimeoutError: There was no room in time.
            UnknownTopicOrPartitionError: The topic does not exist, or does not have that partition.
            InvalidTopicError: No topic can have that name.
            TypeError: The key or the value is not bytes, and nothing turns it into bytes.
            MessageSizeTooLargeError: The record is larger than `max_request_size`.
            IllegalOperation: The producer has a `transactional_id`, and no transaction is open, or it has failed.
        """
        self._txn_manager.require_open()
        homes = self._message_accumulator.homes(topic)
        if homes is None:
            homes = None if topic in self._plain else await self._homes_of_new(topic)
            if homes is None:
                future: asyncio.Future[RecordMetadata] = await super().send(
                    topic, value, key, partition, timestamp_ms, headers
                )
                return future
        assert value is not None or key is not None, "Need at least one: key or value"
        sent_headers = list(headers) if headers else []
        try:
            key_bytes, value_bytes = self._serialize(key, value, sent_headers)
        except TypeError as error:
            error.add_note(_WHAT_RECORDS_ARE_MADE_OF)
            raise
        place = self._place(homes, key_bytes) if partition is None else self._pinned(homes, partition)
        return await self._message_accumulator.add(
            homes,
            place,
            key=key_bytes,
            value=value_bytes,
            timestamp_ms=timestamp_ms,
            headers=sent_headers,
            timeout_seconds=self._timeout_seconds,
        )

    def transaction(self) -> OrderedTransactionContext:
        """Returns a context that begins a transaction, commits it at its end, and aborts it on an error."""
        return OrderedTransactionContext(self)

    def _on_metadata(self, cluster: ClusterMetadata) -> None:
        del cluster  # it is this one's client's
        self._message_accumulator.refresh()

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Queues a batch that `create_batch` has given, for one partition.

        To a managed topic it goes as it is; when its partition is retired before, its records go where the keys of that
        partition have gone. It takes no more records once it is queued.

        Returns:
            A future of the RecordMetadata of the batch, or of its first record where these had to part.

        Raises:
            KafkaTimeoutError: There was no room in time.
            UnknownTopicOrPartitionError: The topic does not exist, or does not have that partition.
            IllegalOperation: As for `send`.
        """
        self._txn_manager.require_open()
        homes = await self._homes_of_new(topic)
        if homes is not None:
            self._pinned(homes, partition)
        future: asyncio.Future[RecordMetadata] = await super().send_batch(batch, topic, partition=partition)
        return future

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the partitions that a topic's records can be written to.

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        homes = await self._homes_of_new(topic)
        known: set[int] = await super().partitions_for(topic)
        return known if homes is None else set(range(homes.layout.undeleted_partition_count))

    async def _homes_of_new(self, topic: str) -> Homes | None:
        """Returns the homes of a topic's places, None if it is not managed; asks for its metadata if need be."""
        if not _is_name(topic):
            # asked for once, it would be asked for with the others forever, and brokers would refuse them all
            raise InvalidTopicError(f"{topic!r} cannot be the name of a topic")
        await self.client._wait_on_metadata(topic)
        self._message_accumulator.refresh_topic(topic)
        homes = self._message_accumulator.homes(topic)
        if homes is None and topic not in self._plain:
            self._plain.add(topic)
            self._say_plain(topic)
        return homes

    def _say_plain(self, topic: str) -> None:
        if self.client.cluster.ordered:
            _log.warning(
                "%s is not managed by Kordon: it is written to as by AIOKafkaProducer, so when partitions are added to "
                "it, the order of its keys is not kept",
                topic,
            )

    def _place(self, homes: Homes, key: bytes | None) -> int:
        if not self._by_hash:
            return self._place_of_key(homes.layout, key)
        if key is None:
            return ~self._keyless(homes.layout)
        return key_hash(bytes(key)) % homes.layout.virtual_partition_count

    def _place_of_key(self, layout: TopicLayout, key: bytes | None) -> int:
        """Returns the virtual partition of a record that nobody has given a partition."""
        if self._by_hash and key is not None:
            return key_hash(bytes(key)) % layout.virtual_partition_count
        return chosen(self._partitioner, key, layout.homes, self._available(layout))

    def _pinned(self, homes: Homes, partition: int) -> int:
        count = homes.layout.undeleted_partition_count
        if not 0 <= partition < count:
            raise UnknownTopicOrPartitionError(
                f"{homes.layout.topic} has the partitions 0 to {count - 1}, and no {partition} that is written to"
            )
        return ~partition

    def _keyless(self, layout: TopicLayout) -> int:
        """Returns a partition for a record without key: the same one until its batch has gone."""
        partition = self._sticky.get(layout.topic)
        if partition is None or TopicPartition(layout.topic, partition) not in self._message_accumulator._batches:
            partition = any_partition(self._available(layout), layout.undeleted_partition_count)
            self._sticky[layout.topic] = partition
        return partition

    def _available(self, layout: TopicLayout) -> list[int]:
        reachable = self._metadata.available_partitions_for_topic(layout.topic) or set()
        return [partition for partition in reachable if partition < layout.undeleted_partition_count]


def _is_name(topic: object) -> bool:
    return isinstance(topic, str) and _TOPIC_NAME.fullmatch(topic) is not None
