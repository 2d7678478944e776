"""`OrderedConsumer`: AIOKafkaConsumer for topics whose partitions come and go."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack, cast

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from kordon.client.assignor import OrderedAssignor
from kordon.client.calls import Calls, MoveCounts
from kordon.client.dialect_client import DialectClient, in_place_of
from kordon.client.fetching import OrderedFetcher
from kordon.client.group import OrderedCoordinator, OrderedReader, known_epochs
from kordon.client.key_move_driver import KeyMoveDriver
from kordon.client.listener import PartitionKeyRebalanceListener
from kordon.client.options import ConsumerOptions
from kordon.client.starting import start_or_stop

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

if TYPE_CHECKING:
    _T = TypeVar("_T")
    _Record: TypeAlias = ConsumerRecord[Any, Any]
    _Waiting: TypeAlias = CoroutineType[object, None, _T]

_log = logging.getLogger(__name__)


class OrderedConsumer(AIOKafkaConsumer):
    """A consumer that gets each key's records in order while the partitions of managed topics come and go (KIP-253).

    It takes what AIOKafkaConsumer takes, and is used in the same way. What differs on managed topics:

    - Its partitions are the physical ones. When a topic grows or shrinks, its group shares them out again.
    - A partition whose keys were in another one before is read when the group has read that one; whoever had the keys
      is called in `on_partition_key_maybe_revoked` before whoever has them next is called in
      `on_partition_key_assigned`.
    - A partition that is new to a group that has read the topic before is read from its start, though
      `auto_offset_reset` be `latest`.
    - All members of a group must be OrderedConsumers.

    A record counts as handled when the application asks for the next ones, commits, or stops the consumer; one task
    should read from it at a time. Topics that are not managed, and all topics where no Kordon answers, are read as
    AIOKafkaConsumer does; the callbacks for keys are not called then.

    Args:
        topics: Names of the topics to subscribe to.
        key_listener: The listener for `topics`, as `subscribe` takes it.
        key_callback_timeout_ms: The time limit of one callback of the listener, in milliseconds; by default a third of
            `session_timeout_ms`. Before partitions are given up, the application has as much time to ask for the next
            record, and again for the callback. Both together should be less than `rebalance_timeout_ms`.
        options: Those of AIOKafkaConsumer (`kordon.client.options` lists them); `partition_assignment_strategy` counts
            where no Kordon answers.

    Raises:
        ValueError: Options do not fit one another, or `key_callback_timeout_ms` is no positive integer.
        TypeError: `key_listener` is no PartitionKeyRebalanceListener, or there is no such option.
    """

    def __init__(
        self,
        *topics: str,
        key_listener: PartitionKeyRebalanceListener | None = None,
        key_callback_timeout_ms: int | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        _check(topics, key_listener, key_callback_timeout_ms)
        super().__init__(**cast(Any, options))
        if key_callback_timeout_ms is None:
            key_callback_timeout_ms = self._session_timeout_ms // 3
        self._client: DialectClient = in_place_of(self._client)
        self._driver: KeyMoveDriver | None = None
        self._fetcher: OrderedFetcher | None = None
        self._calls = Calls(key_callback_timeout_ms / 1000)
        if topics:
            self.subscribe(topics, key_listener=key_listener)

    @property
    def key_counts(self) -> MoveCounts:
        """How often the key listener was called, and failed."""
        return self._calls.counts

    def held(self) -> frozenset[TopicPartition]:
        """Returns the partitions that wait until others of the group have read or flushed what was before them."""
        return self._driver.moves.held if self._driver is not None else frozenset()

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
        key_listener: PartitionKeyRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, as AIOKafkaConsumer does.

        Args:
            topics: Names of the topics.
            pattern: Or a regular expression.
            listener: Called when *partitions* are revoked and assigned.
            key_listener: Called when *keys* move between partitions.

        Raises:
            TypeError: A listener is none, or a topic's name is no str.
            ValueError: Neither topics nor a pattern are given, or both.
            IllegalStateError: Partitions were assigned by `assign`.
        """
        _check_listener(key_listener)
        super().subscribe(topics, pattern, listener)
        self._calls.listener = key_listener

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Takes partitions without a group, as AIOKafkaConsumer does; its own positions open what is held."""
        super().assign(list(partitions))
        self._take_own()

    async def __aenter__(self) -> Self:
        """Starts; what cannot be started is stopped."""
        await start_or_stop(self)
        return self

    async def start(self) -> None:
        """Connects, and joins the group.

        Raises:
            KafkaConnectionError: No bootstrap server answers.
            MixedGroupError: The group has members that are no OrderedConsumers.
        """
        await self._client.bootstrap()
        if not self._client.cluster.ordered:
            _log.warning(
                "No Kordon answers at %s, or none that speaks the dialect (ordering.dialect): "
                "partitions that are added to a topic are read at once, out of the order of "
                "their keys, and nobody is called when keys move",
                self._client._bootstrap_servers,
            )
            await super().start()
            return
        self._driver = self._new_driver()
        await self._wait_topics()
        self._fetcher = self._new_fetcher(self._driver)
        await self._join(self._driver)

    async def stop(self) -> None:
        """Flushes, commits, leaves the group, and closes all connections."""
        if self._closed:
            return
        if self._driver is not None:
            await self._driver.give_up(all_is_handled=True)
            await self._driver.close()
        await super().stop()

    async def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]] | None = None) -> None:
        """Commits, as AIOKafkaConsumer does; what was delivered counts as handled."""
        if self._driver is not None:
            self._driver.came_back()
        await super().commit(offsets)

    def getone(self, *partitions: TopicPartition) -> _Waiting[_Record]:
        """Returns the next record; what was delivered before counts as handled."""
        if self._driver is not None and self._driver.application.wants_to_know:
            self._driver.came_back()
        waiting: _Waiting[_Record] = super().getone(*partitions)
        return waiting

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> _Waiting[dict[TopicPartition, list[_Record]]]:
        """Returns the next records; what was delivered before counts as handled."""
        if self._driver is not None and self._driver.application.wants_to_know:
            self._driver.came_back()
        waiting: _Waiting[dict[TopicPartition, list[_Record]]] = super().getmany(
            *partitions, timeout_ms=timeout_ms, max_records=max_records
        )
        return waiting

    def _resume_fetching(self) -> None:
        if self._fetcher is not None:
            self._fetcher.resume()

    def _withhold(self, partitions: Collection[TopicPartition]) -> None:
        if self._fetcher is not None:
            self._fetcher.withhold(partitions)

    def _new_driver(self) -> KeyMoveDriver:
        return KeyMoveDriver(
            self._client,
            self._subscription,
            calls=self._calls,
            heartbeat_seconds=self._heartbeat_interval_ms / 1000,
            resume=self._resume_fetching,
            withhold=self._withhold,
        )

    def _new_fetcher(self, driver: KeyMoveDriver) -> OrderedFetcher:
        return OrderedFetcher(
            self._client,
            self._subscription,
            driver=driver,
            known_to_group=self._known_to_group if self._group_id is not None else None,
            key_deserializer=self._key_deserializer,
            value_deserializer=self._value_deserializer,
            fetch_min_bytes=self._fetch_min_bytes,
            fetch_max_bytes=self._fetch_max_bytes,
            fetch_max_wait_ms=self._fetch_max_wait_ms,
            max_partition_fetch_bytes=self._max_partition_fetch_bytes,
            check_crcs=self._check_crcs,
            fetcher_timeout=self._consumer_timeout,
            retry_backoff_ms=self._retry_backoff_ms,
            auto_offset_reset=self._auto_offset_reset,
            isolation_level=self._isolation_level,
            client_rack=self._client_rack,
        )

    async def _known_to_group(self, topic: str) -> bool:
        return isinstance(self._coordinator, OrderedCoordinator) and await self._coordinator.knows(topic)

    async def _join(self, driver: KeyMoveDriver) -> None:
        """Does what the parent's `start` does with its own coordinators."""
        subscription: Any = self._subscription  # None in it is not in its types
        if self._group_id is None:
            self._coordinator = OrderedReader(
                self._client, subscription, driver=driver, exclude_internal_topics=self._exclude_internal_topics
            )
            if subscription.subscription is not None and subscription.partitions_auto_assigned():
                await self._client.force_metadata_update()
                self._coordinator.assign_all_partitions(check_unknown=True)
        else:
            self._coordinator = self._new_coordinator(driver)
            if subscription.subscription is not None and subscription.partitions_auto_assigned():
                await subscription.wait_for_assignment()
            elif subscription.subscription is not None:
                self._coordinator.start_commit_offsets_refresh_task(subscription.subscription.assignment)
        self._take_own()

    def _new_coordinator(self, driver: KeyMoveDriver) -> OrderedCoordinator:
        return OrderedCoordinator(
            self._client,
            self._subscription,
            driver=driver,
            group_id=self._group_id,
            group_instance_id=self._group_instance_id,
            heartbeat_interval_ms=self._heartbeat_interval_ms,
            session_timeout_ms=self._session_timeout_ms,
            retry_backoff_ms=self._retry_backoff_ms,
            enable_auto_commit=self._enable_auto_commit,
            auto_commit_interval_ms=self._auto_commit_interval_ms,
            assignors=(OrderedAssignor(self._client.layouts),),
            exclude_internal_topics=self._exclude_internal_topics,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            max_poll_interval_ms=self._max_poll_interval_ms,
        )

    def _take_own(self) -> None:
        """Takes partitions that the application has assigned itself."""
        subscription: Any = self._subscription.subscription
        if self._driver is None or subscription is None or self._subscription.partitions_auto_assigned():
            return
        assignment = subscription.assignment
        self._driver.take(assignment, None, known_epochs(self._client.layouts, assignment.tps))


def _check(topics: Collection[str], key_listener: object, key_callback_timeout_ms: object) -> None:
    """Refuses what the caller cannot mean, before there is a consumer that would have to be stopped."""
    if key_callback_timeout_ms is not None and not (
        isinstance(key_callback_timeout_ms, int) and key_callback_timeout_ms > 0
    ):
        raise ValueError(f"`key_callback_timeout_ms` should be a positive integer, not {key_callback_timeout_ms!r}")
    _check_listener(key_listener)
    if key_listener is not None and not topics:
        raise ValueError("`key_listener` is for the topics named here: give it to `subscribe` with those named there")


def _check_listener(key_listener: object) -> None:
    if key_listener is not None and not isinstance(key_listener, PartitionKeyRebalanceListener):
        raise TypeError(f"key_listener should be an instance of PartitionKeyRebalanceListener, not {key_listener!r}")
