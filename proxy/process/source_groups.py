"""Restart points outlive the retention of commits: groups of sources that have no members are visited (VISITED-GROUP).

One worker of the cluster does it, the one that leads; where no topic is managed none leads, and each worker does. A
visit changes no commit (`kafka/group_visits.py`), so it is no matter how many there are.

Nothing is done in a cluster without source topics.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from kordon.codecs.bodies import OffsetFetchResponseGroup
from kordon.codecs.source_points import parsed
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.group_visits import EMPTY, visit
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.topics.source_topics import SourceTopics

log = structlog.get_logger(__name__)

OUTCOMES: Final = ("visited", "refused", "failed")
"""What comes of a visit: the group's commits are kept; Kordon may not join it; its coordinator did not answer."""
_IDLE_SECONDS: Final = 5.0
"""Between two looks whether there are source topics."""
_SHARE: Final = 4
"""A group is visited so many times in the time for which brokers keep the commits of a group without members."""
_DEFAULT_RETENTION_SECONDS: Final = 24 * 3600.0
"""Where brokers do not tell it, what they had by default before Kafka 2.0."""
_AT_ONCE: Final = 20
"""Groups that are asked for all their commits at once."""


class SourceGroups:
    """Visits groups with restart points and without members, so that brokers keep their commits.

    Args:
        leads: Returns whether this worker visits groups.
        session_ms: The session timeout of a visit, in milliseconds.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        topics: SourceTopics,
        brokers: Brokers,
        admin: TopicsAdmin,
        *,
        leads: Callable[[], bool],
        session_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._topics = topics
        self._brokers = brokers
        self._admin = admin
        self._leads = leads
        self._session_ms = session_ms
        self._clock = clock

    async def run(self) -> None:
        """Visits groups until it is cancelled."""
        next_look = 0.0
        while True:
            await asyncio.sleep(_IDLE_SECONDS)
            if not self._topics or not self._leads() or self._clock() < next_look:
                continue
            retention = await self._admin.commits_kept_seconds() or _DEFAULT_RETENTION_SECONDS
            try:
                await self.look()
            except UpstreamUnavailable as error:
                self.outcomes["failed"] += 1
                log.warning("source_groups_unknown", error=str(error), cure="none needed: they are asked for again")
            next_look = self._clock() + retention / _SHARE

    async def look(self) -> None:
        """Visits each group once that has restart points and no members.

        Raises:
            UpstreamUnavailable: Brokers do not tell which groups there are.
        """
        groups = [group for group in await self._admin.groups.groups() if group.state == EMPTY]
        for at in range(0, len(groups), _AT_ONCE):
            for row in await self._admin.groups.all_committed(groups[at : at + _AT_ONCE]):
                if self._has_points(row):
                    await self._visit(row.group_id)

    def _has_points(self, row: OffsetFetchResponseGroup) -> bool:
        return any(
            _is_point(each.metadata) for topic in row.topics if topic.name in self._topics for each in topic.partitions
        )

    async def _visit(self, group_id: str) -> None:
        try:
            if await visit(self._brokers, group_id, self._session_ms):
                self.outcomes["visited"] += 1
        except TopicsRefused as error:
            self.outcomes["refused"] += 1
            cure = "give Kordon Read on the group, or have a member stand by: brokers drop its restart points otherwise"
            log.warning("source_group_not_visited", group=group_id, error=str(error), cure=cure)
        except UpstreamUnavailable as error:
            self.outcomes["failed"] += 1
            log.warning("source_group_not_visited", group=group_id, error=str(error), cure="it is tried again")


def _is_point(metadata: str | None) -> bool:
    point = parsed(metadata)
    return point is not None and point.number > 0
