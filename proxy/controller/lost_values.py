"""Brings back the last values of keys that hidden records stand behind: brokers' compaction would take them away.

Which keys those are is `ordering/janitor.py`: `Doubts`. A value that would be lost is written again at its key's home,
under a fence and as the first of a new segment: no client's newer value can have been overtaken by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

import structlog

from kordon.codecs.split import LogBatch
from kordon.codecs.unpack import OpenedRecord
from kordon.proxy.controller.log_walk import LogWalk
from kordon.proxy.controller.marker_writer import MarkerWriter
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import Copy
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.janitor import Doubts, FormerHomes, Latest, Visible
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.bypass import hash_of

log = structlog.get_logger(__name__)

MOST_DOUBTS: Final = 20_000
"""Keys of one topic that are looked for at once; until these are found nothing more is looked at."""
_MOST_BYTES: Final = 512 * 1024
"""Written under one fence; what is left is brought back by the next."""


class LostValues:
    """Brings back the last values of one topic's keys."""

    def __init__(self, topic: str, walk: LogWalk) -> None:
        self.doubts = Doubts()
        self.brought_back = 0
        """The number of values that were written again."""
        self.given_up = 0
        """Values that brokers refused to take again, or that are in a batch that cannot be opened."""
        self._topic = topic
        self._walk = walk

    def hide(self, partition: int, records: Iterable[OpenedRecord]) -> None:
        """Takes in records of a hidden batch.

        Raises:
            UpstreamUnavailable: So many keys are being looked for that these have to wait.
        """
        if len(self.doubts.unsearched) > MOST_DOUBTS:
            raise UpstreamUnavailable(
                f"Kordon is still looking for the last values of {MOST_DOUBTS} keys, and accepts no more"
            )
        for record in records:
            if record.key is not None:
                self.doubts.hide(bytes(record.key), partition, record.offset)

    def pass_over(self, partition: int, batch: LogBatch) -> None:
        """Abandons the values of a batch that cannot be opened."""
        log.error("value_given_up", topic=self._topic, partition=partition, offset=batch.base_offset)
        self.given_up += max(batch.records, 1)

    def see(self, homes: FormerHomes, seen: Visible, records: Iterable[OpenedRecord]) -> None:
        """Takes in records of a batch that readers see."""
        for record in records:
            key = b"" if record.key is None else bytes(record.key)
            if key not in self.doubts:
                continue
            v = homes.owner_of(seen, hash_of(key), record.offset)
            if v is not None:
                latest = Latest(seen.segment.epoch, record.offset, seen.segment.partition, v, _copy(key, record))
                self.doubts.see(key, latest)

    async def search(self, homes: FormerHomes, looked_to: Mapping[int, int]) -> frozenset[int]:
        """Looks for the last visible records of keys in doubt, in all that was looked at.

        Returns:
            The homes of those that would be lost.

        Raises:
            UpstreamUnavailable: A broker does not answer.
        """
        keys = self.doubts.unsearched
        if keys:
            for partition, end in looked_to.items():
                await self._search(homes, partition, end)
        self.doubts.searched(keys)
        chains = homes.layout.chains
        return frozenset(chains[each.v].stays[-1].partition for each in self.doubts.lost().values())

    async def _search(self, homes: FormerHomes, partition: int, end: int) -> None:
        position = 0  # out of range, where the log begins later
        while position < end:
            stretch = await self._walk.read(partition, position)
            for batch in stretch.batches:
                seen = stretch.seen(homes, batch)
                if isinstance(seen, Visible):
                    await self._walk.open(stretch, batch, partial(self.see, homes, seen))
            if stretch.next_offset <= position:
                raise UpstreamUnavailable(
                    f"{self._topic}-{partition} ends at offset {position}, and was to be searched up to {end}"
                )
            position = stretch.next_offset

    async def bring_back(
        self, layout: Layout, renewed: Collection[int], writes: MarkerWriter, may: Callable[[], bool]
    ) -> None:
        """Writes again what would be lost, while a fence is held and all before the cuts has been looked at.

        The layout after `layout` begins a segment on each of the physical partitions `renewed`.

        Raises:
            NotNow: The fence no longer stands, as `may` says.
            UpstreamUnavailable: Kordon does not know that all records are written.
        """
        copies: dict[int, dict[int, list[Copy]]] = {}
        size = 0
        for latest in self.doubts.lost().values():
            home = layout.chains[latest.v].stays[-1].partition
            if home in renewed and size < _MOST_BYTES:
                copies.setdefault(home, {}).setdefault(latest.v, []).append(latest.record)
                size += len(latest.record.value or b"")
        await asyncio.gather(*(self._write(layout, home, by_v, writes, may) for home, by_v in copies.items()))
        count = sum(len(each) for by_v in copies.values() for each in by_v.values())
        self.brought_back += count
        log.warning("values_brought_back", topic=self._topic, partitions=sorted(renewed), values=count)

    async def _write(
        self, layout: Layout, home: int, by_v: Mapping[int, list[Copy]], writes: MarkerWriter, may: Callable[[], bool]
    ) -> None:
        for v, copies in by_v.items():
            tagged = partial(tag, v, layout.chains[v].stays[-1].move + 1)  # as the next layout has it
            self._give_up(home, await writes.write(self._topic, home, copies, tagged, may))

    def _give_up(self, home: int, refused: Collection[Copy]) -> None:
        """Lets go what brokers will never take: to try it again and again would hold writes for nothing."""
        for copy in refused:
            key = (copy.key or b"")[:100].decode(errors="replace")
            log.error("value_given_up", topic=self._topic, partition=home, key=key)
        self.doubts.settle(copy.key or b"" for copy in refused)
        self.given_up += len(refused)
        self.brought_back -= len(refused)


def _copy(key: bytes, record: OpenedRecord) -> Copy:
    value = None if record.value is None else bytes(record.value)
    return Copy(key, value, record.timestamp, tuple(record.headers))
