"""Opens the records of batches for a worker, so that no batch delays others, however much it holds.

    little            unpacked at once
    more              unpacked in a thread, one batch of the worker at a time
    more than fits    passed over: logged, counted, and known from then on, so that it is not unpacked again

Records are handed on in slices, and between these the event loop has its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Final, Literal, NamedTuple, TypeAlias

import google_crc32c
import structlog

from kordon.codecs.errors import WireError
from kordon.codecs.records import CRC_AT, CRC_FROM, CURRENT_MAGIC
from kordon.codecs.split import COMPRESSION, LogBatch
from kordon.codecs.unpack import OpenedRecord, UnpackedTooLarge, records_in, unpacked
from kordon.proxy.core.errors import KordonError

log = structlog.get_logger(__name__)

OPENED_BYTES: Final = 32 * 1024 * 1024
"""Of one batch, unless the configuration says otherwise."""
_LITTLE_PACKED_BYTES: Final = 64 * 1024
_LITTLE_BYTES: Final = 256 * 1024
"""Size up to which unpacking is faster than handing over to a thread."""
_SLICE_RECORDS: Final = 500
_SLICE_BYTES: Final = 1024 * 1024
_TURN_SECONDS: Final = 0.005
_KNOWN: Final = 10_000
"""Batches that were passed over and are known; some 300 bytes each."""

Reason: TypeAlias = Literal["too_large", "unreadable"]


class BatchAddress(NamedTuple):
    """The place of a batch."""

    topic: str
    partition: int
    """The physical partition."""
    offset: int


class PassedOver(KordonError):  # noqa: N818 - what becomes of a batch, named as operators say it
    """Raised if a batch is never opened: its bytes are those that were written."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Opener:
    """Opens batches for one worker.

    Args:
        limit_bytes: Most bytes of records in a compressed batch, of which each counts some; see `codecs.unpack`.
    """

    def __init__(self, limit_bytes: int = OPENED_BYTES) -> None:
        self.passed: Counter[tuple[str, str]] = Counter()
        """By topic and reason, batches that were passed over."""
        self._limit_bytes = limit_bytes
        self._known: OrderedDict[tuple[BatchAddress, bytes], Reason] = OrderedDict()
        self._one = asyncio.Lock()
        self._turn = time.monotonic()

    async def open(
        self, place: BatchAddress, batch: LogBatch, data: memoryview, take: Callable[[list[OpenedRecord]], None]
    ) -> None:
        """Opens a batch.

        Args:
            batch: The batch's header.
            data: Its bytes, all of them.
            take: Is given its records, in order and in slices. Those before an error have been given.

        Raises:
            PassedOver: The batch holds more than the limit, or no readable records. A retry is useless.
            WireError: The batch was damaged in transit: its checksum is wrong.
        """
        name = (place, bytes(data[:CRC_FROM]))  # with the checksum: another topic of that name has other batches
        if (reason := self._known.get(name)) is not None:
            raise PassedOver(reason)
        try:
            await self._open(batch, data, take)
        except WireError as error:
            if _is_damaged(batch, data):
                raise
            raise self._pass_over(name, batch, error) from error

    async def _open(self, batch: LogBatch, data: memoryview, take: Callable[[list[OpenedRecord]], None]) -> None:
        plain = self._plain_if_little(batch, data)
        async with self._one if plain is None else nullcontext():  # so that the worker holds one large batch at most
            if plain is None:
                plain = await asyncio.to_thread(unpacked, data, self._limit_bytes)
            for records in _slices(records_in(plain)):
                take(records)
                await self._give_way()

    def _plain_if_little(self, batch: LogBatch, data: memoryview) -> memoryview | None:
        if batch.magic == CURRENT_MAGIC and not batch.attributes & COMPRESSION:
            return data
        if len(data) > _LITTLE_PACKED_BYTES:
            return None
        try:
            return unpacked(data, min(_LITTLE_BYTES, self._limit_bytes))
        except UnpackedTooLarge:
            return None

    async def _give_way(self) -> None:
        """Lets others run if this has gone on for a while."""
        if time.monotonic() - self._turn > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn = time.monotonic()

    def _pass_over(self, name: tuple[BatchAddress, bytes], batch: LogBatch, error: WireError) -> PassedOver:
        reason: Reason = "too_large" if isinstance(error, UnpackedTooLarge) else "unreadable"
        place, _ = name
        self._known[name] = reason
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        self.passed[place.topic, reason] += 1
        log.error("batch_passed_over", **place._asdict(), end=batch.next_offset, reason=reason, error=str(error))
        return PassedOver(reason)


def _is_damaged(batch: LogBatch, data: memoryview) -> bool:
    if batch.magic != CURRENT_MAGIC:
        return False  # brokers hold what they store against its checksum
    return int(google_crc32c.value(bytes(data[CRC_FROM:]))) != int.from_bytes(data[CRC_AT:CRC_FROM], "big")


def _slices(records: Iterable[OpenedRecord]) -> Iterator[list[OpenedRecord]]:
    found: list[OpenedRecord] = []
    size = 0
    for record in records:
        found.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(found) >= _SLICE_RECORDS or size >= _SLICE_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found
