"""`CooperativeConsumer`: many records at a time, each finished by itself, each key in order."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, Final, Self, Unpack, cast

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import TopicPartition

from kordon.client.cooperative.beginning import Beginning
from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.feeding import Feeding
from kordon.client.cooperative.in_hand import InHand
from kordon.client.cooperative.log_watch import LogWatch
from kordon.client.cooperative.membership import ConsumerMembership
from kordon.client.cooperative.physical import PhysicalConsumer
from kordon.client.cooperative.range_store import RangeStore
from kordon.client.cooperative.settings import AcknowledgeType, CooperativeOptions, Handle, Record, Settings
from kordon.client.cooperative.working import Hand, Held, Working
from kordon.client.starting import start_or_stop

_log = logging.getLogger(__name__)

_NEVER_MS: Final = 2**31 - 1
_REBALANCE_MS: Final = 30_000
"""For which a group waits for a member, unless the application says otherwise; aiokafka's is `session_timeout_ms`."""
_OWN: Final = frozenset(each.name for each in fields(Settings))
_HANDED_OVER: Final = frozenset({"key_deserializer", "value_deserializer"})
_REFUSED: Final[Mapping[str, str]] = {
    "enable_auto_commit": "it commits what is finished, by itself and by `commit`",
    "auto_commit_interval_ms": "take `commit_interval_ms`",
    "max_poll_interval_ms": "it always polls; take `handler_timeout_ms`",
    "max_poll_records": "take `max_records_in_hand`",
    "consumer_timeout_ms": "it waits for records until it is stopped",
}


class CooperativeConsumer:
    """A consumer that works on many records at a time, acknowledges each by itself, and keeps each key's order.

    Records of a key are handled one after the other, and those of other keys meanwhile. A record that fails is tried
    again and holds nothing but its key. What is finished is committed once a second: the offset before which everything
    is, and what is finished behind it. So whoever gets a partition next does only what is missing. A Kordon keeps that
    (individual commit, `kordon.cooperative`); elsewhere it is in the metadata of commits, as far as it fits.

    It reads managed topics through a Kordon, by their virtual partitions unless it is told otherwise (`view`), and
    ordinary topics through a Kordon or from brokers.

    Args:
        topics: Names of the topics to subscribe to.
        options: Those of `kordon.client.cooperative.settings.CooperativeOptions`: its own, and AIOKafkaConsumer's.

    Raises:
        ValueError: There is no `group_id`, an option is out of its range, or it makes no sense here.
        TypeError: There is no such option.
    """

    def __init__(self, *topics: str, **options: Unpack[CooperativeOptions]) -> None:
        told = dict(cast("dict[str, Any]", options))
        self._settings = Settings(**{name: told.pop(name) for name in _OWN & told.keys()})
        deserializers = {name: told.pop(name, None) for name in _HANDED_OVER}
        _check(told, self._settings)
        if told.get("rebalance_timeout_ms") is None:
            told["rebalance_timeout_ms"] = _REBALANCE_MS
        told |= {"enable_auto_commit": False, "max_poll_interval_ms": _NEVER_MS}
        self._hand: Hand = InHand(self._settings.order, self._settings.limits)
        self._consumer = (
            AIOKafkaConsumer(**told)
            if self._settings.view == "virtual"
            else PhysicalConsumer(**told, finished_to=self._finished_to)
        )
        self._working = Working(self._hand, self._settings, freed=self._has_room, **deserializers)
        watch = LogWatch(self._consumer)
        store = RangeStore(self._consumer, told["group_id"], watch)
        self._feeding = Feeding(
            self._consumer,
            self._hand,
            taken=self._working.look,
            beginning=Beginning(self._consumer, store),
            watch=watch,
            cut=store.commits.ask_again,
            failed=self._working.fail,
        )
        self._membership = ConsumerMembership(
            self._consumer, self._hand, store, working=self._working, feeding=self._feeding, settings=self._settings
        )
        self._is_stopped = False
        if topics:
            self.subscribe(topics)

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, as AIOKafkaConsumer does.

        Args:
            topics: Names of the topics.
            pattern: Or a regular expression.
            listener: Called when partitions were given up, after what is in hand of them was drained and committed;
                and when they are assigned, before their first record.

        Raises:
            TypeError: The listener is none, or a topic's name is no str.
            ValueError: Neither topics nor a pattern are given, or both.
        """
        _check_listener(listener)
        self._consumer.subscribe(tuple(topics), pattern, self._membership)
        self._membership.listener = listener

    async def start(self) -> None:
        """Connects, joins the group, and begins to fetch.

        Raises:
            KafkaConnectionError: No bootstrap server answers.
        """
        self._feeding.start()
        await self._consumer.start()

    async def stop(self) -> None:
        """Waits for handlers (`drain_timeout_ms`), commits, leaves the group, and closes all connections."""
        if self._is_stopped:
            return
        self._is_stopped = True
        await self._membership.close()
        await self._feeding.close()
        await self._consumer.stop()
        self._working.fail(ConsumerStoppedError())

    async def __aenter__(self) -> Self:
        """Starts; what cannot be started is stopped."""
        await start_or_stop(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stops."""
        await self.stop()

    async def run(self, handle: Handle) -> None:
        """Handles all records, `concurrency` at a time, until the consumer is stopped or this task is cancelled.

        A record is finished when `handle` returns. If it raises, the record is tried again (`max_attempts`,
        `redelivery_backoff_ms`).

        Args:
            handle: Takes a record; a function or a coroutine function. A coroutine may be cancelled, when it takes
                longer than `handler_timeout_ms`, or when its partition goes to another member.

        Raises:
            KafkaError: Nothing more can be fetched or committed, such as for lack of rights.
        """
        self._working.handle = handle
        self._working.look()
        try:
            await self._working.finished()
        except ConsumerStoppedError:
            return
        finally:
            self._working.handle = None

    async def getone(self) -> Record:
        """Returns the next record that may be worked on; it waits while `concurrency` of them are not acknowledged.

        Raises:
            ConsumerStoppedError: The consumer is stopped.
            KafkaError: Nothing more can be fetched or committed.
        """
        return await self._working.next()

    def __aiter__(self) -> Self:
        """Yields records as `getone` returns them, until the consumer is stopped."""
        return self

    async def __anext__(self) -> Record:
        """Returns the next record, as `getone` does."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def acknowledge(self, record: Record, how: AcknowledgeType = AcknowledgeType.ACCEPT) -> bool:
        """Says what became of a record that `getone` or `async for` has given.

        Returns:
            Whether that counts: not so if its partition has gone to another member, or it was acknowledged before.
        """
        entry = self._hand.find(TopicPartition(record.topic, record.partition), record.offset)
        return entry is not None and self._working.acknowledge(entry, how)

    async def commit(self) -> dict[TopicPartition, int]:
        """Commits what is finished now, and not only once in `commit_interval_ms`.

        Returns:
            The offset before which all is finished, of each partition with something new.

        Raises:
            CommitFailedError: The group has moved on: others may own the partitions.
            KafkaError: The commit may be there or not.
        """
        return await self._membership.commit()

    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the partitions of this member that it knows where to begin with."""
        return frozenset(self._hand.partitions)

    def progress(self, partition: TopicPartition) -> Progress:
        """Returns the offset before which all is finished, and the finished ranges behind it, of one of its partitions.

        Raises:
            KeyError: The partition is not this member's.
        """
        return self._hand.progress(partition)

    def oldest_gap(self, partition: TopicPartition) -> Record | None:
        """Returns the record that holds the committed offset, with key and value as bytes; None: nothing is in hand.

        Raises:
            KeyError: The partition is not this member's.
        """
        held: Held | None = self._hand.oldest(partition)
        return held.record if held is not None else None

    def in_hand(self) -> dict[TopicPartition, int]:
        """Returns how many records were fetched and are not finished, by partition."""
        return dict(self._hand.counts())

    def _has_room(self) -> None:
        self._feeding.has_room()

    def _finished_to(self, partition: TopicPartition) -> int | None:
        return self._hand.progress(partition).stable if partition in self._hand.partitions else None


def _check(told: Mapping[str, Any], settings: Settings) -> None:
    """Refuses what the caller cannot mean, before there is a consumer that would have to be stopped."""
    for name, instead in _REFUSED.items():
        if name in told:
            raise ValueError(f"`{name}` makes no sense for a CooperativeConsumer: {instead}")
    if not told.get("group_id"):
        raise ValueError("`group_id` is needed: what is finished is kept with the group's commits")
    drain_ms, rebalance_ms = settings.drain_timeout_ms, told.get("rebalance_timeout_ms") or _REBALANCE_MS
    if drain_ms >= rebalance_ms:
        raise ValueError(
            f"`drain_timeout_ms` ({drain_ms}) should be below `rebalance_timeout_ms` ({rebalance_ms}): a member that "
            "drains longer is taken for dead"
        )


def _check_listener(listener: object) -> None:
    if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
        raise TypeError(f"listener should be an instance of ConsumerRebalanceListener, not {listener!r}")
