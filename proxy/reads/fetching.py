"""One Fetch request under way: each of its partitions is carried on until the answer goes.

Most partitions of most requests have nothing new, and most clients name all of theirs each time. Whoever stands at the
end of a log *rests*: nothing is done for one that rests but to find that it does. The log is looked at for all that
rest there at once, and what they are told was built when somebody was told so before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from kordon.codecs.error_codes import Code
from kordon.codecs.messages.fetch import PARTITION_DATA
from kordon.codecs.primitives import Built, Pieces
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.portions import (
    Portion,
    PortionReaders,
    Request,
    epoch_error,
    fetch_answer,
    log_read_by,
    start_of,
    told_row,
)
from kordon.proxy.reads.read_decisions import Given, ReadDecisions
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic

_NO_BOUND_BYTES: Final = 2**31 - 1
"""What a whole answer may have where requests do not say (before version 3)."""
_GRACE_SECONDS: Final = 1.0
"""How much longer than it may a request waits for what a broker would have had at once: the first look at a log."""
_ROWS_KEPT: Final = 1 << 14
"""Some 300 bytes each."""


class RequestReaders(PortionReaders, Protocol):
    """What a request needs of the worker's readers."""

    decisions: ReadDecisions

    def find(self, row: Any) -> ManagedTopic | None:
        """Finds the topic of a request's row."""
        ...

    def may_serve(self) -> bool:
        """Whether the lease lives and the layouts are known."""
        ...


class AskedPartition(NamedTuple):
    """A partition's row of the request."""

    number: int
    """Of the row, over all topics."""
    topic: ManagedTopic | None
    row: Any


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
        readers: Of the worker.
        version: Of the request.
        request: Names managed topics only.
        client: Who asks.
    """

    _sees_physical: ClassVar = False
    """Whether the request's partitions are the physical ones as such."""

    def __init__(self, readers: RequestReaders, version: int, request: Any, client: Client) -> None:
        self._readers = readers
        self._client = client
        self._version = version
        self._request = request
        most_bytes = max(request.get("max_bytes", _NO_BOUND_BYTES), 1)
        self._wish = Request(request.max_wait_ms / 1000, request.min_bytes, most_bytes)
        self._rests: dict[PartitionLog, _Rest] = {}
        self._right_epochs: set[tuple[str, int, int, int]] = set()
        self._portions: dict[int, Portion] = {}
        """By number, in the order of the request."""
        may_rest = readers.may_serve()
        for asked in self._all_asked():
            if not (may_rest and asked.topic is not None and self._lay_to_rest(asked, asked.topic)):
                self._portions[asked.number] = self._portion(asked)

    async def run(self) -> dict[str, Any]:
        """Waits as long as a broker would; returns the response's fields."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wish.max_wait_seconds
        while True:
            wanted = self._carry_on()
            is_early = any(portion.is_behind or portion.is_unsure for portion in self._portions.values())
            until = deadline + _GRACE_SECONDS if is_early else deadline
            if wanted is None or loop.time() >= until:
                return self._answer(loop.time() >= deadline)
            await _first_of(wanted, self._changes(), until - loop.time())

    def _all_asked(self) -> Iterator[AskedPartition]:
        number = 0
        for topic in self._request["topics"]:
            managed = self._readers.find(topic)
            for row in topic["partitions"]:
                yield AskedPartition(number, managed, row)
                number += 1

    def _portion(self, asked: AskedPartition) -> Portion:
        return Portion(self._readers, asked.topic, asked.row, self._version, asked.row.partition)

    def _changes(self) -> list[Coroutine[Any, Any, object]]:
        """Returns what is waited for beside records: the ends of fences that hold them back."""
        blocked = {portion.topic for portion in self._portions.values() if portion.topic and portion.is_blocked}
        return [_end_of(topic, topic.fence) for topic in blocked]

    def _lay_to_rest(self, asked: AskedPartition, topic: ManagedTopic) -> bool:
        """Lets a partition rest if its reader has all there is."""
        layout, number, offset = topic.layout, asked.row["partition"], asked.row["fetch_offset"]
        if topic.fence is not None or number < 0:
            return False
        stream = physical_stream(number) if self._sees_physical else number
        home = layout.open_homes.get(stream)
        if home is None or offset < home.virtual_start or offset < (layout.floors or {}).get(stream, 0):
            return False
        end = offset - home.delta
        log = self._readers.log_of(topic, log_read_by(stream, home.partition))
        if log.high_watermark != end:
            return False
        believed = asked.row.get("current_leader_epoch", -1)
        epochs = (topic.name, home.partition, home.move, believed)
        if believed >= 0 and epochs not in self._right_epochs:
            if epoch_error(self._readers, topic, home, believed):
                return False
            self._right_epochs.add(epochs)
        rest = self._rests.get(log)
        if rest is None:
            rest = self._rests[log] = _Rest(topic, layout, log, end, log.coming(end))
        rest.asked.append(asked)
        return True

    def _carry_on(self) -> set[asyncio.Future[Any]] | None:
        """Carries all partitions on; returns what is to be waited for, or None if the answer can go."""
        self._wake()
        wanted: set[asyncio.Future[Any]] = {rest.waits_for for rest in self._rests.values()}
        taken_bytes, is_ready = 0, False
        for portion in self._portions.values():
            portion.carry_on(self._wish.max_bytes - taken_bytes)
            taken_bytes += portion.size_bytes
            is_ready = is_ready or portion.is_ready
            if portion.waits_for is not None:
                wanted.add(portion.waits_for)
        if any(portion.is_unsure for portion in self._portions.values()):
            return wanted
        is_enough = taken_bytes >= self._wish.min_bytes and (
            taken_bytes or not any(portion.is_behind for portion in self._portions.values())
        )
        return None if is_ready or is_enough else wanted

    def _wake(self) -> None:
        """Has those who rest where something has happened looked at one by one from now on."""
        over = [rest for rest in self._rests.values() if not rest.goes_on()]
        if over:
            for rest in over:
                del self._rests[rest.log]
                self._portions |= {asked.number: self._portion(asked) for asked in rest.asked}
            self._portions = dict(sorted(self._portions.items()))

    def _answer(self, is_late: bool) -> dict[str, Any]:
        rows = {number: portion.answer(is_late) for number, portion in self._portions.items()}
        if self._readers.decisions.is_on:
            for number, portion in self._portions.items():
                self._note(portion, rows[number]["error_code"])
        for rest in self._rests.values():
            for number, _, row in rest.asked:
                partition, offset = row["partition"], row["fetch_offset"]
                stream = physical_stream(partition) if self._sees_physical else partition
                start = start_of(self._readers, rest.topic, stream)
                rows[number] = _nothing_new(self._version, partition, offset, start)
        return fetch_answer(self._request, (rows[number] for number in range(len(rows))))

    def _note(self, portion: Portion, error_code: int) -> None:
        """Notes what a partition is answered."""
        decisions, topic, given = self._readers.decisions, portion.topic, portion.given
        if error_code:
            decisions.refused(self._client, topic, portion.stream, portion.offset, error_code)
        elif given is not None and topic is not None:
            self._note_given(portion, topic, given)

    def _note_given(self, portion: Portion, topic: ManagedTopic, given: Given) -> None:
        self._readers.decisions.gave(self._client, topic, portion.stream, given)


@lru_cache(_ROWS_KEPT)
def _nothing_new(version: int, partition: int, end: int, start: int) -> Built:
    """Makes the row of a partition whose reader has all there is."""
    row = told_row(partition, end, start, Pieces())
    return Built(row, PARTITION_DATA.build(version, row))


async def _end_of(topic: ManagedTopic, fence: Fence | None) -> None:
    while topic.fence is fence:
        await topic.wait_for_change()


async def _first_of(
    wanted: set[asyncio.Future[Any]], awaited: Iterable[Coroutine[Any, Any, object]], seconds: float
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
