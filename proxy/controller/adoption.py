"""Waits until every proxy holds a fence. Each one then knows every layout that was written before the fence."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import structlog

from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.ordering.records import FenceRecord, TopicRecord
from kordon.proxy.own_topics.layouts_writer import Records

log = structlog.get_logger(__name__)

ADOPTION_SECONDS: Final = 12.0
"""The longest time that a wish waits until all proxies know the layout. A dead proxy has left their group by then."""


class Adoption:
    """Raises fences that belong to no change, and notes which proxies hold them."""

    def __init__(self, ledger: Ledger, members: Callable[[], frozenset[str]]) -> None:
        self._ledger = ledger
        self._members = members
        self._heard = asyncio.Event()  # of a member or an acknowledgement
        self._adopters: dict[str, set[str]] = {}

    def on_members(self) -> None:
        """Takes in that the group has another generation."""
        self._heard.set()

    def on_ack(self, fence: str, incarnation: str) -> None:
        """Takes in that a proxy holds a fence."""
        if fence in self._adopters:
            self._adopters[fence].add(incarnation)
            self._heard.set()

    def raised(self, fence: str) -> bool:
        """Whether a fence was raised here and has not ended yet."""
        return fence in self._adopters

    async def wait_until_adopted(self, record: TopicRecord) -> Records:
        """Returns when all proxies know a layout, so that none treats the topic as ordinary or tells an earlier count.

        They acknowledge a fence that holds nothing and was written after the layout. A proxy that does not acknowledge
        it is gone, or has to read the layouts again before it serves.

        Returns:
            The records that end that fence, for the caller to write.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        fence, is_held = await self.raise_fence(record, (), ADOPTION_SECONDS)
        if not is_held:
            missing = self._members() - self._adopters[fence.id]
            log.warning("layout_unadopted", topic=record.layout.topic, members=sorted(missing))
        return self.lowering(fence)

    async def raise_fence(
        self, record: TopicRecord, sealed: Collection[int], seconds: float
    ) -> tuple[FenceRecord, bool]:
        """Writes a fence, and waits until all members hold it or the time is over. The records of `lowering` end it.

        A member that holds the fence does not write to the physical partitions that it seals.

        Returns:
            The fence, and whether all members have acknowledged it.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        layout = record.layout
        fence = FenceRecord(uuid.uuid4().hex[:12], layout.topic, layout.epochs[-1], frozenset(sealed))
        adopters = self._adopters[fence.id] = set()
        await self._ledger.write(((f"fence/{fence.topic}", fence),))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._members() <= adopters:
                    self._heard.clear()
                    await self._heard.wait()
        return fence, self._members() <= adopters

    def lowering(self, fence: FenceRecord) -> Records:
        """Returns the records that end a fence and delete its acknowledgements."""
        acks = ((f"ack/{fence.id}/{each}", None) for each in sorted(self._adopters.pop(fence.id)))
        return (f"fence/{fence.topic}", None), *acks
