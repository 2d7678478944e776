"""One Fetch request under way: each of its partitions is carried on until the answer goes.

Most partitions of most requests have nothing new. These rest (`resting.py`), and nothing is done for them here but to
wait for what may wake them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kordon.codecs.bodies import FetchResponsePartition
from kordon.codecs.fetch_requests import FetchPartition
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.fetch_rows import AskedFetch, AskedPartition
from kordon.proxy.reads.gated_fetching import RequestGate
from kordon.proxy.reads.log_rest import Stirred
from kordon.proxy.reads.partition_fetch import PartitionFetch
from kordon.proxy.reads.resting import NamedTopic, RestingTopic, Rests
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic

_GRACE_SECONDS: Final = 1.0
"""How much longer than it may a request waits for what a broker would have had at once: the first look at a log."""

Named: TypeAlias = tuple[RestingTopic, int]
"""A partition that a request names."""
FetchedRows: TypeAlias = dict[Named, FetchResponsePartition]
"""Rows of the response, of partitions that do not rest; those that have waited longest for their turn come first."""


class GivenRow(NamedTuple):
    """What a client is given of a partition, before it is."""

    topic: ManagedTopic
    offset: int
    """That was asked for."""
    row: FetchResponsePartition


class Fetching:
    """What is under way for one request.

    Args:
        asked: The request.
        named: The topics of the request, in the order in which they get records while there is room.
        rests: The resting partitions of the reader.
        gate: The gate of a request that means physical partitions; None: the request means virtual partitions.
    """

    def __init__(
        self,
        reads: WorkerReads,
        asked: AskedFetch,
        client: Client,
        named: Sequence[NamedTopic],
        rests: Rests,
        *,
        gate: RequestGate | None = None,
    ) -> None:
        self._reads = reads
        self._client = client
        self._asked = asked
        self._named = named
        self._rests = rests
        self._gate = gate
        self._max_bytes = max(asked.max_bytes, 1)
        """That the answer may have; the first batch goes whatever its size."""
        self._fetches: dict[Named, PartitionFetch] = {}
        """In the order of the request."""
        for each in named:
            for row in rests.lay(each):
                self._fetches[each.topic, row[0]] = self._fetch(each.topic, row)

    async def run(self) -> FetchedRows:
        """Waits as long as a broker would; returns the rows of those that do not rest."""
        try:
            return await self._run()
        finally:
            if self._gate is not None:
                self._gate.end()

    def given(self, rows: FetchedRows) -> list[GivenRow]:
        """Returns those rows that have records."""
        return [
            GivenRow(fetch.topic, fetch.offset, row)
            for (row, fetch) in zip(rows.values(), self._fetches.values(), strict=True)
            if fetch.topic is not None and row["records"]
        ]

    async def _run(self) -> FetchedRows:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._asked.max_wait_ms / 1000
        while True:
            now = loop.time()
            wanted = self._carry_on(is_late=now >= deadline)
            is_early = any(fetch.is_behind or fetch.is_unsure for fetch in self._fetches.values())
            until = deadline + _GRACE_SECONDS if is_early else deadline
            if wanted is None or now >= until:
                return self._answer(now >= deadline)
            await _first_of(wanted, self._changes(), self._rests.stirred, until - now)

    def _fetch(self, topic: RestingTopic, row: FetchPartition, empty_until: int = 0) -> PartitionFetch:
        asked = AskedPartition(topic.managed, row, self._rests.stream(row[0]), empty_until)
        gate = self._gate.of(asked.topic, asked.stream) if self._gate is not None and asked.topic is not None else None
        return PartitionFetch(self._reads, asked, self._asked.version, gate, is_committed=self._asked.is_committed)

    def _changes(self) -> list[Awaitable[object]]:
        """Returns what is waited for beside records: changes of what holds these back."""
        blocked = {fetch.topic for fetch in self._fetches.values() if fetch.topic and fetch.is_blocked}
        changes: list[Awaitable[object]] = [_changed(topic, topic.layout, topic.fence) for topic in blocked]
        return changes if self._gate is None else changes + self._gate.moves()

    def _carry_on(self, *, is_late: bool) -> set[asyncio.Task[int | None]] | None:
        """Carries all partitions on; returns what is to be waited for, or None if the answer can go."""
        if self._gate is not None:
            self._gate.look_again()
        self._wake(is_late=is_late)
        wanted: set[asyncio.Task[int | None]] = set()
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
        awake = self._rests.wake(is_late=is_late)
        if awake:
            self._fetches |= {(each.topic, each.row[0]): self._fetch(*each) for each in awake}
            if len(self._fetches) > 1:
                order = ((each.topic, partition) for each in self._named for partition in each.partitions)
                self._fetches = {each: self._fetches[each] for each in order if each in self._fetches}

    def _answer(self, is_late: bool) -> FetchedRows:
        rows = {named: fetch.answer(is_late) for named, fetch in self._fetches.items()}
        if self._reads.decisions.is_on:
            for named, fetch in self._fetches.items():
                self._note(fetch, rows[named].error_code)
        return rows

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
    wanted: set[asyncio.Task[int | None]], awaited: Iterable[Awaitable[object]], stirred: Stirred, seconds: float
) -> None:
    """Waits until something that is wanted is here, a rest may be over, something has changed, or the time is over."""
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
    stirred.wake = wake
    try:
        await waker
    finally:
        stirred.wake = None
        timer.cancel()
        for each in wanted:
            each.remove_done_callback(wake)
        for change in changes:
            change.cancel()
