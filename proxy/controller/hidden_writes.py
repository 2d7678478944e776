"""What Kordon itself writes to managed topics: markers of the janitor, in lanes of its own (KIP-253 9).

Fences wait for these writes as for those of clients. Whether one may go out is asked in the moment in which it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.kafka.batches import NO_COMPRESSION, ZSTD, BatchIdentity, Copy, build_copies, size_of_copy
from kordon.proxy.kafka.leaders import NO_NODE, Leaders
from kordon.proxy.kafka.links import Links
from kordon.proxy.kafka.plain_writer import INIT_VERSIONS, PRODUCE_VERSIONS, produce_fields

_PURPOSE: Final = "janitor"
_BATCH_BYTES: Final = 64 * 1024
"""Where the topic takes no batch of this size, as max.message.bytes says, its records are sent one by one."""
_REFUSALS: Final = frozenset({Code.MESSAGE_TOO_LARGE, Code.INVALID_TIMESTAMP, Code.INVALID_RECORD})
"""Of a record, whoever writes it; nothing is appended then."""


class NotNow(KordonError):  # noqa: N818 - a state of the world, not a mistake
    """Raised when nothing may be written: a fence stands, another layout is in force, or the lease has ended."""


class HiddenWrites:
    """Writes batches with identities of Kordon's own to physical partitions, acks=all.

    Args:
        links: Connections to brokers.
        leaders: Of physical partitions.
        counted: While this context of a topic's partition lasts, fences wait for what is written there.
    """

    def __init__(
        self, links: Links, leaders: Leaders, counted: Callable[[str, int], AbstractContextManager[None]]
    ) -> None:
        self._links = links
        self._leaders = leaders
        self._counted = counted
        self._id: tuple[int, int] | None = None
        """Producer id and epoch, as the broker gave them."""
        self._identities: dict[tuple[str, int, int], BatchIdentity] = {}
        """Of the next batch, by topic, partition and producer id in the log."""

    async def write(
        self, topic: str, partition: int, copies: Sequence[Copy], tagged: Callable[[int], int], may: Callable[[], bool]
    ) -> list[Copy]:
        """Writes records in their order; one caller at a time for a partition.

        Args:
            topic: Its name.
            partition: Physical.
            copies: What is written; some may be when this fails.
            tagged: Makes the producer id that stands in the log of one that a broker gave.
            may: Whether it may be sent, asked when it is.

        Returns:
            Those that the broker does not take, as the topic's configs are.

        Raises:
            NotNow: It may not.
            UpstreamUnavailable: Not all is known to be written.
        """
        place = _Place(topic, partition, tagged, may)
        refused: list[Copy] = []
        for run in _runs(copies):
            if await self._is_refused(place, run):
                refused += [copy for copy in run if await self._is_refused_alone(place, copy)]
        return refused

    async def _is_refused_alone(self, place: _Place, copy: Copy) -> bool:
        """Tries all that can be done: what came compressed may be too large without, or its time too long ago."""
        now_ms = time.time_ns() // 1_000_000
        return (
            await self._is_refused(place, [copy])
            and await self._is_refused(place, [copy], ZSTD)
            and await self._is_refused(place, [copy._replace(timestamp_ms=now_ms)], ZSTD)
        )

    async def _is_refused(self, place: _Place, run: Sequence[Copy], codec: int = NO_COMPRESSION) -> bool:
        topic, partition = place.topic, place.partition
        leader = (await self._leaders.of(topic)).get(partition)
        if leader is None or leader.node_id == NO_NODE:
            self._leaders.forget(topic)
            raise UpstreamUnavailable(f"nobody leads {topic}-{partition}")
        own_id, epoch = await self._identity()
        name = topic, partition, place.tagged(own_id)
        client = await self._links.to(leader.node_id, _PURPOSE)
        identity = self._identities.get(name) or BatchIdentity(name[2], epoch, 0)
        fields = produce_fields(topic, partition, build_copies(run, identity, codec=codec))
        version = client.version(apis.PRODUCE, PRODUCE_VERSIONS)
        if not place.may():
            raise NotNow(f"{topic} is not to be written to")
        with self._counted(topic, partition):  # nothing is waited for between the question and this
            code = await self._outcome(client.send(apis.PRODUCE, version, fields))
        if code in _REFUSALS:
            return True
        if code != Code.NONE:
            self._leaders.forget(topic)
            raise UpstreamUnavailable(f"writing to {topic}-{partition}: {name_of(code)}")
        self._identities[name] = identity.after(len(run))
        return False

    async def _outcome(self, sent: asyncio.Future[Any]) -> int:
        try:
            ((row,),) = (each.partition_responses for each in (await sent).responses)
        except UpstreamUnavailable:
            self._forget()  # nobody knows which sequence is next
            raise
        if row.error_code not in (Code.NONE, *_REFUSALS):
            self._forget()
        return int(row.error_code)

    def _forget(self) -> None:
        self._id = None
        self._identities.clear()

    async def _identity(self) -> tuple[int, int]:
        if self._id is None:
            fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
            answer = await self._links.ask_any(_PURPOSE, apis.INIT_PRODUCER_ID, INIT_VERSIONS, fields)
            if answer.error_code != Code.NONE:
                raise UpstreamUnavailable(f"no producer id: {name_of(answer.error_code)}")
            self._id = answer.producer_id, answer.producer_epoch
        return self._id


class _Place(NamedTuple):
    """Where and as whom something is written."""

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
