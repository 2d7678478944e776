"""Removes from the layouts what nobody needs any more, so that a proxy that starts has little to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.runtime.clock import clock

SWEEP_SECONDS: Final = 5.0
MOST_AT_ONCE: Final = 1_000
"""Tombstones of one transaction, some 60 KB."""


class Sweeping:
    """Sweeps while this proxy is the controller.

    Args:
        leftovers: The records that may be left over, and how old they are.
    """

    def __init__(self, ledger: Ledger, leftovers: Leftovers, members: Callable[[], frozenset[str]]) -> None:
        self._ledger = ledger
        self._leftovers = leftovers
        self._members = members

    async def run(self) -> None:
        """Sweeps forever, except while a layout changes, because clients wait for that."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            controller = self._ledger.controller
            if controller is not None and not controller.changes:
                await self.sweep(clock())

    async def sweep(self, now: float) -> None:
        """Sweeps once; a failure ends the role, as with any write of the controller."""
        due = self._leftovers.due(now, self._members(), MOST_AT_ONCE)
        if due:
            await self._ledger.attempt(tuple((key, None) for key in due))
