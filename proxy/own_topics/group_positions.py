"""Where groups stand, as all proxies know it: each reads the log of reports, and writes to it what its clients report.

A worker begins to read when the first client of it asks, and knows nothing until it has read to the end. Where it
cannot tell any more whether what it knows is current, it knows nothing either: readers wait then, which is always
right. What is written is acknowledged by all replicas and has been read back before anybody is told that it holds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record, in_batches, size_of
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import InternalTopicLog, LogLost
from kordon.proxy.ordering.position_records import MemberKey, dump, key_of, load, place_of
from kordon.proxy.ordering.positions import MemberReport, Positions
from kordon.proxy.own_topics.groups_topic import GROUPS_TOPIC, ensure_groups_topic
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)
told = client_log(__name__)
"""For events that anybody who can write to the log can cause."""

STALE_SECONDS: Final = 10.0
"""After which what was read last is not believed to be current."""
WRITE_SECONDS: Final = 10.0
"""For a report to be written and read back; less than the session timeout of most members."""
MOST_QUEUED: Final = 10_000
"""Records that wait to be written; more are refused."""
_BATCH_BYTES: Final = 900_000
"""Below the topic's max.message.bytes."""
_FETCH_BYTES: Final = 256 * 1024
"""What is read is taken in at one go, while clients wait: some 20 ms."""
_FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 5.0


@dataclass(slots=True)
class PositionsTally:
    """What is counted of the log."""

    written: int = 0
    """Records that were written from here."""
    batches: int = 0
    """Batches in which they were written."""
    read: int = 0
    """Records that were read, of all proxies."""
    unreadable: int = 0
    """Those of `read` that no version of Kordon writes."""
    lost: int = 0
    """How often the log was deleted or lost records, so that all had to be reported anew."""
    failed: int = 0
    """How often the log could not be made, read to its end or written to."""


@dataclass(slots=True, eq=False)
class _ToWrite:
    entries: Sequence[NewRecord]
    done: asyncio.Future[None]


class GroupPositions:
    """The positions of all groups, as one worker knows them."""

    def __init__(self, brokers: Brokers, topic: str = GROUPS_TOPIC) -> None:
        self.positions = Positions()
        """As far as has been read."""
        self.tally = PositionsTally()
        self._brokers = brokers
        self._topic = topic
        self._tasks = Tasks()
        self._following: asyncio.Task[None] | None = None
        self._log: InternalTopicLog | None = None
        self._current = asyncio.Event()
        """Set while the log has been read to an end that was taken after it was opened."""
        self._queue: deque[_ToWrite] = deque()
        self._queued_records = 0
        self._queued = asyncio.Event()
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        """By group that somebody waits for."""

    @property
    def lag(self) -> int:
        """Records of the log that have not been read yet, as far as is known."""
        return max(self._log.end - self._log.position, 0) if self._log is not None else 0

    @property
    def is_current(self) -> bool:
        """Whether what is known is all there is, give or take what is being written now."""
        self._start()
        return self._current.is_set() and self._log is not None and time.monotonic() - self._log.read_at < STALE_SECONDS

    def of(self, group_id: str, generation_id: int, topic: str, member_id: str) -> Mapping[int, int]:
        """Returns where a group stands, as evidence for one of its members.

        Args:
            generation_id: In which the positions were reported.
            member_id: Who asks. Reports from before the group was deleted and made anew may be in the log; where this
                member's own is known, these are gone.

        Returns:
            Next offsets by partition; empty where the member has not reported in this generation, as far as has been
            read, or that is not known to be current. A view, good until something else is awaited.
        """
        return self.positions.of_member(group_id, generation_id, topic, member_id) if self.is_current else {}

    async def changed(self, group_id: str) -> None:
        """Returns when a position of a group has changed, or may have; the wait is the caller's to bound."""
        self._start()
        event = self._changes.get(group_id)
        if event is None:
            event = self._changes[group_id] = asyncio.Event()
        await event.wait()

    async def ready(self, timeout: float) -> None:
        """Waits until what is known is current.

        Raises:
            UpstreamUnavailable: It is not within `timeout` seconds.
        """
        self._start()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._current.wait(), timeout)
        if not self.is_current:
            raise UpstreamUnavailable(f"{self._topic} is not read to its end")

    async def say(self, reports: Mapping[MemberKey, MemberReport | None], timeout: float = WRITE_SECONDS) -> None:
        """Writes reports in their order, and returns when they have been read back.

        Args:
            reports: Of members; None: it is no member any more.
            timeout: Seconds.

        Raises:
            UpstreamUnavailable: They are not known to be written, and may still be.
            ValueError: A report is too large.
        """
        self._start()
        entries = [NewRecord(key_of(place), None if each is None else dump(each)) for place, each in reports.items()]
        for batch in in_batches(entries, _BATCH_BYTES):
            await self._write(batch, timeout)

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()

    async def _write(self, entries: Sequence[NewRecord], timeout: float) -> None:
        if self._queued_records >= MOST_QUEUED:
            raise UpstreamUnavailable(f"{MOST_QUEUED} records wait to be written to {self._topic}")
        wanted = _ToWrite(entries, asyncio.get_running_loop().create_future())
        self._queue.append(wanted)
        self._queued_records += len(entries)
        self._queued.set()
        try:
            await asyncio.wait_for(wanted.done, timeout)
        except TimeoutError:
            raise UpstreamUnavailable(f"{self._topic}: not written and read back within {timeout:g} s") from None
        self.tally.written += len(entries)

    def _start(self) -> None:
        if self._following is None:
            self._following = self._tasks.keep(self._run, name="follow positions of groups")

    async def _run(self) -> None:
        """Follows the log for ever; whenever it is another one, all that was known is forgotten."""
        wait = _FIRST_RETRY_SECONDS
        while True:
            self._log = InternalTopicLog(self._brokers, self._topic, "groups", _FETCH_BYTES)
            work = Tasks()
            try:
                await ensure_groups_topic(self._brokers, self._topic)
                await self._log.begin_at_its_start()
                work.keep(partial(self._catch_up, self._log), name="read reports to their end")
                work.keep(partial(self._write_all, self._log), name="write reports")
                wait = _FIRST_RETRY_SECONDS
                await self._log.follow(self.on_record)
            except LogLost as error:
                self.tally.lost += 1
                log.error("groups_lost", error=str(error), cure="none needed: members report anew")
            except UpstreamUnavailable as error:
                self.tally.failed += 1
                log.warning("groups_unavailable", error=str(error), retry_seconds=wait)
            finally:
                self._current.clear()
                await work.stop()
                self._log.close()
            self._forget()
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LAST_RETRY_SECONDS)

    async def _catch_up(self, opened: InternalTopicLog) -> None:
        while not self._current.is_set():
            try:
                await opened.read_to_end()
            except (UpstreamUnavailable, LogLost) as error:  # `follow` deals with what is lost
                self.tally.failed += 1
                log.warning("groups_not_read_to_end", error=str(error))
                await asyncio.sleep(_LAST_RETRY_SECONDS)
            else:
                self._current.set()
                self._tell(list(self._changes))

    async def _write_all(self, opened: InternalTopicLog) -> None:
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
                log.warning("reports_not_written", reports=len(batch), error=str(error))
                _fail(batch, error)
            else:
                self.tally.batches += 1
                self._tasks.start(_tell_when_read(opened, last, batch), name="read reports back")

    def _take_batch(self) -> list[_ToWrite]:
        """Takes from the queue what fits into one batch; what nobody waits for any more is dropped."""
        taken: list[_ToWrite] = []
        room = _BATCH_BYTES
        while self._queue:
            first = self._queue[0]
            if not first.done.done():
                room -= sum(map(size_of, first.entries))
                if room < 0 and taken:
                    break
                taken.append(first)
            self._queued_records -= len(self._queue.popleft().entries)
        return taken

    def on_record(self, record: Record) -> None:
        """Takes in a record of the log; what cannot be read is counted, and its member has not reported."""
        self.tally.read += 1
        try:
            if record.fault:
                raise ValueError(record.fault)
            place = place_of(record.key)
            if place is None:
                return  # of a later version of Kordon
            report = load(record.value) if record.value is not None else None
        except ValueError as error:
            self.tally.unreadable += 1
            told.warning("report_unreadable", key=record.key, offset=record.offset, error=str(error))
            return
        if report is None and record.value is not None:
            return  # of a later version, too
        before = self.positions.said(*place)
        self.positions.apply(*place, report)
        if before is None or report is None or _moved(before, report):
            self._tell([place.group_id])

    def _forget(self) -> None:
        self.positions = Positions()
        self._tell(list(self._changes))

    def _tell(self, groups: Sequence[str]) -> None:
        for group_id in groups:
            event = self._changes.pop(group_id, None)
            if event is not None:
                event.set()


def _moved(before: MemberReport, after: MemberReport) -> bool:
    owned = [{name: each.owned for name, each in report.topics.items()} for report in (before, after)]
    return before.generation_id != after.generation_id or owned[0] != owned[1]


def _fail(batch: Sequence[_ToWrite], error: UpstreamUnavailable) -> None:
    for each in batch:
        if not each.done.done():
            each.done.set_exception(error)


async def _tell_when_read(opened: InternalTopicLog, offset: int, batch: Sequence[_ToWrite]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(opened.reached(offset), WRITE_SECONDS)
        for each in batch:
            if not each.done.done():
                each.done.set_result(None)
