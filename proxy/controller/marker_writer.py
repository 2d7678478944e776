"""What Kordon itself writes to managed topics: markers of the janitor, in lanes of its own (KIP-253 9).

Fences wait for these writes as for those of clients. Whether one may go out is asked in the moment in which it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from kordon.proxy.core.errors import KordonError
from kordon.proxy.kafka.batches import NO_COMPRESSION, ZSTD, BatchIdentity, Copy, build_copies, size_of_copy
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.producer import BatchRefused, Producer, new_identity
from kordon.proxy.runtime.clock import now_ms

_PURPOSE: Final = "janitor"
_BATCH_BYTES: Final = 64 * 1024
"""Where the topic takes no batch of this size, as max.message.bytes says, its records are sent one by one."""


class NotNow(KordonError):  # noqa: N818 - a state of the world, not a mistake
    """Raised when nothing may be written: a fence stands, another layout is in force, or the lease has ended."""


class MarkerWriter:
    """Writes batches with identities of Kordon's own to physical partitions, acks=all.

    Args:
        counted: Makes a context for a topic's partition. While it lasts, fences wait for what is written there.
    """

    def __init__(self, brokers: Brokers, counted: Callable[[str, int], AbstractContextManager[None]]) -> None:
        self._brokers = brokers
        self._counted = counted
        self._own: BatchIdentity | None = None
        """The identity as a broker gave it."""
        self._producers: dict[tuple[str, int, int], Producer] = {}
        """The producers by topic, partition and producer id in the log."""

    async def write(
        self, topic: str, partition: int, copies: Sequence[Copy], tagged: Callable[[int], int], may: Callable[[], bool]
    ) -> list[Copy]:
        """Writes records in their order; one caller at a time for a partition.

        Args:
            partition: The physical partition.
            copies: The records to write. Some of them may be written when this fails.
            tagged: Called with the producer id that a broker gave. It returns the one that stands in the log.
            may: Returns whether the batch may be sent. It is asked at the moment of sending.

        Returns:
            Those that the broker does not take, as the topic's configs are.

        Raises:
            NotNow: The batch may not be sent now, as `may` says.
            UpstreamUnavailable: Kordon does not know that all records are written.
        """
        place = _Place(topic, partition, tagged, may)
        refused: list[Copy] = []
        for run in _runs(copies):
            if await self._is_refused(place, run):
                refused += [copy for copy in run if await self._is_refused_alone(place, copy)]
        return refused

    async def _is_refused_alone(self, place: _Place, copy: Copy) -> bool:
        """Tries all that can be done: what came compressed may be too large without, or its time too long ago."""
        return (
            await self._is_refused(place, [copy])
            and await self._is_refused(place, [copy], ZSTD)
            and await self._is_refused(place, [copy._replace(timestamp_ms=now_ms())], ZSTD)
        )

    async def _is_refused(self, place: _Place, run: Sequence[Copy], codec: int = NO_COMPRESSION) -> bool:
        topic, partition = place.topic, place.partition
        client = await self._brokers.leaders.connection(topic, partition, _PURPOSE)
        producer = await self._producer(place)
        batch = build_copies(run, producer.identity, codec=codec)
        if not place.may():
            raise NotNow(f"the janitor may not write to {topic} now: its partitions change, or it is not served here")
        try:
            with self._counted(topic, partition):  # nothing is waited for between the question and this
                await producer.write(client, topic, partition, batch, len(run))
        except BatchRefused as refused:
            if refused.is_of_records:
                return True
            self._brokers.leaders.forget(topic)
            raise
        finally:
            if not producer.is_certain:  # nobody knows which sequence is next
                self._own = None
                self._producers.clear()
        return False

    async def _producer(self, place: _Place) -> Producer:
        own = self._own = self._own or await new_identity(self._brokers.ask_any)
        name = place.topic, place.partition, place.tagged(own.producer_id)
        return self._producers.setdefault(name, Producer(own._replace(producer_id=name[2])))


class _Place(NamedTuple):
    """The place and the identity of a write."""

    topic: str
    partition: int
    tagged: Callable[[int], int]
    may: Callable[[], bool]


def _runs(copies: Sequence[Copy]) -> Iterator[list[Copy]]:
    run: list[Copy] = []
    size = 0
    for copy in copies:
        size += size_of_copy(copy)
        if run and size > _BATCH_BYTES:
            yield run
            run, size = [], size_of_copy(copy)
        run.append(copy)
    if run:
        yield run
