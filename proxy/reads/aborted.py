"""Fetch of read_committed consumers in what a topic had before it was managed: which transactions there were aborted.

The past of a topic is passed on as it lies in its log (PAST-STAYS): offsets, producer ids and markers are the brokers'.
So what a broker says of aborted transactions holds for clients as well. It is asked only where a read_committed
consumer is given transactional batches; what it does not answer, or what is not decided yet, is not given out.

Source: KIP-98; FetchResponse.json; UnifiedLog.collectAbortedTransactions (Kafka 4.3), which tells of as many offsets as
it returns records for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from kordon.codecs.bodies import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.primitives import Pieces
from kordon.codecs.split import CONTROL, LogBatch, split
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.fetch_requests import fetch_committed
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.reads.fetch_rows import pieces_of
from kordon.proxy.reads.fetching import GivenRow
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.proxy.topics.views import VIRTUAL, View

_TRANSACTIONAL: Final = 0x10
"""The attribute bit of a batch of a transaction."""
_SECONDS: Final = 5.0

Aborted = dict[tuple[int, int], FetchResponseAbortedTransaction]
"""Rows of the response, by producer id and first offset."""


class _Past(NamedTuple):
    """The part of a partition's log from before the topic was managed that a client gets."""

    topic: str
    partition: int
    batches: tuple[LogBatch, ...]

    @property
    def has_transactions(self) -> bool:
        """Whether there is something that an aborted transaction may have written."""
        return any(batch.attributes & _TRANSACTIONAL and not batch.attributes & CONTROL for batch in self.batches)


class AbortedTransactions:
    """Adds to answers what only read_committed consumers need besides records."""

    def __init__(self, leaders: Leaders, view: View = VIRTUAL) -> None:
        self._view = view
        self._leaders = leaders

    async def complete(self, given: Sequence[GivenRow]) -> None:
        """Completes rows of an answer, in place."""
        await asyncio.gather(*(self._complete(topic, row, offset) for topic, offset, row in given))

    async def _complete(self, topic: ManagedTopic, row: FetchResponsePartition, offset: int) -> None:
        past = self._past(topic, row, offset)
        if past is None or not past.has_transactions:
            return
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._aborted(past)
        except (UpstreamUnavailable, TimeoutError, WireError):
            found = None
        if found is None:
            self._leaders.forget(topic.name)
            row.update({"error_code": int(Code.NOT_LEADER_OR_FOLLOWER), "records": Pieces()})
        else:
            row.aborted_transactions = list(found.values())

    def _past(self, topic: ManagedTopic, row: FetchResponsePartition, offset: int) -> _Past | None:
        """Returns what a row of an answer gives out of a topic's past; None: nothing."""
        stream = self._view.find(topic.layout, row.partition_index)
        if row.error_code or not row.records or isinstance(stream, Code):
            return None
        stay = topic.layout.chain(stream).stay_of(offset)
        if stay is None or stay.tagged:
            return None
        batches = (batch for piece in pieces_of(row) for batch in split(piece))
        # Its offsets are the brokers' own; a filler at the end, over what retention has taken, is of no account.
        found = tuple(batch for batch in batches if batch.producer_id >= 0 or not batch.attributes & CONTROL)
        return _Past(topic.name, stay.partition, found) if found else None

    async def _aborted(self, past: _Past) -> Aborted | None:
        """Asks until all batches are covered: a broker answers from one segment file at a time; None: it does not."""
        found: Aborted = {}
        at, end = past.batches[0].base_offset, past.batches[-1].next_offset
        while at < end:
            size = sum(batch.end - batch.start for batch in past.batches if batch.next_offset > at)
            row = await self._fetch(past, at, size)
            if row is None or row.error_code:
                return None
            found |= {(each.producer_id, each.first_offset): each for each in row.aborted_transactions or ()}
            batches = split(row.records or b"")
            if not batches:
                return None  # behind the last stable offset
            at = batches[-1].next_offset
        return found

    async def _fetch(self, past: _Past, offset: int, size: int) -> FetchResponsePartition | None:
        row = FetchRequestPartition(partition=past.partition, fetch_offset=offset, partition_max_bytes=size)
        topic = FetchRequestTopic(topic=past.topic, partitions=[row])
        asked = FetchRequest(max_bytes=size, topics=[topic])
        client = await self._leaders.connection(past.topic, past.partition, "aborted")
        answer = await fetch_committed(client, asked)
        return next((each for told in answer.responses for each in told.partitions), None)
