"""The log of lent epochs, as one worker reads and writes it (`ordering/lent_epochs.py`).

A worker begins to read when the first client needs it, and decides nothing before it has read to the end. Records count
by their order, so whoever has written one reads it back before it believes that.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import uniform
from typing import Final

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import InternalTopicLog, LogLost
from kordon.proxy.kafka.topics_admin import TopicsRefused
from kordon.proxy.ordering.lent_epoch_records import dump, load, transactional_id_of
from kordon.proxy.ordering.lent_epochs import Lent
from kordon.proxy.ordering.lent_table import LentTable
from kordon.proxy.own_topics.producers_topic import PRODUCERS_TOPIC, ProducersTopicUnfit, ensure_producers_topic
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)
told = client_log(__name__)
"""For events that anybody who can write to the log can cause."""

READ_SECONDS: Final = 5.0
"""For the log to be read to its end."""
WRITE_SECONDS: Final = 10.0
"""For a record to be written and read back."""
_AT_ONCE: Final = 200
"""Records in a batch: some 60 KB."""
_MOST_QUEUED: Final = 10_000
_LOOK_SECONDS: Final = 5.0
"""Between two looks at what somebody left spoilt, and at what may be forgotten."""
_FORGOTTEN_AT_ONCE: Final = 100
_FIRST_MENDING_SECONDS: Final = 0.02
_LAST_MENDING_SECONDS: Final = 2.0
_FIRST_RETRY_SECONDS: Final = 0.2
_LAST_RETRY_SECONDS: Final = 5.0


@dataclass(slots=True)
class LentTally:
    """What is counted of the log."""

    written: int = 0
    """Records that were written from here."""
    read: int = 0
    """Records that were read, of all proxies."""
    late: int = 0
    """Those of `read` that did not count."""
    unreadable: int = 0
    """Those of `read` that no version of Kordon writes."""
    failed: int = 0
    """How often the log could not be made, read to its end or written to."""
    lost: int = 0
    """How often it was deleted, or lost records."""


class LentEpochsLog:
    """Reads the log, writes to it, and keeps it such that compaction leaves what counts."""

    def __init__(self, brokers: Brokers, topic: str = PRODUCERS_TOPIC) -> None:
        self.table = LentTable()
        """As far as has been read."""
        self.tally = LentTally()
        self.problem: str | None = None
        """Why the topic cannot be had, as far as is known; None: it can, or nobody has tried."""
        self._brokers = brokers
        self._topic = topic
        self._tasks = Tasks()
        self._following: asyncio.Task[None] | None = None
        self._log: InternalTopicLog | None = None
        self._current = asyncio.Event()
        """Set while the log has been read to an end that was taken after it was opened."""
        self._queue: deque[tuple[NewRecord, asyncio.Future[int]]] = deque()
        self._queued = asyncio.Event()
        self._own: dict[str, int] = {}
        """By key, how many writes of this worker wait to be read back."""
        self._mending: set[str] = set()
        self._counted: dict[int, bool] = {}
        """By offset, whether a record counts, of those keys."""

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()

    async def read_to_end(self) -> None:
        """Returns when all that stood in the log at the time of the call has been read.

        Raises:
            UpstreamUnavailable: It was not possible in time.
        """
        opened = await self._opened()
        try:
            await opened.read_to_end(READ_SECONDS)
        except LogLost as error:
            raise UpstreamUnavailable(str(error)) from None

    async def write(self, key: str, lent: Lent) -> bool:
        """Writes a record, and has mended what it spoils if it does not count; returns whether it does.

        Raises:
            UpstreamUnavailable: It is not known whether it is written.
        """
        counts = await self._write(key, dump(lent))
        if not counts:
            self._mend_soon(key)
        return counts

    def _mend_soon(self, key: str) -> None:
        if key not in self._mending:
            self._mending.add(key)
            self._tasks.start(self._mend(key), name="mend lent epochs")

    async def _mend(self, key: str) -> None:
        """Writes a record that counts behind one that does not.

        Other proxies may do so at the same time, and spoil the key anew. So each waits for a time of its own before it
        looks again.
        """
        pause = _FIRST_MENDING_SECONDS
        try:
            while True:
                await asyncio.sleep(uniform(0, pause))  # noqa: S311 - nobody gains by knowing it
                mended = self.table.mended(key)
                if mended is None:
                    return
                await self._write(key, dump(mended))
                pause = min(2 * pause, _LAST_MENDING_SECONDS)
        except UpstreamUnavailable as error:
            log.warning("lent_epoch_not_mended", error=str(error), means="it is tried again by whoever follows the log")
        finally:
            self._mending.discard(key)

    async def _opened(self) -> InternalTopicLog:
        if self._following is None:
            self._following = self._tasks.keep(self._run, name="follow lent epochs")
        if self.problem is not None:
            raise UpstreamUnavailable(self.problem)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._current.wait(), READ_SECONDS)
        if self._log is None or not self._current.is_set():
            raise UpstreamUnavailable(self.problem or f"{self._topic} is not read to its end")
        return self._log

    async def _write(self, key: str, value: bytes | None) -> bool:
        opened = await self._opened()
        if len(self._queue) >= _MOST_QUEUED:
            raise UpstreamUnavailable(f"{_MOST_QUEUED} records wait to be written to {self._topic}")
        self._own[key] = self._own.get(key, 0) + 1
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                self._queue.append((NewRecord(key, value), written))
                self._queued.set()
                offset = await written
                await opened.reached(offset)
        except TimeoutError:
            raise UpstreamUnavailable(f"{self._topic}: not written and read back in time") from None
        finally:
            self._own[key] -= 1
            if not self._own[key]:
                del self._own[key]
            if not self._own:
                counted, self._counted = self._counted, {}
            else:
                counted = self._counted
        self.tally.written += 1
        return counted.pop(offset, False)

    async def _run(self) -> None:
        """Follows the log for ever; whenever it is another one, all that was known is forgotten."""
        wait = _FIRST_RETRY_SECONDS
        while True:
            self._log = InternalTopicLog(self._brokers, self._topic, "lent_epochs")
            work = Tasks()
            try:
                await ensure_producers_topic(self._brokers, self._topic)
                self.problem = None
                await self._log.begin_at_its_start()
                work.keep(partial(self._catch_up, self._log), name="read lent epochs to their end")
                work.keep(partial(self._write_all, self._log), name="write lent epochs")
                work.keep(self._tidy, name="tidy lent epochs")
                wait = _FIRST_RETRY_SECONDS
                await self._log.follow(self.on_record)
            except LogLost as error:
                self.tally.lost += 1
                log.error("lent_epochs_lost", error=str(error), cure="none needed: brokers say what epochs there are")
            except UpstreamUnavailable as error:
                self.tally.failed += 1
                self.problem = str(error) if isinstance(error, ProducersTopicUnfit | TopicsRefused) else None
                log.warning(
                    "lent_epochs_unavailable",
                    error=str(error),
                    cure="give Kordon its rights to topics __kordon.* (docs/security.md), or see to the brokers",
                    retry_seconds=wait,
                )
            finally:
                self._current.clear()
                await work.stop()
                self._log.close()
                self._fail("the log is opened anew")
            self.table = LentTable()
            self._counted.clear()
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LAST_RETRY_SECONDS)

    async def _catch_up(self, opened: InternalTopicLog) -> None:
        while not self._current.is_set():
            try:
                await opened.read_to_end()
            except (UpstreamUnavailable, LogLost) as error:  # `follow` deals with what is lost
                self.tally.failed += 1
                log.warning("lent_epochs_not_read_to_end", error=str(error))
                await asyncio.sleep(_LAST_RETRY_SECONDS)
            else:
                self._current.set()

    async def _write_all(self, opened: InternalTopicLog) -> None:
        """Writes what is queued, all that came while the last was on its way in one batch."""
        while True:
            if not self._queue:
                self._queued.clear()
                await self._queued.wait()
            taken = [self._queue.popleft() for _ in range(min(_AT_ONCE, len(self._queue)))]
            wanted = [each for each in taken if not each[1].done()]  # nobody waits for the others any more
            if not wanted:
                continue
            try:
                last = await opened.append([entry for entry, _ in wanted])
            except UpstreamUnavailable as error:
                self.tally.failed += 1
                log.warning("lent_epochs_not_written", records=len(wanted), error=str(error))
                for _, written in wanted:
                    if not written.done():
                        written.set_exception(UpstreamUnavailable(str(error)))
            else:
                for place, (_, written) in enumerate(reversed(wanted)):
                    if not written.done():
                        written.set_result(last - place)

    def _fail(self, why: str) -> None:
        """Tells those who wait for what is queued that it will not be written."""
        while self._queue:
            _, written = self._queue.popleft()
            if not written.done():
                written.set_exception(UpstreamUnavailable(f"{self._topic}: {why}"))

    async def _tidy(self) -> None:
        """Mends what others left spoilt, and forgets ids that nobody has used for long."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for key in self.table.left_spoilt(time.monotonic()):
                self._mend_soon(key)
            with suppress(UpstreamUnavailable):  # it is tried again
                silent = self.table.silent(_now_ms())
                for key in list(islice(silent, _FORGOTTEN_AT_ONCE)):
                    await self._write(key, None)

    def on_record(self, record: Record) -> None:
        """Takes in a record of the log; what cannot be read is counted and passed."""
        self.tally.read += 1
        now = time.monotonic()
        try:
            if record.fault:
                raise ValueError(record.fault)
            if transactional_id_of(record.key) is None:
                return  # of a later version of Kordon
            lent = None if record.value is None else load(record.value)
        except ValueError as error:
            self.tally.unreadable += 1
            self.table.spoil(record.key, now)
            told.warning("lent_epoch_unreadable", key=record.key[:100], offset=record.offset, error=str(error)[:200])
            return
        if record.value is None:
            counts = self.table.forget(record.key, record.timestamp_ms, now)
        else:
            counts = self.table.take_in(record.key, lent, record.timestamp_ms, now)
            self.tally.late += not counts
        if record.key in self._own:
            self._counted[record.offset] = counts


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
