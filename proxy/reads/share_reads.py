"""What share groups read: records of virtual partitions, found by key, from the worker's own memory of physical logs.

They are read as Fetch reads them (`fetching.py`): up to fences and the lease's end, over holes and what is not the
partition's own, and committed records only where the group asks for that. Nothing is on record as delivered by that:
locks say what members are given.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kordon.codecs.bodies import FetchResponsePartition
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.picked import PickableBatch
from kordon.codecs.split import CONTROL, LogBatch, split
from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.decisions.runs import Client
from kordon.proxy.reads.fetch_rows import AskedFetch, AskedTopic, pieces_of
from kordon.proxy.reads.fetching import Fetching, GivenRow
from kordon.proxy.reads.read_decisions import ReadDecisions
from kordon.proxy.reads.resting import Rests
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.names import NO_ID

READ_BYTES: Final = 256 * 1024
"""Of a partition at once; the first batch comes whatever its size."""
_VERSION: Final = 12
"""Of the requests that are made here, which name topics by their names."""
_NO_EPOCH: Final = -1
_TRANSACTIONAL: Final = 0x10
_NOBODY: Final = Client(0, None)

Complete: TypeAlias = Callable[[Sequence[GivenRow]], Awaitable[object]]
VirtualPlace: TypeAlias = tuple[str, int]
"""A topic's name, and a virtual partition."""


class ReadAhead(NamedTuple):
    """The batches of a partition that were read from an offset on."""

    end: int
    """All before it was looked at."""
    batches: Sequence[PickableBatch] = ()
    """Data that may be seen, in order."""
    error: Code = Code.NONE
    """Why it continues no further; OFFSET_OUT_OF_RANGE: the records before `start` are gone."""
    start: int = 0
    """Where the partition begins."""


class ShareReads:
    """Reads for the share groups of a worker.

    Args:
        complete: Called with rows. It adds to them what was aborted before their topic was managed (`aborted.py`).
        opened_bytes: The most bytes of records that a compressed batch may hold (`limits.opened_bytes`).
    """

    def __init__(self, reads: WorkerReads, complete: Complete, opened_bytes: int) -> None:
        self._reads = copy.copy(reads)
        self._reads.decisions = ReadDecisions(NO_JOURNAL)
        self.tasks = reads.tasks
        self._complete = complete
        self._opened_bytes = opened_bytes

    async def read_ahead(
        self, offsets: Mapping[VirtualPlace, int], *, wait_ms: int, is_committed: bool
    ) -> dict[VirtualPlace, FetchResponsePartition]:
        """Reads from offsets on; returns rows of those of which there is something to say.

        Args:
            wait_ms: The time to wait if none of the partitions has records, in milliseconds.
        """
        self._reads.logs.prune()
        topics = dict[str, AskedTopic]()
        for (name, v), offset in offsets.items():
            asked = topics.setdefault(name, AskedTopic(name, NO_ID, {}))
            asked.rows[v] = (v, _NO_EPOCH, offset, READ_BYTES)
        fetch = AskedFetch(_VERSION, wait_ms, 1, READ_BYTES * len(offsets), is_committed, [*topics.values()])
        rests = Rests(self._reads, _VERSION, is_committed=is_committed)
        fetching = Fetching(self._reads, fetch, _NOBODY, rests.name(fetch.topics), rests)
        rows = await fetching.run()
        if is_committed and (given := fetching.given(rows)):
            await self._complete(given)
        return {(topic.name, v): row for (topic, v), row in rows.items()}

    def opened(self, row: FetchResponsePartition, offset: int, most: int) -> ReadAhead:
        """Finds the records of what was read.

        Args:
            offset: The offset at which the read began.
            most: The number of records after which it stops, at a batch's end.
        """
        if row.error_code:
            return ReadAhead(offset, (), Code(row.error_code))
        data = b"".join(pieces_of(row))
        end, count, found = offset, 0, list[PickableBatch]()
        aborted = _Aborted(row)
        for batch in split(data):
            if count >= most:
                break
            records = memoryview(data)[batch.start : batch.end]
            if batch.next_offset > offset and not aborted.hides(batch, records):
                try:
                    found.append(PickableBatch(records, self._opened_bytes))
                except WireError:
                    return ReadAhead(end, found, Code.CORRUPT_MESSAGE, row.log_start_offset)
                count += len(found[-1].records)
            end = max(end, batch.next_offset)
        return ReadAhead(end, found, Code.NONE, row.log_start_offset)

    def pick(self, row: FetchResponsePartition, offset: int, offsets: Collection[int]) -> tuple[list[bytes], set[int]]:
        """Returns batches of what was read from an offset on with some records only, and the offsets without one."""
        return pick(self.opened(row, offset, len(offsets)).batches, offsets)


class _Aborted:
    """Finds the batches of a row that no member may have: those of aborted transactions, and control batches."""

    def __init__(self, row: FetchResponsePartition) -> None:
        rows = sorted(row.aborted_transactions or (), key=lambda each: each.first_offset, reverse=True)
        self._coming = [(each.first_offset, each.producer_id) for each in rows]
        """The first one last."""
        self._open = set[int]()
        """Producers whose transaction is an aborted one."""

    def hides(self, batch: LogBatch, records: memoryview) -> bool:
        """Whether a batch is not for members; batches come in order."""
        while self._coming and self._coming[-1][0] < batch.next_offset:
            self._open.add(self._coming.pop()[1])
        if batch.attributes & CONTROL:
            self._open.discard(batch.producer_id)
            return True
        return bool(batch.attributes & _TRANSACTIONAL) and batch.producer_id in self._open


def pick(batches: Collection[PickableBatch], offsets: Collection[int]) -> tuple[list[bytes], set[int]]:
    """Returns batches with some records only, and the offsets of which none has a record."""
    pieces, left = list[bytes](), set(offsets)
    for batch in batches:
        if wanted := {each.offset for each in batch.records if each.offset in left}:
            pieces.append(batch.only(wanted))
            left -= wanted
    return pieces, left
