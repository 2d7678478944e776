"""One physical partition as this worker has read it: chunks, what is on its way, and what is known of its ends."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.kafka.pulls import WAIT_MS, Want
from kordon.proxy.ordering.physical_reading import AnyTenancy
from kordon.proxy.ordering.reading import Scanned
from kordon.proxy.reads.chunks import Cache, Chunk, Indexer, PassedRange, ReadTally, ServedBatch, new_chunk
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)
_client_log = client_log(__name__)

_NEXT_OFFSET: Final = attrgetter("next_offset")
_CURSORS: Final = 4
"""Places of one partition that are read from a broker at the same time."""
_MOST_PASSED: Final = 1_000
"""Batches that cannot be opened; readers learn of them as they pass."""
_MARK_SECONDS: Final = 1.0
"""How old a high watermark may be that is told to those who read an earlier home."""


@dataclass(slots=True)
class ReadSoFar:
    """What a reader got of one virtual partition's stay, and where it stands.

    Attributes:
        position: In the physical partition: all before it has been looked at.
        entries: Batches, in order.
        size_bytes: Of the batches.
        leader_epoch: The physical one of the last batch that was looked at, -1 if there was none.
        is_full: Whether more would not fit.
    """

    position: int
    entries: list[ServedBatch] = field(default_factory=list[ServedBatch])
    size_bytes: int = 0
    leader_epoch: int = -1
    is_full: bool = False


class PartitionLog:
    """What is kept of a physical partition while nothing changes of who lives and has lived there.

    Args:
        topic: Its name.
        v_count: V.
        tenancy: Who lives and has lived there; under another one there is another log.
        cache: Of the worker.
        tally: Of the worker.
        pull: Reads from the partition's leader.
        tasks: Own what is under way.
        opener: Opens what has to be shared out.
        told: Up to where readers may have been told of it before, under an earlier leader.
    """

    def __init__(
        self,
        *,
        topic: str,
        v_count: int,
        tenancy: AnyTenancy,
        cache: Cache,
        tally: ReadTally,
        pull: Callable[[Want], Awaitable[Fetched]],
        tasks: Tasks,
        opener: Opener,
        told: int = 0,
    ) -> None:
        self._told = told
        self.high_watermark: int | None = None
        """As a broker said last; None: not known."""
        self.log_start: int | None = None
        self.is_closed = False
        self._topic = topic
        self._tenancy = tenancy
        self._indexer = Indexer(topic, tenancy, v_count, tally, opener)
        self._cache = cache
        self._tally = tally
        self._pull = pull
        self._tasks = tasks
        self._scanned = Scanned()
        self._starts: list[int] = []
        self._chunks: dict[int, Chunk] = {}
        self._passed: list[PassedRange] = []
        self._coming: dict[int, asyncio.Task[int]] = {}
        self._learning: asyncio.Task[int] | None = None
        self._marked = float("-inf")
        self._span = 0
        """Offsets in the last chunk."""

    def take(self, v: int, taken: ReadSoFar, limit: int, room_bytes: int) -> None:
        """Goes on through what is here.

        Args:
            v: Whose batches.
            taken: Is carried on.
            limit: Offset from which on nothing is given out.
            room_bytes: Most bytes in all; the first batch is taken whatever its size.
        """
        while taken.position < limit and not taken.is_full:
            skipped = self._scanned.skip(v, taken.position)
            if skipped > taken.position:
                taken.position, taken.leader_epoch = min(skipped, limit), self._scanned.leader_epoch
                continue
            chunk = self._chunk_at(taken.position)
            if chunk is None:
                self._tally.misses += 1
                return
            self._tally.hits += 1
            _take_from(chunk, v, taken, limit, room_bytes)
            if taken.position >= chunk.end:
                chunk.unsent.discard(v)
            self._cache.touch(chunk)

    def empty_until(self, v: int, position: int, limit: int) -> int | None:
        """Returns up to which offset nothing of a virtual partition stands, as far as is known; None: something does.

        Args:
            v: The virtual partition.
            position: Where to begin.
            limit: Where to end.
        """
        while position < limit:
            skipped = self._scanned.skip(v, position)
            if skipped > position:
                position = skipped
                continue
            chunk = self._chunk_at(position)
            if chunk is None:
                return position
            entries = chunk.entries.get(v, [])
            following = bisect_right(entries, position, key=_NEXT_OFFSET)
            if following < len(entries) and entries[following].base_offset < limit:
                return None
            position = chunk.end
        return limit

    def coming(self, offset: int) -> asyncio.Task[int]:
        """Returns what brings the batches at an offset, and then an error code; it is started if it is not on its way.

        One that is on its way and begins a little before is waited for: many readers of one partition need one read.
        """
        near = [start for start in self._coming if start <= offset <= start + self._span]
        if near:
            return self._coming[max(near)]
        under_way = [start for start in self._coming if not self._is_end(start)]
        if len(under_way) >= _CURSORS and not self._is_end(offset):
            return self._coming[under_way[0]]
        outcome = self._coming[offset] = self._tasks.start(
            self._bring(offset), name=f"read {self._topic}-{self._tenancy.partition}"
        )
        return outcome

    def learn(self, end: Callable[[], Awaitable[int | None]]) -> asyncio.Task[int]:
        """Returns what brings the high watermark, and then an error code; once for all who want it.

        Args:
            end: Asks the leader for it; None: it does not say.
        """
        if self._learning is None:
            name = f"learn the end of {self._topic}-{self._tenancy.partition}"
            self._learning = self._tasks.start(self._learn(end), name=name)
        return self._learning

    @property
    def is_mark_old(self) -> bool:
        """Whether nobody has looked at the high watermark for a while."""
        return time.monotonic() - self._marked > _MARK_SECONDS

    def read_ahead(self, offset: int) -> None:
        """Has what comes next brought, if there is something and there is room."""
        behind_all = self.high_watermark is None or self._is_end(offset)
        if not (behind_all or self._cache.is_full or self._chunk_at(offset) is not None):
            self.coming(offset)

    def close(self) -> None:
        """Another layout is in force here: nothing that is here, or on its way, is of use."""
        self.is_closed = True
        for task in (*self._coming.values(), *([self._learning] if self._learning else [])):
            task.cancel()
        for chunk in list(self._chunks.values()):
            self._cache.drop(chunk)

    @property
    def partition(self) -> int:
        """The physical one."""
        return self._tenancy.partition

    @property
    def shown(self) -> int | None:
        """Returns the offset up to which readers may have been told of; None: of nothing."""
        marks = (self.high_watermark, self._scanned.end or None)
        return max((mark for mark in marks if mark is not None), default=None)

    @property
    def told(self) -> int:
        """The offset up to which readers may have been told of it, whoever led it then."""
        return max(self._told, self.shown or 0)

    def raise_log_start(self, offset: int) -> None:
        """A broker has said where its log begins."""
        self.log_start = max(offset, self.log_start or 0)

    def _is_end(self, offset: int) -> bool:
        """Whether a broker that is asked for what stands at an offset would wait for it."""
        return self.high_watermark is not None and offset >= self.high_watermark

    async def _bring(self, offset: int) -> int:
        wait_ms = WAIT_MS if self._is_end(offset) else 0
        log_start = -1 if self.log_start is None else self.log_start
        try:
            fetched = await self._pull(Want(self._topic, self._tenancy.partition, offset, wait_ms, log_start))
            return await self._take_in(offset, fetched)
        finally:
            self._coming.pop(offset, None)

    async def _take_in(self, offset: int, fetched: Fetched) -> int:
        self._tally.pulls += 1
        self._tally.pulled_bytes += len(fetched.records)
        if self.is_closed or fetched.error_code:
            return fetched.error_code
        self._mark(fetched.high_watermark)
        if fetched.log_start_offset >= 0:
            self.raise_log_start(fetched.log_start_offset)
        try:
            await self._keep(offset, fetched.records)
        except WireError as error:
            place = {"topic": self._topic, "partition": self._tenancy.partition, "offset": offset}
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
        self.high_watermark, self._marked = high_watermark, time.monotonic()

    async def _keep(self, offset: int, records: memoryview) -> None:
        if not records or self._chunk_at(offset) is not None:
            return
        memory = memoryview(bytearray(records)) if records.readonly else records
        found = await self._indexer.index(memory, offset, self._start_behind(offset))
        if self.is_closed or self._chunk_at(offset) is not None:
            return  # it took a while
        self._count_bypassed(found.bypassed)
        before = self._start_behind(offset)
        end = found.end if before is None else min(found.end, before)
        if end <= offset:
            return
        size = len(records) + found.opened_bytes
        chunk = new_chunk(found.entries, (offset, end), found.leader_epoch, size, self._forget)
        self._span = end - offset
        insort(self._starts, offset)
        self._chunks[offset] = chunk
        self._remember(found.passed)
        self._scanned.extend(offset, end, chunk.last, found.leader_epoch)
        self._cache.add(chunk)

    def _start_behind(self, offset: int) -> int | None:
        """Returns where the next chunk begins that is here."""
        place = bisect_right(self._starts, offset)
        return self._starts[place] if place < len(self._starts) else None

    def _remember(self, passed: list[PassedRange]) -> None:
        if passed:
            self._passed = sorted({*self._passed, *passed})[-_MOST_PASSED:]

    def passed_between(self, start: int, end: int) -> list[PassedRange]:
        """Returns what nobody gets of [start, end), because it cannot be opened."""
        return [each for each in self._passed if start < each.end and each.start < end]

    def _count_bypassed(self, batches: int) -> None:
        if batches and not self._tally.bypassed[self._topic]:
            log.warning("bypass_found", topic=self._topic, partition=self._tenancy.partition)
        self._tally.bypassed[self._topic] += batches

    def _forget(self, chunk: Chunk) -> None:
        del self._chunks[chunk.start]
        self._starts.remove(chunk.start)

    def _chunk_at(self, offset: int) -> Chunk | None:
        place = bisect_right(self._starts, offset) - 1
        chunk = self._chunks[self._starts[place]] if place >= 0 else None
        return chunk if chunk is not None and offset < chunk.end else None


def _take_from(chunk: Chunk, v: int, taken: ReadSoFar, limit: int, room_bytes: int) -> None:
    """Takes what a chunk has for a reader behind its position."""
    entries = chunk.entries.get(v, [])
    for entry in entries[bisect_right(entries, taken.position, key=_NEXT_OFFSET) :]:
        if entry.base_offset >= limit:
            break
        size = len(entry.data)
        if taken.entries and taken.size_bytes + size > room_bytes:
            taken.is_full = True
            return
        taken.entries.append(entry)
        taken.size_bytes += size
        taken.position = max(taken.position, entry.next_offset)
    taken.position = max(taken.position, min(chunk.end, limit))
    taken.leader_epoch = chunk.leader_epoch
