"""What one Fetch request reads of one stay of a stream, and what its client is told of that.

An answer stays within one stay of its chain (RISING-EPOCH). What it has taken is a list of views of the worker's own
memory.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kordon.codecs.bodies import FetchResponsePartition
from kordon.codecs.primitives import Pieces
from kordon.codecs.split import MOST_FILLED, filler
from kordon.proxy.decisions.events import Given
from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.lookups import EARLIEST, LATEST
from kordon.proxy.ordering.physical_reading import log_read_by
from kordon.proxy.ordering.reading import ReadingPlace, end_told, may_step_over, past_loss, position_beyond
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.committed_read import CommittedRead
from kordon.proxy.reads.fetch_rows import told_row
from kordon.proxy.reads.kept_views import ReadSoFar
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.read_decisions import records_in
from kordon.proxy.reads.segment_views import PassedRange
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic

log = client_log(__name__)

_FOR_EVER: Final = 2**63 - 1
_SMALL_BYTES: Final = 8 * 1024
"""Batches of fewer bytes are put together before they are sent: many pieces cost more than their copy."""


class StayRead:
    """Begins with nothing, where a client's offset is read under the layout in force.

    Args:
        place: The stay, and the position in its physical partition.
        is_committed: Whether the client gets committed records only.
    """

    def __init__(
        self,
        reads: WorkerReads,
        topic: ManagedTopic,
        stream: Stream,
        place: ReadingPlace,
        offset: int,
        *,
        is_committed: bool = False,
    ) -> None:
        self.stay = place.stay
        self.taken = ReadSoFar(place.position)
        self.is_read_out = place.is_read_out
        """Whether there was nothing left of a retired partition when it began."""
        self.is_home = place.is_home
        self.is_blocked = place.is_read_out
        """Whether nothing more is shown of the stay before the topic's fence or layout has changed."""
        self.empty_until = 0
        """The physical offset before which nothing is left for the client, beside what it takes."""
        self._reads = reads
        self._topic = topic
        self._stream = stream
        self._layout = topic.layout
        self._home = topic.layout.chain(stream).stays[-1]
        self._is_committed = is_committed
        self._committed = (
            CommittedRead(reads, topic, stream, self.taken, self._home, is_home=self.is_home)
            if is_committed and topic.layout.has_transactions
            else None
        )
        self._offset = offset
        self._after = offset
        """Where the client stands after the answer, once that is made."""
        self._holes: list[tuple[int, int]] = []
        """Offsets [from, to) of the physical partition that are gone."""
        self._passed: list[PassedRange] = []

    @property
    def is_through(self) -> bool:
        """Whether all of a stay that is over has been looked at, so that the client must be moved on."""
        end = self.stay.end
        return end is not None and self.taken.position >= end and not self.is_read_out

    @property
    def is_moved(self) -> bool:
        """Whether the client must be told where it continues."""
        return bool(self._holes) or self.is_through

    @property
    def is_behind(self) -> bool:
        """Whether a broker that had the stream's log would have something to look at."""
        if self.taken.undecided is not None:
            return False
        mark = self._log.high_watermark
        return self.stay.end is not None or mark is None or self.taken.position < mark

    @property
    def has_something(self) -> bool:
        """Whether the client gets batches, or is moved over a hole."""
        return bool(self.taken.entries or self._holes)

    @property
    def home_log(self) -> PartitionLog:
        """The log whose end the client is told."""
        return self._reads.logs.of(self._topic, log_read_by(self._stream, self._home.partition))

    @property
    def _log(self) -> PartitionLog:
        return self._reads.logs.of(self._topic, log_read_by(self._stream, self.stay.partition))

    def learn_end(self, *, is_idle: bool) -> asyncio.Task[int] | None:
        """Has the end of the home's log brought where nobody has heard of it for a while.

        Args:
            is_idle: Whether nothing is read of the stay now.

        Returns:
            The task that brings it; None: it is known.
        """
        home = self.home_log
        if home.high_watermark is not None and not ((is_idle or not self.is_home) and home.is_mark_old):
            return self._committed.learn_stable_end(home, self._ask_home_end) if self._committed is not None else None
        learning = home.learn(self._ask_home_end)
        return learning if home.high_watermark is None else None

    def take(self, room_bytes: int, most_bytes: int) -> asyncio.Task[int] | None:
        """Takes what is here.

        Args:
            room_bytes: The bytes that are left in the whole answer. If there are none, nothing more is taken.
            most_bytes: The most bytes of this partition, including those that it has already taken.

        Returns:
            The task that brings more, if more is to be waited for.
        """
        stay, taken, physical = self.stay, self.taken, self._log
        shown = self._reads.limits.in_stay(self._topic, stay)
        limit = _FOR_EVER if shown is None else shown
        room = min(most_bytes, taken.size_bytes + room_bytes)
        if room_bytes > 0:
            before = taken.position
            if self._committed is not None:
                self._committed.take(physical, limit, room)
            else:
                physical.views.pass_empty(taken, min(self.empty_until, limit))
                physical.views.take(self._stream, taken, limit, room)
            if passed := physical.views.passed_between(before, taken.position):
                self._pass_over(passed)
        if stay.lost_from is not None and (going_on := past_loss(stay, taken.position)) != taken.position:
            self._pass_hole(going_on)
        self.is_blocked = stay.end is None and taken.position >= limit
        if self.is_blocked or self.is_through or room_bytes <= 0:
            return None
        if taken.undecided is not None and self._committed is not None:
            return self._committed.wait_for(physical, taken.undecided)
        if taken.is_full or (taken.entries and taken.size_bytes >= room):
            physical.read_ahead(taken.position)
            return None
        return physical.coming(taken.position)

    async def log_bounds(self) -> tuple[int, int] | None:
        """Asks where the stay's log begins and ends now; None: its leader does not say."""
        ends, topic, q = self._reads.ends, self._topic.name, self.stay.partition
        starts, stops = await asyncio.gather(ends.of(topic, (q,), EARLIEST), ends.of(topic, (q,), LATEST))
        return (starts[q], stops[q]) if q in starts and q in stops else None

    def mend(self, log_start: int, log_end: int) -> bool:
        """Passes over what the log does not have any more; False: its position lies beyond the log's end."""
        position = self.taken.position
        if position < log_start:
            self._log.raise_log_start(log_start)
        going_on = position_beyond(self.stay, position, log_start, log_end)
        if going_on is not None and going_on != position:
            self._pass_hole(going_on)
        return going_on is not None

    def answer(self, number: int, *, is_late: bool) -> FetchResponsePartition:
        """Makes the row of the response; the end of the home's log is known.

        Args:
            number: The number by which the client knows the partition.
            is_late: Whether the client has waited long enough to be moved over what is not its own (STEP-OVER).
        """
        taken, delta, tally = self.taken, self.stay.delta, self._reads.tally
        pieces = Pieces(entry.data for entry in taken.entries)
        if taken.entries:
            self._after = max(self._offset, taken.entries[-1].next_offset + delta)
        if taken.size_bytes < _SMALL_BYTES * len(pieces):
            pieces = Pieces([b"".join(pieces)])
        tally.served_bytes += taken.size_bytes
        if taken.late:
            tally.late[self._topic.name] += taken.late
        target = min(taken.position + delta, self._after + MOST_FILLED)
        if target > self._after and self._may_step_over(is_late):
            epoch = virtual_epoch(self.stay.move, -1 if self._holes else taken.leader_epoch)
            pieces.append(memoryview(filler(self._after, target, epoch)))
            self._after = target
        row = told_row(number, self._end(), self._reads.logs.homes(self._topic).start_of(self._stream), pieces)
        stable = self._committed.stable_end(self.home_log, self._after) if self._committed is not None else None
        if stable is not None:
            row.last_stable_offset = min(stable, row.high_watermark)
        return row

    @property
    def given(self) -> Given | None:
        """What the answer gives, once that is made; None: nothing."""
        if self._after == self._offset:
            return None
        size, records = self.taken.size_bytes, records_in(self.taken.entries, self._offset - self.stay.delta)
        where = self.stay, self._layout.epoch, self._offset, self._after
        return Given(*where, records, size, self._holes, self._passed, self._is_committed)

    @property
    def is_unsure(self) -> bool:
        """Whether it is not known how far the stream is stable, so that the client would be told that it has it all."""
        return self._committed is not None and self._committed.is_unsure(self.home_log)

    def _may_step_over(self, is_late: bool) -> bool:
        mark = self._log.high_watermark
        if self.taken.undecided is not None:
            mark = self.taken.position  # for this reader the log ends there, for now
        return may_step_over(
            self.stay,
            self.taken.position,
            mark,
            has_batches=bool(self.taken.entries),
            has_holes=bool(self._holes),
            is_sealed=self._topic.is_sealed(self.stay.partition),
            is_late=is_late,
        )

    def _end(self) -> int:
        mark, limit = self.home_log.high_watermark, self._reads.limits.of(self._topic, self._home.partition)
        assert mark is not None  # or else nothing is told
        position = self.taken.position if self.is_home else None
        return end_told(self._home, mark, limit, position=position, after=self._after)

    async def _ask_home_end(self) -> int | None:
        q, topic, transactions = self._home.partition, self._topic.name, self.home_log.transactions
        if transactions is None:
            return (await self._reads.ends.of(topic, (q,), LATEST)).get(q)
        stable = await self._reads.ends.stable(topic, (q,))
        transactions.begin_open(stable.get(q, -1))
        return (await self._reads.ends.of(topic, (q,), LATEST)).get(q)

    def _pass_hole(self, position: int) -> None:
        """Moves the client over offsets that are gone (HOLE-PASSED)."""
        hole = (self.taken.position, position)
        self._tell_passed(start=hole[0], end=position)
        self._holes.append(hole)
        self.taken.position = position

    def _pass_over(self, passed: list[PassedRange]) -> None:
        """Moves the client over batches that it does not get, because they cannot be opened (BYPASS-SHARED)."""
        for each in passed:
            self._tell_passed(**each._asdict())
        self._passed += passed

    def _tell_passed(self, **what: object) -> None:
        log.info("hole_passed", topic=self._topic.name, stream=self._stream, partition=self.stay.partition, **what)
