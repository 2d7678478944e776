"""Retired partitions in Metadata of the dialect: they are shown until nothing is left in them (KIP-253 3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from kordon.codecs.bodies import MetadataResponse, MetadataResponseTopic
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lookups import EARLIEST
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

_ASK_SECONDS: Final = 1.0
"""Most time in which brokers are asked whether retired partitions are empty, and how long it is not asked again."""

LogStarts = Callable[[str, Collection[int], int], Awaitable[Mapping[int, int]]]
"""Asks leaders where logs begin: by topic, physical partitions and a timestamp; see `WorkerReads.ends`."""


@dataclass(slots=True)
class _Looked:
    """What was found of a topic's retired partitions under one layout epoch."""

    epoch: int
    empty: frozenset[int]
    at: float


class RetiredPartitions:
    """Takes retired partitions out of answers to Metadata once they are empty."""

    def __init__(
        self, topics: ManagedTopics, log_starts: LogStarts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._topics = topics
        self._log_starts = log_starts
        self._clock = clock
        self._looked: WeakKeyDictionary[ManagedTopic, _Looked] = WeakKeyDictionary()

    async def complete(self, answer: MetadataResponse) -> None:
        """Leaves out of an answer of `DialectMetadata`, in place, what is known to be retired and empty."""
        async with asyncio.TaskGroup() as looks:
            for row in filter(_has_retired, answer.topics):
                looks.create_task(self._complete_row(row))
                await asyncio.sleep(0)  # a large topic takes milliseconds: others have their turn before the next one

    async def _complete_row(self, row: MetadataResponseTopic) -> None:
        topic, count = self._topics.named(row.name or ""), row.undeleted_partition_count
        if topic is None:
            return
        retired = frozenset(each.partition_index for each in row.partitions if each.partition_index >= count)
        empty = await self._empty(topic, retired)
        if topic.layout.epoch == row.layout_epoch:
            row.partitions = [each for each in row.partitions if each.partition_index not in empty]

    async def _empty(self, topic: ManagedTopic, retired: frozenset[int]) -> frozenset[int]:
        layout, now = topic.layout, self._clock()
        looked = self._looked.get(topic)
        if looked is None or looked.epoch != layout.epoch:
            looked = _Looked(layout.epoch, frozenset(), -_ASK_SECONDS)
        left = retired - looked.empty
        if left and now - looked.at >= _ASK_SECONDS:
            looked = _Looked(layout.epoch, looked.empty | await self._found_empty(topic, layout, left), now)
            self._looked[topic] = looked
        return looked.empty

    async def _found_empty(self, topic: ManagedTopic, layout: Layout, partitions: frozenset[int]) -> frozenset[int]:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                starts = await self._log_starts(topic.name, partitions, EARLIEST)
        except TimeoutError:
            return frozenset()
        ends = {q: layout.last_bounds[q].offset for q in partitions}
        return frozenset(q for q, end in ends.items() if starts.get(q, -1) >= end)


def _has_retired(row: MetadataResponseTopic) -> bool:
    """Whether a topic shows retired partitions, which come last."""
    count = row.get("undeleted_partition_count", -1)
    return count >= 0 and bool(row.partitions) and row.partitions[-1].partition_index >= count
