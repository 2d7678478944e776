"""Lets topics have transactions, once nobody serves them who does not know transactions.

    all members know transactions ──> the layout says so ──> the group is confirmed ──> the first announcement

Versions without transactions cannot read such a layout, so they do not serve the topic from the first record on
(UNREAD-UNSERVED); version 0.1.0 serves nothing. Whoever joins the group behind that record reads it before it serves
(READ-BEFORE-SERVE); whoever has joined before is known when the group is confirmed. No worker writes a transaction
before it has read the second record.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.runtime.clock import clock

log = structlog.get_logger(__name__)

_CONFIRM_SECONDS: Final = 0.2
_MOST_WAIT_SECONDS: Final = 30.0
"""For leases of members that are missing; whoever wished is told to try again then."""
_RIGHTS_LACK: Final = frozenset(
    {Code.CLUSTER_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)
_RIGHTS: Final = (
    "give Kordon's principal DescribeConfigs on the cluster, and Describe on the topic __transaction_state and on all"
    " transactional ids: docs/rights.md"
)
_OLD_VERSION: Final = "upgrade these proxies first: they would show transactions before they are committed"


class Transacting:
    """Has layouts say that their topics have transactions.

    Args:
        state: The worker's state, which knows the members of the group.
        confirm: Returns whether the known generation is still the present one.
        compaction: The part that knows which topics are compacted.
    """

    def __init__(
        self,
        context: ControllerContext,
        state: LayoutsState,
        confirm: Callable[[], Awaitable[bool]],
        compaction: Compaction,
    ) -> None:
        self._ledger, self._admin = context.ledger, context.admin
        self._state = state
        self._confirm = confirm
        self._compaction = compaction

    async def allow(self, topic: str) -> None:
        """Lets a topic have transactions, for good.

        Raises:
            WishRefused: The topic is not managed, is being taken over, or is compacted; a proxy does not know
                transactions, or a broker does not verify them.
            TopicsRefused: Kordon lacks a right.
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        record, controller = self._ledger.settled(topic), self._ledger.controller
        if record.layout.has_transactions and controller is not None and topic in controller.announcing.standing:
            return
        await self._refuse_unfit(record.layout)
        controller = await self._wait_for_missing()
        self._refuse_older()
        await self._ledger.renew(replace(record, layout=replace(record.layout, has_transactions=True)))
        await self._confirmed()
        try:
            self._refuse_older()
        except WishRefused:
            await self._ledger.renew(record)
            raise
        first = controller.announcing.first(topic, uuid.uuid4().hex[:12])
        await self._ledger.write(((f"announcement/{topic}", first),))
        log.info("transactions_allowed", topic=topic)

    async def _refuse_unfit(self, layout: Layout) -> None:
        topic = layout.topic
        if layout.janitor or await self._compaction.is_compacted(topic):
            detail = f"{topic} is compacted, and Kordon takes no transactions on compacted topics"
            raise WishRefused(Code.INVALID_CONFIG, detail)
        try:
            brokers = await self._admin.unverifying()
            await self._admin.transactions.refuse_lacking()
        except TopicsRefused as refusal:
            if refusal.code in _RIGHTS_LACK:
                raise WishRefused(refusal.code, f"{refusal}; {_RIGHTS}") from refusal
            raise
        if brokers:
            detail = (
                f"brokers {brokers} do not verify transactions: managed topics need Kafka 3.6 or newer, with"
                " transaction.partition.verification.enable=true"
            )
            raise WishRefused(Code.UNSUPPORTED_VERSION, detail)

    async def _confirmed(self) -> None:
        """Returns when the members that are known are proven to be all that joined before now."""
        while True:
            if await self._confirm():
                return
            await asyncio.sleep(_CONFIRM_SECONDS)

    def _refuse_older(self) -> None:
        if hosts := self._state.without_transactions:
            detail = f"the proxies at {', '.join(hosts)} do not know transactions; {_OLD_VERSION}"
            raise WishRefused(Code.UNSUPPORTED_VERSION, detail)

    async def _wait_for_missing(self) -> Controller:
        """Waits for the leases of members that are missing, since they may not know transactions."""
        until = clock() + _MOST_WAIT_SECONDS
        while (controller := self._ledger.controller) is not None and clock() < controller.alone_from:
            if clock() > until:
                raise WishRefused(Code.REQUEST_TIMED_OUT, "a proxy that is missing may still serve; try again")
            await asyncio.sleep(_CONFIRM_SECONDS)
        if controller is None:
            raise UpstreamUnavailable("this proxy is not the controller any more")
        return controller
