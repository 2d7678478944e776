"""One Fetch request under way: each of its partitions is carried on until the answer goes.

Most partitions of most requests have nothing new, and most clients name all of theirs each time. Whoever stands at the
end of a log *rests*: nothing is done for one that rests but to find that it does. The log is looked at for all that
rest there at once, and what they are told was built when somebody was told so before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Final

from kordon.codecs.bodies import FetchRequest, FetchResponse
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.physical_reading import log_read_by
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


@dataclass(slots=True)
class _Rest:
    """Those of one request that stand at the end of one log."""

    topic: ManagedTopic
    layout: Layout
    log: PartitionLog
    end: int
    """In the physical partition."""
    waits_for: asyncio.Task[int]
    asked: list[AskedPartition] = field(default_factory=list[AskedPartition])

    def goes_on(self) -> bool:
        """Whether there is still nothing to say."""
        if self.topic.layout is not self.layout or self.topic.fence is not None:
            return False
        if self.log.is_closed or self.log.high_watermark != self.end:
            return False
        if self.waits_for.done():
            if self.waits_for.cancelled() or self.waits_for.result() != Code.NONE:
                return False
            self.waits_for = self.log.coming(self.end)
        return True


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
            wanted = self._carry_on()
            is_early = any(fetch.is_behind or fetch.is_unsure for fetch in self._fetches.values())
            until = deadline + _GRACE_SECONDS if is_early else deadline
            if wanted is None or loop.time() >= until:
                return self._answer(loop.time() >= deadline)
            await _first_of(wanted, self._changes(), until - loop.time())

    def _fetch(self, asked: AskedPartition) -> PartitionFetch:
        gate = self._gate.of(asked.topic, asked.stream) if self._gate is not None and asked.topic is not None else None
        return PartitionFetch(self._reads, asked, self._version, gate, is_committed=self._is_committed)

    def _changes(self) -> list[Awaitable[object]]:
        """Returns what is waited for beside records: changes of what holds these back."""
        blocked = {fetch.topic for fetch in self._fetches.values() if fetch.topic and fetch.is_blocked}
        changes: list[Awaitable[object]] = [_changed(topic, topic.layout, topic.fence) for topic in blocked]
        return changes if self._gate is None else changes + self._gate.moves()

    def _lay_to_rest(self, asked: AskedPartition, topic: ManagedTopic) -> bool:
        """Lets a partition rest if its reader has all there is; a gate that is shut changes nothing of that."""
        layout, stream, offset = topic.layout, asked.stream, asked.offset
        if topic.fence is not None or asked.partition < 0:
            return False
        if self._gate is not None and self._gate.count(topic) != layout.count_in_force:
            return False
        home = layout.open_homes.get(stream)
        if home is None or offset < home.virtual_start or offset < (layout.floors or {}).get(stream, 0):
            return False
        end = offset - home.delta
        log = self._reads.logs.of(topic, log_read_by(stream, home.partition))
        if log.high_watermark != end or (self._is_committed and not is_stable(log, stream)):
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
        rest.asked.append(asked)
        return True

    def _carry_on(self) -> set[asyncio.Task[int | None]] | None:
        """Carries all partitions on; returns what is to be waited for, or None if the answer can go."""
        if self._gate is not None:
            self._gate.look_again()
        self._wake()
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

    def _wake(self) -> None:
        """Has those who rest where something has happened looked at one by one from now on."""
        over = [rest for rest in self._rests.values() if not rest.goes_on()]
        if over:
            for rest in over:
                del self._rests[rest.log]
                self._fetches |= {asked.number: self._fetch(asked) for asked in rest.asked}
            self._fetches = dict(sorted(self._fetches.items()))

    def _answer(self, is_late: bool) -> FetchResponse:
        rows = {number: fetch.answer(is_late) for number, fetch in self._fetches.items()}
        if self._reads.decisions.is_on:
            for number, fetch in self._fetches.items():
                self._note(fetch, rows[number].error_code)
        for rest in self._rests.values():
            for asked in rest.asked:
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
