"""Last stable offsets of streams for ListOffsets: those that Fetch tells (STABLE-END)."""

from __future__ import annotations

import asyncio
from typing import Final

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.physical_reading import log_read_by
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

_SECONDS: Final = 2.0
"""For one stream. What was read by then is remembered, so whoever asks again waits for the rest."""


class StableEnds:
    """Tells how far streams of topics with transactions are stable."""

    def __init__(self, reads: WorkerReads) -> None:
        self._reads = reads

    async def of(self, topic: ManagedTopic, stream: Stream, home: Stay, high_watermark: int) -> int | None:
        """Returns a stream's last stable offset in its home's physical log; the log is read for it as far as needed.

        Args:
            topic: One with transactions.
            high_watermark: Of the home's physical log, as its leader says now.

        Returns:
            None: it is not known yet; asking again helps.
        """
        log = self._reads.logs.of(topic, log_read_by(stream, home.partition))
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._of(topic, stream, log, high_watermark)
        except TimeoutError:
            return None

    async def _of(self, topic: ManagedTopic, stream: Stream, log: PartitionLog, high_watermark: int) -> int | None:
        transactions = log.transactions
        assert transactions is not None  # or else the topic has none
        stable = await self._reads.ends.stable(topic.name, (log.partition,))
        transactions.begin_open(stable.get(log.partition, -1))
        while not log.is_closed and (at := log.open_from()) is not None:
            end = transactions.stable_end(stream, high_watermark)
            if end is not None and end.is_known:
                undecided = end.undecided
                if undecided is not None and not log.looks_behind(undecided) and log.is_read_out_for(undecided):
                    self._reads.absences.doubt(topic.name, log, undecided.producer_id)
                if transactions.stable_end(stream, high_watermark) == end:
                    return end.offset
            elif not await log.arrives(at):
                return None
        return None
