"""What a topic's configs must be so that the janitor has time, and brokers do what it relies on (KIP-253 9).

min.compaction.lag.ms   at least `ordering.janitor_lag_ms`: within it a value that a hidden record stands behind is
                        brought back before a broker takes it away
max.compaction.lag.ms   at most half of delete.retention.ms: a key's old value leaves its former partition before
                        the tombstone in its home does, or a deleted key would come back
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.kafka.topics_admin import TopicsAdmin

log = structlog.get_logger(__name__)

POLICY: Final = "cleanup.policy"
MIN_LAG: Final = "min.compaction.lag.ms"
MAX_LAG: Final = "max.compaction.lag.ms"
DELETE_RETENTION: Final = "delete.retention.ms"
SEGMENT: Final = "segment.ms"


def is_compacted(configs: Mapping[str, str | None]) -> bool:
    """Whether brokers compact a topic."""
    return "compact" in (configs.get(POLICY) or "")


def lags(configs: Mapping[str, str | None], least_ms: int) -> dict[str, int]:
    """Returns the configs to change, where a topic's own and the defaults are `configs`."""
    shortest, longest, kept = (_number(configs, name) for name in (MIN_LAG, MAX_LAG, DELETE_RETENTION))
    wanted = max(shortest, least_ms)
    found = {MIN_LAG: wanted, MAX_LAG: max(min(longest, kept // 2), wanted, 1)}
    return {name: value for name, value in found.items() if value != _number(configs, name)}


def roll_ms(configs: Mapping[str, str | None]) -> int:
    """Returns how old a file may be, in milliseconds, when a record comes; only files before the last are compacted."""
    return min(_number(configs, SEGMENT), _number(configs, MAX_LAG))


def _number(configs: Mapping[str, str | None], name: str) -> int:
    return int(configs.get(name) or 0)


class Compaction:
    """Sees to the configs of topics.

    Args:
        least_ms: The least min.compaction.lag.ms of a managed topic, in milliseconds.
    """

    def __init__(self, admin: TopicsAdmin, least_ms: int) -> None:
        self._admin = admin
        self._least_ms = least_ms

    async def refuse(self, topic: str) -> None:
        """Refuses to have a compacted topic without its janitor.

        Raises:
            WishRefused: The topic is compacted.
            UpstreamUnavailable: The cluster does not answer.
        """
        if await self.is_compacted(topic):
            detail = (
                f"{topic} is compacted: a key's old value could outlive the new one in a partition it has left; "
                "kordon.janitor=true has old values removed"
            )
            raise WishRefused(Code.INVALID_CONFIG, detail)

    async def is_compacted(self, topic: str) -> bool:
        """Whether brokers compact a topic now.

        Raises:
            UpstreamUnavailable: The cluster does not answer, or does not tell Kordon.
        """
        return is_compacted(await self._admin.topic_configs(topic))

    async def hold(self, topic: str) -> dict[str, str | None]:
        """Changes a topic's configs where they leave the janitor no time; returns them as they are then.

        Raises:
            TopicsRefused: Kordon lacks the right to change them.
            UpstreamUnavailable: The cluster does not answer.
        """
        configs = await self._admin.topic_configs(topic)
        changes = {name: str(value) for name, value in lags(configs, self._least_ms).items()}
        if changes:
            log.info("compaction_held_back", topic=topic, **{name.replace(".", "_"): v for name, v in changes.items()})
            await self._admin.set_topic_configs(topic, changes)
        return {**configs, **changes}
