"""Records of Kordon's own topics, as batches and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.records import HEADER_BYTES, BatchHeader, ControlType, batches, parse_control_batch
from kordon.codecs.unpack import records_of
from kordon.proxy.runtime.clock import now_ms

MOST_UNPACKED_BYTES: Final = 4 * 1024 * 1024
"""Of a compressed batch, which Kordon's own never are; somebody may have restored a log with such."""
NO_COMPRESSION: Final = 0
ZSTD: Final = 4
_NO_TIME: Final = -1


class NewRecord(NamedTuple):
    """A record to be written."""

    key: str
    value: bytes | None
    """JSON; None takes the key out."""


class Copy(NamedTuple):
    """A record to be written as it is, whoever's it was."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    """None: when it is written; a record of magic 0 has no time."""
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    key: str
    value: bytes | None
    """JSON; None: the key is out."""
    offset: int
    producer_id: int = -1
    """In whose transaction it was written; -1: in none."""
    fault: str = ""
    """What is wrong with the batch in which it came: what it says is not to be believed. One without a key stands for
    all of a batch that could not be taken apart."""
    timestamp_ms: int = field(default=_NO_TIME, compare=False)
    """As the record says; of one with a fault it means nothing."""


class BatchIdentity(NamedTuple):
    """The identity of a batch's writer, so that a broker takes the batch once."""

    producer_id: int
    producer_epoch: int
    base_sequence: int

    def after(self, count: int) -> BatchIdentity:
        """Returns the identity of the batch that follows one of `count` records."""
        return self._replace(base_sequence=(self.base_sequence + count) & 0x7FFFFFFF)


def build_batch(
    entries: Sequence[NewRecord], identity: BatchIdentity, *, is_transactional: bool, codec: int = NO_COMPRESSION
) -> bytes:
    """Makes one batch of magic 2, with the time of now.

    Args:
        entries: At least one record.
        is_transactional: Whether it belongs to a transaction.
        codec: The codec that compresses the batch.
    """
    written_ms = now_ms()
    copies = [Copy(entry.key.encode(), entry.value, written_ms) for entry in entries]
    return build_copies(copies, identity, is_transactional=is_transactional, codec=codec)


def build_copies(
    copies: Sequence[Copy], identity: BatchIdentity, *, is_transactional: bool = False, codec: int = NO_COMPRESSION
) -> bytes:
    """Makes one batch of magic 2.

    Args:
        copies: At least one record.
        is_transactional: Whether it belongs to a transaction.
        codec: The codec that compresses the batch.
    """
    size = sum(map(size_of_copy, copies)) + HEADER_BYTES
    builder = DefaultRecordBatchBuilder(2, codec, is_transactional, *identity, size)
    for place, copy in enumerate(copies):
        kept = builder.append(place, copy.timestamp_ms, copy.key, copy.value, list(copy.headers))
        assert kept is not None  # the size was made for them
    return bytes(builder.build())


def size_of(entry: NewRecord) -> int:
    """Returns the most bytes that a record takes in a batch."""
    return size_of_copy(Copy(entry.key.encode(), entry.value, 0))


def size_of_copy(copy: Copy) -> int:
    """Returns the most bytes that a record takes in a batch."""
    return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(copy.key, copy.value, list(copy.headers)))


def in_batches(entries: Sequence[NewRecord], limit_bytes: int) -> Iterator[list[NewRecord]]:
    """Splits records into runs that fit into a batch each.

    Raises:
        ValueError: One alone does not.
    """
    run: list[NewRecord] = []
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


class Committed:
    """What a Fetch at read_committed brought, without what belongs to aborted transactions; gone over once.

    Very many tiny records take long to read, so whoever goes over them can do something else between any two.
    Whatever cannot be read is passed, and told by a record with a fault, so that it holds up nothing behind it.

    Args:
        aborted: (producer id, first offset) of each aborted transaction in it, as the broker told.
        position: The offset that was asked for; what lies before it in the first batch is left out.
        end: The high watermark; no batch reaches beyond it.

    Attributes:
        next_offset: Where the next Fetch begins, when all has been gone over.
    """

    def __init__(self, buffer: Buffer, aborted: Iterable[tuple[int, int]], position: int, end: int) -> None:
        self.next_offset = position
        self._batches = committed_batches(memoryview(buffer), aborted, position)
        self._end = end

    def __iter__(self) -> Iterator[Record | None]:
        """Yields the records; None in place of one that is left out, and behind each batch."""
        for batch, header, fault in self._batches:
            position = self.next_offset
            if header is None:
                yield Record("", None, position, fault=fault)
                self.next_offset += 1
                continue
            for each in _records(batch, header) if batch is not None else ():
                yield each if each.offset >= position or each.fault else None
            yield None
            # a damaged header may say anything
            self.next_offset = header.next_offset if position < header.next_offset <= self._end else position + 1


def committed_batches(
    view: memoryview, aborted: Iterable[tuple[int, int]], position: int
) -> Iterator[tuple[memoryview | None, BatchHeader | None, str]]:
    """Yields the batches of a Fetch at read_committed from a position on.

    Args:
        aborted: (producer id, first offset) of each aborted transaction in it, as the broker told.

    Yields:
        A batch, None where its records do not count: of an aborted transaction, or control. Its header; None, and what
        is wrong, for what is no batch of magic 2.
    """
    left = deque(sorted(aborted, key=lambda transaction: transaction[1]))
    skipped: set[int] = set()
    for batch, header, fault in _walk(view, position):
        if header is None:
            yield batch, None, fault
            continue
        while left and left[0][1] <= header.base_offset:
            skipped.add(left.popleft()[0])
        if header.is_control and _ends_in_abort(batch):
            skipped.discard(header.producer_id)
        counts = not header.is_control and not (header.is_transactional and header.producer_id in skipped)
        yield batch if counts else None, header, ""


def _walk(view: memoryview, position: int) -> Iterator[tuple[memoryview, BatchHeader | None, str]]:
    """Returns the batches from a position on; without a header, and with the reason, what is no batch of magic 2."""
    try:
        for span in batches(view):
            batch, header = view[span.start : span.end], span.header
            if header is None:
                yield batch, None, f"it is a message of magic {span.magic}, which Kordon does not write"
            elif header.next_offset > position:  # brokers give the whole batch in which a position lies
                yield batch, header, ""
    except WireError as error:  # where the next one begins is not known
        yield view[:0], None, str(error)


def _ends_in_abort(batch: memoryview) -> bool:
    try:
        return parse_control_batch(batch).type is ControlType.ABORT
    except WireError:
        return False


def _records(batch: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Opens a batch; where its checksum is wrong, its keys tell at least what it may have been about."""
    producer_id = header.producer_id if header.is_transactional else -1
    fault = "" if DefaultRecordBatch(bytes(batch)).validate_crc() else "its batch does not match its checksum"
    try:
        for record in records_of(batch, MOST_UNPACKED_BYTES):
            value = None if record.value is None else bytes(record.value)
            key = bytes(record.key or b"").decode(errors="replace")
            yield Record(
                key,
                value,
                record.offset,
                producer_id,
                fault,
                _NO_TIME if record.timestamp is None else record.timestamp,
            )
    except WireError as error:
        yield Record("", None, header.base_offset, fault=str(error))
