"""What members of groups have done, offset by offset, as all proxies know it: claims in `__kordon.individual_commits`.

The topic has as many partitions as `__consumer_offsets` when it is made, and a group's claims are in the partition of
the same number as its commits. A worker reads a partition from when the first client of such a group asks until nobody
has asked for ten minutes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import NO_TOPIC_ID
from kordon.proxy.own_topics.claims_log import ClaimsLog, HeldClaims, key_with
from kordon.proxy.own_topics.compacted_topic import INDIVIDUAL_COMMITS, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import LogTally
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

OUTCOMES: Final = ("taken", "full", "too_old", "invalid", "refused", "unavailable", "not_allowed")
"""What comes of a partition's row of an individual commit: it is taken, or as much of it as there is room for; the
group has begun anew; it cannot be meant; the coordinator refuses it; the log cannot be read or written now; this proxy
takes none, or the cluster can have none."""
LOAD_SECONDS: Final = 5.0
"""How long a client waits for a partition to be read before it is told to come again."""
IDLE_SECONDS: Final = 600.0
"""After which a partition for which nobody has asked is read no longer."""
SWEEP_SECONDS: Final = 60.0
_COMMITS: Final = "__consumer_offsets"
_PARTITIONS: Final = 50
"""Where nobody can tell how many that has: as many as brokers make unless they are told otherwise."""


class IndividualCommits:
    """The claims of all groups, as one worker knows them.

    Args:
        writer: A name of the worker that no other has, of letters and digits.
        most_bytes: What is kept in memory, about; beyond that no more ranges are taken, but what closes gaps is.
        topic: The name of the log.
        is_served: Whether this proxy takes individual commits (`ordering.individual_commits`).
    """

    def __init__(
        self,
        brokers: Brokers,
        writer: str,
        most_bytes: int = 1 << 26,
        topic: str = INDIVIDUAL_COMMITS.name,
        *,
        is_served: bool = True,
    ) -> None:
        self.is_served: Final = is_served
        self._watchers: list[Callable[[bool], None]] = []
        self.is_left_out = False
        """Whether others take individual commits in this cluster, or did, and this proxy does not."""
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        """Of commits, by partition, with what came of them."""
        self.tally = LogTally()
        """Of partitions that are not read any more."""
        self._brokers = brokers
        self._topic = replace(INDIVIDUAL_COMMITS, name=topic, partitions=0)
        self._key = key_with(writer)
        self._most_bytes = most_bytes
        self._logs: dict[int, ClaimsLog] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tasks = Tasks()
        self._sweeping: asyncio.Task[None] | None = None

    async def of_group(self, group_id: str) -> ClaimsLog:
        """Returns the log of a group's claims when it has been read to its end.

        Raises:
            OwnTopicUnfit: The cluster can have no such log, or it is not such that claims are safe in it, or this proxy
                takes no individual commits.
            UpstreamUnavailable: It is not read within 5 seconds.
        """
        if not self.is_served:
            raise OwnTopicUnfit("this proxy takes no individual commits: set ordering.individual_commits")
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                found = await self._opened(group_id)
                found.used_at = time.monotonic()
                await found.log.ready(LOAD_SECONDS)
                return found
        except TimeoutError:
            raise UpstreamUnavailable(f"{self._topic.name} is not read to its end yet") from None

    @property
    def is_full(self) -> bool:
        """Whether no more ranges are to be taken."""
        return sum(each.held.bytes for each in self._logs.values()) >= self._most_bytes

    @property
    def is_wanted(self) -> bool:
        """Whether requests are to be looked at: such commits are taken here, or may be elsewhere in the cluster."""
        return self.is_served or self.is_left_out

    def look(self, own_topics: Collection[str]) -> None:
        """Takes in which topics of Kordon's own there are; says it if this proxy should take individual commits."""
        before, self.is_left_out = self.is_left_out, not self.is_served and self._topic.name in own_topics
        if self.is_left_out != before:
            for told in self._watchers:
                told(self.is_left_out)
        if self.is_left_out and not before:
            log.warning(
                "individual_commits_left_out",
                topic=self._topic.name,
                problem="other proxies take individual commits, and this one does not: groups whose members come here "
                "begin anew, and do again what was done behind their committed offsets",
                cure="set ordering.individual_commits here, too; or, if no proxy is to take them, delete the topic",
            )

    def watch(self, told: Callable[[bool], None]) -> None:
        """Has somebody told whether this proxy is left out, whenever that changes."""
        self._watchers.append(told)

    def is_read(self, group_id: str) -> bool:
        """Whether the log of a group's claims is read already: whoever asks for it costs nothing more."""
        partitions = self._topic.partitions
        return bool(partitions) and partition_of(group_id, partitions) in self._logs

    def held(self) -> dict[str, float]:
        """Returns what is in memory, of all groups whose partitions are read; it walks through no groups."""
        logs = list(self._logs.values())
        oldest = min((next(iter(each.gaps.values())).since_ms for each in logs if each.gaps), default=None)
        counted = {each.name: sum(getattr(log.held, each.name) for log in logs) for each in fields(HeldClaims)}
        counted["left_out"] = int(self.is_left_out)
        return counted | {"oldest_gap_seconds": 0.0 if oldest is None else max(0.0, (now_ms() - oldest) / 1000)}

    def counts(self) -> LogTally:
        """Returns what is counted of all partitions, since the worker has begun."""
        total = replace(self.tally)
        for each in self._logs.values():
            _add(total, each.log.tally)
        return total

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()
        await self._close_all()

    async def _opened(self, group_id: str) -> ClaimsLog:
        async with self._one_at_a_time:
            if not self._topic.partitions:
                self._topic = replace(self._topic, partitions=await self._partitions())
            if self._sweeping is None:
                self._sweeping = self._tasks.keep(self._sweep, name="close idle logs of claims")
            partition = partition_of(group_id, self._topic.partitions)
            found = self._logs.get(partition)
            if found is None:
                found = self._logs[partition] = ClaimsLog(self._brokers, self._topic, partition, self._key)
            return found

    async def _partitions(self) -> int:
        """Returns how many partitions the topic has, or is to have.

        Kordon need not be allowed to see the groups' commits: any number would do.

        Raises:
            OwnTopicUnfit: The brokers do not know topics by ids: a topic that is made anew would have the claims of the
                one before.
        """
        own, commits = rows = (await self._brokers.metadata([self._topic.name, _COMMITS])).topics
        seen = [each for each in rows if not each.error_code]  # others have no id in any answer
        if "topic_id" not in own or any(each.topic_id == NO_TOPIC_ID for each in seen):
            raise OwnTopicUnfit("the brokers have no topic ids; individual commits need Kafka 2.8 or newer")
        if own.error_code == Code.NONE:
            return len(own.partitions)
        return len(commits.partitions) or _PARTITIONS

    async def _sweep(self) -> None:
        """Closes what nobody asks for, and begins anew where the topic has another number of partitions now."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            async with self._one_at_a_time:
                idle = time.monotonic() - IDLE_SECONDS
                await self._close(*(partition for partition, each in self._logs.items() if each.used_at < idle))
                for each in self._logs.values():
                    each.forget_void()
                if any(each.log.problem is not None for each in self._logs.values()):
                    await self._close_all()
                    self._topic = replace(self._topic, partitions=0)

    async def _close_all(self) -> None:
        await self._close(*self._logs)

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
