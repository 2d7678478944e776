"""What changes of layouts ask of the readers of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from kordon.proxy.ordering.lookups import LATEST
from kordon.proxy.ordering.reading import reading_place
from kordon.proxy.reads.looks_behind import empty_until
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

_NOTHING_SECONDS: Final = 2.0


class ReadControl:
    """Freezes reads for a fence, drops what a layout changes, and knows what readers have been told."""

    def __init__(self, reads: WorkerReads) -> None:
        self._reads = reads
        self._topics = reads.topics
        self._logs = reads.logs

    async def ready(self, topic: str) -> None:
        """Connects to the leaders that `freeze` will ask, as far as it can."""
        managed = self._topics.named(topic)
        if managed is not None:
            await self._reads.ends.of(topic, managed.layout.open_segments.keys(), LATEST)

    async def freeze(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Shows nothing more of sealed partitions than readers have seen, and asks how far that may be (FROZEN-READS).

        Args:
            topic: The topic whose fence has been raised. The freeze ends with the fence.

        Returns:
            The high watermarks, for `Fence.frozen`; one that cannot be had now is missing.
        """
        managed = self._topics.served(topic)
        if managed is None or managed.fence is None:
            return {}
        fence = managed.fence.freezing(self._logs.shown(managed, partitions))
        managed.narrow_fence(fence)
        ends = await self._reads.ends.of(topic, partitions, LATEST)
        if managed.fence is fence:
            managed.narrow_fence(fence.freezing(ends))
        return ends

    def told(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Returns up to which offsets readers may have been told of physical partitions, by what is known here."""
        return self._logs.told(topic, partitions)

    def invalidate(self, topic: str) -> None:
        """Drops what was read where the layout has changed; requests that wait continue under the present one."""
        self._logs.invalidate(topic)

    async def nothing_between(self, topic: str, v: int, offset: int, until: int) -> bool:
        """Whether no record of a virtual partition stands in [offset, until), as far as can be known in a moment.

        All records there may belong to its co-residents. Many consumers do not commit past those (OWN-END).
        """
        managed = self._topics.named(topic)
        if managed is None:
            return False
        try:
            async with asyncio.timeout(_NOTHING_SECONDS):
                return await self._pass_over(managed, v, offset, until)
        except TimeoutError:
            return False

    async def _pass_over(self, topic: ManagedTopic, v: int, offset: int, until: int) -> bool:
        layout = topic.layout
        while offset < until:
            place = reading_place(layout.chains[v], offset, 0)
            if place is None or topic.layout is not layout:
                return False
            stay = place.stay
            stop = until - stay.delta if stay.end is None else min(until - stay.delta, stay.end)
            log = self._logs.of(topic, stay.partition)
            kept = stop if stay.kept_end is None else min(stop, stay.kept_end)
            empty = empty_until(log, v, place.position, kept)
            if empty is None:
                return False
            if empty >= kept:
                empty = stop
            elif not await log.arrives(empty):
                return False
            offset = empty + stay.delta
        return True
