"""Fetches for a CooperativeConsumer: as much as may be in hand, and nothing while partitions come and go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from aiokafka.util import create_task

from kordon.client.cooperative.beginning import Beginning
from kordon.client.cooperative.log_watch import LogWatch
from kordon.client.cooperative.settings import Record
from kordon.client.cooperative.working import Hand

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)

_POLL_MS: Final = 500
_POLL_RECORDS: Final = 2_000
"""Taken at once at most, so that handlers continue in between."""
_FULL_SECONDS: Final = 0.05
"""How often it looks whether there is room again, if nobody tells it."""
_STUCK_SECONDS: Final = 30.0
"""After so long without room a warning says what holds everything up."""
_RETRY_SECONDS: Final = 0.5


class Feeding:
    """Fetches from `resume` to `pause`.

    Args:
        consumer: The consumer that fetches.
        hand: Takes the records.
        taken: Called when there are records to start.
        beginning: Commits where partitions without a commit begin, before any record of them is fetched.
        watch: Knows whether logs were cut.
        cut: Called when one was; nothing more is taken of it until its partition is assigned again.
        failed: Called with an error that ends the fetching.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        hand: Hand,
        *,
        taken: Callable[[], None],
        beginning: Beginning,
        watch: LogWatch,
        cut: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._consumer = consumer
        self._hand = hand
        self._taken = taken
        self._beginning = beginning
        self._watch = watch
        self._cut = cut
        self._failed = failed
        self._may_fetch = asyncio.Event()
        self._room = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None
        self._full_since: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, paused."""
        self._task = create_task(self._run())

    async def close(self) -> None:
        """Stops fetching permanently."""
        await self.pause()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def has_room(self) -> None:
        """There may be room for more records."""
        self._room.set()

    async def pause(self) -> None:
        """Fetches nothing more: when it returns, no record is on its way to the hand."""
        self._may_fetch.clear()
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.wait([self._poll])

    def resume(self, unplaced: Iterable[TopicPartition]) -> None:
        """Fetches the partitions in hand.

        Args:
            unplaced: And these, from where `auto_offset_reset` says.
        """
        self._beginning.expect(unplaced)
        self._may_fetch.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._may_fetch.wait()
                if begins := self._beginning.resolved():
                    await self._try(self._begin(begins))
                elif wanted := self._hand.wanted():
                    self._full_since = None
                    await self._try(self._take(wanted))
                else:
                    await self._wait_for_room()
        except Exception as error:  # whatever it is, the application is told
            self._failed(error)

    async def _try(self, poll_once: Coroutine[Any, Any, None]) -> None:
        """Does what `pause` may cancel; what fails is tried again later."""
        self._poll = create_task(poll_once)
        await asyncio.wait([self._poll])
        poll, self._poll = self._poll, None
        if poll.cancelled():
            return
        error = poll.exception()
        if isinstance(error, KafkaError) and error.retriable:
            _log.warning("Nothing could be fetched, which is tried again: %r", error)
            await asyncio.sleep(_RETRY_SECONDS)
        elif error is not None:
            raise error

    async def _begin(self, begins: Mapping[TopicPartition, int]) -> None:
        for tp, offset in (await self._beginning.commit(begins)).items():
            self._hand.assign(tp, offset)

    async def _take(self, wanted: list[TopicPartition]) -> None:
        batches: Mapping[TopicPartition, list[Record]] = await self._consumer.getmany(
            *wanted, timeout_ms=_POLL_MS, max_records=max(1, min(_POLL_RECORDS, self._hand.room))
        )
        cut = await self._watch.cut(wanted)
        # from here on nothing is waited for: positions and records belong together
        for tp in wanted:
            state: Any = self._consumer._subscription.subscription.assignment.state_value(tp)
            if tp not in cut and state is not None and (state.has_valid_position or tp in batches):
                position = state.position if state.has_valid_position else -1
                if not self._take_one(tp, batches.get(tp, []), position):
                    cut.add(tp)
        if cut:
            _log.warning(
                "The logs of %s are not those that they were, so their offsets are used again: what is in hand is "
                "drained, and it is asked again where the group stands",
                sorted(cut),
            )
            self._cut()
        if batches:
            self._taken()

    def _take_one(self, tp: TopicPartition, records: list[Record], position: int) -> bool:
        """Takes what was fetched of a partition; returns False if it has gone back: its log is another one now."""
        first = records[0].offset if records else position
        if self._hand.has_gone_back(tp, first) or (position >= 0 and self._hand.has_gone_back(tp, position)):
            return False
        rows = ((each.offset, each.key, _size(each), each) for each in records)
        self._hand.take(tp, rows, max(position, records[-1].offset + 1 if records else position))
        return True

    async def _wait_for_room(self) -> None:
        self._room.clear()
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since > _STUCK_SECONDS:
            self._full_since = now
            self._tell_what_holds()
        # a consumer that is not asked for records would leave its group
        with self._consumer._subscription.fetch_context():
            try:
                async with asyncio.timeout(_FULL_SECONDS):
                    await self._room.wait()
            except TimeoutError:
                pass

    def _tell_what_holds(self) -> None:
        for tp, count in self._hand.counts().items():
            oldest = self._hand.oldest(tp)
            if oldest is not None:
                _log.warning(
                    "%s has %d records in hand, so no more are fetched: the oldest is at offset %d, and was started %d "
                    "times. Look at its handler, or raise max_records_in_hand or max_bytes_in_hand",
                    tp,
                    count,
                    oldest.offset,
                    oldest.attempts,
                )


def _size(record: Record) -> int:
    headers: int = sum(len(name) + len(value or b"") for name, value in record.headers)
    return int(max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)) + headers
