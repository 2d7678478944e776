"""Where connections get their services of, while topics may be managed.

While nothing is managed no request is held but a few that are rare, and the handlers cost a look at an empty mapping.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kordon.proxy.core.interception import Service
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.closed import Closed
from kordon.proxy.handlers.guard import Guard
from kordon.proxy.handlers.handlers import Handlers
from kordon.proxy.handlers.logins import SUBJECT
from kordon.proxy.handlers.rights import Rights
from kordon.proxy.own_topics.own_things import OwnThings


class ManagedService:
    """The services of a worker's connections.

    Args:
        dialect: The handlers for connections that speak the dialect.
        asks_rights: Whether clients may have different rights, so that each is asked about.
        rights_max_age_seconds: How long what was said of a client's rights is believed.
        claim: The claim that names the user in a token with which a client logs in.
        own: The names that are closed to clients. None: no names are.
    """

    def __init__(
        self,
        handlers: Handlers,
        dialect: Handlers,
        *,
        asks_rights: Callable[[], bool] = lambda: False,
        rights_max_age_seconds: float = 1.0,
        journal: Journal = NO_JOURNAL,
        claim: str = SUBJECT,
        own: OwnThings | None = None,
    ) -> None:
        self._handlers = handlers
        self._dialect = dialect
        self._asks_rights = asks_rights
        self._rights_max_age = rights_max_age_seconds
        self._journal = journal
        self._claim = claim
        self._own = own
        self._known = asyncio.Event()

    def doubt(self) -> None:
        """Notes that `topics` may be old: no request of a new connection passes before `know`."""
        self._known.clear()

    def know(self) -> None:
        """Notes that `topics` says all there is."""
        self._known.set()

    @property
    def knows(self) -> bool:
        """Whether the managed topics are known; before that no request passes."""
        return self._known.is_set()

    def connected(self, client: Client) -> Service:
        """Returns what serves one more client, as far as its rights go."""
        guard = Guard(
            self._handlers,
            self._dialect,
            self.ready,
            Rights(self._rights_max_age, time.monotonic),
            self._asks_rights,
            client=client,
            journal=self._journal,
            claim=self._claim,
        )
        return Closed(guard, self._own, self._handlers.shared.most_rows) if self._own is not None else guard

    async def ready(self) -> None:
        """Returns when it is known what is managed."""
        await self._known.wait()
