"""Partitions come and go: what is in hand is drained and committed before another member may have it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Collection
from typing import Any, Final

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, KafkaError, OffsetMetadataTooLargeError
from aiokafka.structs import TopicPartition
from aiokafka.util import create_task

from kordon.client.cooperative.feeding import Feeding
from kordon.client.cooperative.range_store import RangeStore
from kordon.client.cooperative.settings import Settings
from kordon.client.cooperative.working import Hand, Working

_log = logging.getLogger(__name__)

_LAST_COMMIT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.1


class ConsumerMembership(ConsumerRebalanceListener):
    """One consumer's partitions, from start to stop.

    Args:
        consumer: The member; this is its listener.
        hand: The member's records.
        store: Where finished ranges are kept.
        working: Works on the records.
        feeding: Fetches the records.
        settings: How long to wait for handlers, and how often to commit.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        hand: Hand,
        store: RangeStore,
        *,
        working: Working,
        feeding: Feeding,
        settings: Settings,
    ) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        """The application's: called after partitions were drained, and before the first record of new ones."""
        self._consumer = consumer
        self._hand = hand
        self._store = store
        self._working = working
        self._feeding = feeding
        self._settings = settings
        self._told: dict[TopicPartition, int] = {}
        """By partition, the number of changes that the last commit covers."""
        self._committing = asyncio.Lock()
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to commit from time to time."""
        self._task = create_task(self._commit_now_and_then())

    async def close(self) -> None:
        """Drains and commits everything, as before another member gets it."""
        self._is_closed = True
        await self._stop_committing()
        await self._give_up()

    async def commit(self) -> dict[TopicPartition, int]:
        """Commits what is finished.

        Returns:
            The stable offset of each partition that had something new.

        Raises:
            CommitFailedError: The group has moved on.
            KafkaError: The commit may be there or not.
        """
        async with self._committing:
            changes = {tp: self._hand.changes(tp) for tp in self._hand.partitions}
            progress = {tp: self._hand.progress(tp) for tp in changes if self._told.get(tp, -1) != changes[tp]}
            if progress:
                await self._store.write(progress)
                self._told.update((tp, changes[tp]) for tp in progress)
            return {tp: each.stable for tp, each in progress.items()}

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride] # both are allowed
        self, revoked: Collection[TopicPartition]
    ) -> None:
        """Drains: nothing is worked on when this returns.

        aiokafka gives up all partitions at each rebalance, and may name fewer than there are in hand.
        """
        await self._stop_committing()
        await self._give_up()
        if self.listener is not None:
            called: Any = self.listener.on_partitions_revoked(revoked)
            if inspect.isawaitable(called):
                await called

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride] # both are allowed
        self, assigned: Collection[TopicPartition]
    ) -> None:
        """Begins where the group is, and leaves out what is finished."""
        if self._is_closed:
            return
        try:
            await self._take(assigned)
        except Exception as error:  # aiokafka would only log it
            self._working.fail(error)
            return
        self._working.go_on()
        self.start()

    async def _take(self, assigned: Collection[TopicPartition]) -> None:
        found = await self._store.read(assigned)
        for tp, each in found.items():
            self._consumer.seek(tp, each.offset)
            self._hand.assign(tp, each.offset, each.ranges)
            self._told[tp] = self._hand.changes(tp)
        if self.listener is not None:
            called: Any = self.listener.on_partitions_assigned(assigned)
            if inspect.isawaitable(called):
                await called
        self._feeding.resume(tp for tp in assigned if tp not in found)

    async def _give_up(self) -> None:
        await self._feeding.pause()
        is_member = self._store.is_member
        await self._working.drain(self._settings.drain_timeout_ms / 1000 if is_member else 0)
        if is_member:
            await self._last_commit()
        self._store.forget()
        left = self._hand.revoke(list(self._hand.partitions))
        self._told.clear()
        if left:
            _log.warning("%d records were not finished in time: whoever has them next handles them again", len(left))

    async def _last_commit(self) -> None:
        """Commits before partitions are given up; for a time at most, since others wait for them."""
        until = time.monotonic() + _LAST_COMMIT_SECONDS
        while time.monotonic() < until:
            try:
                async with asyncio.timeout(_LAST_COMMIT_SECONDS):
                    await self.commit()
            except CommitFailedError as error:
                _log.warning("What was finished since the last commit is handled again: %s", error)
                return
            except (KafkaError, TimeoutError) as error:
                _log.warning("The last commit of partitions that are given up failed: %r", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _stop_committing(self) -> None:
        """Ends the commits: one that came late would be taken for the next assignment's."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._settings.commit_interval_ms / 1000)
            try:
                await self.commit()
            except CommitFailedError as error:
                _log.warning("A commit came too late: %s", error)
            except KafkaError as error:
                is_cut = isinstance(error, OffsetMetadataTooLargeError)  # so the next one is another
                if not error.retriable and not is_cut:
                    self._working.fail(error)
                    return
                _log.warning("A commit failed, and is tried again: %r", error)
