"""Has floors raised: one wish at a time for each topic, which holds all floors asked for meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.wishes import RaiseFloors, Wish

Fulfil: TypeAlias = Callable[[Wish], Awaitable[OutcomeRecord]]


@dataclass(eq=False)
class _Together:
    """Floors that are wished for together, for several clients that wait."""

    floors: dict[int, int] = field(default_factory=dict[int, int])
    outcome: OutcomeRecord | UpstreamUnavailable | None = None
    """None: it is not wished for yet."""


class FloorWishes:
    """Raises floors for the clients of a worker, however often they ask."""

    def __init__(self, fulfil: Fulfil) -> None:
        self._fulfil = fulfil
        self._coming: dict[str, _Together] = {}
        """By topic, what the next wish will say."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def raise_floors(self, topic: str, floors: Mapping[int, int]) -> None:
        """Returns when floors are durable.

        Args:
            floors: Virtual offsets by virtual partition.

        Raises:
            UpstreamUnavailable: The floors cannot be raised now.
        """
        together = self._coming.setdefault(topic, _Together())
        for v, floor in floors.items():
            together.floors[v] = max(floor, together.floors.get(v, 0))
        async with self._turns[topic]:
            if together.outcome is None:
                if self._coming.get(topic) is together:
                    del self._coming[topic]  # whoever comes from now on is part of the next
                together.outcome = await self._ask(RaiseFloors(topic, together.floors))
        if isinstance(together.outcome, UpstreamUnavailable):
            raise together.outcome
        if together.outcome.error_code:
            raise UpstreamUnavailable(together.outcome.message)

    async def _ask(self, wish: RaiseFloors) -> OutcomeRecord | UpstreamUnavailable:
        try:
            return await self._fulfil(wish)
        except UpstreamUnavailable as error:
            return error
