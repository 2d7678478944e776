"""Last stable offsets of streams for ListOffsets: those that Fetch tells (STABLE-END)."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.physical_reading import log_read_by
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.looks_behind import looks_behind, open_from
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

_SECONDS: Final = 2.0
"""For one stream. What was read by then is remembered, so whoever asks again waits for the rest."""


class StableEnds:
    """Finds how far streams of topics with transactions are stable."""

    def __init__(self, reads: WorkerReads) -> None:
        self._reads = reads
        self._settled: WeakKeyDictionary[ManagedTopic, dict[Stream, int]] = WeakKeyDictionary()
        """By stream, how many of its first stays have no open transaction any more."""

    async def of(self, topic: ManagedTopic, stream: Stream, high_watermark: int) -> int | None:
        """Returns a stream's last stable offset, as clients count; logs are read for it as far as needed.

        A transaction that was open when the stream moved holds it in its former home.

        Args:
            topic: A topic with transactions.
            high_watermark: The high watermark of the physical log of the stream's home, as its leader now gives it.

        Returns:
            The offset; None: it is not known yet, and asking again helps.
        """
        layout = topic.layout
        try:
            async with asyncio.timeout(_SECONDS):
                stable = await self._of(topic, stream, high_watermark)
        except TimeoutError:
            return None
        return stable if topic.layout is layout else None

    async def _of(self, topic: ManagedTopic, stream: Stream, high_watermark: int) -> int | None:
        *former, home = topic.layout.chain(stream).stays
        settled = self._settled.setdefault(topic, {})
        left = [*former[settled.get(stream, 0) :], home]
        native = await self._reads.ends.stable(topic.name, {stay.partition for stay in left})
        for stay in left:
            end = high_watermark if stay.kept_end is None else stay.kept_end
            stable = await self._in_stay(topic, stream, stay, end, native.get(stay.partition, -1))
            if stable is None:
                return None
            if stay is home or stable < end:
                return max(stable, stay.start) + stay.delta
            settled[stream] = settled.get(stream, 0) + 1
        return None

    async def _in_stay(self, topic: ManagedTopic, stream: Stream, stay: Stay, end: int, native: int) -> int | None:
        """Returns how far a stay is stable up to an end, as an offset of its physical log."""
        log = self._reads.logs.of(topic, log_read_by(stream, stay.partition))
        transactions = log.transactions
        if not stay.tagged:
            return end
        if transactions is None:
            return None
        transactions.begin_open(native)
        read_to = native if stay.kept_end is not None else max(end, native)
        while not log.is_closed and (at := open_from(log)) is not None:
            known = transactions.stable_end(stream, end)
            if known is None or not known.is_known:
                if not await log.arrives(at):
                    return None
                continue
            undecided = known.undecided
            if undecided is None:
                return known.offset
            if looks_behind(log, undecided):
                continue
            if (needed := transactions.needs(undecided)) >= read_to:
                self._reads.absences.doubt(topic.name, log, undecided.producer_id)
                return known.offset
            if not await log.arrives(needed):
                return None
        return None
