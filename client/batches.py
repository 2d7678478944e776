"""Batches of records that know where each record belongs, and can be taken apart again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka.errors import InvalidTxnState
from aiokafka.producer.message_accumulator import BatchBuilder, MessageBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import RecordMetadata, TopicPartition

from kordon.client.errors import FORGOTTEN, OutcomeUnknownError, TransactionRefusedError
from kordon.client.homes import NO_STAMP
from kordon.codecs.retag import retag

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

Header = tuple[str, bytes | None]
FindPlace = Callable[[int, bytes | None], int]
"""From a partition, and a key that was put there before its topic was managed, to the place of that record."""


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A record of a batch that is taken apart."""

    place: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[Header]
    future: asyncio.Future[RecordMetadata]
    """What `send` has given for it."""


class _Appended(Protocol):
    """What the builder says of a record that it has taken."""

    @property
    def offset(self) -> int: ...


class OrderedBatch(MessageBatch):
    """aiokafka's batch, with the place of each record.

    Attributes:
        stamp: A layout that fits all records of the batch, with which the batch is sent.
        question: Whether it was last sent as a question for its outcome.
        base_sequence: The sequence of its first record, once it was sent.
        in_doubt: Whether it may be written: of an attempt to send it nobody has said that it was not.
        opened: Whether the batch was opened before it was sent. It can get no sequence any more, and has to be split.
    """

    def __init__(self, tp: TopicPartition, builder: BatchBuilder, ttl: float, linger_seconds: float) -> None:
        super().__init__(tp, builder, ttl, linger_seconds)
        self._ctime: float
        self._msg_futures: list[tuple[asyncio.Future[RecordMetadata], _Appended]] = []
        self.stamp = NO_STAMP
        self.question = False
        self.base_sequence = 0
        self.in_doubt = False
        self.opened = False
        self._places: list[int] = []

    def append_at(
        self, place: int, key: bytes | None, value: bytes | None, timestamp_ms: int | None, headers: Sequence[Header]
    ) -> asyncio.Future[RecordMetadata] | None:
        """Adds a record; returns the future of its metadata, None if the batch is full."""
        future: asyncio.Future[RecordMetadata] | None = self.append(key, value, timestamp_ms, headers=headers)
        if future is not None:
            self._places.append(place)
        return future

    def append_held(self, record: HeldRecord) -> bool:
        """Adds a record of a batch that was taken apart; returns whether there was room for it."""
        appended = self._builder.append(
            timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=record.headers
        )
        if appended is None:
            return False
        self._msg_futures.append((record.future, appended))
        self._places.append(record.place)
        return True

    def places(self, find_place: FindPlace) -> Sequence[int]:
        """Returns the places of its records, in their order.

        Args:
            find_place: Finds the place of a record, for a batch that was filled before its topic was managed.
        """
        if len(self._places) < self.record_count:
            self.opened = self.retry_count == 0
            self._places = [find_place(self.tp.partition, record.key) for record in self._records()]
        return self._places

    def pin(self) -> None:
        """All its records are for its partition, whatever their keys."""
        self._places = [~self.tp.partition] * self.record_count

    def forget_places(self) -> None:
        """Forgets all places: the topic was created again, with other virtual partitions."""
        self._places = []

    def inherit(self, held_in: OrderedBatch) -> None:
        """Takes over the age of a batch that was taken apart: its records have lingered, or a commit waits for them."""
        self._ctime = min(self._ctime, held_in._ctime, time.monotonic() - self._linger_time)

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Takes its identity when it is sent for the first time."""
        self.base_sequence = base_sequence
        super().set_producer_state(producer_id, producer_epoch, base_sequence)

    def take_identity(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Takes another identity than that under which it was to go out, or was sent and refused."""
        self.base_sequence = base_sequence
        if self._builder._buffer is None:
            self._builder._set_producer_state(producer_id, producer_epoch, base_sequence)
            return
        built = bytearray(self._builder._buffer)
        retag(built, 0, producer_id, producer_epoch, base_sequence)
        self._builder._buffer = built

    @property
    def failed_by(self) -> BaseException | None:
        """The error that it has ended with; None: it has not, or is written."""
        return self.future.exception() if self.future.done() and not self.future.cancelled() else None

    def failure(self, exception: BaseException) -> None:
        """Fails the futures of its records."""
        if self.in_doubt and isinstance(exception, FORGOTTEN):
            exception = OutcomeUnknownError(self.tp, exception)
        elif isinstance(exception, InvalidTxnState):
            exception = TransactionRefusedError([self.tp.topic])
        super().failure(exception)
        self._drain_waiter.exception()  # whoever waits for room is told; nobody may

    def done(
        self,
        base_offset: int,
        timestamp: int | None = None,
        log_start_offset: int | None = None,
        _record_metadata_class: type[RecordMetadata] = RecordMetadata,
    ) -> None:
        """Resolves the futures of its records.

        An offset of -1 says that the batch was written, but not where: each of its records gets -1.
        """
        if base_offset >= 0:
            super().done(base_offset, timestamp, log_start_offset)
            return
        metadata = _record_metadata_class(self.tp.topic, self.tp.partition, self.tp, -1, timestamp, 0, log_start_offset)
        for future in (self.future, *(future for future, _ in self._msg_futures)):
            if not future.done():
                future.set_result(metadata)

    def take_apart(self, find_place: FindPlace) -> Iterator[HeldRecord]:
        """Yields its records, to be put into other batches; it is done when they are. It must not be sent again."""
        loop = asyncio.get_running_loop()
        asked = {metadata.offset: future for future, metadata in self._msg_futures}
        futures = [asked.get(offset) or loop.create_future() for offset in range(self.record_count)]
        places = self.places(find_place)
        for record, place, future in zip(self._records(), places, futures, strict=True):
            yield HeldRecord(place, record.key, record.value, record.timestamp, record.headers, future)
        if not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        self._msg_futures = []
        asyncio.gather(*futures, return_exceptions=True).add_done_callback(self._end_with)

    def _records(self) -> Iterable[Any]:
        return MemoryRecords(bytes(self.get_data_buffer())).next_batch() or ()

    def _end_with(self, records: asyncio.Future[list[RecordMetadata | BaseException]]) -> None:
        if self.future.done():
            return
        outcomes = records.result()
        failures = [each for each in outcomes if isinstance(each, Exception)]
        if failures:
            self.future.set_exception(failures[0])
            self.future.exception()  # each record has told its own
        else:
            known = (each for each in outcomes if isinstance(each, RecordMetadata))
            self.future.set_result(next(known, None))
