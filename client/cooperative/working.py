"""Runs the application's handler for records in hand: many at a time, each again after a failure."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from aiokafka.structs import TopicPartition
from aiokafka.util import create_task

from kordon.client.cooperative.entry import RecordInHand, State
from kordon.client.cooperative.in_hand import InHand
from kordon.client.cooperative.settings import AcknowledgeType, Deserializer, Handle, Record, Settings

_log = logging.getLogger(__name__)

Held: TypeAlias = RecordInHand[TopicPartition, Record]
Hand: TypeAlias = InHand[TopicPartition, Record]

_TOLD_FROM: Final = 4
"""The first failure of a record that is logged; the next ones are the 8th, the 16th, and so on."""
_GRACE_SECONDS: Final = 1.0
"""For which a handler that was cancelled is waited for."""


class Working:
    """Starts records, and takes in what became of them.

    Args:
        hand: The records in hand.
        settings: How often and how soon a record is tried again.
        key_deserializer: The application's deserializer of keys.
        value_deserializer: The application's deserializer of values. If either one fails, that counts as a failed
            handler.
        freed: Called when there may be room for more records.
    """

    def __init__(
        self,
        hand: Hand,
        settings: Settings,
        *,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        freed: Callable[[], None],
    ) -> None:
        self.handle: Handle | None = None
        """None: records are given out by `next` and acknowledged by hand."""
        self._hand = hand
        self._settings = settings
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._freed = freed
        self._is_draining = False
        self._tasks: dict[asyncio.Task[None], Held | None] = {}
        self._changed = asyncio.Event()
        """Set when a record may be started, or has ended."""
        self._timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None

    def go_on(self) -> None:
        """Starts records again after `drain`."""
        self._is_draining = False
        self.look()

    def fail(self, error: BaseException) -> None:
        """Has the error raised where the application waits for records."""
        self._error = self._error or error
        self._changed.set()

    def check(self) -> None:
        """Raises what has gone wrong in the background."""
        if self._error is not None:
            raise self._error

    def look(self) -> None:
        """Starts what may be started now, and comes back when the next record is due."""
        self._changed.set()
        now = time.monotonic()
        if self._is_draining or self._error is not None:
            return
        if self.handle is not None:
            while len(self._tasks) < self._settings.concurrency and self._hand.can_start(now):
                entry = self._hand.start(now)
                if entry is None:
                    break
                task = create_task(self._work(entry))
                self._tasks[task] = entry
                task.add_done_callback(self._ended)
        self._set_timer(now)

    async def next(self) -> Record:
        """Returns the next record that is to be acknowledged by hand; waits until there is one."""
        while True:
            self.check()
            entry = None if self._is_draining else self._hand.start(time.monotonic())
            if entry is not None:
                record = self._deserialized(entry)
                if record is not None:
                    return record
                continue
            self._changed.clear()
            self._set_timer(time.monotonic())
            await self._changed.wait()

    def acknowledge(self, entry: Held, how: AcknowledgeType) -> bool:
        """Takes in what became of a record that was given out."""
        if how is AcknowledgeType.ACCEPT:  # as short a way as can be
            counts = self._hand.finish(entry)
            self._freed()
            self._changed.set()
            return counts
        if how is AcknowledgeType.RELEASE:
            counts = self._hand.release(entry, time.monotonic() + self._settings.backoff_seconds(entry.attempts))
        else:
            counts = entry.state is State.RUNNING
            if counts:
                task = create_task(self._bury(entry, None))
                self._tasks[task] = entry
                task.add_done_callback(self._ended)
        self.look()
        return counts

    async def drain(self, seconds: float) -> None:
        """Starts nothing more, and waits until nothing is running; what still runs then is cancelled.

        What is cancelled is not finished: whoever gets it next handles it again.

        Args:
            seconds: How long to wait; 0: the records are others' already.
        """
        self._is_draining = True
        if not await self._until_idle(seconds) and self._hand.running:
            await self._cancel(each for each in self._tasks if self._tasks[each] is not None)

    async def finished(self) -> None:
        """Waits until something has gone wrong, and raises it."""
        while True:
            self.check()
            self._changed.clear()
            await self._changed.wait()

    async def _until_idle(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._hand.running and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                break
        return not self._hand.running

    async def _cancel(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        cancelled = [task for task in tasks if not task.done()]
        for task in cancelled:
            task.cancel()
        if not cancelled:
            return
        _, alive = await asyncio.wait(cancelled, timeout=_GRACE_SECONDS)
        for entry in [self._tasks.get(task) for task in alive]:
            if entry is not None:
                _log.error(
                    "A handler goes on after it was cancelled: offset %d of %s is given up, and another member may "
                    "handle it, and later records of its key, at the same time",
                    entry.offset,
                    entry.partition,
                )

    async def _work(self, entry: Held) -> None:
        """Handles one record, and then as many others as there are to be started."""
        own = asyncio.current_task()
        assert own is not None
        following: Held | None = entry
        while following is not None:
            self._tasks[own] = following
            await self._handle(following)
            self._changed.set()
            is_one_too_many = self._is_draining or self._error is not None
            following = None if is_one_too_many else self._hand.start(time.monotonic())
        self._tasks[own] = None

    async def _handle(self, entry: Held) -> None:
        own = asyncio.current_task()
        assert self.handle is not None
        assert own is not None
        record = self._deserialized(entry)
        if record is None:
            return
        try:
            handled = self.handle(record)
            if inspect.isawaitable(handled):
                if self._settings.handler_timeout_ms is None:
                    await handled
                else:
                    async with asyncio.timeout(self._settings.handler_timeout_ms / 1000):
                        await handled
        except asyncio.CancelledError as error:
            if own.cancelling():
                raise
            await self._failed(entry, record, RuntimeError(f"the handler was cancelled: {error!r}"))
        except Exception as error:  # whatever the application raises
            await self._failed(entry, record, error)
        else:
            self._hand.finish(entry)
            self._freed()

    def _deserialized(self, entry: Held) -> Record | None:
        """Returns a record as the application sees it; one that cannot be read has failed once more."""
        record = entry.record
        if self._key_deserializer is None and self._value_deserializer is None:
            return record
        try:
            changed = {
                name: deserialize(getattr(record, name))
                for name, deserialize in (("key", self._key_deserializer), ("value", self._value_deserializer))
                if deserialize is not None
            }
            return _replaced(record, changed)
        except Exception as error:  # whatever the application raises
            task = create_task(self._failed(entry, record, error))
            self._tasks[task] = entry
            task.add_done_callback(self._ended)
            return None

    async def _failed(self, entry: Held, record: Record, error: Exception) -> None:
        if entry.state is not State.RUNNING:
            return
        try:
            verdict = self._settings.verdict(record, error, entry.attempts)
        except Exception:  # whatever the application raises
            _log.exception("on_error failed for offset %d of %s: it is tried again", entry.offset, entry.partition)
            verdict = AcknowledgeType.RELEASE
        if verdict is AcknowledgeType.ACCEPT:
            self._hand.finish(entry)
            self._freed()
        elif verdict is AcknowledgeType.REJECT:
            await self._bury(entry, error)
        else:
            self._try_again(entry, error)

    async def _bury(self, entry: Held, error: Exception | None) -> None:
        """Gives a record to the dead-letter hook."""
        if self._settings.dead_letter is not None:
            try:
                buried = self._settings.dead_letter(entry.record, error)
                if inspect.isawaitable(buried):
                    await buried
            except Exception as failure:  # whatever the application raises
                _log.exception("dead_letter failed for offset %d of %s", entry.offset, entry.partition)
                self._try_again(entry, failure)
                return
        if self._hand.finish(entry):
            _log.warning(
                "Offset %d of %s is rejected after %d attempts: %r",
                entry.offset,
                entry.partition,
                entry.attempts,
                error,
            )
        self._freed()

    def _try_again(self, entry: Held, error: Exception) -> None:
        seconds = self._settings.backoff_seconds(entry.attempts)
        counts = self._hand.release(entry, time.monotonic() + seconds)
        if counts and entry.attempts >= _TOLD_FROM and entry.attempts & (entry.attempts - 1) == 0:
            _log.warning(
                "Offset %d of %s has failed %d times, and holds its key; it is tried again in %.1f s: %r",
                entry.offset,
                entry.partition,
                entry.attempts,
                seconds,
                error,
            )
        self._set_timer(time.monotonic())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
        self.look()

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._hand.next_due()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(due - now, 0.0), self.look)


def _replaced(record: Record, changed: dict[str, Any]) -> Record:
    fields = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return type(record)(**(fields | changed))
