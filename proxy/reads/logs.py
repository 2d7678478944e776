"""One physical partition as this worker reads it: what it keeps, what is on its way, and what is known of its ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched
from kordon.proxy.kafka.batched_fetcher import QUIET_MS, WAIT_MS, Want
from kordon.proxy.reads.indexing import Indexer
from kordon.proxy.reads.kept_views import KeptViews
from kordon.proxy.reads.log_transactions import LogTransactions
from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.reads.view_cache import ViewCache
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)
_client_log = client_log(__name__)

_CURSORS: Final = 4
"""Places of one partition that are read from a broker at the same time."""
_MARK_SECONDS: Final = 1.0
"""How old a high watermark may be that is told to those who read an earlier home."""


class PartitionLog:
    """Reads a physical partition for all its readers, while nothing changes of who lives and has lived there.

    Args:
        indexer: The indexer, which knows who lives and has lived there. Under another tenancy there is another log.
        cache: The cache, which decides how long the batches that were read are kept.
        told: The offset up to which readers may have been told of the log before, under an earlier leader.
        transactions: The known transactions of the log; None: its topic has none.
    """

    def __init__(
        self,
        topic: str,
        indexer: Indexer,
        cache: ViewCache,
        tally: ReadTally,
        *,
        fetch: Callable[[Want], Awaitable[Fetched]],
        tasks: Tasks,
        told: int = 0,
        transactions: LogTransactions | None = None,
    ) -> None:
        self.partition = indexer.partition
        """The physical partition."""
        self.views = KeptViews(cache, tally)
        self.high_watermark: int | None = None
        """As a broker said last; None: not known."""
        self.log_start: int | None = None
        """Where it begins, as far as brokers have said; None: not known."""
        self.is_closed = False
        self.transactions = transactions
        self._told = told
        self._topic = topic
        self._indexer = indexer
        self._tally = tally
        self._fetch = fetch
        self._tasks = tasks
        self._coming: dict[int, asyncio.Task[int]] = {}
        self._learning: asyncio.Task[int] | None = None
        self._marked = float("-inf")

    @property
    def shown(self) -> int | None:
        """The offset up to which readers may have been told of it; None: of nothing."""
        marks = (self.high_watermark, self.views.end or None)
        return max((mark for mark in marks if mark is not None), default=None)

    @property
    def told(self) -> int:
        """The offset up to which readers may have been told of it, under former leaders as well."""
        return max(self._told, self.shown or 0)

    @property
    def is_mark_old(self) -> bool:
        """Whether nobody has looked at the high watermark for a while."""
        return time.monotonic() - self._marked > _MARK_SECONDS

    def coming(self, offset: int) -> asyncio.Task[int]:
        """Returns what brings the batches at an offset, and then an error code; it is started if it is not on its way.

        One that is on its way and begins a little before is waited for: many readers of one partition need one read.
        Behind the end as it is known here, none is: what waits at the end hears nothing for long, and a broker says at
        once that an offset is out of range, or that its log has grown.
        """
        is_beyond = self.high_watermark is not None and offset > self.high_watermark
        span = 0 if is_beyond else self.views.span
        near = [start for start in self._coming if start <= offset <= start + span]
        if near:
            return self._coming[max(near)]
        under_way = [start for start in self._coming if not self._is_end(start)]
        if len(under_way) >= _CURSORS and not self._is_end(offset):
            return self._coming[under_way[0]]
        outcome = self._coming[offset] = self._tasks.start(
            self._bring(offset), name=f"read {self._topic}-{self.partition}"
        )
        return outcome

    async def arrives(self, offset: int) -> bool:
        """Waits for the batches at an offset, which others may wait for as well; returns whether they have come."""
        reading = self.coming(offset)
        await asyncio.wait({reading})
        return not reading.cancelled() and reading.result() == Code.NONE

    def learn(self, end: Callable[[], Awaitable[int | None]]) -> asyncio.Task[int]:
        """Returns what brings the high watermark, and then an error code; once for all who want it.

        Args:
            end: Called to ask the leader for the high watermark. It returns None where the leader does not say.
        """
        if self._learning is None:
            name = f"learn the end of {self._topic}-{self.partition}"
            self._learning = self._tasks.start(self._learn(end), name=name)
        return self._learning

    def read_ahead(self, offset: int) -> None:
        """Reads the next records in advance, if there are any and there is room."""
        behind_all = self.high_watermark is None or self._is_end(offset)
        if not (behind_all or self.views.is_full or self.views.at(offset) is not None):
            self.coming(offset)

    def close(self) -> None:
        """Drops all: another layout or another leader makes it useless."""
        self.is_closed = True
        for task in (*self._coming.values(), *([self._learning] if self._learning else [])):
            task.cancel()
        self.views.drop()

    def raise_log_start(self, offset: int) -> None:
        """Notes where a broker says that the log begins."""
        before, self.log_start = self.log_start or 0, max(offset, self.log_start or 0)
        if self.log_start != before:
            self._tally.starts += 1

    def _is_end(self, offset: int) -> bool:
        """Whether a broker that is asked to read from an offset would wait for records."""
        return self.high_watermark is not None and offset >= self.high_watermark

    async def _bring(self, offset: int) -> int:
        wait_ms = WAIT_MS if self._is_end(offset) else 0
        log_start = -1 if self.log_start is None else self.log_start
        try:
            quiet_ms = QUIET_MS if wait_ms else 0
            want = Want(self._topic, self.partition, offset, wait_ms, log_start, quiet_ms=quiet_ms)
            fetched = await self._fetch(want)
            return await self._take_in(offset, fetched)
        finally:
            self._coming.pop(offset, None)

    async def _take_in(self, offset: int, fetched: Fetched) -> int:
        self._tally.pulled_bytes += len(fetched.records)
        if self.is_closed or fetched.error_code:
            return fetched.error_code
        self._mark(fetched.high_watermark)
        if self.transactions is not None:
            self.transactions.begin_open(fetched.last_stable_offset)
        if fetched.log_start_offset >= 0:
            self.raise_log_start(fetched.log_start_offset)
        try:
            await self._keep(offset, fetched.records)
        except WireError as error:
            place = {"topic": self._topic, "partition": self.partition, "offset": offset}
            _client_log.error("records_unreadable", **place, error=str(error))
            return Code.CORRUPT_MESSAGE
        return Code.NONE

    async def _learn(self, end: Callable[[], Awaitable[int | None]]) -> int:
        try:
            mark = await end()
        finally:
            self._learning = None
        if mark is None:
            return Code.NOT_LEADER_OR_FOLLOWER
        self._mark(mark)
        return Code.NONE

    def _mark(self, high_watermark: int) -> None:
        """Takes in a high watermark. It only rises under one leader: of two answers that cross, the older is lower."""
        self.high_watermark, self._marked = max(high_watermark, self.high_watermark or 0), time.monotonic()

    async def _keep(self, offset: int, records: memoryview) -> None:
        if not records or self.views.at(offset) is not None:
            return
        memory = memoryview(bytearray(records)) if records.readonly else records
        found = await self._indexer.index(memory, offset, self.views.start_after(offset))
        if self.is_closed or self.views.at(offset) is not None:
            return  # it took a while
        self._count_bypassed(found.bypassed)
        self.views.add(offset, found, len(records) + found.opened_bytes)
        if self.transactions is not None:
            begin = min(offset, *(each.offset for each in found.seen[:1])) if found.seen else offset
            self.transactions.take(begin, found.end, found.seen)

    def _count_bypassed(self, batches: int) -> None:
        if batches and not self._tally.bypassed[self._topic]:
            log.warning("bypass_found", topic=self._topic, partition=self.partition)
        self._tally.bypassed[self._topic] += batches
