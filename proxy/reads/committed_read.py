"""What one request for committed records reads beyond what it gives, and what it tells of its stream's stable end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.reading import end_told
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.reads.kept_views import ReadSoFar
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.looks_behind import is_read_out_for, looks_behind, open_from
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

_MOST_AHEAD: Final = 16
"""Reads of a megabyte in one request, for records that are not given: what they tell is remembered."""


class CommittedRead:
    """The read of one stay of a stream, in a topic with transactions.

    Args:
        taken: The part of the stay that the request has taken.
        home: The last stay of the stream.
        is_home: Whether the stay that is read is this last stay.
    """

    def __init__(
        self, reads: WorkerReads, topic: ManagedTopic, stream: Stream, taken: ReadSoFar, home: Stay, *, is_home: bool
    ) -> None:
        self._reads = reads
        self._topic = topic
        self._stream = stream
        self._taken = taken
        self._home = home
        self._is_home = is_home
        self._ahead = _MOST_AHEAD

    def take(self, physical: PartitionLog, limit: int, room_bytes: int) -> None:
        """Takes what is here, as `KeptViews.take`, up to the first batch that is undecided."""
        taken, transactions = self._taken, physical.transactions
        assert transactions is not None  # or else the topic has none
        while True:
            physical.views.take(self._stream, taken, limit, room_bytes, transactions.decide)
            if taken.undecided is None or not looks_behind(physical, taken.undecided):
                return

    def wait_for(self, physical: PartitionLog, batch: Batch) -> asyncio.Task[int] | None:
        """Returns what brings more of what decides about a batch; None: enough was read for one request."""
        assert physical.transactions is not None  # or else there is no such batch
        if is_read_out_for(physical, batch):
            self._reads.absences.doubt(self._topic.name, physical, batch.producer_id)
        return self._look_ahead(physical, physical.transactions.needs(batch))

    def learn_stable_end(
        self, home: PartitionLog, ask: Callable[[], Awaitable[int | None]]
    ) -> asyncio.Task[int] | None:
        """Returns what brings more of what tells how far the stream is stable; None: enough is known, or was read.

        Args:
            home: The log whose high watermark is known.
            ask: Called to ask the leader for both ends of that log.
        """
        if self.knows_stable_end(home):
            return None
        begin = open_from(home)
        return home.learn(ask) if begin is None else self._look_ahead(home, begin)

    def is_unsure(self, home: PartitionLog) -> bool:
        """Whether it is not known how far the stream is stable, so that the client would be told that it has it all."""
        return self._ahead > 0 and not self.knows_stable_end(home)

    def knows_stable_end(self, home: PartitionLog) -> bool:
        """Whether the client can be told how far the stream is stable, or that there is more than it has read."""
        transactions, mark = home.transactions, home.high_watermark
        if transactions is None or mark is None:
            return True
        open_from(home)
        stable = transactions.stable_end(self._stream, mark)
        if stable is None:
            return not self._is_home
        return stable.is_known or not self._is_home or stable.offset > self._taken.position

    def stable_end(self, home: PartitionLog, after: int) -> int | None:
        """Returns the last stable offset for the client. None: it is not known.

        Args:
            after: The offset at which the client stands after the answer.
        """
        undecided, mark = self._taken.undecided, home.high_watermark
        if undecided is not None and not self._is_home:
            return after
        stable = home.transactions.stable_end(self._stream, mark or 0) if home.transactions is not None else None
        if stable is None or mark is None or not self.knows_stable_end(home):
            return None
        limit = self._reads.limits.of(self._topic, self._home.partition)
        position = self._taken.position if self._is_home else None
        if position is not None and position > stable.offset and undecided is None:
            return max(stable.offset, self._home.start) + self._home.delta
        end = stable.offset if undecided is None or position is None else min(position, stable.offset)
        return end_told(self._home, min(mark, end), limit, position=position, after=after)

    def _look_ahead(self, physical: PartitionLog, at: int) -> asyncio.Task[int] | None:
        """Has a log read on from an offset, within a bound for each request; what was read is remembered."""
        is_end = physical.high_watermark is not None and at >= physical.high_watermark
        if not is_end:
            self._ahead -= 1
        return physical.coming(at) if is_end or self._ahead >= 0 else None
