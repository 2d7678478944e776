"""What groups have done, offset by offset, as all proxies know it: claims in `__kordon.individual_commits`.

The topic has as many partitions as `__consumer_offsets` when it is made, and a group's claims are in the partition of
the same number as its commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Final

import structlog

from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.own_topics.claims_log import ClaimsLog, HeldClaims, key_with
from kordon.proxy.own_topics.compacted_topic import INDIVIDUAL_COMMITS, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import LogTally
from kordon.proxy.own_topics.logs_of_groups import LogsOfGroups
from kordon.proxy.runtime.clock import now_ms

log = structlog.get_logger(__name__)

OUTCOMES: Final = ("taken", "full", "too_old", "invalid", "refused", "unavailable", "not_allowed")
"""What comes of a partition's row of an individual commit: it is taken, or as much of it as there is room for; the
group has begun again; it cannot be meant; the coordinator refuses it; the log cannot be read or written now; this proxy
takes none, or the cluster can have none."""


class IndividualCommits:
    """The claims of all groups, as one worker knows them.

    Args:
        writer: A name of the worker that no other has, of letters and digits.
        most_bytes: The approximate memory for ranges. Beyond that, only ranges that close gaps are taken.
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
        """The number of commits, counted by partition, by their outcome."""
        key = key_with(writer)
        self._logs = LogsOfGroups(
            brokers,
            replace(INDIVIDUAL_COMMITS, name=topic, partitions=0),
            lambda brokers, topic, partition: ClaimsLog(brokers, topic, partition, key),
        )
        self._most_bytes = most_bytes

    async def of_group(self, group_id: str) -> ClaimsLog:
        """Returns the log of a group's claims when it has been read to its end.

        Raises:
            OwnTopicUnfit: The cluster can have no such log, or it is not such that claims are safe in it, or this proxy
                takes no individual commits.
            UpstreamUnavailable: The log is not read to its end within 5 seconds.
        """
        if not self.is_served:
            raise OwnTopicUnfit("this proxy takes no individual commits: set ordering.individual_commits")
        return await self._logs.of_group(group_id)

    @property
    def is_full(self) -> bool:
        """Whether no more ranges are to be taken."""
        return sum(each.held.bytes for each in self._logs) >= self._most_bytes

    @property
    def is_wanted(self) -> bool:
        """Whether requests are to be looked at: such commits are taken here, or may be elsewhere in the cluster."""
        return self.is_served or self.is_left_out

    def look(self, own_topics: Collection[str]) -> None:
        """Takes in which topics of Kordon's own there are; says it if this proxy should take individual commits."""
        before, self.is_left_out = self.is_left_out, not self.is_served and self._logs.name in own_topics
        if self.is_left_out != before:
            for told in self._watchers:
                told(self.is_left_out)
        if self.is_left_out and not before:
            log.warning(
                "individual_commits_left_out",
                topic=self._logs.name,
                problem="other proxies take individual commits, and this one does not: groups whose members come here "
                "begin anew, and do again what was done behind their committed offsets",
                cure="set ordering.individual_commits here, too; or, if no proxy is to take them, delete the topic",
            )

    def watch(self, told: Callable[[bool], None]) -> None:
        """Calls back whenever it changes whether this proxy is left out."""
        self._watchers.append(told)

    def is_read(self, group_id: str) -> bool:
        """Whether the log of a group's claims is read already: whoever asks for it costs nothing more."""
        return self._logs.is_read(group_id)

    def held(self) -> dict[str, float]:
        """Returns what is in memory for all groups of the partitions that are read. It walks through no groups."""
        logs = [*self._logs]
        oldest = min((next(iter(each.gaps.values())).since_ms for each in logs if each.gaps), default=None)
        counted = {each.name: sum(getattr(log.held, each.name) for log in logs) for each in fields(HeldClaims)}
        counted["left_out"] = int(self.is_left_out)
        return counted | {"oldest_gap_seconds": 0.0 if oldest is None else max(0.0, (now_ms() - oldest) / 1000)}

    def counts(self) -> LogTally:
        """Returns what is counted of all partitions, since the worker has begun."""
        return self._logs.counts()

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._logs.close()
