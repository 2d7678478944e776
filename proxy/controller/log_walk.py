"""Goes through the logs of a topic, batch by batch, and over what retention and compaction have taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import structlog

from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched
from kordon.codecs.records import look_batch
from kordon.codecs.split import CONTROL, LogBatch, split
from kordon.codecs.unpack import OpenedRecord
from kordon.codecs.witness import is_witness
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batched_fetcher import WAIT_MS, Want
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.opening import BatchAddress, Opener, PassedOver
from kordon.proxy.ordering.janitor import FormerHomes, Visible
from kordon.proxy.ordering.reading import Hidden

log = structlog.get_logger(__name__)

_EMPTY_ANSWERS: Final = 5
"""In a row, to requests that ask for nothing else, after which nothing stands below the high watermark."""
_RETRY_SECONDS: Final = 0.2
_TRANSACTIONAL: Final = 0x10
"""The attribute bit of a batch of a transaction, of which data have none in the log."""


class Stretch(NamedTuple):
    """The part of a log that begins at an offset."""

    partition: int
    records: memoryview
    batches: list[LogBatch]
    """Whole batches, of which the first may begin before the offset."""
    next_offset: int
    """The offset at which to continue."""
    high_watermark: int

    def seen(self, homes: FormerHomes, batch: LogBatch) -> Visible | Hidden:
        """Says what one of the batches is; see `FormerHomes.look`."""
        is_control = bool(batch.attributes & CONTROL)
        if batch.attributes & _TRANSACTIONAL and not is_control and self._is_witness(batch):
            return Hidden.CONTROL
        return homes.look(self.partition, batch.producer_id, batch.base_offset, is_control=is_control)

    def _is_witness(self, batch: LogBatch) -> bool:
        return is_witness(look_batch(self.records, batch.start), self.records[batch.start : batch.end])


class LogWalk:
    """Reads the logs of one topic."""

    def __init__(
        self, topic: str, pull: Callable[[Want], Awaitable[Fetched]], ends: PartitionEnds, opener: Opener
    ) -> None:
        self.read_bytes = 0
        self.opened = 0
        """The number of records that were opened."""
        self._topic = topic
        self._pull = pull
        self._ends = ends
        self._opener = opener
        self._starts: dict[int, int] = {}

    async def read(self, partition: int, position: int, *, waits: bool = False) -> Stretch:
        """Reads about a megabyte from an offset on; at the log's end it `waits` some seconds for something to come.

        Raises:
            UpstreamUnavailable: The leader does not answer, or its answer does not let the walk continue.
        """
        known_start = self._starts.get(partition, -1)
        fetched = await self._pull(Want(self._topic, partition, position, WAIT_MS if waits else 0, known_start))
        if fetched.error_code == Code.OFFSET_OUT_OF_RANGE:
            return await self._read_from_start(partition, position)
        for _ in range(_EMPTY_ANSWERS):
            stretch = self._stretch(partition, position, fetched)
            if stretch.batches or position >= stretch.high_watermark:
                return stretch
            await asyncio.sleep(_RETRY_SECONDS)
            fetched = await self._pull(Want(self._topic, partition, position, 0, is_alone=True))
        stretch = self._stretch(partition, position, fetched)
        return stretch if stretch.batches else stretch._replace(next_offset=stretch.high_watermark)

    async def open(self, stretch: Stretch, batch: LogBatch, take: Callable[[Sequence[OpenedRecord]], None]) -> bool:
        """Opens a batch of a stretch, and gives `take` its records in order and in slices.

        Returns:
            Whether all of its records have been given. Of one that is too large, or cannot be read, none or some have;
            what has happened is logged.
        """

        def count(records: Sequence[OpenedRecord]) -> None:
            self.opened += len(records)
            take(records)

        place = BatchAddress(self._topic, stretch.partition, batch.base_offset)
        try:
            await self._opener.open(place, batch, stretch.records[batch.start : batch.end], count)
        except PassedOver:
            return False
        except WireError as error:
            log.error("batch_unreadable", **place._asdict(), error=str(error))
            return False
        return True

    async def _read_from_start(self, partition: int, position: int) -> Stretch:
        (start,) = (await self._ends.log_starts(self._topic, [partition])).values()
        if start == position:
            raise UpstreamUnavailable(
                f"{self._topic}-{partition} cannot be read at offset {position}, where its log begins"
            )
        return await self.read(partition, start)

    def _stretch(self, partition: int, position: int, fetched: Fetched) -> Stretch:
        if fetched.error_code:
            raise UpstreamUnavailable(f"reading {self._topic}-{partition}: {name_of(fetched.error_code)}")
        self._starts[partition] = fetched.log_start_offset
        self.read_bytes += len(fetched.records)
        try:
            batches = [batch for batch in split(fetched.records) if batch.next_offset > position]
        except WireError as error:
            raise UpstreamUnavailable(f"reading {self._topic}-{partition}: {error}") from error
        end = batches[-1].next_offset if batches else position
        return Stretch(partition, fetched.records, batches, end, fetched.high_watermark)
