"""What serves clients on a simulated proxy, as the product's keeper sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy


class Serving:
    """What lanes, readers and clients' connections are to the product: `Writers`, `Readers` and `Passed` at once.

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

    async def drain(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Waits for what was sent to partitions."""
        under_way = self._proxy.writing.under_way
        drain = under_way.drain((topic, q) for q in partitions)
        try:
            while not drain.is_over:
                await self._answered.wait()
        finally:
            under_way.end(drain)
        return {q: offset for (_, q), offset in drain.landed.items()}

    async def expect(self, topic: str, partitions: frozenset[int]) -> None:
        """Has no connections."""

    def lease_renewed(self) -> None:
        """Judges what was kept, and goes on."""
        self._proxy.writing.judge_kept()
        self._proxy.writing.go_on_with_all()

    async def ready(self, topic: str) -> None:
        """Has no connections."""

    async def freeze(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Shows no more than was shown, and asks how far that may be."""
        managed, reading = self._proxy.topic, self._proxy.reading
        if managed is None or managed.fence is None:
            return {}
        fence = managed.fence = managed.fence.freezing(reading.shown)
        ends = await self._proxy.asked(lambda: reading.ends(partitions))
        if managed.fence is fence:
            managed.fence = fence.freezing(ends)
        return ends

    def told(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """No log gets shorter."""
        return {}

    def invalidate(self, topic: str) -> None:
        """Another layout is in force, or the topic is an ordinary one again."""
        writing = self._proxy.writing
        if self._proxy.topic is None:
            self._proxy.loop.call_soon(writing.give_up_all)
        else:
            self._proxy.loop.call_soon(writing.go_on_with_all)

    async def nothing_between(self, topic: str, v: int, offset: int, until: int) -> bool:
        """Does not look."""
        return False
