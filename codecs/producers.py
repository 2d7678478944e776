"""A DescribeProducers response without construct: partitions may have hundreds of thousands of producers.

The table takes 2.5 µs for each, and holds up all else meanwhile. Here a producer is a row of fixed size, and nothing is
made of it until somebody asks. Rows have a fixed size only while nothing in them is tagged, as in all that Kafka sends
up to now; an answer with tagged fields goes through the table.

Source: DescribeProducersResponse.json; version 0 is flexible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, Self

from kordon.codecs.bodies import DescribeProducersResponseActiveProducer
from kordon.codecs.messages import describe_producers as table
from kordon.codecs.primitives import LARGEST_UVARINT

VERSION: Final = 0
ROWS_OF_A_RUN: Final = 2_000
"""A walk over so many takes some milliseconds; who walks over more lets others have their turn in between."""

_ROW: Final = Struct(">qiiqiqB")
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ih")
_LONGEST_UVARINT: Final = 5


class ProducerRow(NamedTuple):
    """What a leader remembers of a producer; fields are named as in the table."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    """-1: no transaction is open."""

    @property
    def in_transaction(self) -> bool:
        """Whether it has a transaction open there."""
        return self.current_txn_start_offset >= 0


class ProducerRows:
    """The producers of one partition, read while they are walked over.

    Args:
        data: A row of `_ROW` each.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data

    @classmethod
    def of(cls, rows: Iterable[ProducerRow]) -> Self:
        """Makes them of values."""
        return cls(memoryview(b"".join(_ROW.pack(*row, 0) for row in rows)))

    def __len__(self) -> int:
        return len(self._data) // _ROW.size

    def __iter__(self) -> Iterator[ProducerRow]:
        return (ProducerRow._make(row[:-1]) for row in _ROW.iter_unpack(self._data))

    def find(self, producer_ids: Collection[int]) -> dict[int, ProducerRow]:
        """Returns the rows of some producers, by producer id."""
        return {row[0]: ProducerRow._make(row[:-1]) for row in _ROW.iter_unpack(self._data) if row[0] in producer_ids}

    def runs(self) -> Iterator[ProducerRows]:
        """Cuts them into runs of at most `ROWS_OF_A_RUN`, in their order."""
        step = ROWS_OF_A_RUN * _ROW.size
        for begin in range(0, len(self._data), step):
            yield ProducerRows(self._data[begin : begin + step])

    def ids(self) -> Iterator[int]:
        """Returns the producer ids alone."""
        return (row[0] for row in _ROW.iter_unpack(self._data))


class Described(NamedTuple):
    """What a broker says of one partition."""

    error_code: int
    error_message: str | None
    producers: ProducerRows


def parse_producers(body: memoryview) -> dict[tuple[str, int], Described]:
    """Reads the body of a DescribeProducers response of version 0.

    Args:
        body: All of it behind the header; the rows stay a part of it.

    Returns:
        What is said, by topic and partition; of a partition that is named twice, the last.

    Raises:
        WireError: It cannot be read.
    """
    try:
        return _AnswerWalk(body).answer()
    except (_NotPlainError, struct_error):
        return _by_table(body)


class _NotPlainError(Exception):
    """Raised at tagged fields, and at bytes that are no answer: the table tells these apart."""


class _AnswerWalk:
    """Goes through an answer without tagged fields."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = _INT32.size  # throttle_time_ms

    def answer(self) -> dict[tuple[str, int], Described]:
        found: dict[tuple[str, int], Described] = {}
        for _ in range(self._count()):
            name = self._text()
            if name is None:
                raise _NotPlainError
            for _ in range(self._count()):
                index, error_code = _PARTITION.unpack(self._take(_PARTITION.size))
                message = self._text()
                found[name, index] = Described(error_code, message, self._rows())
                self._no_tags()
            self._no_tags()
        self._no_tags()
        if self._at != len(self._body):
            raise _NotPlainError
        return found

    def _rows(self) -> ProducerRows:
        data = self._take(self._count() * _ROW.size)
        tags = bytes(data[_ROW.size - 1 :: _ROW.size])
        if tags.count(0) != len(tags):
            raise _NotPlainError
        return ProducerRows(data)

    def _count(self) -> int:
        value = shift = 0
        for byte in self._body[self._at : self._at + _LONGEST_UVARINT]:
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not 0 < value <= LARGEST_UVARINT:
                    raise _NotPlainError
                return value - 1
            shift += 7
        raise _NotPlainError

    def _text(self) -> str | None:
        if bytes(self._body[self._at : self._at + 1]) == b"\0":
            self._at += 1
            return None
        try:
            return str(self._take(self._count()), "utf-8")
        except UnicodeDecodeError:
            raise _NotPlainError from None

    def _take(self, size: int) -> memoryview:
        taken = self._body[self._at : self._at + size]
        if len(taken) != size:
            raise _NotPlainError
        self._at += size
        return taken

    def _no_tags(self) -> None:
        if bytes(self._take(1)) != b"\0":
            raise _NotPlainError


def _by_table(body: memoryview) -> dict[tuple[str, int], Described]:
    found: dict[tuple[str, int], Described] = {}
    for topic in table.RESPONSE.parse(VERSION, body).topics:
        for row in topic.partitions:
            rows = map(_row, row.active_producers)
            found[topic.name, row.partition_index] = Described(row.error_code, row.error_message, ProducerRows.of(rows))
    return found


def _row(each: DescribeProducersResponseActiveProducer) -> ProducerRow:
    return ProducerRow(
        each.producer_id,
        each.producer_epoch,
        each.last_sequence,
        each.last_timestamp,
        each.coordinator_epoch,
        each.current_txn_start_offset,
    )
