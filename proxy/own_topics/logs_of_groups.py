"""One of Kordon's own topics that has what it says of a group in one of its partitions, as one worker reads it.

A worker reads a partition from when the first client of such a group asks until nobody has read or written for ten
minutes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final, Generic, Protocol, TypeVar

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import NO_TOPIC_ID
from kordon.proxy.own_topics.compacted_topic import CompactedTopic, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import FollowedLog, LogTally
from kordon.proxy.runtime.tasks import Tasks

LOAD_SECONDS: Final = 5.0
"""How long a client waits for a partition to be read before it is told to come again."""
IDLE_SECONDS: Final = 600.0
"""After which a partition that nobody uses is read no longer."""
SWEEP_SECONDS: Final = 60.0
_COMMITS: Final = "__consumer_offsets"
_PARTITIONS: Final = 50
"""Where nobody can tell how many that has: as many as brokers make unless they are told otherwise."""


class LogOfGroups(Protocol):
    """What one partition of the topic says."""

    log: FollowedLog

    def sweep(self) -> None:
        """Forgets what counts for nothing any more."""
        ...

    async def close(self) -> None:
        """Ends reading and writing."""
        ...


_Log = TypeVar("_Log", bound=LogOfGroups)


class LogsOfGroups(Generic[_Log]):
    """The partitions of the topic that are read.

    Args:
        topic: With 0 partitions it has as many as `__consumer_offsets` when it is made.
        make: Makes what reads a partition.
    """

    def __init__(
        self, brokers: Brokers, topic: CompactedTopic, make: Callable[[Brokers, CompactedTopic, int], _Log]
    ) -> None:
        self.tally = LogTally()
        """The counts of partitions that are no longer read."""
        self._brokers = brokers
        self._as_asked = self._topic = topic
        self._make = make
        self._logs: dict[int, _Log] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tasks = Tasks()
        self._sweeping: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[_Log]:
        """Yields what is read."""
        return iter([*self._logs.values()])

    @property
    def name(self) -> str:
        """The topic's."""
        return self._topic.name

    async def of_group(self, group_id: str) -> _Log:
        """Returns the log with a group's records when it has been read to its end.

        Raises:
            OwnTopicUnfit: The cluster can have no such log, or it is not such that records are safe in it.
            UpstreamUnavailable: The log is not read to its end within 5 seconds.
        """
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                found = await self._opened(group_id)
                await found.log.ready(LOAD_SECONDS)
                return found
        except TimeoutError:
            raise UpstreamUnavailable(f"{self._topic.name} is not read to its end yet") from None

    async def visit(self, do: Callable[[_Log], Awaitable[object]]) -> None:
        """Does something with each partition, one after the other, for which nobody need ask; it is read for that only.

        Raises:
            OwnTopicUnfit: The cluster can have no such log, or it is not such that records are safe in it.
            UpstreamUnavailable: Some partition is not read in time.
        """
        async with self._one_at_a_time:
            topic = self._topic = replace(self._topic, partitions=self._topic.partitions or await self._partitions())
        for partition in range(topic.partitions):
            found = self._make(self._brokers, topic, partition)
            try:
                await found.log.ready()
                await do(found)
            finally:
                await found.close()
                _add(self.tally, found.log.tally)

    def is_read(self, group_id: str) -> bool:
        """Whether the log of a group is read already: whoever asks for it costs nothing more."""
        partitions = self._topic.partitions
        return bool(partitions) and partition_of(group_id, partitions) in self._logs

    def counts(self) -> LogTally:
        """Returns what is counted of all partitions, since the worker has begun."""
        total = replace(self.tally)
        for each in self._logs.values():
            _add(total, each.log.tally)
        return total

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()
        await self._close(*self._logs)

    async def _opened(self, group_id: str) -> _Log:
        async with self._one_at_a_time:
            if not self._topic.partitions:
                self._topic = replace(self._topic, partitions=await self._partitions())
            if self._sweeping is None:
                self._sweeping = self._tasks.keep(self._sweep, name="close idle logs of groups", of=self._topic.name)
            partition = partition_of(group_id, self._topic.partitions)
            found = self._logs.get(partition)
            if found is None:
                found = self._logs[partition] = self._make(self._brokers, self._topic, partition)
            return found

    async def _partitions(self) -> int:
        """Returns how many partitions the topic has, or is to have.

        Kordon need not be allowed to see the groups' commits: any number would do.

        Raises:
            OwnTopicUnfit: The brokers do not know topics by ids: a topic that is made again would have the records of
                the one before.
        """
        own, commits = rows = (await self._brokers.metadata([self._topic.name, _COMMITS])).topics
        seen = [each for each in rows if not each.error_code]  # others have no id in any answer
        if "topic_id" not in own or any(each.topic_id == NO_TOPIC_ID for each in seen):
            raise OwnTopicUnfit(f"the brokers have no topic ids; {self._topic.name} needs Kafka 2.8 or newer")
        if own.error_code == Code.NONE:
            return len(own.partitions)
        return len(commits.partitions) or _PARTITIONS

    async def _sweep(self) -> None:
        """Closes what nobody uses, and begins again where the topic has another number of partitions now."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            async with self._one_at_a_time:
                idle = time.monotonic() - IDLE_SECONDS
                await self._close(*(partition for partition, each in self._logs.items() if each.log.used_at < idle))
                for each in self._logs.values():
                    each.sweep()
                if any(each.log.problem is not None for each in self._logs.values()):
                    await self._close(*self._logs)
                    self._topic = self._as_asked

    async def _close(self, *partitions: int) -> None:
        for partition in partitions:
            gone = self._logs.pop(partition)
            await gone.close()
            _add(self.tally, gone.log.tally)


def partition_of(group_id: str, partitions: int) -> int:
    """Returns in which partition of `__consumer_offsets` a group's commits are, if it has so many.

    >>> partition_of("hello", 50), partition_of("polygenelubricants", 50)
    (22, 0)
    """
    found = 0
    encoded = group_id.encode("utf-16-be")
    for place in range(0, len(encoded), 2):
        found = (31 * found + (encoded[place] << 8) + encoded[place + 1]) & 0xFFFFFFFF
    signed = found - (1 << 32) if found >> 31 else found
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def _add(total: LogTally, more: LogTally) -> None:
    for name in LogTally.__slots__:
        setattr(total, name, getattr(total, name) + getattr(more, name))
