"""A reader of the dialect without a group, for tests: it owns all partitions and says itself where it stands."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from aiokafka.record.memory_records import MemoryRecords

from kordon.codecs.dialect import INVALID_PARTITION_METADATA
from kordon.codecs.split import CONTROL, split
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.waiting import wait_until


class Read(NamedTuple):
    """A record as it was delivered."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def records_of(row: Any) -> list[Read]:
    """Returns the records in a partition's row of a Fetch answer; fillers hold none."""
    found: list[Read] = []
    for batch in split(row.records or b""):
        if batch.attributes & CONTROL:
            continue
        opened: Any = MemoryRecords(bytes(row.records[batch.start : batch.end])).next_batch()
        found += [Read(row.partition_index, each.offset, each.key, each.value) for each in opened]
    return found


def next_offset(row: Any, offset: int) -> int:
    """Returns where a reader goes on that stood at an offset."""
    batches = split(row.records or b"")
    return max(offset, batches[-1].next_offset) if batches else offset


class DialectReader:
    """Reads a topic from its beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.connection = DialectConnection(bootstrap)
        self.positions: dict[int, int] = {}
        """By physical partition, the next offset."""
        self.delivered: list[Read] = []
        self.refusals = 0
        """Answers that said that its count was wrong."""
        self._topic = topic
        self._count = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def refresh(self) -> None:
        row = self.connection.metadata(self._topic)
        self._count = row.undeleted_partition_count
        for partition in row.partitions:
            self.positions.setdefault(partition.partition_index, 0)

    def read(self, *partitions: int, max_wait_ms: int = 200) -> dict[int, Any]:
        """Reads once; returns the answer's rows by partition."""
        if self._count < 0:
            self.refresh()
        told = [{"partition": q, "position": position} for q, position in self.positions.items()]
        asked = {q: position for q, position in self.positions.items() if q in partitions or not partitions}
        rows = self.connection.fetch(self._topic, asked, self._count, positions=told, max_wait_ms=max_wait_ms)
        if any(row.error_code == INVALID_PARTITION_METADATA for row in rows.values()):
            self.refusals += 1
            self.refresh()
            return rows
        assert not any(row.error_code for row in rows.values()), rows
        for q, row in rows.items():
            self.delivered += [each for each in records_of(row) if each.offset >= self.positions[q]]
            self.positions[q] = next_offset(row, self.positions[q])
        return rows

    def read_until(self, count: int, *partitions: int) -> None:
        """Reads on until so many records were delivered; raises TimeoutError."""

        def has_all() -> bool:
            self.read(*partitions)
            return len(self.delivered) >= count

        wait_until(f"{count} records of {self._topic} are read", has_all)

    @property
    def numbered(self) -> list[tuple[bytes, int]]:
        """What was delivered, where values are numbers."""
        return [(each.key or b"", int(each.value or b"-1")) for each in self.delivered]
