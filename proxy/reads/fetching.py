"""One Fetch request under way: each of its partitions is carried on until the answer goes.

Most partitions of most requests have nothing new, and most clients name all of theirs each time. A partition *rests*
if nothing is left for its reader in its log, as far as that has been read, be it that the reader stands at the end or
that only batches of others follow. Nothing is done for one that rests but to find that it does. The log is waited for
once for all that rest there, and what they are told was built when somebody was told so before.

Whoever rests before the log's end has a filler coming when the answer is late (STEP-OVER). Then it is carried on like
the others: it rests no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kordon.codecs.bodies import FetchRequest, FetchResponse
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.physical_reading import log_read_by
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.fetch_rows import AskedPartition, asked_partitions, fetch_answer, nothing_new
from kordon.proxy.reads.gated_fetching import RequestGate
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.looks_behind import is_stable
from kordon.proxy.reads.partition_fetch import PartitionFetch, epoch_error
from kordon.proxy.reads.stay_read import start_of
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic

READ_COMMITTED: Final = 1
"""The isolation level of requests for committed records only."""
_NO_BOUND_BYTES: Final = 2**31 - 1
"""What a whole answer may have where requests do not say (before version 3)."""
_GRACE_SECONDS: Final = 1.0
"""How much longer than it may a request waits for what a broker would have had at once: the first look at a log."""


HasNothingFor = Callable[[PartitionLog, Stream, int], bool]
"""Whether nothing is left in a log for the reader of a stream from a position on."""


class _Resting(NamedTuple):
    """A partition that rests."""

    asked: AskedPartition
    position: int
    """Of its reader in the log."""


@dataclass(slots=True)
class _Rest:
    """Those of one request for which nothing is left in one log."""

    topic: ManagedTopic
    layout: Layout
    log: PartitionLog
    end: int
    """Of the log, up to which nothing is left for them: its high watermark."""
    waits_for: asyncio.Task[int]
    resting: list[_Resting] = field(default_factory=list[_Resting])

    def wake(self, has_nothing_for: HasNothingFor, *, is_late: bool) -> list[AskedPartition]:
        """Returns those for whom something may be left, or a filler is due, and keeps the others."""
        mark = self.log.high_watermark
        if mark is None or self._is_over():
            everyone, self.resting = self.resting, []
            return [each.asked for each in everyone]
        is_moved = mark != self.end
        if is_moved or self.waits_for.done():
            self.end, self.waits_for = mark, self.log.coming(mark)
        if not (is_moved or is_late):
            return []
        awake, before = list[AskedPartition](), self.resting
        self.resting = []
        for each in before:
            is_due = is_late and each.position < mark
            if is_due or (is_moved and not has_nothing_for(self.log, each.asked.stream, each.position)):
                awake.append(each.asked)
            else:
                self.resting.append(each)
        return awake

    def _is_over(self) -> bool:
        """Whether nobody rests here any more, whatever the log has."""
        if self.topic.layout is not self.layout or self.topic.fence is not None:
            return True
        if self.log.is_closed:
            return True
        return self.waits_for.done() and (self.waits_for.cancelled() or self.waits_for.result() != Code.NONE)


class Fetching:
    """What is under way for one request.

    Args:
        request: Names managed topics only.
        gate: Of a request whose partitions are the physical ones as such; None: they are virtual ones.
    """

    def __init__(
        self, reads: WorkerReads, version: int, request: FetchRequest, client: Client, gate: RequestGate | None = None
    ) -> None:
        self._reads = reads
        self._client = client
        self._version = version
        self._request = request
        self._gate = gate
        self._is_committed = request.get("isolation_level", 0) == READ_COMMITTED
        self._max_bytes = max(request.get("max_bytes", _NO_BOUND_BYTES), 1)
        """That the answer may have; the first batch goes whatever its size."""
        self._rests: dict[PartitionLog, _Rest] = {}
        self._right_epochs: set[tuple[str, int, int, int]] = set()
        self._fetches: dict[int, PartitionFetch] = {}
        """By number, in the order of the request."""
        may_rest = reads.limits.may_serve()
        for asked in asked_partitions(reads.topics, request, means_physical=gate is not None):
            if not (may_rest and asked.topic is not None and self._lay_to_rest(asked, asked.topic)):
                self._fetches[asked.number] = self._fetch(asked)

    async def run(self) -> FetchResponse:
        """Waits as long as a broker would; returns the response."""
        try:
            return await self._run()
        finally:
            if self._gate is not None:
                self._gate.end()

    async def _run(self) -> FetchResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.max_wait_ms / 1000
        while True:
            now = loop.time()
            wanted = self._carry_on(is_late=now >= deadline)
            is_early = any(fetch.is_behind or fetch.is_unsure for fetch in self._fetches.values())
            until = deadline + _GRACE_SECONDS if is_early else deadline
            if wanted is None or now >= until:
                return self._answer(now >= deadline)
            await _first_of(wanted, self._changes(), until - now)

    def _fetch(self, asked: AskedPartition) -> PartitionFetch:
        gate = self._gate.of(asked.topic, asked.stream) if self._gate is not None and asked.topic is not None else None
        return PartitionFetch(self._reads, asked, self._version, gate, is_committed=self._is_committed)

    def _changes(self) -> list[Awaitable[object]]:
        """Returns what is waited for beside records: changes of what holds these back."""
        blocked = {fetch.topic for fetch in self._fetches.values() if fetch.topic and fetch.is_blocked}
        changes: list[Awaitable[object]] = [_changed(topic, topic.layout, topic.fence) for topic in blocked]
        return changes if self._gate is None else changes + self._gate.moves()

    def _lay_to_rest(self, asked: AskedPartition, topic: ManagedTopic) -> bool:
        """Lets a partition rest if nothing is left for its reader."""
        layout, stream, offset = topic.layout, asked.stream, asked.offset
        if topic.fence is not None or asked.partition < 0:
            return False
        if self._gate is not None and self._gate.count(topic) != layout.count_in_force:
            return False
        home = layout.open_homes.get(stream)
        if home is None or offset < home.virtual_start or offset < (layout.floors or {}).get(stream, 0):
            return False
        position = offset - home.delta
        log = self._reads.logs.of(topic, log_read_by(stream, home.partition))
        end = log.high_watermark
        if end is None or not self._has_nothing_for(log, stream, position):
            return False
        believed = asked.row.get("current_leader_epoch", -1)
        epochs = (topic.name, home.partition, home.move, believed)
        if believed >= 0 and epochs not in self._right_epochs:
            if epoch_error(self._reads, topic, home, believed):
                return False
            self._right_epochs.add(epochs)
        rest = self._rests.get(log)
        if rest is None:
            rest = self._rests[log] = _Rest(topic, layout, log, end, log.coming(end))
        rest.resting.append(_Resting(asked, position))
        return True

    def _has_nothing_for(self, log: PartitionLog, stream: Stream, position: int) -> bool:
        """Whether nothing is left for a reader from its position on, as far as the log has been read.

        A gate that is shut changes nothing for who stands at the end. Who stands before it has to be told the true end.
        """
        mark = log.high_watermark
        if mark is None or position > mark:
            return False
        if position < mark and (self._gate is not None or log.views.skip(stream, position) < mark):
            return False
        return not self._is_committed or is_stable(log, stream)

    def _carry_on(self, *, is_late: bool) -> set[asyncio.Task[int | None]] | None:
        """Carries all partitions on; returns what is to be waited for, or None if the answer can go."""
        if self._gate is not None:
            self._gate.look_again()
        self._wake(is_late=is_late)
        wanted: set[asyncio.Task[int | None]] = {rest.waits_for for rest in self._rests.values()}
        taken_bytes, is_ready = 0, False
        for fetch in self._fetches.values():
            fetch.carry_on(self._max_bytes - taken_bytes)
            taken_bytes += fetch.size_bytes
            is_ready = is_ready or fetch.is_ready
            if fetch.waits_for is not None:
                wanted.add(fetch.waits_for)
        if any(fetch.is_unsure for fetch in self._fetches.values()):
            return wanted
        is_enough = taken_bytes >= self._request.min_bytes and (
            taken_bytes or not any(fetch.is_behind for fetch in self._fetches.values())
        )
        return None if is_ready or is_enough else wanted

    def _wake(self, *, is_late: bool) -> None:
        """Has those who rest no more looked at one by one from now on."""
        rests = self._rests.values()
        awake = [asked for rest in rests for asked in rest.wake(self._has_nothing_for, is_late=is_late)]
        if awake:
            self._rests = {log: rest for log, rest in self._rests.items() if rest.resting}
            self._fetches |= {asked.number: self._fetch(asked) for asked in awake}
            self._fetches = dict(sorted(self._fetches.items()))

    def _answer(self, is_late: bool) -> FetchResponse:
        rows = {number: fetch.answer(is_late) for number, fetch in self._fetches.items()}
        if self._reads.decisions.is_on:
            for number, fetch in self._fetches.items():
                self._note(fetch, rows[number].error_code)
        for rest in self._rests.values():
            for asked, _ in rest.resting:
                start = start_of(self._reads, rest.topic, asked.stream)
                rows[asked.number] = nothing_new(self._version, asked.partition, asked.offset, start)
        return fetch_answer(self._request, (rows[number] for number in range(len(rows))))

    def _note(self, fetch: PartitionFetch, error_code: int) -> None:
        """Notes what a partition is answered."""
        decisions, topic, given = self._reads.decisions, fetch.topic, fetch.given
        if error_code:
            decisions.refused(self._client, topic, fetch.stream, fetch.offset, error_code)
        elif given is not None and fetch.gate is not None:
            fetch.gate.note_given(given)
        elif given is not None and topic is not None:
            decisions.gave(self._client, topic, fetch.stream, given)


async def _changed(topic: ManagedTopic, layout: Layout, fence: Fence | None) -> None:
    while topic.layout is layout and topic.fence is fence:
        await topic.wait_for_change()


async def _first_of(
    wanted: set[asyncio.Task[int | None]], awaited: Iterable[Awaitable[object]], seconds: float
) -> None:
    """Waits until something that is wanted is here, something has changed, or the time is over."""
    changes = [asyncio.ensure_future(each) for each in awaited]
    try:
        if wanted or changes:
            await asyncio.wait({*wanted, *changes}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)
    finally:
        for change in changes:
            change.cancel()
