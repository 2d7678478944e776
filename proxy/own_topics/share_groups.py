"""What share groups have in hand and have done, as all proxies know it: `__kordon.share_groups`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group_offsets import GroupOffsets, ListedGroup
from kordon.proxy.ordering.share.lock_records import KIND
from kordon.proxy.own_topics.claims_log import key_with
from kordon.proxy.own_topics.compacted_topic import SHARE_GROUPS, CompactedTopic, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import LogTally
from kordon.proxy.own_topics.logs_of_groups import LOAD_SECONDS, LogsOfGroups, partition_of
from kordon.proxy.own_topics.share_log import HeldShares, ShareLog
from kordon.proxy.own_topics.share_partition import OUTCOMES
from kordon.proxy.runtime.clock import now_ms

log = structlog.get_logger(__name__)

_SHARE: Final = "share"
"""The type of share groups, as brokers list them."""
_LOOK_SECONDS: Final = 0.25
"""Between looks at what all takes in memory."""


class ShareGroups:
    """The locks of all share groups, as one worker knows them.

    Args:
        writer: A name of the worker that no other has, of letters and digits.
        most_bytes: The approximate memory for share groups. Beyond it, few records are looked at ahead of what is done.
        topic: The name of the log.
        is_served: Whether this proxy serves share groups on managed topics (`ordering.share_groups`).
    """

    def __init__(
        self,
        brokers: Brokers,
        writer: str,
        most_bytes: int = 1 << 26,
        topic: str = SHARE_GROUPS.name,
        *,
        is_served: bool = True,
    ) -> None:
        self.is_served: Final = is_served
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        """What has become of records."""
        key = key_with(writer, KIND)

        def make(brokers: Brokers, topic: CompactedTopic, partition: int) -> ShareLog:
            full, outcomes = lambda: self.is_full, self.outcomes
            return ShareLog(brokers, topic, partition, key, older=self._older, is_full=full, outcomes=outcomes)

        self._logs = LogsOfGroups(brokers, replace(SHARE_GROUPS, name=topic), make)
        self._brokers = brokers
        self._listing = asyncio.Lock()
        self._lists_begun = 0
        self._listed: Sequence[ListedGroup] = ()
        self._most_bytes = most_bytes
        self._held = HeldShares()
        self._looked_at = float("-inf")

    @property
    def topic(self) -> str:
        """The name of the log."""
        return self._logs.name

    async def of_group(self, group_id: str) -> ShareLog:
        """Returns the log with a group's records when it has been read to its end.

        Raises:
            OwnTopicUnfit: The cluster can have no such log, or it is not such that records are safe in it, or this
                proxy serves no share groups.
            UpstreamUnavailable: The log is not read to its end within 5 seconds.
        """
        if not self.is_served:
            raise OwnTopicUnfit("this proxy serves no share groups on managed topics: set ordering.share_groups")
        found = await self._logs.of_group(group_id)
        await found.opening.known(LOAD_SECONDS)
        return found

    async def prepare(self) -> None:
        """Makes the log if there is none, before the first member asks for it: its group would be older than the log.

        Where it fails nothing is lost: each partition is opened when the first member of one of its groups asks.
        """
        try:
            (found,) = (await self._brokers.metadata([self.topic])).topics
            if found.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                await self._logs.visit(lambda each: each.opening.known(LOAD_SECONDS))
        except UpstreamUnavailable as error:
            log.warning(
                "share_groups_not_prepared",
                error=str(error),
                cure="give Kordon its rights to topics __kordon.* (docs/security.md), or check the brokers",
            )

    async def _older(self, partition: int) -> Collection[str]:
        """Returns the share groups of a partition of the log; they are asked for after the call, once for all who wait.

        Raises:
            UpstreamUnavailable: Not all brokers say which groups they have.
        """
        begun = self._lists_begun
        async with self._listing:
            if self._lists_begun == begun:
                self._lists_begun += 1
                self._listed = await GroupOffsets(self._brokers).groups()
        names = (each.name for each in self._listed if each.type.lower() == _SHARE)
        return [each for each in names if partition_of(each, SHARE_GROUPS.partitions) == partition]

    @property
    def is_full(self) -> bool:
        """Whether as much was looked at as may be given away, as it was when somebody last asked."""
        return self.held().bytes_if_given >= self._most_bytes

    def held(self) -> HeldShares:
        """Returns what is known of all groups, as it was at most a quarter of a second ago."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._held = reduce(HeldShares.joined, (each.held() for each in self._logs), HeldShares())
        return self._held

    def oldest_seconds(self) -> float:
        """Returns for how long some group has had the same offset open while it goes on behind it; 0: none has any."""
        oldest_ms = self.held().oldest_ms
        return 0.0 if oldest_ms is None else max(0.0, (now_ms() - oldest_ms) / 1000)

    def counts(self) -> LogTally:
        """Returns what is counted of all partitions, since the worker has begun."""
        return self._logs.counts()

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._logs.close()
