"""Reads the partitions of a topic for a command, as a client at read_committed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from kordon.codecs.bodies import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponsePartition
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.records import BatchHeader
from kordon.codecs.unpack import OpenedRecord, records_of
from kordon.proxy.commands.copied_partition import SourceRecord
from kordon.proxy.core.errors import KordonError
from kordon.proxy.kafka.batches import Copy, committed_batches, size_of_copy
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import PartitionEnds, refuse
from kordon.proxy.kafka.fetch_requests import fetch_committed

_PURPOSE: Final = "copy reads"
_PARTITION_BYTES: Final = 512 * 1024
"""Most bytes of one partition at once; a larger batch comes whole all the same."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_MOST_UNPACKED_BYTES: Final = 256 * 1024 * 1024
"""Of one batch."""
_ELSEWHERE: Final = frozenset({Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH})


class TopicUnreadable(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when there is something in a topic that cannot be read; the message says what, and what would help."""


class ReadRecords(NamedTuple):
    """What was read of a partition."""

    records: list[SourceRecord]
    next_offset: int
    end: int | None
    """Where the partition ends; None: nobody has said."""


class TopicReader:
    """Reads a topic, all partitions that are wanted at once.

    Args:
        cure: The cure if records are lost that had been read.
    """

    def __init__(self, brokers: Brokers, topic: str, cure: str) -> None:
        self._brokers = brokers
        self._ends = PartitionEnds(brokers)
        self._topic = topic
        self._cure = cure

    async def starts(self, partitions: range) -> dict[int, int]:
        """Returns the first offset of each partition.

        Raises:
            UpstreamUnavailable: A broker does not answer, or refuses.
        """
        return await self._ends.log_starts(self._topic, partitions)

    async def at_time(self, partitions: range, timestamp_ms: int) -> dict[int, int]:
        """Returns the first offset of each partition that was written at a time or later; -1: nothing was.

        Raises:
            UpstreamUnavailable: A broker does not answer, or refuses.
        """
        return await self._ends.offsets_at(self._topic, partitions, timestamp_ms)

    async def ends(self, partitions: range) -> dict[int, int]:
        """Returns where each partition ends now.

        Raises:
            UpstreamUnavailable: A broker does not answer, or refuses.
        """
        found = await self._ends.ends_of(self._topic, partitions)
        return {partition: ends.high_watermark for partition, ends in found.items()}

    async def read(self, positions: Mapping[int, int], wait_ms: int) -> dict[int, ReadRecords]:
        """Reads from an offset of each partition on; partitions of which nobody says anything now are missing.

        Args:
            positions: Offsets by partition. The partition that is asked for first comes first.
            wait_ms: How long to wait for something to come.

        Raises:
            TopicUnreadable: There is something that cannot be read.
            UpstreamUnavailable: A broker does not answer, or refuses.
        """
        by_node: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for partition, offset in positions.items():
            leader = await self._brokers.leaders.leader(self._topic, partition)
            by_node[leader.node_id][partition] = offset
        parts = await asyncio.gather(*(self._read(each, wait_ms) for each in by_node.values()))
        return {partition: found for part in parts for partition, found in part.items()}

    async def _read(self, positions: Mapping[int, int], wait_ms: int) -> dict[int, ReadRecords]:
        client = await self._brokers.leaders.connection(self._topic, next(iter(positions)), _PURPOSE)
        rows = [
            FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES)
            for partition, offset in positions.items()
        ]
        topics = [FetchRequestTopic(topic=self._topic, partitions=rows)]
        answer = await fetch_committed(
            client, FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=_MOST_BYTES, topics=topics)
        )
        found: dict[int, ReadRecords] = {}
        for row in (part for each in answer.responses for part in each.partitions):
            partition = row.partition_index
            if row.error_code in _ELSEWHERE:
                self._brokers.leaders.forget(self._topic)
            elif row.error_code == Code.OFFSET_OUT_OF_RANGE:
                found[partition] = await self._where_it_begins(partition, positions[partition])
            else:
                refuse(f"reading {self._topic}-{partition}", row)
                found[partition] = self._opened(row, positions[partition])
        return found

    async def _where_it_begins(self, partition: int, position: int) -> ReadRecords:
        """Continues where the partition begins now, if retention has taken what was to be read."""
        start = (await self.starts(range(partition, partition + 1)))[partition]
        if start <= position:
            raise TopicUnreadable(
                f"{self._topic}-{partition} has no offset {position} any more, up to which it was read: records are "
                f"lost there. {self._cure}"
            )
        return ReadRecords([], start, None)

    def _opened(self, row: FetchResponsePartition, position: int) -> ReadRecords:
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        records: list[SourceRecord] = []
        try:
            for batch, header, fault in committed_batches(memoryview(row.records or b""), aborted, position):
                if header is None:
                    raise TopicUnreadable(f"{self._topic}-{row.partition_index} at offset {position}: {fault}")
                if batch is not None:
                    records += _records(batch, header)
                position = header.next_offset
        except WireError as error:
            raise TopicUnreadable(f"{self._topic}-{row.partition_index} at offset {position}: {error}") from error
        return ReadRecords(records, position, row.high_watermark)


def _records(batch: memoryview, header: BatchHeader) -> Iterator[SourceRecord]:
    if not DefaultRecordBatch(bytes(batch)).validate_crc():
        raise WireError("a batch does not match its checksum", message="RecordBatch")
    for record in records_of(batch, _MOST_UNPACKED_BYTES):
        copy = _copy(record)
        yield SourceRecord(record.offset, header.compression, size_of_copy(copy), copy)


def _copy(record: OpenedRecord) -> Copy:
    key = None if record.key is None else bytes(record.key)
    value = None if record.value is None else bytes(record.value)
    return Copy(key, value, record.timestamp, tuple(record.headers))
