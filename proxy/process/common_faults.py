"""Why managed topics are not served, where the cause lies in the cluster and every proxy meets it alike.

A proxy that has lost its own lease sends its clients elsewhere (/readyz, 503). One that cannot have a lease because
nobody can has nowhere to send them, and serves ordinary topics as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kordon.codecs.bodies import FindCoordinatorRequest
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import find_coordinator
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC

_LOOK_SECONDS: Final = 1.0
_VERSIONS: Final = range(1, 4)


class CommonFaults:
    """Asks the cluster while managed topics are not served."""

    def __init__(self, brokers: Brokers, group: str) -> None:
        self.found = ""
        """What is wrong for all; empty: nothing that is known."""
        self._brokers = brokers
        self._group = group

    async def run(self, is_served: Callable[[], bool]) -> None:
        """Looks until it is cancelled.

        Args:
            is_served: Returns whether managed topics are served here now, or there are none.
        """
        while True:
            self.found = "" if is_served() else await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> str:
        """Returns what the cluster itself says is wrong; empty if it says nothing, or cannot be asked."""
        try:
            return await self._of_layouts() or await self._of_group()
        except UpstreamUnavailable:
            return ""  # this proxy's way to the brokers may be what is broken

    async def _of_layouts(self) -> str:
        (row,) = (await self._brokers.metadata([LAYOUTS_TOPIC])).topics
        if row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return f"there is no {LAYOUTS_TOPIC}"
        leads = any(each.partition_index == 0 and each.leader_id >= 0 for each in row.partitions)
        return "" if leads else f"{LAYOUTS_TOPIC} has no leader ({name_of(row.error_code)})"

    async def _of_group(self) -> str:
        asked = FindCoordinatorRequest(key=self._group, key_type=CoordinatorKind.GROUP)
        code = (await self._brokers.ask_any(find_coordinator.API, _VERSIONS, asked)).error_code
        return "" if code == Code.NONE else f"group {self._group} has no coordinator ({name_of(code)})"
