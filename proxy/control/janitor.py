"""The janitor's hands: reads compacted managed topics and writes markers, while this proxy is the controller.

What it looks for is `ordering/janitor.py`. It opens the records of segments that have predecessors, one by one in
Python: 5 to 10 us each, in the controller's worker. So it is off unless a topic's people want it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import structlog

from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched
from kordon.codecs.split import CONTROL, Batch, split
from kordon.proxy.control.codes import Code
from kordon.proxy.control.compaction import Compaction, roll_ms
from kordon.proxy.control.layouts_writer import Fenced
from kordon.proxy.control.ledger import Ledger
from kordon.proxy.control.lost_values import LostValues
from kordon.proxy.control.topics_admin import TopicsAdmin
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.managed.bypass import records_of
from kordon.proxy.managed.hidden_writes import Copy, HiddenWrites, NotNow
from kordon.proxy.managed.pulls import Want
from kordon.proxy.ordering.janitor import FormerHomes, KnownKeys, Visible, marker_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import Hidden
from kordon.proxy.ordering.records import JanitorRecord
from kordon.proxy.tasks import Tasks

log = structlog.get_logger(__name__)

MOST_BEHIND: Final = 20_000
"""Records that are not looked at, with which a change of partitions begins: the rest is looked at under the fence."""
_LOOK_SECONDS: Final = 1.0
_SAVE_SECONDS: Final = 30.0
_HOLD_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.2
_EMPTY_ANSWERS: Final = 10
"""In a row, after which nothing stands between a position and the high watermark but what was compacted away."""
_ROLLING_KEY: Final = b"__kordon.janitor"
"""Of markers that have brokers begin another file; nobody's key."""


class Hands(NamedTuple):
    """What the janitor works with.

    Attributes:
        pull: Reads a physical partition.
        writes: Writes to them.
        may: Whether a marker may be sent that belongs to a topic and layout epoch: the lease lives, that layout is in
            force, and no fence stands but the one that is named.
    """

    pull: Callable[[Want], Awaitable[Fetched]]
    writes: HiddenWrites
    may: Callable[[str, int, str | None], bool]


class Tools(NamedTuple):
    """What a worker has for the janitor's hands.

    Attributes:
        pull: Reads a physical partition.
        writes: Writes to them.
        least_lag_ms: The least min.compaction.lag.ms of compacted topics.
    """

    pull: Callable[[Want], Awaitable[Fetched]]
    writes: HiddenWrites
    least_lag_ms: int


class JanitorCounts(NamedTuple):
    """What is told of one topic's janitor."""

    markers: int
    """Written so far."""
    behind_records: int
    """Offsets that are below the high watermarks and not looked at."""
    behind_seconds: float
    """Since when it has not come to the end of some partition; a few seconds where nothing is written."""


Renew: TypeAlias = Callable[[str, frozenset[int]], None]
"""Has a topic begin another segment on physical partitions, as soon as nothing else goes on with it."""


class TopicJanitor:
    """Looks through one topic.

    Args:
        layout: Returns the one in force; None: the topic is let go.
        topic: Its name.
        hands: What it works with.
        admin: Asks where logs begin.
        looked_to: How far it was looked through before.
        renew: Is told of homes on which values are to be brought back; again and again, until that is done.
    """

    def __init__(
        self,
        layout: Callable[[], Layout | None],
        topic: str,
        hands: Hands,
        admin: TopicsAdmin,
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
        self._hands = hands
        self._admin = admin
        self._renew = renew
        self._lost = LostValues(topic, hands.pull, admin)
        self._homes: FormerHomes | None = None
        self._known = KnownKeys()
        self._one_at_a_time = asyncio.Lock()
        self._marks: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._level_at: dict[int, float] = {}
        self._empty: Counter[int] = Counter()
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
            self._tasks.start(self._settle_doubts(), name=f"look for last values of {self._topic}")
        for q in {segment.id.partition for segment in layout.segments} - self._level_at.keys() if layout else ():
            self._level_at[q] = self._unrolled[q] = time.monotonic()
            self._tasks.start(self._follow(q), name=f"look through {self._topic}-{q}")

    def durable(self) -> dict[int, int]:
        """Returns from where on another controller must look: where doubts come from, it looks again."""
        firsts = {q: self._lost.doubts.first(q) for q in self.looked_to}
        return {q: end if (first := firsts[q]) is None else min(first, end) for q, end in self.looked_to.items()}

    async def bring_back(self, fence: str, renewed: Collection[int]) -> None:
        """Writes values again that brokers would take away; see `LostValues.bring_back`.

        Raises:
            UpstreamUnavailable: Not all is known to be written.
            NotNow: The fence was cancelled.
        """
        layout = self._layout()
        if layout is None:
            raise NotNow(f"{self._topic} was let go")
        may = partial(self._hands.may, self._topic, layout.epoch, fence)
        async with self._one_at_a_time:
            await self._lost.bring_back(layout, renewed, self._hands.writes, may)

    def counts(self) -> JanitorCounts:
        """Returns how it stands."""
        behind = sum(max(mark - self.looked_to.get(q, 0), 0) for q, mark in self._marks.items())
        since = min(self._level_at.values(), default=time.monotonic())
        return JanitorCounts(self.markers, behind, time.monotonic() - since)

    def is_behind(self) -> bool:
        """Whether so much is not looked at, or not known, that no fence should wait for it."""
        layout = self._layout()
        is_known = layout is not None and layout.open_segments.keys() <= self._marks.keys()
        return not is_known or self.counts().behind_records > MOST_BEHIND

    async def sweep(self, fence: str, cuts: Mapping[int, int]) -> bool:
        """Looks at all that stands below cuts, while a fence is held.

        Args:
            fence: The fence's id.
            cuts: By physical partition.

        Returns:
            Whether a marker was written, so that cuts may have moved.

        Raises:
            UpstreamUnavailable: Not everything could be looked at.
            NotNow: The fence was cancelled.
        """
        async with self._one_at_a_time:
            before = self.markers
            for q, cut in cuts.items():
                while (position := self.looked_to.get(q, 0)) < cut:
                    fetched = await self._hands.pull(Want(self._topic, q, position))
                    await self._look_at(q, position, fetched, fence)
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
            position = self.looked_to.get(q, 0)
            fetched = await self._hands.pull(Want(self._topic, q, position, log_start=self._starts.get(q, -1)))
            try:
                async with self._one_at_a_time:
                    if self.looked_to.get(q, 0) == position:
                        await self._look_at(q, position, fetched, None)
                        continue
            except NotNow:
                pass  # a fence: its own look goes on from here
            except UpstreamUnavailable as error:
                log.warning("janitor_delayed", topic=self._topic, partition=q, error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _settle_doubts(self) -> None:
        """Looks for the last values of keys that hidden records stand behind, and has those brought back."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            layout = self._layout()
            if layout is None or not len(self._lost.doubts):
                continue
            try:
                homes = await self._lost.search(FormerHomes(layout), dict(self.looked_to))
            except (UpstreamUnavailable, WireError) as error:
                log.warning("janitor_delayed", topic=self._topic, error=str(error))
                continue
            if homes:
                self._renew(self._topic, homes)

    async def _look_at(self, q: int, position: int, fetched: Fetched, fence: str | None) -> None:
        """Takes in what a broker has answered, and goes on behind it when all markers are written."""
        if fetched.error_code == Code.OFFSET_OUT_OF_RANGE:
            self.looked_to[q] = (await self._admin.log_starts(self._topic, [q]))[q]
            return
        layout = self._layout()
        if fetched.error_code or layout is None:
            raise UpstreamUnavailable(f"reading {self._topic}-{q}: error {fetched.error_code}")
        self._marks[q], self._starts[q] = fetched.high_watermark, fetched.log_start_offset
        batches = [batch for batch in split(fetched.records) if batch.next_offset > position]
        end = batches[-1].next_offset if batches else self._end_of_nothing(q, position, fetched.high_watermark)
        await self._mark(layout, q, fetched.records, batches, fence)
        self.looked_to[q] = max(position, end)
        if end >= fetched.high_watermark:
            self._level_at[q] = time.monotonic()
        elif not batches:
            await asyncio.sleep(_RETRY_SECONDS)

    def _end_of_nothing(self, q: int, position: int, high_watermark: int) -> int:
        """Returns where to go on if nothing came: brokers leave a partition out of an answer that is full."""
        self._empty[q] = self._empty[q] + 1 if position < high_watermark else 0
        if self._empty[q] < _EMPTY_ANSWERS:
            return position
        self._empty[q] = 0
        return high_watermark

    async def _mark(self, layout: Layout, q: int, records: memoryview, batches: list[Batch], fence: str | None) -> None:
        if self._homes is None or self._homes.layout is not layout:
            self._homes = FormerHomes(layout)
        if self._lost.are_many:
            raise UpstreamUnavailable(f"the last values of {len(self._lost.doubts)} keys are looked for")
        found: dict[Visible, set[bytes]] = {}
        for batch in batches:
            is_control = bool(batch.attributes & CONTROL)
            seen = self._homes.look(q, batch.producer_id, batch.base_offset, is_control=is_control)
            if seen is Hidden.STRAY:
                self._lost.hide(q, self._records(q, records, batch))
            elif isinstance(seen, Visible) and (seen.former or len(self._lost.doubts)):
                opened = self._records(q, records, batch)
                self._lost.see(self._homes, q, seen, opened)
                here = (bytes(record.key) for record in opened if record.key is not None)
                found.setdefault(seen, set()).update(self._known.unknown(seen, here) if seen.former else ())
                await asyncio.sleep(0)  # clients of this worker wait for no more than one batch
        wanted: dict[int, set[bytes]] = {}
        for seen, keys in found.items():
            for former in seen.former if keys else ():
                wanted.setdefault(former, set()).update(keys)
        await asyncio.gather(*(self._write(former, sorted(keys), fence) for former, keys in wanted.items()))
        for seen, keys in found.items():
            self._known.add(seen, keys)

    def _records(self, q: int, records: memoryview, batch: Batch) -> list[Any]:
        try:
            return records_of(records[batch.start : batch.end])
        except WireError as error:
            log.error("batch_unreadable", topic=self._topic, partition=q, offset=batch.base_offset, error=str(error))
            return []

    async def _write(self, partition: int, keys: list[bytes], fence: str | None) -> None:
        """Writes markers under the layout in force."""
        layout = self._layout()
        if layout is None:
            raise NotNow(f"{self._topic} was let go")
        now_ms = time.time_ns() // 1_000_000
        copies = [Copy(key, None, now_ms) for key in keys]
        tagged, may = partial(marker_id, layout.epoch), partial(self._hands.may, self._topic, layout.epoch, fence)
        await self._hands.writes.write(self._topic, partition, copies, tagged, may)
        self.markers += len(keys)
        if keys != [_ROLLING_KEY]:
            self._unrolled[partition] = time.monotonic()


class Janitors:
    """The janitors of all topics that have one.

    Args:
        ledger: Of the controller.
        admin: Asks the cluster.
        hands: What they work with.
        compaction: Sees to the configs of topics.
        looked_to: Returns what is written down of how far topics were looked through.
        renew: As of `TopicJanitor`.
    """

    def __init__(
        self,
        ledger: Ledger,
        admin: TopicsAdmin,
        hands: Hands,
        compaction: Compaction,
        looked_to: Callable[[], Mapping[str, Mapping[int, int]]],
        *,
        renew: Renew,
    ) -> None:
        self._ledger = ledger
        self._admin = admin
        self._hands = hands
        self._compaction = compaction
        self._looked_to = looked_to
        self._renew = renew
        self._janitors: dict[tuple[str, UUID], TopicJanitor] = {}
        self._saved: dict[tuple[str, UUID], dict[int, int]] = {}
        self._saves_at = self._holds_at = 0.0

    async def run(self) -> None:
        """Looks through topics for ever."""
        try:
            while True:
                await self._attend()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for janitor in self._janitors.values():
                await janitor.close()

    def counts(self) -> dict[str, JanitorCounts]:
        """Returns how they stand, by topic."""
        return {topic: janitor.counts() for (topic, _), janitor in self._janitors.items()}

    def is_behind(self, topic: str) -> bool:
        """Whether a change of a topic's partitions should begin later."""
        layout = self._layout(topic)
        if layout is None or not layout.janitor:
            return False
        janitor = self._janitors.get((topic, layout.topic_id))
        return janitor is None or janitor.is_behind()

    async def sweep(self, topic: str, fence: str, cuts: Mapping[int, int]) -> bool:
        """Has all be looked at that stands below the cuts of a fence; see `TopicJanitor.sweep`.

        Raises:
            UpstreamUnavailable: That was not possible.
        """
        layout = self._layout(topic)
        if layout is None or not layout.janitor:
            return False
        janitor = self._janitors.get((topic, layout.topic_id))
        if janitor is None:
            raise UpstreamUnavailable(f"the janitor of {topic} has not begun")
        try:
            return await janitor.sweep(fence, {q: cut for q, cut in cuts.items() if q in layout.open_segments})
        except NotNow as error:
            raise UpstreamUnavailable(str(error)) from error

    async def bring_back(self, topic: str, fence: str, renewed: Collection[int]) -> None:
        """Writes values again that stand before hidden records; see `TopicJanitor.bring_back`.

        Raises:
            UpstreamUnavailable: That was not possible.
        """
        layout = self._layout(topic)
        janitor = self._janitors.get((topic, layout.topic_id)) if layout is not None else None
        if janitor is None:
            raise UpstreamUnavailable(f"the janitor of {topic} has not begun")
        try:
            await janitor.bring_back(fence, renewed)
        except NotNow as error:
            raise UpstreamUnavailable(str(error)) from error

    def _layout(self, topic: str) -> Layout | None:
        record = self._ledger.topics.get(topic)
        return record.layout if record is not None else None

    async def _attend(self) -> None:
        layouts = [record.layout for record in self._ledger.topics.values() if record.layout.janitor]
        wanted = {(layout.topic, layout.topic_id) for layout in layouts}
        for name in self._janitors.keys() - wanted:
            await self._janitors.pop(name).close()
            self._saved.pop(name, None)
        for name in wanted - self._janitors.keys():
            self._begin(*name)
        now = time.monotonic()
        saves, holds = now >= self._saves_at, now >= self._holds_at
        for (topic, topic_id), janitor in list(self._janitors.items()):
            janitor.follow()
            try:
                if holds or not janitor.roll_seconds:
                    janitor.roll_seconds = roll_ms(await self._compaction.hold(topic)) / 1000
                await janitor.roll()
                if saves:
                    await self._save(topic, topic_id, janitor)
            except (UpstreamUnavailable, NotNow) as error:
                log.debug("janitor_delayed", topic=topic, error=str(error))
        self._saves_at = now + _SAVE_SECONDS if saves else self._saves_at
        self._holds_at = now + _HOLD_SECONDS if holds else self._holds_at

    def _begin(self, topic: str, topic_id: UUID) -> None:
        def layout() -> Layout | None:
            found = self._layout(topic)
            return found if found is not None and found.topic_id == topic_id else None

        looked_to = self._looked_to().get(topic, {})
        self._janitors[topic, topic_id] = TopicJanitor(
            layout, topic, self._hands, self._admin, looked_to, renew=self._renew
        )
        log.info("janitor_began", topic=topic, looked_to=dict(looked_to))

    async def _save(self, topic: str, topic_id: UUID, janitor: TopicJanitor) -> None:
        """Writes down how far a topic was looked through, unless writers wait for the layouts' writer just now."""
        controller, found = self._ledger.controller, janitor.durable()
        if controller is None or topic in controller.changes or found == self._saved.get((topic, topic_id)):
            return
        try:
            await self._ledger.write(((f"janitor/{topic}", JanitorRecord(found)),))
        except Fenced:
            return  # the role ends by that
        self._saved[topic, topic_id] = found
