"""Produce on the hot path: requests walked without copying a record, built in pieces, and their answers read.

The tables of `kordon.codecs.messages.produce` define all of it; property tests prove that what is here reads and writes
the same. A walk costs a few microseconds for a request where the table costs a hundred, and leaves the records where
they are.

Source: ProduceRequest.json, ProduceResponse.json in Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct as Layout
from struct import error as struct_error
from typing import Final, NamedTuple
from uuid import UUID

from kordon.codecs.errors import TooManyRows, WireError
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import LARGEST_UVARINT, RowBudget, uvarint

FLEXIBLE: Final = 9
_WITH_TRANSACTIONAL_ID: Final = 3
_WITH_TOPIC_IDS: Final = 13
_WITH_APPEND_TIME: Final = 2
_WITH_LOG_START: Final = 5
_WITH_RECORD_ERRORS: Final = 8
_LONGEST_UVARINT: Final = 5
_UUID_BYTES: Final = 16
_UNDELETED_PARTITION_COUNT: Final = 16384
_LAYOUT_EPOCH: Final = 16385
"""The tags of the dialect's fields in a topic."""

_NO_LAYOUT: Final = (-1, -1)
_INT16: Final = Layout(">h")
_INT32: Final = Layout(">i")
_INT64: Final = Layout(">q")
_ACKS: Final = Layout(">hi")
_OUTCOME: Final = Layout(">ihq")
_WHOLE_OUTCOME: Final = Layout(">ihqqq3s")
"""One of a flexible version, with `_NOTHING_MORE`."""
_NOTHING_MORE: Final = b"\1\0\0"
"""No record errors, no message, no tagged fields: the end of nearly every outcome of a flexible version."""


class PartitionData(NamedTuple):
    """What a request writes to one partition (`index` in the table, which is a method of tuples)."""

    partition: int
    records: memoryview | None
    """A part of the request, not a copy."""


class TopicData(NamedTuple):
    """What a request writes to one topic; the partitions' rows stand before the tags (the table's order)."""

    name: str
    """Empty in versions with topic ids."""
    topic_id: UUID | None
    """None in versions with names."""
    partition_data: list[PartitionData]
    undeleted_partition_count: int = -1
    """The number by which a dialect client chose the partitions."""
    layout_epoch: int = -1
    """The epoch of the layout that has this count for a dialect client. A later layout may have it again."""


class ProduceRequest(NamedTuple):
    """A Produce request; fields are named as in the table."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicData]


class WriteOutcome(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    """Index of a record, and what is wrong with it."""
    error_message: str | None = None


class _MessageWalk:
    """A place in a message, and what reads from it; all lengths are held against the bytes that are there."""

    __slots__ = ("at", "buffer", "end", "flexible", "rows")

    def __init__(self, buffer: memoryview, *, flexible: bool, rows: RowBudget | None = None) -> None:
        self.buffer = buffer
        self.at = 0
        self.end = len(buffer)
        self.flexible = flexible
        self.rows = rows

    def number(self, layout: Layout) -> int:
        value: int = layout.unpack_from(self.buffer, self.at)[0]
        self.at += layout.size
        return value

    def uvarint(self) -> int:
        if self.at < self.end and (byte := self.buffer[self.at]) < 0x80:  # nearly all are
            self.at += 1
            return byte
        value = shift = 0
        for byte in self.buffer[self.at : self.at + _LONGEST_UVARINT]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.at += shift // 7
                if value > LARGEST_UVARINT:
                    break
                return value
        raise WireError("no unsigned varint of 31 bits", offset=self.at)

    def length(self, layout: Layout, *, nullable: bool) -> int:
        """Reads the length of bytes, or the count of elements, each of which takes a byte or more."""
        length = self.uvarint() - 1 if self.flexible else self.number(layout)
        if length < -nullable or length > self.end - self.at:
            raise WireError(f"length {length}, but {self.end - self.at} bytes remain", offset=self.at)
        return length

    def count(self) -> int:
        """Reads how many rows follow."""
        count = self.length(_INT32, nullable=False)
        if self.rows is not None:
            self.rows.take(count, self.at)
        return count

    def text(self, *, nullable: bool = False) -> str | None:
        length = self.length(_INT16, nullable=nullable)
        if length < 0:
            return None
        start, self.at = self.at, self.at + length
        try:
            return str(self.buffer[start : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"string is not UTF-8: {error.reason}", offset=start) from None

    def records(self) -> memoryview | None:
        length = self.length(_INT32, nullable=True)
        if length < 0:
            return None
        start, self.at = self.at, self.at + length
        return self.buffer[start : self.at]

    def partition(self) -> PartitionData:
        index, records = self.number(_INT32), self.records()
        self.skip_tags()
        return PartitionData(index, records)

    def topic(self, version: int) -> tuple[str, UUID | None]:
        if version < _WITH_TOPIC_IDS:
            return self.text() or "", None
        start, self.at = self.at, self.at + _UUID_BYTES
        if self.at > self.end:
            raise WireError("ends inside a topic id", offset=start)
        return "", UUID(bytes=bytes(self.buffer[start : self.at]))

    def skip_tags(self) -> None:
        if not self.flexible:
            return
        if self.at < self.end and not self.buffer[self.at]:  # there are none
            self.at += 1
            return
        for _, _, end in self.tags():
            self.at = end

    def tags(self) -> Iterator[tuple[int, int, int]]:
        """Yields each tag, where its bytes begin and where they end; whoever iterates moves `at` behind them."""
        count = self.uvarint()
        if self.rows is not None:
            self.rows.take(count, self.at)
        for _ in range(count):
            tag, length = self.uvarint(), self.uvarint()
            if length > self.end - self.at:
                raise WireError(f"tagged field of {length} bytes, but {self.end - self.at} remain", offset=self.at)
            yield tag, self.at, self.at + length

    def layout_known(self) -> tuple[int, int]:
        """Reads the tags that end a topic: undeleted_partition_count and layout_epoch, which dialect clients send."""
        if not self.flexible:
            return _NO_LAYOUT
        if self.at < self.end and not self.buffer[self.at]:  # there are none
            self.at += 1
            return _NO_LAYOUT
        count, epoch = _NO_LAYOUT
        for tag, start, end in self.tags():
            if tag == _UNDELETED_PARTITION_COUNT:
                count = self._tagged_number(start, end)
            elif tag == _LAYOUT_EPOCH:
                epoch = self._tagged_number(start, end)
            self.at = end
        return count, epoch

    def _tagged_number(self, start: int, end: int) -> int:
        if end - start != _INT32.size:
            raise WireError(f"an int32 of {end - start} bytes", offset=start)
        value: int = _INT32.unpack_from(self.buffer, start)[0]
        return value


def look_produce(version: int, body: Buffer, rows: RowBudget | None = None) -> ProduceRequest:
    """Reads a Produce request; its records stay where they are; of tagged fields only the dialect's are looked at.

    Args:
        version: 0 to 13.
        body: All of it behind the header; brokers ignore bytes behind its end, and so does this.
        rows: How many rows may be read; None: as many as there are.

    Raises:
        TooManyRows: There are more rows than that.
        WireError: It cannot be read.
    """
    walk = _MessageWalk(memoryview(body), flexible=version >= FLEXIBLE, rows=rows)
    try:
        return _request(walk, version)
    except (struct_error, WireError) as error:
        raise _unreadable(error, "ProduceRequest", version, walk.at) from None


def _request(walk: _MessageWalk, version: int) -> ProduceRequest:
    transactional_id = walk.text(nullable=True) if version >= _WITH_TRANSACTIONAL_ID else None
    acks, timeout_ms = _ACKS.unpack_from(walk.buffer, walk.at)
    walk.at += _ACKS.size
    topics: list[TopicData] = []
    for _ in range(walk.count()):
        name, topic_id = walk.topic(version)
        partitions = [walk.partition() for _ in range(walk.count())]
        topics.append(TopicData(name, topic_id, partitions, *walk.layout_known()))
    walk.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


Batches = Iterable[tuple[str, Sequence[tuple[int, Buffer]]]]
"""By topic, the partitions' indexes and their records."""


def build_produce(version: int, acks: int, timeout_ms: int, topics: Batches) -> list[Buffer]:
    """Writes a Produce request without a transaction, in pieces; records are not copied.

    Args:
        version: 3 to 12.
        acks: 1 or -1.
        timeout_ms: How long the broker may wait for copies.
    """
    flexible = version >= FLEXIBLE
    pieces: list[Buffer] = []
    rows = list(topics)
    text = (b"\0" if flexible else b"\xff\xff") + _ACKS.pack(acks, timeout_ms) + _count(len(rows), flexible)
    for name, partitions in rows:
        text += _text(name, flexible) + _count(len(partitions), flexible)
        for index, records in partitions:
            pieces += (text + _INT32.pack(index) + _count(len(records), flexible), records)
            text = b"\0" if flexible else b""  # no tagged fields
        text += b"\0" if flexible else b""
    pieces.append(text + (b"\0" if flexible else b""))
    return pieces


def _count(length: int, flexible: bool) -> bytes:
    return uvarint(length + 1) if flexible else _INT32.pack(length)


def look_outcomes(version: int, body: Buffer) -> list[tuple[str, list[WriteOutcome]]]:
    """Reads the answer to a Produce request, without leaders and their addresses (KIP-951).

    Args:
        version: 3 to 12.
        body: All of it behind the header.

    Returns:
        By topic, what became of its partitions.

    Raises:
        WireError: It cannot be read.
    """
    walk = _MessageWalk(memoryview(body), flexible=version >= FLEXIBLE)
    try:
        return _outcomes(walk, version)
    except (struct_error, WireError) as error:
        raise _unreadable(error, "ProduceResponse", version, walk.at) from None


def _outcomes(walk: _MessageWalk, version: int) -> list[tuple[str, list[WriteOutcome]]]:
    topics: list[tuple[str, list[WriteOutcome]]] = []
    for _ in range(walk.length(_INT32, nullable=False)):
        name, _ = walk.topic(version)
        topics.append((name, [_outcome(walk, version) for _ in range(walk.length(_INT32, nullable=False))]))
        walk.skip_tags()
    return topics


def _outcome(walk: _MessageWalk, version: int) -> WriteOutcome:
    if version >= FLEXIBLE and walk.end - walk.at >= _WHOLE_OUTCOME.size:
        *fields, more = _WHOLE_OUTCOME.unpack_from(walk.buffer, walk.at)
        if more == _NOTHING_MORE:
            walk.at += _WHOLE_OUTCOME.size
            return WriteOutcome(*fields)
    index, error_code, base_offset = _OUTCOME.unpack_from(walk.buffer, walk.at)
    walk.at += _OUTCOME.size
    append_time = walk.number(_INT64) if version >= _WITH_APPEND_TIME else -1
    log_start = walk.number(_INT64) if version >= _WITH_LOG_START else -1
    if version < _WITH_RECORD_ERRORS:
        return WriteOutcome(index, error_code, base_offset, append_time, log_start)
    count = walk.length(_INT32, nullable=False)
    record_errors = tuple(_record_error(walk) for _ in range(count)) if count else ()
    message = walk.text(nullable=True)
    walk.skip_tags()
    return WriteOutcome(index, error_code, base_offset, append_time, log_start, record_errors, message)


Answered = Iterable[tuple[str, UUID | None, Sequence[WriteOutcome]]]
"""By topic, named by its name or, where versions have ids, by its id: what became of its partitions."""


def build_outcomes(version: int, topics: Answered) -> bytes:
    """Writes the answer to a Produce request; it names no leaders, and nobody was throttled.

    Args:
        version: 0 to 13.
        topics: What became of all.
    """
    flexible = version >= FLEXIBLE
    none = b"\0" if flexible else b""
    rows = list(topics)
    pieces = [_count(len(rows), flexible)]
    for name, topic_id, outcomes in rows:
        if version >= _WITH_TOPIC_IDS:
            pieces.append(topic_id.bytes if topic_id is not None else bytes(_UUID_BYTES))
        else:
            pieces.append(_text(name, flexible))
        pieces.append(_count(len(outcomes), flexible))
        for outcome in outcomes:
            if flexible and not outcome.record_errors and outcome.error_message is None:
                pieces.append(_WHOLE_OUTCOME.pack(*outcome[:5], _NOTHING_MORE))
                continue
            pieces.append(_OUTCOME.pack(outcome.partition, outcome.error_code, outcome.base_offset))
            if version >= _WITH_APPEND_TIME:
                pieces.append(_INT64.pack(outcome.log_append_time_ms))
            if version >= _WITH_LOG_START:
                pieces.append(_INT64.pack(outcome.log_start_offset))
            if version >= _WITH_RECORD_ERRORS:
                pieces.append(_count(len(outcome.record_errors), flexible))
                pieces += [_INT32.pack(at) + _text(what, flexible) + none for at, what in outcome.record_errors]
                pieces.append(_text(outcome.error_message, flexible))
            pieces.append(none)
        pieces.append(none)
    if version >= 1:
        pieces.append(_INT32.pack(0))
    pieces.append(none)
    return b"".join(pieces)


def _text(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw


def _record_error(walk: _MessageWalk) -> tuple[int, str | None]:
    found = walk.number(_INT32), walk.text(nullable=True)
    walk.skip_tags()
    return found


def _unreadable(error: Exception, message: str, version: int, at: int) -> WireError:
    if isinstance(error, TooManyRows):
        return error.within(message, version)
    reason = error.reason if isinstance(error, WireError) else "ends too early"
    place = error.offset if isinstance(error, WireError) and error.offset is not None else at
    return WireError(reason, message=message, version=version, offset=place)
