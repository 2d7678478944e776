"""A worker's wishes of the controller: each is written to the layouts, and what comes of it is read there."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering.records import OutcomeRecord, WishRecord, dump
from kordon.proxy.ordering.wishes import Wish
from kordon.proxy.own_topics.layouts_log import LayoutsLog

log = structlog.get_logger(__name__)

WISH_SECONDS: Final = 60.0
"""How long a client waits for its wish, which is fulfilled later all the same."""
MOST_WISHES: Final = 1_000
"""Under way at a time; each is a record that all proxies read."""
FIRST_TOPIC_SECONDS: Final = 5.0
"""How long the first topic of a cluster waits: by then all proxies have seen that there are layouts and have joined."""


class Wishing:
    """Wishes for the clients of a worker.

    Args:
        layouts: The layouts topic; it is created by the first wish.
        admit: Sees that a topic can be managed as far as rights go.
    """

    def __init__(self, layouts: LayoutsLog, admit: Callable[[str], Awaitable[None]]) -> None:
        self._layouts = layouts
        self._admit = admit
        self._outcomes: dict[str, asyncio.Future[OutcomeRecord]] = {}

    async def wish(self, wish: Wish) -> OutcomeRecord:
        """Sends a wish to the controller, and waits for its outcome.

        Raises:
            UpstreamUnavailable: Nothing came of it in time, or the wish could not be written.
        """
        if not await self._layouts.exists():
            await self._begin_with(wish.topic)
        if len(self._outcomes) >= MOST_WISHES:
            detail = f"{MOST_WISHES} wishes of clients of this proxy are under way; try again when some are done"
            raise UpstreamUnavailable(f"{wish.kind} {wish.topic}: {detail}")
        wish_id = uuid.uuid4().hex
        outcome: asyncio.Future[OutcomeRecord] = asyncio.get_running_loop().create_future()
        self._outcomes[wish_id] = outcome
        until = asyncio.get_running_loop().time() + WISH_SECONDS
        try:
            # Where the leader of the layouts has died, brokers take 10 s and more to find another one.
            await self._layouts.append([NewRecord(f"wish/{wish_id}", dump(WishRecord(wish)))], WISH_SECONDS)
            async with asyncio.timeout_at(until):
                return await outcome
        except TimeoutError:
            detail = f"{wish.kind} {wish.topic}: not done within {WISH_SECONDS:g} s; the controller continues with it"
            raise UpstreamUnavailable(detail) from None
        finally:
            del self._outcomes[wish_id]

    async def _begin_with(self, topic: str) -> None:
        await self._admit(topic)  # or else the first thing that fails would be named, not what is missing
        await self._layouts.create()
        log.info("first_managed_topic", waits_seconds=FIRST_TOPIC_SECONDS)
        await asyncio.sleep(FIRST_TOPIC_SECONDS)

    def on_outcome(self, wish_id: str, outcome: OutcomeRecord) -> None:
        """Takes in what came of a wish, of this worker or of another."""
        waiting = self._outcomes.get(wish_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)
