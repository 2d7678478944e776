"""A topic of Kordon's own as every proxy reads it, and as each may write to it outside of transactions.

What is committed there is given to one function, record by record, forever. To read it to its end, a question for the
end offset would not do: a leader that has been deposed and does not know it yet answers it with an old one. So a mark
is written (acks=all) and read back; what was committed before stands before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final
from uuid import UUID

import structlog

from kordon.codecs.bodies import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.errors import WireError
from kordon.codecs.turns import MOST_BYTES_AT_ONCE
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.kafka.batches import Committed, NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.fetch_requests import fetch_committed
from kordon.proxy.kafka.plain_writer import APPEND_SECONDS, PlainWriter
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.clock import clock

log = structlog.get_logger(__name__)

MARK: Final = "mark"
"""Key of the records by which the end is found; they have no value and are given to nobody."""
END_SECONDS: Final = 30.0
_ABSENT_POLL_SECONDS: Final = 3.0
_MISSING_SECONDS: Final = 5.0
"""For so long brokers must say that a topic is gone: with ZooKeeper, one that has just started knows no topics yet."""
_FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 5.0
NO_TOPIC_ID: Final = UUID(int=0)
"""Of brokers without topic ids (before 2.8), where only the name tells topics apart."""
_MAX_WAIT_MS: Final = 500
FETCH_BYTES: Final = 1024 * 1024
_TURN_SECONDS: Final = 0.01
"""How long records are taken in before all else that this worker has to do gets its turn."""


class LogLost(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when the topic was deleted, or lost records that had been read: what was made of it cannot be right."""


class InternalTopicLog:
    """A partition of one of Kordon's own topics; it need not exist.

    Args:
        purpose: The purpose, which names connections and appears in the log.
        fetch_bytes: The most bytes of a Fetch.
        partition: The partition, for a topic with several.
    """

    def __init__(
        self, brokers: Brokers, topic: str, purpose: str, fetch_bytes: int = FETCH_BYTES, *, partition: int = 0
    ) -> None:
        self.position = 0
        """All committed records below this offset have been given to `on_record`."""
        self.end = 0
        """The high watermark as it was when it was read last."""
        self.read_at = -inf
        """When that was, in seconds of the monotonic clock."""
        self.brokers = brokers
        self.topic = topic
        self._purpose = purpose
        self._fetch_bytes = fetch_bytes
        self._partition = partition
        self._writer = PlainWriter(brokers, topic, f"{purpose} appends", partition=partition)
        self._topic_id = NO_TOPIC_ID
        self._missing_since = inf
        self._appeared = asyncio.Event()
        self._moved = asyncio.Event()
        self._marking = asyncio.Lock()
        self._marks_begun = 0
        self._mark_offset = 0

    def close(self) -> None:
        """Closes the connection on which it writes."""
        self._writer.close()

    async def exists(self) -> bool:
        """Whether there is such a topic: in a cluster without managed topics there is none.

        Raises:
            LogLost: The topic is not the one that existed before, or has been missing for five seconds.
            UpstreamUnavailable: No broker answers, or one says for the first time that it is missing.
        """
        (found,) = (await self.brokers.metadata([self.topic])).topics
        there = found.error_code == Code.NONE
        # whoever may not see it has not been given the rights that managed topics need: none are managed through here
        if not there and found.error_code not in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_AUTHORIZATION_FAILED):
            raise UpstreamUnavailable(f"{self.topic}: {name_of(found.error_code)}")
        if not there:
            self._note_missing()
            return False
        self._missing_since = inf
        topic_id = found.get("topic_id", NO_TOPIC_ID)
        if self._appeared.is_set() and topic_id != self._topic_id:
            raise LogLost(f"{self.topic} was deleted")
        self._topic_id = topic_id
        self._appeared.set()
        return True

    def _note_missing(self) -> None:
        """Raises for a topic that was there: it may be unknown only to a broker that has just started."""
        if not self._appeared.is_set():
            return
        now = clock()
        self._missing_since = min(self._missing_since, now)
        if now - self._missing_since < _MISSING_SECONDS:
            raise UpstreamUnavailable(f"{self.topic} is not known to the broker that was asked")
        raise LogLost(f"{self.topic} was deleted")

    async def follow(self, on_record: Callable[[Record], None]) -> None:
        """Gives every committed record to `on_record`, in order, forever; waits for the topic while there is none.

        What cannot be read is passed, and given as a record with a fault.

        Raises:
            LogLost: Records that were given are gone. What was made of them must not be used any longer.
        """
        wait = _FIRST_RETRY_SECONDS
        while True:
            before = self.position
            try:
                await self._wait_for_topic()
                await self._read(
                    await self.brokers.leader(self.topic, self._partition, f"{self._purpose} reads"), on_record
                )
            except (UpstreamUnavailable, WireError) as error:
                wait = _FIRST_RETRY_SECONDS if self.position > before else min(2 * wait, _LAST_RETRY_SECONDS)
                log.warning(f"{self._purpose}_unreadable", error=str(error), position=self.position, retry_seconds=wait)
            await asyncio.sleep(wait)

    async def _wait_for_topic(self) -> None:
        while not await self.exists():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._appeared.wait(), _ABSENT_POLL_SECONDS)

    async def _read(self, client: UpstreamClient, on_record: Callable[[Record], None]) -> None:
        while True:
            found = await self._fetch(client)
            self._missing_since = inf
            self.end, self.read_at = found.high_watermark, time.monotonic()
            aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
            brought = Committed(found.records or b"", aborted, self.position, self.end)
            await self._give(brought, on_record)
            if brought.next_offset > self.position:
                self.position = brought.next_offset
                self._moved.set()
                self._moved = asyncio.Event()

    async def _give(self, brought: Committed, on_record: Callable[[Record], None]) -> None:
        """Gives records in turns with all else that this worker has to do: there may be many, and large ones."""
        turn_ends = time.monotonic() + _TURN_SECONDS
        for record in brought:
            is_large = record is not None and len(record.value or b"") > MOST_BYTES_AT_ONCE
            if is_large or time.monotonic() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + _TURN_SECONDS
            if record is not None and record.key != MARK:
                on_record(record)

    async def _fetch(self, client: UpstreamClient) -> FetchResponsePartition:
        part = FetchRequestPartition(
            partition=self._partition, fetch_offset=self.position, partition_max_bytes=self._fetch_bytes
        )
        asked = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            topics=[FetchRequestTopic(topic=self.topic, topic_id=self._topic_id, partitions=[part])],
        )
        # by id, so that a topic that was deleted and made again is not taken for it
        answer = await fetch_committed(client, asked, by_id=self._topic_id != NO_TOPIC_ID)
        ((found,),) = (each.partitions for each in answer.responses)
        if found.error_code == Code.OFFSET_OUT_OF_RANGE:
            raise LogLost(f"{self.topic} has lost offset {self.position}, up to which Kordon had read it")
        if found.error_code != Code.NONE:
            raise UpstreamUnavailable(f"reading {self.topic}: {name_of(found.error_code)}")
        return found

    async def read_to_end(self, timeout: float = END_SECONDS) -> int:
        """Returns when all that was committed at the time of the call has been given to `on_record`.

        An open transaction is waited for; it ends within the transaction timeout. Without a topic there is nothing to
        read, and nothing is created. Somebody must be running `follow`.

        Returns:
            The offset up to which has been read.

        Raises:
            LogLost: The topic is not the one that was there before.
            UpstreamUnavailable: The log could not be read to its end within `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                if not self._appeared.is_set() and not await self.exists():
                    return self.position
                await self.reached(await self._mark())
                return self.position
        except TimeoutError:
            raise UpstreamUnavailable(f"{self.topic}: not read to its end within {timeout:g} s") from None

    async def reached(self, offset: int) -> None:
        """Returns when the record at an offset has been given to `on_record`; the wait is the caller's to bound."""
        while self.position <= offset:
            await self._moved.wait()

    async def _mark(self) -> int:
        """Writes a mark; those who call while one is on its way share the next."""
        begun = self._marks_begun
        async with self._marking:
            if self._marks_begun == begun:
                self._marks_begun += 1
                self._mark_offset = await self._writer.append([NewRecord(MARK, None)])
            return self._mark_offset

    def rewind(self) -> None:
        """Has the next `follow` give all records again; the topic must still be the one that it was."""
        self.position = 0

    async def begin_at_its_start(self) -> None:
        """Goes to the first offset that there is, where `follow` has not begun: retention may have taken what was 0.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        starts = await PartitionEnds(self.brokers).log_starts(self.topic, [self._partition])
        self.position = starts[self._partition]

    async def ready(self) -> None:
        """Gets ready for an `append` that is wanted soon, as far as it can."""
        await self._writer.ready()

    async def append(self, entries: Sequence[NewRecord], timeout: float = APPEND_SECONDS) -> int:
        """Writes what any proxy may write by itself.

        Args:
            entries: The records, which the topic stores as one batch.
            timeout: Seconds, for which it is tried again.

        Returns:
            The offset of the last one, replicated.

        Raises:
            UpstreamUnavailable: The records may or may not be written.
        """
        return await self._writer.append(entries, timeout)
