"""Finds physical logs that are shorter than the layouts that stand on them (BEYOND-LOSS).

An unclean leader election takes records that were acknowledged, and so does a log that comes back empty. A broker
tells where the records of a leader epoch end in its log (KIP-101, KIP-320). A layout knows in which epoch it read its
last cut: if that epoch ends below the cut, all from there on was lost, whatever was written since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.leaders import TopicLeaders
from kordon.proxy.ordering.layout import Layout, LogBound

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two looks at who leads; a leader that was looked at is not asked again."""


class ShortenedLogs:
    """Looks at each new leader of managed topics' partitions, while this proxy is the controller.

    Args:
        mend: Is told of a layout with physical partitions whose log has got shorter, by the offset from which on all
            was lost; again with each look, until the layout in force knows.
    """

    def __init__(
        self,
        ends: PartitionEnds,
        layouts: Callable[[], Iterable[Layout]],
        mend: Callable[[Layout, Mapping[int, int]], None],
    ) -> None:
        self._ends = ends
        self._layouts = layouts
        self._mend = mend
        self._good: dict[tuple[UUID, int], tuple[int, LogBound]] = {}
        """By topic id and partition: the leader epoch whose log was long enough, and for what."""
        self._told: dict[UUID, set[int]] = {}
        """By topic id, the partitions that have been logged and are not mended."""

    async def run(self) -> None:
        """Looks at new leaders until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Looks once at all topics; those that cannot be looked at now are looked at next time."""
        layouts = {layout.topic: layout for layout in self._layouts() if _can_be_short(layout)}
        ids = {layout.topic_id for layout in layouts.values()}
        self._good = {key: found for key, found in self._good.items() if key[0] in ids}
        self._told = {topic_id: told for topic_id, told in self._told.items() if topic_id in ids}
        try:
            leaders = await self._ends.leaders_of(layouts)
        except UpstreamUnavailable as error:
            log.debug("leaders_not_looked_at", error=str(error))
            return
        for topic, told in leaders.items():
            try:
                shortened = await self._look_at(layouts[topic], told)
            except UpstreamUnavailable as error:
                log.debug("logs_not_looked_at", topic=topic, error=str(error))
                continue
            if shortened:
                self._mend(layouts[topic], shortened)

    async def _look_at(self, layout: Layout, told: TopicLeaders) -> dict[int, int]:
        """Returns the partitions whose log got shorter, by the offset from which on all was lost."""
        led = {q: leader.epoch for q, leader in told.leaders.items() if leader.is_elected}
        epochs = {q: led[q] for q in layout.last_bounds.keys() & led.keys()}
        asked = {
            q: layout.last_bounds[q]
            for q, epoch in epochs.items()
            if self._good.get((layout.topic_id, q)) != (epoch, layout.last_bounds[q])
        }
        if not asked:
            return {}
        ends = await self._ends.epoch_ends(layout.topic, {q: bound.leader_epoch for q, bound in asked.items()})
        short = {q: ends[q] for q, bound in asked.items() if ends[q] < bound.offset}
        for q in short.keys() - self._told.get(layout.topic_id, set()):
            log.error("log_shortened", topic=layout.topic, partition=q, lost_from=short[q], cut=asked[q].offset)
        self._told[layout.topic_id] = set(short)
        self._good |= {(layout.topic_id, q): (epochs[q], bound) for q, bound in asked.items() if q not in short}
        return short


def _can_be_short(layout: Layout) -> bool:
    """Whether a log may end before its layout: most topics have never been cut, and no log ends before 0."""
    return any(bound.offset for bound in layout.last_bounds.values())
