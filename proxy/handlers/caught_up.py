"""Shows groups that have nothing left to read at the end of their partitions, whatever they have committed (OWN-END).

After the last record of a virtual partition, its home's log continues with records of its co-residents. Fillers move
consumers over those, so consumers that commit their position commit the end. Others (kafkajs, franz-go, most that
commit by hand) commit the offset after the last record that they processed. They would show a lag that never ends, as
they do on Kafka after the markers of transactions (KAFKA-6607). So OffsetFetch tells the end if no record lies between.

ListOffsets could tell the end of the last record instead, but not every proxy knows it; an end that is lower than it
was before is lost data to Spark, and one that is lower than a commit is a negative lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from kordon.codecs.bodies import OffsetFetchResponse
from kordon.codecs.row import Row
from kordon.proxy.handlers.offset_fetch_rows import Commit, told_groups
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lookups import LATEST
from kordon.proxy.ordering.reading import place_in
from kordon.proxy.reads.looks_behind import empty_until
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import NO_ID

_SECONDS: Final = 1.0
"""The longest time for one OffsetFetch. An end that is not known by then leaves the offset as it was committed."""
_NEAR: Final = 10_000
"""The most offsets that are looked through for it if no reader of this worker has looked through them already."""
_NO_EPOCH: Final = -1


class CaughtUp:
    """Raises the commits that clients are about to be told.

    Args:
        reads: The worker's reads, so that nothing is read twice.
    """

    def __init__(self, topics: ManagedTopics, reads: WorkerReads) -> None:
        self._topics = topics
        self._reads = reads

    async def complete(self, answer: OffsetFetchResponse) -> None:
        """Raises the commits of groups that have read everything, in an answer that is ready for the client."""
        rows = [row for group in told_groups(answer) for row in group.topics or ()]
        known = [(self._topic(row), row.partitions) for row in rows]
        try:
            async with asyncio.timeout(_SECONDS):
                await asyncio.gather(*(self._raise_topic(topic, each) for topic, each in known if topic is not None))
        except TimeoutError:
            return

    def _topic(self, row: Row) -> ManagedTopic | None:
        if "topic_id" in row:
            return self._topics.with_face_id(row.get("topic_id", NO_ID))
        return self._topics.named(row.get("name", ""))

    async def _raise_topic(self, topic: ManagedTopic, rows: Iterable[Commit]) -> None:
        layout = topic.layout
        commits = [
            row
            for row in rows
            if row.committed_offset >= 0 and not row.error_code and _reads(layout, row.partition_index)
        ]
        homes = {layout.chains[row.partition_index].stays[-1].partition for row in commits}
        if homes:
            ends = await self._reads.ends.of(topic.name, homes, LATEST)
            await asyncio.gather(*(self._raise(topic, row, ends) for row in commits))

    async def _raise(self, topic: ManagedTopic, row: Commit, ends: Mapping[int, int]) -> None:
        end = await self.end_if_read(topic, row.partition_index, row.committed_offset, ends)
        if end is not None and end > row.committed_offset:
            # The epoch of what was read says nothing of the end: a client would believe that a log was cut short.
            row.committed_offset, row.committed_leader_epoch = end, _NO_EPOCH

    async def end_if_read(self, topic: ManagedTopic, v: int, offset: int, ends: Mapping[int, int]) -> int | None:
        """Returns the end of a virtual partition. None: a record is left to read, or that is not known.

        Args:
            v: The virtual partition; it is delivered.
            ends: End offsets by physical partition, homes included.
        """
        layout = topic.layout
        while topic.layout is layout:
            place = place_in(layout, v, offset)
            if place is None:
                return None
            q = place.stay.partition
            end = self._shown(topic, q, ends) if place.is_home else place.stay.end
            if end is None or place.position > end:
                return None
            log = self._reads.logs.of(topic, q)
            empty = empty_until(log, v, place.position, end)
            if empty is None or end - empty > _NEAR:
                return None
            if empty < end and not await log.arrives(empty):
                return None
            if empty == end:
                offset = end + place.stay.delta
                if place.is_home:
                    return offset
        return None

    def _shown(self, topic: ManagedTopic, partition: int, ends: Mapping[int, int]) -> int | None:
        """Returns the offset of a home up to which readers see its records (LIVE-LEASE, FROZEN-READS)."""
        end, limit = ends.get(partition), self._reads.limits.of(topic, partition)
        return end if end is None or limit is None else min(end, limit)


def _reads(layout: Layout, v: int) -> bool:
    """Whether a virtual partition is delivered (TAKEOVER-WAITS)."""
    return v < layout.v_count and bool(layout.chains[v].stays) and not (layout.withheld and v >= layout.n)
