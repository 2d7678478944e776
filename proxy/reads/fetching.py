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

from kordon.codecs.bodies import FetchResponse
from kordon.codecs.error_codes import Code
from kordon.codecs.fetch_requests import FetchPartition
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import Stream, physical_stream
from kordon.proxy.reads.fetch_rows import (
    AskedFetch,
    AskedPartition,
    AskedTopic,
    fetch_answer,
    found_topic,
    nothing_new,
)
from kordon.proxy.reads.gated_fetching import RequestGate
from kordon.proxy.reads.homes import StreamHome
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.looks_behind import is_stable
from kordon.proxy.reads.partition_fetch import PartitionFetch, epoch_error
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic

_GRACE_SECONDS: Final = 1.0
"""How much longer than it may a request waits for what a broker would have had at once: the first look at a log."""


class _Resting(NamedTuple):
    """A partition that rests."""

    number: int
    row: FetchPartition
    home: StreamHome

    @property
    def position(self) -> int:
        """Of its reader in the log."""
        return self.row[2] - self.home.delta


HasNothingFor = Callable[[StreamHome, int], bool]
"""Whether nothing is left for the reader of a stream in its home, from a position on."""


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

    def wake(self, has_nothing_for: HasNothingFor, *, is_late: bool) -> list[_Resting]:
        """Returns those for whom something may be left, or a filler is due, and keeps the others."""
        mark = self.log.high_watermark
        if mark is None or self._is_over():
            everyone, self.resting = self.resting, []
            return everyone
        is_moved = mark != self.end
        if is_moved or self.waits_for.done():
            self.end, self.waits_for = mark, self.log.coming(mark)
        if not (is_moved or is_late):
            return []
        awake, before = list[_Resting](), self.resting
        self.resting = []
        for each in before:
            is_due = is_late and each.position < mark
            if is_due or (is_moved and not has_nothing_for(each.home, each.position)):
                awake.append(each)
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
        asked: The request.
        gate: Of a request whose partitions are the physical ones as such; None: they are virtual ones.
    """

    def __init__(self, reads: WorkerReads, asked: AskedFetch, client: Client, gate: RequestGate | None = None) -> None:
        self._reads = reads
        self._client = client
        self._asked = asked
        self._gate = gate
        self._max_bytes = max(asked.max_bytes, 1)
        """That the answer may have; the first batch goes whatever its size."""
        self._rests: dict[PartitionLog, _Rest] = {}
        self._fetches: dict[int, PartitionFetch] = {}
        """By number, in the order of the request."""
        first = 0
        for each in asked.topics:
            self._begin(each, first)
            first += len(each.rows)

    def _begin(self, asked: AskedTopic, first: int) -> None:
        """Lets the partitions of a topic rest, or carries them on one by one."""
        topic = found_topic(self._reads.topics, asked)
        rows = enumerate(asked.rows, first)
        others = self._lay_to_rest(topic, rows) if topic is not None and self._may_rest(topic) else rows
        for number, row in others:
            self._fetches[number] = self._fetch(AskedPartition(number, topic, row, self._stream(row[0])))

    def _stream(self, partition: int) -> Stream:
        """Returns what the client means by a number."""
        return partition if self._gate is None else physical_stream(partition)

    async def run(self) -> FetchResponse:
        """Waits as long as a broker would; returns the response."""
        try:
            return await self._run()
        finally:
            if self._gate is not None:
                self._gate.end()

    async def _run(self) -> FetchResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._asked.max_wait_ms / 1000
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
        return PartitionFetch(self._reads, asked, self._asked.version, gate, is_committed=self._asked.is_committed)

    def _changes(self) -> list[Awaitable[object]]:
        """Returns what is waited for beside records: changes of what holds these back."""
        blocked = {fetch.topic for fetch in self._fetches.values() if fetch.topic and fetch.is_blocked}
        changes: list[Awaitable[object]] = [_changed(topic, topic.layout, topic.fence) for topic in blocked]
        return changes if self._gate is None else changes + self._gate.moves()

    def _may_rest(self, topic: ManagedTopic) -> bool:
        """Whether partitions of a topic may rest: this worker knows which records are to be seen of all there are."""
        if not self._reads.limits.may_serve() or topic.fence is not None:
            return False
        return self._gate is None or self._gate.count(topic) == topic.layout.count_in_force

    def _lay_to_rest(
        self, topic: ManagedTopic, rows: Iterable[tuple[int, FetchPartition]]
    ) -> list[tuple[int, FetchPartition]]:
        """Lets those partitions rest for whose readers nothing is left; returns the others."""
        # Taken for every partition of every request, most of which rest: hence local names.
        homes, rests, layout = self._reads.logs.homes(topic), self._rests, topic.layout
        means_virtual, is_uncommitted = self._gate is None, not self._asked.is_committed
        right: set[tuple[int, int, int]] = set()
        others: list[tuple[int, FetchPartition]] = []
        for number, row in rows:
            partition, believed, offset, _ = row
            stream = partition if means_virtual else physical_stream(partition)
            home = homes.get(stream) or homes.find(stream) if partition >= 0 else None
            if home is None or offset < home.least:
                others.append((number, row))
                continue
            log, position = home.log, offset - home.delta
            has_all = position == log.high_watermark and is_uncommitted
            if not (has_all or self._has_nothing_for(home, position)):
                others.append((number, row))
                continue
            epochs = home.stay.partition, home.stay.move, believed
            if believed >= 0 and epochs not in right:
                if epoch_error(self._reads, topic, home.stay, believed):
                    others.append((number, row))
                    continue
                right.add(epochs)
            rest = rests.get(log)
            if rest is None:
                end = log.high_watermark or 0
                rest = rests[log] = _Rest(topic, layout, log, end, log.coming(end))
            rest.resting.append(_Resting(number, row, home))
        return others

    def _has_nothing_for(self, home: StreamHome, position: int) -> bool:
        """Whether nothing is left for a reader from its position on, as far as the log has been read.

        A gate that is shut changes nothing for who stands at the end. Who stands before it has to be told the true end.
        """
        log = home.log
        mark = log.high_watermark
        if mark is None or position > mark:
            return False
        if position < mark and (self._gate is not None or log.views.skip(home.stream, position) < mark):
            return False
        return not self._asked.is_committed or is_stable(log, home.stream)

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
        is_enough = taken_bytes >= self._asked.min_bytes and (
            taken_bytes or not any(fetch.is_behind for fetch in self._fetches.values())
        )
        return None if is_ready or is_enough else wanted

    def _wake(self, *, is_late: bool) -> None:
        """Has those who rest no more looked at one by one from now on."""
        awake = [
            AskedPartition(each.number, rest.topic, each.row, each.home.stream)
            for rest in self._rests.values()
            for each in rest.wake(self._has_nothing_for, is_late=is_late)
        ]
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
            homes = self._reads.logs.homes(rest.topic)
            for number, (partition, _, offset, _), home in rest.resting:
                start = home.start if home.is_first else homes.start_of(home.stream)
                rows[number] = nothing_new(self._asked.version, partition, offset, start)
        return fetch_answer(self._asked.topics, map(rows.__getitem__, range(len(rows))))

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
    # By hand, since a request may wait for each of hundreds of logs, and asyncio.wait makes much of each.
    loop = asyncio.get_running_loop()
    waker: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waker.done():
            waker.set_result(None)

    changes = [asyncio.ensure_future(each) for each in awaited]
    timer = loop.call_later(seconds, wake)
    for each in (*wanted, *changes):
        each.add_done_callback(wake)
    try:
        await waker
    finally:
        timer.cancel()
        for each in wanted:
            each.remove_done_callback(wake)
        for change in changes:
            change.cancel()
