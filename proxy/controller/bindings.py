"""Holds layouts to the topics that they were made for, which somebody may delete without asking Kordon (SAME-TOPIC)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from uuid import UUID

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsAdmin

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two looks; one that was deleted and made again answers LEADER_NOT_AVAILABLE for so long."""

_LOOKS: Final = 10
_AGAIN_SECONDS: Final = 0.2


class Bindings:
    """Looks whether managed topics are still there, while this proxy is the controller.

    Args:
        admin: Asks the cluster.
        expected: Returns the ids of managed topics, by name.
        let_go: Ends the layout of a topic; is told the id of the topic that has its name now, None without one.
    """

    def __init__(
        self,
        admin: TopicsAdmin,
        expected: Callable[[], Mapping[str, UUID]],
        let_go: Callable[[str, UUID | None], Awaitable[None]],
    ) -> None:
        self._admin = admin
        self._expected = expected
        self._let_go = let_go

    async def run(self) -> None:
        """Looks for ever.

        A topic that is only missing is let go at the second look: whoever deletes it through Kordon says so next.
        """
        missing: frozenset[str] = frozenset()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                gone = await self._admin.gone(self._expected())
            except UpstreamUnavailable as error:
                log.debug("topics_not_looked_at", error=str(error))
                continue
            for topic, successor in gone.items():
                if successor is not None or topic in missing:
                    await self._let_go(topic, successor)
            missing = frozenset(gone)

    async def look_at(self, topic: str) -> None:
        """Looks at one topic that somebody says is gone, and lets it go; brokers hear of it one after the other.

        Raises:
            UpstreamUnavailable: Not all brokers answer.
        """
        for _ in range(_LOOKS):
            expected = {name: topic_id for name, topic_id in self._expected().items() if name == topic}
            gone = await self._admin.gone(expected)
            for name, successor in gone.items():
                await self._let_go(name, successor)
            if gone or not expected:
                return
            await asyncio.sleep(_AGAIN_SECONDS)
