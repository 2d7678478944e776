"""By which ids brokers know Kordon's own topics: looked at from the start, and again in case one was made again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from kordon.codecs.messages import metadata
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.to_topic import DECISIONS_TOPIC
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import topics_asked
from kordon.proxy.own_topics.compacted_topic import (
    GROUPS,
    INDIVIDUAL_COMMITS,
    LAYOUTS,
    PRODUCERS,
    SHARE_GROUPS,
    SOURCE_TOPICS,
)
from kordon.proxy.own_topics.own_things import OwnThings

_COMPACTED: Final = (LAYOUTS, GROUPS, PRODUCERS, INDIVIDUAL_COMMITS, SHARE_GROUPS, SOURCE_TOPICS)
_TOPICS: Final = (*(topic.name for topic in _COMPACTED), DECISIONS_TOPIC)
_VERSIONS: Final = range(10, 13)
"""Versions of Metadata that have topic ids; brokers that support none of them know topics by name only."""
_LOOK_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


class OwnIds:
    """Keeps `OwnThings` up to date.

    Args:
        links: Connections by which brokers are asked.
        found: Is told the names of those that are there.
    """

    def __init__(
        self, links: BrokerConnections, own: OwnThings, found: Callable[[Collection[str]], None] = lambda _: None
    ) -> None:
        self._links = links
        self._own = own
        self._found = found

    async def run(self) -> None:
        """Looks up ids forever."""
        while True:
            try:
                await self.look()
            except UpstreamUnavailable as error:
                log.debug("own_ids_unknown", error=str(error))
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Asks once. A topic that the answer does not name keeps the id that it had.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        answer = await self._links.ask_any("metadata", metadata.API, _VERSIONS, topics_asked(_TOPICS))
        ids = {row.name: row.topic_id for row in answer.topics if row.name and not row.error_code}
        self._own.learn(ids)
        self._found(ids.keys())
