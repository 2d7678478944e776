"""The application's callbacks: each within its time limit, and counted."""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass
from typing import Final

from kordon.client.listener import PartitionKeyRebalanceListener
from kordon.client.moves_events import CallAssigned, CallMaybeRevoked

_log = logging.getLogger(__name__)

_NAMES: Final = {CallMaybeRevoked: "on_partition_key_maybe_revoked", CallAssigned: "on_partition_key_assigned"}


@dataclass(slots=True)
class MoveCounts:
    """What the consumer counts of keys' moves."""

    flushes: int = 0
    """Calls of `on_partition_key_maybe_revoked` that returned."""
    loads: int = 0
    """Calls of `on_partition_key_assigned` that returned."""
    failures: int = 0
    """Calls of either that failed or took too long."""


class Calls:
    """Awaits callbacks of the application.

    Args:
        seconds: The longest time that one call may take.
    """

    def __init__(self, seconds: float) -> None:
        self.listener: PartitionKeyRebalanceListener | None = None
        """None: there is nothing to flush or to load."""
        self.counts = MoveCounts()
        self.seconds = seconds

    async def make(self, call: CallMaybeRevoked | CallAssigned) -> bool:
        """Makes a call; returns whether the application has returned from it in time, and without an error."""
        try:
            async with asyncio.timeout(self.seconds):
                await self._called(call)
        except Exception:  # whatever the application raises
            self.counts.failures += 1
            _log.exception("%s failed for %s; it is called again", _NAMES[type(call)], list(call.partitions))
            return False
        self.counts.flushes += isinstance(call, CallMaybeRevoked)
        self.counts.loads += isinstance(call, CallAssigned)
        return True

    async def _called(self, call: CallMaybeRevoked | CallAssigned) -> None:
        if self.listener is None:
            return
        if isinstance(call, CallMaybeRevoked):
            called = self.listener.on_partition_key_maybe_revoked(call.partitions)
        else:
            called = self.listener.on_partition_key_assigned(call.partitions)
        if inspect.isawaitable(called):
            await called
