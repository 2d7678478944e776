"""A worker's question whether a topic may have transactions: asked before the first one, free from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.wishes import AllowTransactions, Wish
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic

log = structlog.get_logger(__name__)
told = client_log(__name__)

REFUSED_SECONDS: Final = 10.0
"""For how long a refusal is told again without asking the controller."""


class TransactionsRefused(UpstreamUnavailable):
    """Raised for a topic that cannot have transactions now; the message has the cause and the cure.

    Attributes:
        code: Kafka's error code for the reason; it says nothing of a transaction.
    """

    def __init__(self, topic: str, outcome: OutcomeRecord) -> None:
        super().__init__(f"{topic} takes no transactions: {outcome.message}")
        self.code = outcome.error_code


class TransactionsAllowed:
    """Has layouts say that their topics have transactions. Clients that come meanwhile share one wish for a topic.

    Args:
        wish: Called to send a wish and to wait until it is fulfilled.
    """

    def __init__(self, wish: Callable[[Wish], Awaitable[OutcomeRecord]]) -> None:
        self._wish = wish
        self._asking: dict[str, asyncio.Task[OutcomeRecord]] = {}
        self._refused: dict[str, tuple[float, OutcomeRecord]] = {}

    async def allow(self, topic: ManagedTopic) -> None:
        """Returns when this worker has read that a topic takes transactions; at once if it knows that.

        Raises:
            TransactionsRefused: The topic cannot have any now.
            UpstreamUnavailable: The controller does not answer; asking again may help.
        """
        while not topic.takes_transactions:
            if topic.unserved is not None:
                raise UpstreamUnavailable(f"{topic.name}: {topic.unserved}")
            changed = asyncio.ensure_future(topic.wait_for_change())
            try:
                outcome = await self._outcome(topic.name)
                if outcome.error_code != Code.NONE:
                    raise TransactionsRefused(topic.name, outcome)
                if not topic.takes_transactions:
                    await changed  # the controller has written it, and this worker reads it next
            finally:
                changed.cancel()

    async def _outcome(self, topic: str) -> OutcomeRecord:
        now = asyncio.get_running_loop().time()
        until, outcome = self._refused.get(topic, (0.0, None))
        if outcome is not None and now < until:
            return outcome
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.ensure_future(self._ask(topic))
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    async def _ask(self, topic: str) -> OutcomeRecord:
        try:
            outcome = await self._wish(AllowTransactions(topic))
        except TopicsRefused as refusal:
            outcome = OutcomeRecord(refusal.code, str(refusal))
        if outcome.error_code != Code.NONE:
            self._refused[topic] = asyncio.get_running_loop().time() + REFUSED_SECONDS, outcome
            told.warning("transactions_refused", topic=topic, error=outcome.message)
        else:
            self._refused.pop(topic, None)
        return outcome
