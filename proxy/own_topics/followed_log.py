"""One of Kordon's own topics, as one worker follows it forever and writes to it.

A worker begins to read when the log is first needed, and knows nothing before it has read to the end. Whoever writes is
told when its records are acknowledged by all replicas and have been read back. When the log is deleted or loses
records, all that was known is forgotten, and it is read from its beginning.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record, size_of
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import InternalTopicLog, LogLost
from kordon.proxy.kafka.topics_admin import TopicsRefused
from kordon.proxy.own_topics.compacted_topic import CompactedTopic, OwnTopicUnfit
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks

_Place = TypeVar("_Place")
_Said = TypeVar("_Said")

log = structlog.get_logger(__name__)
told = client_log(__name__)
"""For events that anybody who can write to the log can cause."""

READ_SECONDS: Final = 5.0
"""For the log to be read to its end."""
WRITE_SECONDS: Final = 10.0
"""For records to be written and read back; less than the session timeout of most members."""
STALE_SECONDS: Final = 10.0
"""After which what was read last is not believed to be current."""
BATCH_BYTES: Final = 900_000
"""Below the topics' max.message.bytes."""
MOST_WAITING: Final = 10_000
"""Records that wait to be written and read back; more are refused."""
_FETCH_BYTES: Final = 256 * 1024
"""What is read is taken in at one go, while clients wait: some 20 ms."""
_FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 5.0


@dataclass(slots=True)
class LogTally:
    """What is counted of a log."""

    written: int = 0
    """Records that were written from here."""
    batches: int = 0
    """Batches in which they were written."""
    read: int = 0
    """Records that were read, of all proxies."""
    unreadable: int = 0
    """Those of `read` that no version of Kordon writes."""
    lost: int = 0
    """How often the log was deleted or lost records."""
    failed: int = 0
    """How often the log could not be made, read to its end or written to."""


def what_is_said(
    record: Record, place_of: Callable[[str], _Place | None], load: Callable[[bytes], _Said | None]
) -> tuple[_Place, _Said | None] | None:
    """Returns what a record is about, and what it says of that: None, if it takes back what was said.

    Args:
        place_of: Reads a key; None: it is of a later version of Kordon.
        load: Reads a value; None: it is of a later version.

    Returns:
        None: The record is of a later version of Kordon, and means nothing to this one.

    Raises:
        ValueError: The record cannot be read.
    """
    if record.fault:
        raise ValueError(record.fault)
    place = place_of(record.key)
    if place is None:
        return None
    if record.value is None:
        return place, None
    said = load(record.value)
    return None if said is None else (place, said)


class Contents(Protocol):
    """What is made of the records of a log."""

    def take_in(self, record: Record) -> None:
        """Takes in the next record; raises ValueError, which is logged and counted, if it cannot be read."""
        ...

    def forget(self) -> None:
        """Forgets all records: the log is read from its beginning, or it is another one."""
        ...

    def caught_up(self, work: Tasks) -> None:
        """Is called when all that stood in the log has been taken in.

        Args:
            work: Ends what is begun with it when the log is opened again.
        """
        ...


@dataclass(slots=True, eq=False)
class _Write:
    entries: Sequence[NewRecord]
    last: asyncio.Future[int]
    """The offset of the last record, when it has been read back."""


class FollowedLog:
    """Reads a log, and writes to it. Nothing is done before it is first asked for something.

    Args:
        partition: The partition, for a topic with several.
    """

    def __init__(self, brokers: Brokers, topic: CompactedTopic, contents: Contents, *, partition: int = 0) -> None:
        self.tally = LogTally()
        self.problem: str | None = None
        """Why the topic cannot be had before somebody changes it; None: nothing of the kind is known."""
        self.used_at = time.monotonic()
        """When somebody waited for it last, to read or to write."""
        self._brokers = brokers
        self._topic = topic
        self._partition = partition
        self._contents = contents
        self._tasks = Tasks()
        self._following: asyncio.Task[None] | None = None
        self._log: InternalTopicLog | None = None
        self._current = asyncio.Event()
        """Set while the log has been read to an end that was taken after it was opened."""
        self._queue: deque[_Write] = deque()
        self._queued = asyncio.Event()
        self._waiting: set[_Write] = set()
        self._records_waiting = 0

    @property
    def lag(self) -> int:
        """Records of the log that have not been read yet, as far as is known."""
        return max(self._log.end - self._log.position, 0) if self._log is not None else 0

    @property
    def is_current(self) -> bool:
        """Whether what is known is all there is, give or take what is being written now."""
        self.start()
        return self._current.is_set() and self._log is not None and time.monotonic() - self._log.read_at < STALE_SECONDS

    def start(self) -> None:
        """Begins to read, if nobody has before."""
        if self._following is None:
            self._following = self._tasks.keep(self._follow, name="follow an own topic", of=self._topic.name)

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()

    async def ready(self, timeout: float = READ_SECONDS) -> None:
        """Waits until what is known is current.

        Raises:
            UpstreamUnavailable: The log is not read to its end within `timeout` seconds.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened(), timeout)
        if not self.is_current:
            raise UpstreamUnavailable(self.problem or f"{self._topic.name} is not read to its end")

    async def read_to_end(self) -> None:
        """Returns when all that stood in the log at the time of the call has been read.

        Raises:
            UpstreamUnavailable: The log could not be read to its end in time.
        """
        try:
            opened = await asyncio.wait_for(self._opened(), READ_SECONDS)
            await opened.read_to_end(READ_SECONDS)
        except TimeoutError:
            raise UpstreamUnavailable(self.problem or f"{self._topic.name} is not read to its end") from None
        except LogLost as error:
            raise UpstreamUnavailable(str(error)) from None

    async def write(self, entries: Sequence[NewRecord], timeout: float = WRITE_SECONDS) -> int:
        """Writes records, which fit into one batch (`BATCH_BYTES`), and returns when they have been read back.

        Args:
            timeout: The time limit in seconds.

        Returns:
            The offset of the last one.

        Raises:
            UpstreamUnavailable: The records may or may not be written.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._opened()
                return await self._write(entries)
        except TimeoutError:
            detail = self.problem or f"{self._topic.name}: not written and read back within {timeout:g} s"
            raise UpstreamUnavailable(detail) from None

    async def _write(self, entries: Sequence[NewRecord]) -> int:
        if self._records_waiting >= MOST_WAITING:
            raise UpstreamUnavailable(f"{MOST_WAITING} records wait to be written to {self._topic.name}")
        wanted = _Write(entries, asyncio.get_running_loop().create_future())
        self._waiting.add(wanted)
        self._records_waiting += len(entries)
        self._queue.append(wanted)
        self._queued.set()
        try:
            last = await wanted.last
        finally:
            self._waiting.remove(wanted)
            self._records_waiting -= len(entries)
        self.tally.written += len(entries)
        return last

    async def _opened(self) -> InternalTopicLog:
        """Returns the log when it has been read to its end; the wait is the caller's to bound."""
        self.used_at = time.monotonic()
        self.start()
        if self.problem is not None:
            raise UpstreamUnavailable(self.problem)
        while self._log is None or not self._current.is_set():
            await self._current.wait()
        return self._log

    async def _follow(self) -> None:
        """Follows the log forever; whenever it is another one, all that was known is forgotten."""
        wait = _FIRST_RETRY_SECONDS
        while True:
            opened = self._log = self._open()
            work = Tasks()
            try:
                await self._topic.ensure(self._brokers)
                self.problem = None
                await opened.begin_at_its_start()
                name = self._topic.name
                work.keep(partial(self._catch_up, opened, work), name="read an own topic to its end", of=name)
                work.keep(partial(self._write_all, opened, work), name="write to an own topic", of=name)
                wait = _FIRST_RETRY_SECONDS
                await opened.follow(self.on_record)
            except LogLost as error:
                self.tally.lost += 1
                log.error(f"{self._topic.purpose}_lost", error=str(error), cure=f"none needed: {self._topic.when_lost}")
            except UpstreamUnavailable as error:
                self.tally.failed += 1
                self.problem = str(error) if isinstance(error, OwnTopicUnfit | TopicsRefused) else None
                log.warning(
                    f"{self._topic.purpose}_unavailable",
                    error=str(error),
                    cure="give Kordon its rights to topics __kordon.* (docs/security.md), or check the brokers",
                    retry_seconds=wait,
                )
            finally:
                self._current.clear()
                await work.stop()
                opened.close()
                _fail(self._waiting, f"{self._topic.name} is opened anew")
                self._queue.clear()
            self._contents.forget()
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LAST_RETRY_SECONDS)

    def _open(self) -> InternalTopicLog:
        topic = self._topic
        purpose = topic.purpose if topic.partitions == 1 else f"{topic.purpose}_{self._partition}"
        return InternalTopicLog(self._brokers, topic.name, purpose, _FETCH_BYTES, partition=self._partition)

    async def _catch_up(self, opened: InternalTopicLog, work: Tasks) -> None:
        while not self._current.is_set():
            try:
                await opened.read_to_end()
            except (UpstreamUnavailable, LogLost) as error:  # `follow` deals with what is lost
                self.tally.failed += 1
                log.warning(f"{self._topic.purpose}_not_read_to_end", error=str(error))
                await asyncio.sleep(_LAST_RETRY_SECONDS)
            else:
                self._current.set()
                self._contents.caught_up(work)

    async def _write_all(self, opened: InternalTopicLog, work: Tasks) -> None:
        """Writes what is queued, all that came while the last was on its way in one batch."""
        while True:
            batch = self._take_batch()
            if not batch:
                self._queued.clear()
                await self._queued.wait()
                continue
            try:
                last = await opened.append([entry for each in batch for entry in each.entries])
            except UpstreamUnavailable as error:
                self.tally.failed += 1
                log.warning(f"{self._topic.purpose}_not_written", writes=len(batch), error=str(error))
                _fail(batch, str(error))
            else:
                self.tally.batches += 1
                work.start(_tell_when_read(opened, last, batch), name="read records back")

    def _take_batch(self) -> list[_Write]:
        """Takes from the queue what fits into one batch; what nobody waits for any more is dropped."""
        taken: list[_Write] = []
        room = BATCH_BYTES
        while self._queue:
            first = self._queue[0]
            if first in self._waiting:
                room -= sum(map(size_of, first.entries))
                if room < 0 and taken:
                    break
                taken.append(first)
            self._queue.popleft()
        return taken

    def on_record(self, record: Record) -> None:
        """Takes in a record of the log; one that cannot be read is counted, and holds up nothing behind it."""
        self.tally.read += 1
        try:
            self._contents.take_in(record)
        except ValueError as error:
            self.tally.unreadable += 1
            told.warning(
                f"{self._topic.purpose}_record_unreadable",
                key=record.key[:100],
                offset=record.offset,
                error=str(error)[:200],
            )


def _fail(writes: Collection[_Write], why: str) -> None:
    for each in writes:
        if not each.last.done():
            each.last.set_exception(UpstreamUnavailable(why))


async def _tell_when_read(opened: InternalTopicLog, last: int, batch: Sequence[_Write]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(opened.reached(last), WRITE_SECONDS)
        for each in reversed(batch):
            if not each.last.done():
                each.last.set_result(last)
            last -= len(each.entries)
