"""Whether topics take transactions: asked before the first one of a topic, and free from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers.batch_checks import Unfit
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic

log = client_log(__name__)

Allow: TypeAlias = Callable[[ManagedTopic], Awaitable[None]]
"""Returns when the worker has read in the layout that a topic has transactions; raises UpstreamUnavailable."""
_WAIT_SECONDS: Final = 2.0
"""A controller that has just begun waits a lease; what a client asks meanwhile is to be asked again."""
_NOW: Final = frozenset({Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER})
"""Reasons that may be gone when the client asks again."""


class Permits:
    """Lets topics take transactions.

    Args:
        allow: See `Allow`; an error with a `code` is a refusal, any other one may be gone on the next try.
    """

    def __init__(self, allow: Allow) -> None:
        self._allow = allow

    async def allow(self, topic: ManagedTopic) -> Unfit | None:
        """Has a topic take transactions.

        Returns:
            Why it does not: INVALID_TXN_STATE for good, NOT_LEADER_OR_FOLLOWER for now; None: it does.
        """
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._allow(topic)
        except TimeoutError:
            return Unfit(Code.NOT_LEADER_OR_FOLLOWER, f"Kordon waits until {topic.name} may have transactions")
        except UpstreamUnavailable as error:
            log.warning("transactions_not_allowed", topic=topic.name, error=str(error))
            code = getattr(error, "code", Code.NOT_LEADER_OR_FOLLOWER)
            return Unfit(Code.NOT_LEADER_OR_FOLLOWER if code in _NOW else Code.INVALID_TXN_STATE, str(error))
        return None
