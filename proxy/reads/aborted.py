"""Fetch of read_committed consumers in what a topic had before it was managed: which transactions there were aborted.

The past of a topic is passed on as it lies in its log (PAST-STAYS): offsets, producer ids and markers are the brokers'.
So what a broker says of aborted transactions holds for clients as well. It is asked only where a read_committed
consumer is given transactional batches; what it does not answer, or what is not decided yet, is not given out.

Source: KIP-98; FetchResponse.json; UnifiedLog.collectAbortedTransactions (Kafka 4.3), which tells of as many offsets as
it returns records for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import VERSION
from kordon.codecs.primitives import Pieces
from kordon.codecs.split import CONTROL, Batch, split
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.leaders import NO_NODE, Leaders
from kordon.proxy.kafka.links import Links
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.targets import Target, virtual_partition

_READ_COMMITTED: Final = 1
_TRANSACTIONAL: Final = 0x10
"""The attribute bit of a batch of a transaction."""
_SECONDS: Final = 5.0

Aborted = dict[tuple[int, int], dict[str, int]]
"""Rows of the response, by producer id and first offset."""


class FetchServer(Protocol):
    """Answers Fetch."""

    async def serve(self, version: int, request: Any, client: Client) -> dict[str, Any]:
        """Answers a request that names managed topics only."""
        ...


class _Past(NamedTuple):
    """What a client is given of a partition's log from before the topic was managed."""

    topic: str
    partition: int
    batches: tuple[Batch, ...]

    @property
    def has_transactions(self) -> bool:
        """Whether there is something that an aborted transaction may have written."""
        return any(batch.attributes & _TRANSACTIONAL and not batch.attributes & CONTROL for batch in self.batches)


class ReadCommitted:
    """Completes the answers to Fetch for consumers that want committed records only.

    Args:
        readers: Answers Fetch.
        topics: What is managed.
        links: The connections to brokers.
        leaders: Who leads.
        target: What clients mean by the number of a partition.
    """

    def __init__(
        self,
        readers: FetchServer,
        topics: ManagedTopics,
        links: Links,
        leaders: Leaders,
        target: Target = virtual_partition,
    ) -> None:
        self._target = target
        self._readers = readers
        self._topics = topics
        self._links = links
        self._leaders = leaders

    async def serve(self, version: int, request: Any, client: Client) -> dict[str, Any]:
        """Answers a request that names managed topics only; returns the response's fields."""
        answer = await self._readers.serve(version, request, client)
        if request.get("isolation_level") == _READ_COMMITTED:
            pairs = zip(request.topics, answer["responses"], strict=True)
            rows = [
                (self._find(topic), row, asked.fetch_offset)
                for topic, told in pairs
                for asked, row in zip(topic.partitions, told["partitions"], strict=True)
                if row["records"]
            ]
            await asyncio.gather(*(self._complete(topic, row, offset) for topic, row, offset in rows if topic))
        return answer

    def _find(self, row: Any) -> ManagedTopic | None:
        name = row.get("topic")
        return self._topics.served(name) if name else self._topics.served_by_id(row["topic_id"])

    async def _complete(self, topic: ManagedTopic, row: dict[str, Any], offset: int) -> None:
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
            row |= {"error_code": int(Code.NOT_LEADER_OR_FOLLOWER), "records": Pieces()}
        else:
            row["aborted_transactions"] = list(found.values())

    def _past(self, topic: ManagedTopic, row: dict[str, Any], offset: int) -> _Past | None:
        """Returns what a row of an answer gives out of a topic's past; None: nothing."""
        stream = self._target(topic.layout, row["partition_index"])
        if row["error_code"] or not row["records"] or isinstance(stream, Code):
            return None
        stay = topic.layout.chain(stream).stay_of(offset)
        if stay is None or stay.tagged:
            return None
        batches = (batch for piece in row["records"] for batch in split(piece))
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
            found |= {(each.producer_id, each.first_offset): dict(each) for each in row.aborted_transactions or ()}
            batches = split(row.records or b"")
            if not batches:
                return None  # behind the last stable offset
            at = batches[-1].next_offset
        return found

    async def _fetch(self, past: _Past, offset: int, size: int) -> Any:
        leader = (await self._leaders.of(past.topic)).get(past.partition)
        if leader is None or leader.node_id == NO_NODE:
            return None
        row = {"partition": past.partition, "fetch_offset": offset, "partition_max_bytes": size}
        fields = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": size,
            "isolation_level": _READ_COMMITTED,
            "topics": [{"topic": past.topic, "partitions": [row]}],
            "rack_id": "",
        }
        client = await self._links.to(leader.node_id, "aborted")
        client.version(apis.FETCH, range(VERSION, VERSION + 1))
        answer = await client.ask(apis.FETCH, VERSION, fields)
        rows: Iterable[Any] = (each for told in answer.responses for each in told.partitions)
        return next(iter(rows), None)
