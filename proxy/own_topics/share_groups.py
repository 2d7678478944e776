"""What share groups have in hand and have done, as all proxies know it: `__kordon.share_groups`."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import reduce
from typing import Final

from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.share.lock_records import KIND
from kordon.proxy.own_topics.claims_log import key_with
from kordon.proxy.own_topics.compacted_topic import SHARE_GROUPS, CompactedTopic, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import LogTally
from kordon.proxy.own_topics.logs_of_groups import LogsOfGroups
from kordon.proxy.own_topics.share_log import HeldShares, ShareLog
from kordon.proxy.own_topics.share_partition import OUTCOMES
from kordon.proxy.runtime.clock import now_ms

_LOOK_SECONDS: Final = 0.25
"""Between looks at what all takes in memory."""


class ShareGroups:
    """The locks of all share groups, as one worker knows them.

    Args:
        writer: A name of the worker that no other has, of letters and digits.
        most_bytes: What is kept in memory, about; beyond that nothing more is given away.
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
            return ShareLog(brokers, topic, partition, key, is_full=lambda: self.is_full, outcomes=self.outcomes)

        self._logs = LogsOfGroups(brokers, replace(SHARE_GROUPS, name=topic), make)
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
            UpstreamUnavailable: It is not read within 5 seconds.
        """
        if not self.is_served:
            raise OwnTopicUnfit("this proxy serves no share groups on managed topics: set ordering.share_groups")
        return await self._logs.of_group(group_id)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be given away, as it was when somebody last looked."""
        return self.held().bytes >= self._most_bytes

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
