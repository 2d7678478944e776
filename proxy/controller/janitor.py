"""The janitors of all compacted managed topics, while this proxy is the controller; `topic_janitor.py` is one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

import structlog

from kordon.proxy.controller.compaction import Compaction, roll_ms
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.marker_writer import NotNow
from kordon.proxy.controller.topic_janitor import JanitorCounts, JanitorTools, TopicJanitor
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.findings import compacted_without_janitor
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FindingRecord, JanitorRecord, why_no_more
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.proxy.runtime.clock import clock, now_ms
from kordon.proxy.runtime.log_limits import client_log

log = structlog.get_logger(__name__)
told = client_log(__name__)

_LOOK_SECONDS: Final = 1.0
_SAVE_SECONDS: Final = 30.0
_HOLD_SECONDS: Final = 60.0


class Janitors:
    """The janitors of all topics that have one.

    Args:
        looked_to: How far topics were looked through, as it is written down, by topic and physical partition.
    """

    def __init__(
        self,
        context: ControllerContext,
        tools: JanitorTools,
        compaction: Compaction,
        looked_to: Mapping[str, Mapping[int, int]],
    ) -> None:
        self._ledger, self._ends, self._do = context.ledger, context.admin.ends, context.do
        self._tools = tools
        self._compaction = compaction
        self._looked_to = looked_to
        self._janitors: dict[tuple[str, UUID], TopicJanitor] = {}
        self._saved: dict[tuple[str, UUID], dict[int, int]] = {}
        self._saves_at = self._holds_at = 0.0

    async def run(self) -> None:
        """Looks through topics forever."""
        try:
            while True:
                await self._attend()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for janitor in self._janitors.values():
                await janitor.close()
            self._janitors.clear()
            self._saved.clear()

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
            UpstreamUnavailable: The janitor has not begun, a leader does not answer, or the fence was cancelled.
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
            UpstreamUnavailable: The janitor has not begun, a leader does not answer, or the fence was cancelled.
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
                log.warning("janitor_delayed", topic=topic, error=str(error))
        if holds:
            await self._find_unattended()
        self._saves_at = now + _SAVE_SECONDS if saves else self._saves_at
        self._holds_at = now + _HOLD_SECONDS if holds else self._holds_at

    async def _find_unattended(self) -> None:
        """Tells of topics that are compacted without a janitor: somebody has changed their configs without Kordon."""
        found: dict[str, FindingRecord | None] = {}
        for layout in [record.layout for record in self._ledger.topics.values()]:
            try:
                is_so = not layout.janitor and await self._compaction.is_compacted(layout.topic)
            except UpstreamUnavailable as error:
                log.debug("configs_not_looked_at", topic=layout.topic, error=str(error))
                continue
            found[layout.topic] = compacted_without_janitor(layout, now_ms()) if is_so else None
        await self._ledger.hold_findings("compacted_without_janitor", found)

    def _begin(self, topic: str, topic_id: UUID) -> None:
        def layout() -> Layout | None:
            found = self._layout(topic)
            return found if found is not None and found.topic_id == topic_id else None

        looked_to = self._looked_to.get(topic, {})
        self._janitors[topic, topic_id] = TopicJanitor(
            layout, topic, self._tools, self._ends, looked_to, renew=self._renew
        )
        log.info("janitor_began", topic=topic, looked_to=dict(looked_to))

    def _renew(self, topic: str, partitions: frozenset[int]) -> None:
        """Has a topic begin other segments, in which the janitor writes first, unless it is being changed just now."""
        controller, record = self._ledger.controller, self._ledger.topics.get(topic)
        if controller is None or record is None or topic in controller.changes or topic in self._ledger.busy:
            return
        open_ones = partitions & record.layout.open_segments.keys()
        if not open_ones:
            return
        newest = record.layout.epochs[-1]
        if problem := why_no_more(record, record.layout.next_epoch(newest.u, newest.placement, renewed=open_ones)):
            told.warning("change_abandoned", topic=topic, problem=problem)  # the janitor asks again and again
            return
        change = Change(topic, newest.u, placement=newest.placement, renewed=frozenset(open_ones))
        self._do(controller.begin(change, clock()))

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
