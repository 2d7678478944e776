"""Brings back the last values of keys that hidden records stand behind: brokers' compaction would take them away.

Which keys those are is `ordering/janitor.py`: `Doubts`. A value that would be lost is written again at its key's home,
under a fence and as the first of a new segment: no client's newer value can have been overtaken by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

import structlog
from aiokafka.partitioner import murmur2

from kordon.codecs.fetched import Fetched
from kordon.codecs.split import CONTROL, split
from kordon.proxy.control.codes import Code
from kordon.proxy.control.topics_admin import TopicsAdmin
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.managed.bypass import records_of
from kordon.proxy.managed.hidden_writes import Copy, HiddenWrites
from kordon.proxy.managed.pulls import Want
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.janitor import Doubts, FormerHomes, Latest, Visible
from kordon.proxy.ordering.layout import Layout

log = structlog.get_logger(__name__)

MOST_DOUBTS: Final = 20_000
"""Keys of one topic that are looked for at once; until these are found nothing more is looked at."""
_MOST_BYTES: Final = 512 * 1024
"""Written under one fence; what is left is brought back by the next."""
_POSITIVE: Final = 0x7FFFFFFF
_EMPTY_ANSWERS: Final = 10
_RETRY_SECONDS: Final = 0.2


class LostValues:
    """Of one topic.

    Args:
        topic: Its name.
        pull: Reads a physical partition.
        admin: Asks where logs begin.
    """

    def __init__(self, topic: str, pull: Callable[[Want], Awaitable[Fetched]], admin: TopicsAdmin) -> None:
        self.doubts = Doubts()
        self._topic = topic
        self._pull = pull
        self._admin = admin

    @property
    def are_many(self) -> bool:
        """Whether no more keys should come into doubt before some are found."""
        return len(self.doubts) > MOST_DOUBTS

    def hide(self, partition: int, records: Iterable[Any]) -> None:
        """Takes in the records of a hidden batch."""
        for record in records:
            if record.key is not None:
                self.doubts.hide(bytes(record.key), partition, record.offset)

    def see(self, homes: FormerHomes, partition: int, seen: Visible, records: Iterable[Any]) -> None:
        """Takes in the records of a batch that readers see."""
        for record in records:
            key = b"" if record.key is None else bytes(record.key)
            if key not in self.doubts:
                continue
            key_hash = murmur2(key) & _POSITIVE
            v = homes.owner_of_key(key_hash, partition, record.offset) if seen.v is None else seen.v
            place = homes.place(v, partition, record.offset) if v is not None else None
            if v is not None and place is not None:
                self.doubts.see(key, Latest(place, partition, record.offset, v, _copy(key, record)))

    async def search(self, homes: FormerHomes, looked_to: Mapping[int, int]) -> frozenset[int]:
        """Looks for the last visible records of keys in doubt, in all that was looked at.

        Returns:
            The homes of those that would be lost.

        Raises:
            UpstreamUnavailable: A broker does not answer.
            WireError: A batch cannot be read.
        """
        keys = self.doubts.unsearched
        if keys:
            for partition, end in looked_to.items():
                await self._search(homes, partition, end)
        self.doubts.searched(keys)
        chains = homes.layout.chains
        return frozenset(chains[each.v].stays[-1].partition for each in self.doubts.lost().values())

    async def _search(self, homes: FormerHomes, partition: int, end: int) -> None:
        (position,) = (await self._admin.log_starts(self._topic, [partition])).values()
        empty = 0
        while position < end and empty < _EMPTY_ANSWERS:
            fetched = await self._pull(Want(self._topic, partition, position))
            if fetched.error_code not in (Code.NONE, Code.OFFSET_OUT_OF_RANGE):
                raise UpstreamUnavailable(f"reading {self._topic}-{partition}: error {fetched.error_code}")
            found = [batch for batch in split(fetched.records) if batch.next_offset > position]
            for batch in found:
                is_control = bool(batch.attributes & CONTROL)
                seen = homes.look(partition, batch.producer_id, batch.base_offset, is_control=is_control)
                if isinstance(seen, Visible):
                    self.see(homes, partition, seen, records_of(fetched.records[batch.start : batch.end]))
                    await asyncio.sleep(0)  # clients of this worker wait for no more than one batch
            position = found[-1].next_offset if found else position
            empty = 0 if found else empty + 1
            if not found:
                await asyncio.sleep(_RETRY_SECONDS)

    async def bring_back(
        self, layout: Layout, renewed: Collection[int], writes: HiddenWrites, may: Callable[[], bool]
    ) -> None:
        """Writes again what would be lost, while a fence is held and all before the cuts has been looked at.

        Args:
            layout: In force; the next one begins a segment on each of `renewed`.
            renewed: Physical partitions.
            writes: Writes to them.
            may: Whether the fence stands.

        Raises:
            NotNow: It does not.
            UpstreamUnavailable: Not all is known to be written.
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
        log.warning("values_brought_back", topic=self._topic, partitions=sorted(renewed), values=count)

    async def _write(
        self,
        layout: Layout,
        home: int,
        by_v: Mapping[int, list[Copy]],
        writes: HiddenWrites,
        may: Callable[[], bool],
    ) -> None:
        for v, copies in by_v.items():
            tagged = partial(tag, v, layout.chains[v].stays[-1].move + 1)  # as the next layout has it
            await writes.write(self._topic, home, copies, tagged, may)


def _copy(key: bytes, record: Any) -> Copy:
    value = None if record.value is None else bytes(record.value)
    return Copy(key, value, record.timestamp, tuple(record.headers))
