"""What Kordon itself writes to managed topics: markers of the janitor, in lanes of its own (KIP-253 9).

Fences wait for these writes as for those of clients. Whether one may go out is asked in the moment in which it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from kordon.codecs.records import HEADER_BYTES
from kordon.proxy import apis
from kordon.proxy.control.codes import Code, name_of
from kordon.proxy.errors import KordonError, UpstreamUnavailable
from kordon.proxy.managed.leaders import NO_NODE, Leaders
from kordon.proxy.managed.links import Links

_PURPOSE: Final = "janitor"
_INIT_PRODUCER_ID: Final = 22
_INIT_VERSIONS: Final = range(5)
_PRODUCE_VERSIONS: Final = range(3, 10)
_MAGIC: Final = 2
_TIMEOUT_MS: Final = 5_000
"""How long a leader waits for copies."""
_BATCH_BYTES: Final = 64 * 1024
"""Where the topic takes no batch of this size, as max.message.bytes says, its records are sent one by one."""
_SEQUENCES: Final = 1 << 31


class NotNow(KordonError):  # noqa: N818 - a state of the world, not a mistake
    """Raised when nothing may be written: a fence stands, another layout is in force, or the lease has ended."""


class Copy(NamedTuple):
    """A record to be written."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


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
        self._sequences: dict[tuple[str, int, int], int] = {}
        """The next one by topic, partition and producer id in the log."""

    async def write(
        self, topic: str, partition: int, copies: Sequence[Copy], tagged: Callable[[int], int], may: Callable[[], bool]
    ) -> None:
        """Writes records in their order; one caller at a time for a partition.

        Args:
            topic: Its name.
            partition: Physical.
            copies: What is written; some may be when this fails.
            tagged: Makes the producer id that stands in the log of one that a broker gave.
            may: Whether it may be sent, asked when it is.

        Raises:
            NotNow: It may not.
            UpstreamUnavailable: Not all is known to be written.
        """
        for run in _runs(copies):
            try:
                await self._send(topic, partition, run, tagged, may)
            except _TooLarge:
                for copy in run:
                    await self._send(topic, partition, [copy], tagged, may)

    async def _send(
        self, topic: str, partition: int, run: Sequence[Copy], tagged: Callable[[int], int], may: Callable[[], bool]
    ) -> None:
        leader = (await self._leaders.of(topic)).get(partition)
        if leader is None or leader.node_id == NO_NODE:
            self._leaders.forget(topic)
            raise UpstreamUnavailable(f"nobody leads {topic}-{partition}")
        own_id, epoch = await self._identity()
        place = topic, partition, tagged(own_id)
        client = await self._links.to(leader.node_id, _PURPOSE)
        sequence = self._sequences.get(place, 0)
        fields = _fields(topic, partition, _build(run, (place[2], epoch, sequence)))
        version = client.version(apis.PRODUCE, _PRODUCE_VERSIONS)
        if not may():
            raise NotNow(f"{topic} is not to be written to")
        with self._counted(topic, partition):  # nothing is waited for between the question and this
            code = await self._outcome(client.send(apis.PRODUCE, version, fields))
        if code == Code.MESSAGE_TOO_LARGE and len(run) > 1:
            raise _TooLarge
        if code != Code.NONE:
            self._leaders.forget(topic)
            raise UpstreamUnavailable(f"writing to {topic}-{partition}: {name_of(code)}")
        self._sequences[place] = (sequence + len(run)) % _SEQUENCES

    async def _outcome(self, sent: asyncio.Future[Any]) -> int:
        try:
            ((row,),) = (each.partition_responses for each in (await sent).responses)
        except UpstreamUnavailable:
            self._forget()  # nobody knows which sequence is next
            raise
        if row.error_code not in (Code.NONE, Code.MESSAGE_TOO_LARGE):
            self._forget()
        return int(row.error_code)

    def _forget(self) -> None:
        self._id = None
        self._sequences.clear()

    async def _identity(self) -> tuple[int, int]:
        if self._id is None:
            fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
            answer = await self._links.ask_any(_PURPOSE, _INIT_PRODUCER_ID, _INIT_VERSIONS, fields)
            if answer.error_code != Code.NONE:
                raise UpstreamUnavailable(f"no producer id: {name_of(answer.error_code)}")
            self._id = answer.producer_id, answer.producer_epoch
        return self._id


class _TooLarge(Exception):  # noqa: N818 - seen by nobody else
    """The topic takes no batch of this size."""


def _runs(copies: Sequence[Copy]) -> Iterator[list[Copy]]:
    run: list[Copy] = []
    size = 0
    for copy in copies:
        size += _size(copy)
        if run and size > _BATCH_BYTES:
            yield run
            run, size = [], _size(copy)
        run.append(copy)
    if run:
        yield run


def _size(copy: Copy) -> int:
    return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(copy.key, copy.value, list(copy.headers)))


def _build(run: Sequence[Copy], identity: tuple[int, int, int]) -> bytes:
    size = sum(map(_size, run)) + HEADER_BYTES
    builder: Any = DefaultRecordBatchBuilder(_MAGIC, DefaultRecordBatch.CODEC_NONE, False, *identity, size)
    for place, copy in enumerate(run):
        kept = builder.append(place, copy.timestamp_ms, copy.key, copy.value, list(copy.headers))
        assert kept is not None  # the size was made for them
    return bytes(builder.build())


def _fields(topic: str, partition: int, batch: bytes) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": _TIMEOUT_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }
