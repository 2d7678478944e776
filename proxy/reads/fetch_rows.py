"""The rows of Fetch requests and responses, as far as Kordon reads and makes them itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple, cast
from uuid import UUID

from kordon.codecs.bodies import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages.fetch import PARTITION_DATA
from kordon.codecs.primitives import Built, Pieces
from kordon.proxy.ordering.streams import Stream, physical_stream
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

IDS_SINCE: Final = 13
"""The first version of Fetch that names topics by their ids."""
_NO_ID: Final = UUID(int=0)
_ROWS_KEPT: Final = 1 << 14
"""Some 300 bytes each."""


_PLACE: Final = itemgetter("partition", "fetch_offset")
"""What each partition of each request is asked for, most of which have nothing new: in one call."""


class AskedPartition(NamedTuple):
    """A partition's row of a request."""

    number: int
    """Of the row, over all topics."""
    topic: ManagedTopic | None
    """None: nobody knows it any more."""
    row: FetchRequestPartition
    partition: int
    """By which the client knows it."""
    stream: Stream
    """What the client means by that."""
    offset: int
    """From which on it reads."""


def asked_partitions(topics: ManagedTopics, request: FetchRequest, *, means_physical: bool) -> Iterator[AskedPartition]:
    """Returns the rows of a request, in order; its numbers mean physical partitions as such, or virtual ones."""
    number = 0
    for topic in request.topics:
        managed = asked_topic(topics, topic)
        for row in topic.partitions:
            partition, offset = _PLACE(row)
            stream = physical_stream(partition) if means_physical else partition
            yield AskedPartition(number, managed, row, partition, stream, offset)
            number += 1


def asked_topic(topics: ManagedTopics, row: FetchRequestTopic) -> ManagedTopic | None:
    """Finds the topic that a row names, by name or by id; None: it is not served."""
    name = row.get("topic", "")
    return topics.served(name) if name else topics.served_by_id(row.topic_id)


def told_row(number: int, end: int, start: int, pieces: Pieces) -> FetchResponsePartition:
    """Makes the response's row of a partition.

    Args:
        number: By which the client knows the partition.
        end: Of its log, as readers may see it.
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
def nothing_new(version: int, partition: int, end: int, start: int) -> FetchResponsePartition:
    """Makes the row of a partition whose reader has all there is, with its bytes; nobody changes it."""
    row = told_row(partition, end, start, Pieces())
    return cast("FetchResponsePartition", Built(row, PARTITION_DATA.build(version, row)))


def fetch_answer(request: FetchRequest, rows: Iterator[FetchResponsePartition]) -> FetchResponse:
    """Makes a response of the rows of its partitions, in the order of the request."""
    return FetchResponse(
        session_id=0,  # whoever asked for a session gets none, and sends whole requests
        responses=[
            FetchResponseTopic(
                topic=topic.get("topic", ""),
                topic_id=topic.get("topic_id", _NO_ID),
                partitions=[next(rows) for _ in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def refuse_fetch(request: FetchRequest, error: int) -> FetchResponse:
    """Makes a response that has nothing but an error for each partition asked for."""
    numbers = (each.partition for topic in request.topics for each in topic.partitions)
    return fetch_answer(request, (empty_row(number, -1, error) for number in numbers))
