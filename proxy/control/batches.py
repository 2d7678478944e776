"""Records of Kordon's own topics, as batches and back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from kordon.codecs.errors import WireError
from kordon.codecs.records import HEADER_BYTES, ControlType, batches, parse_control_batch
from kordon.codecs.schema import Buffer

NO_COMPRESSION: Final = 0
ZSTD: Final = 4


class Entry(NamedTuple):
    """A record to be written."""

    key: str
    value: bytes | None
    """JSON; None takes the key out."""


class Copy(NamedTuple):
    """A record to be written as it is, whoever's it was."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    key: str
    value: bytes | None
    """JSON; None: the key is out."""
    offset: int


class Identity(NamedTuple):
    """Who writes a batch, so that a broker takes it once."""

    producer_id: int
    producer_epoch: int
    base_sequence: int

    def after(self, count: int) -> Identity:
        """Returns the identity of the batch that follows one of `count` records."""
        return self._replace(base_sequence=(self.base_sequence + count) & 0x7FFFFFFF)


def build_batch(
    entries: Sequence[Entry], identity: Identity, *, is_transactional: bool, codec: int = NO_COMPRESSION
) -> bytes:
    """Makes one batch of magic 2, with the time of now.

    Args:
        entries: At least one.
        identity: Of its producer.
        is_transactional: Whether it belongs to a transaction.
        codec: By which it is compressed.
    """
    now_ms = time.time_ns() // 1_000_000
    copies = [Copy(entry.key.encode(), entry.value, now_ms) for entry in entries]
    return build_copies(copies, identity, is_transactional=is_transactional, codec=codec)


def build_copies(
    copies: Sequence[Copy], identity: Identity, *, is_transactional: bool = False, codec: int = NO_COMPRESSION
) -> bytes:
    """Makes one batch of magic 2.

    Args:
        copies: At least one.
        identity: Of its producer.
        is_transactional: Whether it belongs to a transaction.
        codec: By which it is compressed.
    """
    size = sum(map(size_of_copy, copies)) + HEADER_BYTES
    builder: Any = DefaultRecordBatchBuilder(2, codec, is_transactional, *identity, size)
    for place, copy in enumerate(copies):
        kept = builder.append(place, copy.timestamp_ms, copy.key, copy.value, list(copy.headers))
        assert kept is not None  # the size was made for them
    return bytes(builder.build())


def size_of(entry: Entry) -> int:
    """Returns the most bytes that a record takes in a batch."""
    return size_of_copy(Copy(entry.key.encode(), entry.value, 0))


def size_of_copy(copy: Copy) -> int:
    """Returns the most bytes that a record takes in a batch."""
    return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(copy.key, copy.value, list(copy.headers)))


def in_batches(entries: Sequence[Entry], limit_bytes: int) -> Iterator[list[Entry]]:
    """Splits records into runs that fit into a batch each.

    Raises:
        ValueError: One alone does not.
    """
    run: list[Entry] = []
    left = limit_bytes
    for entry in entries:
        size = size_of(entry)
        if size > limit_bytes:
            raise ValueError(f"the record {entry.key} has {size} bytes, more than a batch takes ({limit_bytes})")
        if size > left:
            yield run
            run, left = [], limit_bytes
        run.append(entry)
        left -= size
    if run:
        yield run


class Committed(NamedTuple):
    """What a Fetch at read_committed holds."""

    records: list[Record]
    next_offset: int
    """Where the next Fetch begins."""


def committed(buffer: Buffer, aborted: Sequence[tuple[int, int]], position: int) -> Committed:
    """Reads what a Fetch at read_committed brought, and leaves out what belongs to aborted transactions.

    Args:
        buffer: The records field.
        aborted: (producer id, first offset) of each aborted transaction in it, as the broker told.
        position: The offset that was asked for; what lies before it in the first batch is left out.

    Raises:
        WireError: A batch cannot be read.
    """
    to_come = sorted(aborted, key=lambda transaction: transaction[1])
    skipped: set[int] = set()
    records: list[Record] = []
    view = memoryview(buffer)
    for span in batches(view):
        header = span.header
        if header is None:
            continue  # magic 0 or 1: nobody who may write here makes it
        while to_come and to_come[0][1] <= header.base_offset:
            skipped.add(to_come.pop(0)[0])
        if header.is_control:
            if parse_control_batch(view[span.start : span.end]).type is ControlType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            records += [each for each in _records(view[span.start : span.end]) if each.offset >= position]
        position = max(position, header.next_offset)
    return Committed(records, position)


def _records(batch: memoryview) -> Iterator[Record]:
    opened = DefaultRecordBatch(bytes(batch))
    if not opened.validate_crc():
        raise WireError("a batch does not have the checksum that it claims", message="RecordBatch", offset=0)
    for record in opened:
        value = None if record.value is None else bytes(record.value)
        yield Record(bytes(record.key or b"").decode(errors="replace"), value, record.offset)
