"""The rows of Fetch requests and responses, as far as Kordon reads and makes them itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple, cast
from uuid import UUID

from kordon.codecs.bodies import (
    FetchRequest,
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.fetch_answers import PartitionBounds, build_partition
from kordon.codecs.fetch_requests import FetchLook, FetchPartition
from kordon.codecs.messages.fetch import PARTITION_DATA
from kordon.codecs.primitives import Pieces
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.named_rows import NamedRows
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

IDS_SINCE: Final = 13
"""The first version of Fetch that names topics by their ids."""
READ_COMMITTED: Final = 1
"""The isolation level of requests for committed records only."""
_NO_BOUND_BYTES: Final = 2**31 - 1
"""What a whole answer may have where requests do not say (before version 3)."""
_NO_ID: Final = UUID(int=0)
_ROWS_KEPT: Final = 1 << 14
"""Some 300 bytes each."""


class AskedTopic(NamedTuple):
    """A topic that a request names."""

    name: str
    """"": the request names it by its id."""
    topic_id: UUID
    rows: dict[int, FetchPartition]
    """By partition; of two rows for one the last one counts, as it does for brokers."""
    begin: int = 0
    """The place among them with which the request began."""
    changed: Sequence[FetchPartition] | None = None
    """Those that are not as in the request before, which had the same `rows`; None: there was none."""


class AskedFetch(NamedTuple):
    """A request that names managed topics only."""

    version: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_committed: bool
    """Whether the client gets committed records only."""
    topics: list[AskedTopic]
    session_epoch: int = -1
    """0: the request begins a session; above: it goes on with one."""
    forgotten: Sequence[tuple[str | UUID, Sequence[int]]] = ()
    """Partitions that a session names no more, by topic."""
    named: Mapping[str | UUID, NamedRows] = MappingProxyType({})
    """Its rows by topic, with which the next request may be compared."""


class AskedPartition(NamedTuple):
    """A partition that a request names."""

    topic: ManagedTopic | None
    """None: nobody knows it any more."""
    row: FetchPartition
    stream: Stream
    """What the client means by its number."""
    empty_until: int = 0
    """The offset of its home's log before which nothing is left for the client, as long as nothing is carried on."""


def asked_by_table(version: int, request: FetchRequest) -> AskedFetch:
    """Returns what a request asks for that the table has read."""
    nothing: list[FetchRequestForgottenTopicsData] = []
    topics = [
        AskedTopic(row.get("topic", ""), row.get("topic_id", _NO_ID), _by_partition(_rows_by_table(row.partitions)))
        for row in request.topics
    ]
    is_committed = request.get("isolation_level", 0) == READ_COMMITTED
    max_bytes = request.get("max_bytes", _NO_BOUND_BYTES)
    forgotten = [
        (row.get("topic", "") or row.get("topic_id", _NO_ID), row.partitions)
        for row in request.get("forgotten_topics_data", nothing)
    ]
    limits = request.max_wait_ms, request.min_bytes, max_bytes
    return AskedFetch(version, *limits, is_committed, topics, request.get("session_epoch", -1), forgotten)


def asked_by_look(version: int, look: FetchLook, before: Mapping[str | UUID, NamedRows] | None = None) -> AskedFetch:
    """Returns what a request asks for that was read where it lies.

    Args:
        before: The rows of the connection's last request, which is over; they become those of this one.
    """
    topics: list[AskedTopic] = []
    named: dict[str | UUID, NamedRows] = {}
    for each in look.topics:
        topic = each.topic
        rows = before.get(topic) if before and topic not in named else None
        if rows is None or not rows.take(each):
            rows = NamedRows(each)
        if rows.is_kept:
            named[topic] = rows
        name, topic_id = (topic, _NO_ID) if isinstance(topic, str) else ("", topic)
        topics.append(AskedTopic(name, topic_id, rows.rows, rows.begin, rows.changed))
    is_committed = look.isolation_level == READ_COMMITTED
    limits = look.max_wait_ms, look.min_bytes, look.max_bytes
    return AskedFetch(version, *limits, is_committed, topics, look.session_epoch, named=named)


def _by_partition(rows: Sequence[FetchPartition]) -> dict[int, FetchPartition]:
    return dict(zip(map(itemgetter(0), rows), rows, strict=True))


def _rows_by_table(rows: Sequence[FetchRequestPartition]) -> list[FetchPartition]:
    return [
        (row.partition, row.get("current_leader_epoch", -1), row.fetch_offset, row.partition_max_bytes) for row in rows
    ]


def asked_topic(topics: ManagedTopics, row: FetchRequestTopic) -> ManagedTopic | None:
    """Finds the topic that a row names, by name or by id; None: it is not served."""
    name = row.get("topic", "")
    return topics.served(name) if name else topics.served_by_id(row.topic_id)


def found_topic(topics: ManagedTopics, asked: AskedTopic) -> ManagedTopic | None:
    """Finds a topic that a request names; None: it is not served."""
    return topics.served(asked.name) if asked.name else topics.served_by_id(asked.topic_id)


def told_row(number: int, end: int, start: int, pieces: Pieces) -> FetchResponsePartition:
    """Makes the response's row of a partition.

    Args:
        number: The number by which the client knows the partition.
        end: The end of its log, as readers may see it.
    """
    return FetchResponsePartition(
        partition_index=number,
        error_code=0,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=start,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=cast("bytes", pieces),  # they are written one by one
    )


def pieces_of(row: FetchResponsePartition) -> Pieces:
    """Returns the records of a row that was made here."""
    return cast("Pieces", row.records)


def empty_row(number: int, offset: int, error: int = Code.NONE) -> FetchResponsePartition:
    """Makes a row that says nothing of the log: with an error, -1 where brokers give that."""
    row = told_row(number, -1 if error else offset, -1 if error else 0, Pieces())
    row.error_code = int(error)
    row.aborted_transactions = [] if error else None
    return row


@lru_cache(_ROWS_KEPT)
def nothing_new(version: int, partition: int, end: int, start: int) -> bytes:
    """Writes the row of a partition whose reader has all there is."""
    return build_partition(version, PartitionBounds(partition, Code.NONE, end, end, start), ())


def written(version: int, row: FetchResponsePartition) -> bytes:
    """Writes a row that was made here."""
    aborted = row.aborted_transactions
    if aborted:
        return PARTITION_DATA.build(version, row)
    told = PartitionBounds(
        row.partition_index, row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset
    )
    return build_partition(version, told, pieces_of(row), is_null=aborted is None)


def refuse_fetch(asked: AskedFetch, error: int) -> FetchResponse:
    """Makes a response that has nothing but an error for each partition asked for."""
    topics = [
        FetchResponseTopic(
            topic=topic.name, topic_id=topic.topic_id, partitions=[empty_row(each, -1, error) for each in topic.rows]
        )
        for topic in asked.topics
    ]
    return FetchResponse(responses=topics)
