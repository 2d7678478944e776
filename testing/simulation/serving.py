"""What serves clients on a simulated proxy, as the product's layout member sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy


class Serving:
    """What readers and clients' connections are to the product: `Readers` and `Passed` at once.

    Args:
        proxy: Whose.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._answered = asyncio.Event()

    def on_answer(self) -> None:
        """Something that was sent is answered."""
        self._answered.set()
        self._answered = asyncio.Event()

    async def settle(self) -> None:
        """Waits for what clients have sent to the ordinary topic."""
        while self._proxy.writing.passed:
            await self._answered.wait()

    async def renew_views(self, topic: str) -> None:
        """Clients ask for Metadata by themselves."""

    async def ready(self, topic: str) -> None:
        """Has no connections."""

    async def freeze(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Shows no more than was shown, and asks how far that may be."""
        return await self._proxy.reading.control.freeze(topic, partitions)

    def told(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """No log gets shorter."""
        return {}

    def invalidate(self, topic: str) -> None:
        """Keeps nothing of what was read."""

    async def nothing_between(self, topic: str, v: int, offset: int, until: int) -> bool:
        """Does not look."""
        return False
