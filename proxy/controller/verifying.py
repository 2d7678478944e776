"""Finds that brokers do not verify transactions any more, after topics have got them.

A topic has transactions only while all brokers verify them (`transacting.py`). The config can be switched off later, on
each broker by itself. Then a witness that comes late opens a transaction that nobody ends: it holds up the last stable
offset of its log, and each change of the topic.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.findings import transactions_unverified
from kordon.proxy.runtime.clock import now_ms

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 60.0


class Verifying:
    """Looks whether brokers verify the transactions of managed topics."""

    def __init__(self, context: ControllerContext) -> None:
        self._ledger, self._admin = context.ledger, context.admin

    async def run(self) -> None:
        """Looks once a minute, as long as the role lasts."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Tells of each topic whose transactions are not verified, once, and takes that back when they are again."""
        having = {topic for topic, each in self._ledger.topics.items() if each.layout.has_transactions}
        try:
            brokers = await self._admin.unverifying() if having else ()
        except (TopicsRefused, UpstreamUnavailable) as error:
            log.debug("verification_not_looked_at", error=str(error))
            return
        seen_ms, wrong = now_ms(), having if brokers else frozenset[str]()
        found = {
            topic: transactions_unverified(topic, brokers, seen_ms) if topic in wrong else None
            for topic in self._ledger.topics
        }
        await self._ledger.hold_findings("transactions_unverified", found)
