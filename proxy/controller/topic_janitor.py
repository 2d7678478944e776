"""Looks through one compacted managed topic and writes markers, while this proxy is the controller.

What it looks for is `ordering/janitor.py`. It opens the records of segments that have predecessors: about a
microsecond each, in the controller's worker. So it is off unless a topic's people want it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import structlog

from kordon.codecs.fetched import Fetched
from kordon.codecs.unpack import OpenedRecord
from kordon.proxy.controller.log_walk import LogWalk, Stretch
from kordon.proxy.controller.lost_values import LostValues
from kordon.proxy.controller.marker_writer import MarkerWriter, NotNow
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batched_fetcher import Want
from kordon.proxy.kafka.batches import Copy
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.ordering.janitor import FormerHomes, KnownKeys, Visible, marker_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import Hidden
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

MOST_BEHIND: Final = 20_000
"""Records that are not looked at, with which a change of partitions begins: the rest is looked at under the fence."""
_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.5
_READ_AHEAD: Final = 4
"""Partitions of a topic that are read at the same time where there is much to read: each takes a megabyte."""
_ROLLING_KEY: Final = b"__kordon.janitor"
"""Of markers that have brokers begin another file; nobody's key."""


class JanitorTools(NamedTuple):
    """The tools of a worker's janitors.

    Attributes:
        pull: Called to read a physical partition.
        writes: The writer of markers and values to physical partitions.
        may: Whether a marker may be sent that belongs to a topic and layout epoch: the lease lives, that layout is in
            force, and no fence stands but the one that is named.
        opener: The part that opens batches.
        least_lag_ms: The least min.compaction.lag.ms of compacted topics, in milliseconds.
    """

    pull: Callable[[Want], Awaitable[Fetched]]
    writes: MarkerWriter
    may: Callable[[str, int, str | None], bool]
    opener: Opener
    least_lag_ms: int


class JanitorCounts(NamedTuple):
    """The counts of one topic's janitor. Sums count since this proxy is the controller."""

    markers: int
    """The markers that were written."""
    read_bytes: int
    """The bytes of the topic's logs that were read."""
    opened_records: int
    """The records that were looked at one by one."""
    values_brought_back: int
    values_given_up: int
    """The values that brokers did not take, or that cannot be opened."""
    failures: int
    """Reads and writes that failed, and are tried again."""
    doubts: int
    """The keys whose last value is looked for, or is to be written again."""
    behind_records: int
    """The offsets below the high watermarks that were not looked at."""
    behind_seconds: float
    """The seconds since it last reached the end of each partition; a few where nothing is written."""


Renew: TypeAlias = Callable[[str, frozenset[int]], None]
"""Has a topic begin another segment on physical partitions, as soon as nothing else happens with it."""


class TopicJanitor:
    """Looks through one topic.

    Args:
        layout: Returns the layout in force; None: the topic is no longer managed.
        looked_to: The offset up to which each physical partition was looked through before.
        renew: Called with the homes on which values are to be written again. It is called repeatedly until that is
            done.
    """

    def __init__(
        self,
        layout: Callable[[], Layout | None],
        topic: str,
        tools: JanitorTools,
        ends: PartitionEnds,
        looked_to: Mapping[int, int],
        *,
        renew: Renew,
    ) -> None:
        self.looked_to = dict(looked_to)
        self.roll_seconds = 0.0
        """After so long a marker's file is closed, if something comes then; 0: not known."""
        self.markers = 0
        self._layout = layout
        self._topic = topic
        self._tools = tools
        self._renew = renew
        self._walk = LogWalk(topic, tools.pull, ends, tools.opener)
        self._lost = LostValues(topic, self._walk)
        self._homes: FormerHomes | None = None
        self._known = KnownKeys()
        self._one_at_a_time = asyncio.Lock()
        self._marks: dict[int, int] = {}
        self._level_at: dict[int, float] = {}
        self._read_ahead = asyncio.Semaphore(_READ_AHEAD)
        self._failures = 0
        self._is_failing = False
        self._unrolled: dict[int, float] = {}
        """When the last marker was written whose file may still be open."""
        self._tasks = Tasks()

    async def close(self) -> None:
        """Ends all of its tasks."""
        await self._tasks.stop()

    def follow(self) -> None:
        """Begins with partitions that are not looked at yet."""
        layout = self._layout()
        if not self._level_at:
            self._tasks.keep(self._settle_doubts, name="look for last values", of=self._topic)
        if layout is None:
            return
        homes = FormerHomes(layout)
        for q in {segment.id.partition for segment in layout.segments} - self._level_at.keys():
            self.looked_to.setdefault(q, homes.begin(q))
            self._level_at[q] = self._unrolled[q] = time.monotonic()
            self._tasks.keep(partial(self._follow, q), name="look through a compacted log", of=f"{self._topic}-{q}")

    def durable(self) -> dict[int, int]:
        """Returns from where on another controller must look: where doubts come from, it looks again."""
        firsts = {q: self._lost.doubts.first(q) for q in self.looked_to}
        return {q: end if (first := firsts[q]) is None else min(first, end) for q, end in self.looked_to.items()}

    async def bring_back(self, fence: str, renewed: Collection[int]) -> None:
        """Writes values again that brokers would take away; see `LostValues.bring_back`.

        Raises:
            UpstreamUnavailable: Kordon does not know that all records are written.
            NotNow: The fence was cancelled.
        """
        layout = self._layout()
        if layout is None:
            raise NotNow(f"{self._topic} was let go")
        may = partial(self._tools.may, self._topic, layout.epoch, fence)
        async with self._one_at_a_time:
            await self._lost.bring_back(layout, renewed, self._tools.writes, may)

    def counts(self) -> JanitorCounts:
        """Returns how it stands."""
        behind = sum(max(mark - self.looked_to.get(q, 0), 0) for q, mark in self._marks.items())
        since = min(self._level_at.values(), default=time.monotonic())
        return JanitorCounts(
            markers=self.markers,
            read_bytes=self._walk.read_bytes,
            opened_records=self._walk.opened,
            values_brought_back=self._lost.brought_back,
            values_given_up=self._lost.given_up,
            failures=self._failures,
            doubts=len(self._lost.doubts),
            behind_records=behind,
            behind_seconds=time.monotonic() - since,
        )

    def is_behind(self) -> bool:
        """Whether so much is not looked at, or not known, that no fence should wait for it."""
        layout = self._layout()
        is_known = layout is not None and layout.open_segments.keys() <= self._marks.keys()
        return not is_known or self.counts().behind_records > MOST_BEHIND

    async def sweep(self, fence: str, cuts: Mapping[int, int]) -> bool:
        """Looks at all that stands below the cuts of physical partitions, while a fence is held.

        Returns:
            Whether a marker was written, so that cuts may have moved.

        Raises:
            UpstreamUnavailable: Not everything could be looked at.
            NotNow: The fence was cancelled.
        """
        async with self._one_at_a_time:
            before = self.markers
            while behind := [q for q, cut in cuts.items() if self.looked_to.get(q, 0) < cut]:
                for found in await asyncio.gather(*(self._walk.read(q, self.looked_to.get(q, 0)) for q in behind)):
                    await self._look_at(found, fence)
            return self.markers > before

    async def roll(self) -> None:
        """Has brokers begin another file where a marker has long been in the last one: that one is never compacted.

        Raises:
            UpstreamUnavailable: A leader does not answer.
            NotNow: Nothing may be written.
        """
        before = time.monotonic() - self.roll_seconds
        due = [q for q, since in self._unrolled.items() if since < before] if self.roll_seconds else []
        async with self._one_at_a_time:
            for q in due:
                if self._marks.get(q, 0):
                    await self._write(q, [_ROLLING_KEY], None)
                del self._unrolled[q]

    async def _follow(self, q: int) -> None:
        while True:
            try:
                if self.looked_to.get(q, 0) < self._marks.get(q, 1):
                    async with self._read_ahead:
                        await self._go_on(q, waits=False)
                else:
                    await self._go_on(q, waits=True)
            except NotNow:
                await asyncio.sleep(_RETRY_SECONDS)  # a fence: its own look continues from here
            except UpstreamUnavailable as error:
                self._fail(str(error), partition=q)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _go_on(self, q: int, *, waits: bool) -> None:
        position = self.looked_to.get(q, 0)
        found = await self._walk.read(q, position, waits=waits)
        async with self._one_at_a_time:
            if self.looked_to.get(q, 0) == position:
                await self._look_at(found, None)
        self._is_failing = False

    def _fail(self, error: str, **where: int) -> None:
        """Counts a failure; the first of several in a row is logged."""
        self._failures += 1
        if not self._is_failing:
            log.warning("janitor_delayed", topic=self._topic, error=error, **where)
        self._is_failing = True

    async def _settle_doubts(self) -> None:
        """Looks for the last values of keys that hidden records stand behind, and has those brought back."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            layout = self._layout()
            if layout is None or not len(self._lost.doubts):
                continue
            try:
                homes = await self._lost.search(FormerHomes(layout), dict(self.looked_to))
            except UpstreamUnavailable as error:
                self._fail(str(error))
                continue
            if homes:
                self._renew(self._topic, homes)

    async def _look_at(self, found: Stretch, fence: str | None) -> None:
        """Takes in what a broker has answered, and continues behind it when all markers are written."""
        layout = self._layout()
        if layout is None:
            raise NotNow(f"{self._topic} was let go")
        q = found.partition
        self._marks[q] = found.high_watermark
        if self._homes is None or self._homes.layout is not layout:
            self._homes = FormerHomes(layout)
        await self._mark(self._homes, found, fence)
        self.looked_to[q] = found.next_offset
        if found.next_offset >= found.high_watermark:
            self._level_at[q] = time.monotonic()

    async def _mark(self, homes: FormerHomes, stretch: Stretch, fence: str | None) -> None:
        found: dict[Visible, set[bytes]] = {}
        for batch in stretch.batches:
            seen = stretch.seen(homes, batch)
            if not (take := self._what_to_take(homes, stretch.partition, seen, found)):
                continue
            if not await self._walk.open(stretch, batch, take):
                self._lost.pass_over(stretch.partition, batch)
        wanted: dict[int, set[bytes]] = {}
        for seen, keys in found.items():
            for former in seen.former:
                wanted.setdefault(former, set()).update(keys)
        await asyncio.gather(*(self._write(former, sorted(keys), fence) for former, keys in wanted.items() if keys))
        for seen, keys in found.items():
            self._known.add(seen, keys)

    def _what_to_take(
        self, homes: FormerHomes, partition: int, seen: Visible | Hidden, found: dict[Visible, set[bytes]]
    ) -> Callable[[Sequence[OpenedRecord]], None] | None:
        """Returns what is done with the records of a batch; None: they need not be looked at."""
        if seen is Hidden.STRAY:
            return partial(self._lost.hide, partition)
        if isinstance(seen, Visible) and (seen.former or len(self._lost.doubts)):
            return partial(self._take, homes, seen, found)
        return None

    def _take(
        self, homes: FormerHomes, seen: Visible, found: dict[Visible, set[bytes]], records: Sequence[OpenedRecord]
    ) -> None:
        if len(self._lost.doubts):
            self._lost.see(homes, seen, records)
        if seen.former:
            keys = {bytes(record.key) for record in records if record.key is not None}
            found.setdefault(seen, set()).update(self._known.unknown(seen, keys))

    async def _write(self, partition: int, keys: list[bytes], fence: str | None) -> None:
        """Writes markers under the layout in force."""
        layout = self._layout()
        if layout is None:
            raise NotNow(f"{self._topic} was let go")
        written_ms = now_ms()
        copies = [Copy(key, None, written_ms) for key in keys]
        tagged, may = partial(marker_id, layout.epoch), partial(self._tools.may, self._topic, layout.epoch, fence)
        refused = await self._tools.writes.write(self._topic, partition, copies, tagged, may)
        for copy in refused:
            key = (copy.key or b"")[:100].decode(errors="replace")
            log.error("marker_refused", topic=self._topic, partition=partition, key=key)
        self.markers += len(keys) - len(refused)
        if keys != [_ROLLING_KEY]:
            self._unrolled[partition] = time.monotonic()
