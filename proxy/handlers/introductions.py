"""What is on record of a client whatever it asks for: how it calls itself, as whom it logs in, as whom it produces.

That needs no managed topic, so it is the same where topics are managed (`guard.py`) and where they cannot be
(`ordering.enabled: false`): there `OnlyRecorded` is all that looks at requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kordon.codecs import apis, decision
from kordon.codecs.bodies import InitProducerIdResponse
from kordon.codecs.errors import WireError
from kordon.codecs.messages import init_producer_id
from kordon.proxy.core.interception import Decision, Service, Translate
from kordon.proxy.decisions.events import OwnError
from kordon.proxy.handlers.logins import SUBJECT, Login

if TYPE_CHECKING:
    from kordon.proxy.core.verdicts import Route
    from kordon.proxy.decisions.journal import Journal
    from kordon.proxy.decisions.runs import Client

SAY_WHO: Final = frozenset({apis.INIT_PRODUCER_ID, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""By api key, the requests that are read, or whose answers are, where decisions are recorded."""
LOG_IN: Final = frozenset({apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""Those of them that say who has a quota."""
_GREETING: Final = frozenset({apis.API_VERSIONS})
"""Requests that are held for their client id alone: they come first on nearly all connections."""
_NOBODY: Final = -1
"""In place of a producer id or epoch that is not told."""


class Introduction:
    """What one client says of itself.

    Args:
        claim: The claim that names the user in a token (`decisions.oauth_claim`).
    """

    def __init__(self, client: Client, journal: Journal, claim: str = SUBJECT) -> None:
        self._client = client
        self._journal = journal
        self._login = Login(client, journal, claim)

    def hear(self, client_id: str | None) -> None:
        """Notes what the client calls itself."""
        if client_id != self._client.client_id:
            self._journal.named(self._client, client_id, self._client.principal)

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Records a request that was refused whatever it said; see `Interception.refused`."""
        evidence = {"api_version": api_version, "ends_connection": ends}
        self._journal.refused(self._client, OwnError(api_key, reason, evidence=evidence))

    def look(self, route: Route, body: memoryview) -> Decision:
        """Lets a request of `SAY_WHO` pass, and looks at its answer if that says something."""
        if route.api.key == apis.SASL_HANDSHAKE:
            self._login.begins(route.version, body)
            return None
        asks = self._producer_asks if route.api.key == apis.INIT_PRODUCER_ID else self._login.asks
        look = asks(route.version, body)
        return Translate(None, look) if look is not None else None

    def _producer_asks(self, version: int, body: memoryview) -> Callable[[InitProducerIdResponse], None] | None:
        """Returns what is to be given the answer to an InitProducerId request; None: it names no transactional id.

        What a coordinator answers is no decision of Kordon's; the auditor holds it against KIP-360.
        """
        try:
            asked, _ = init_producer_id.REQUEST.at(version).parse(body)
        except WireError:
            return None  # the broker says what is wrong with it
        transactional_id = asked.transactional_id
        if transactional_id is None:
            return None
        given = [asked.get("producer_id", _NOBODY), asked.get("producer_epoch", _NOBODY)]
        asked_at = self._journal.crossed.count
        return lambda answer: self._tell_identity(transactional_id, given, answer, asked_at)

    def _tell_identity(
        self, transactional_id: str, given: list[int], answer: InitProducerIdResponse, asked_at: int
    ) -> None:
        evidence: dict[str, object] = {
            "transactional_id": transactional_id,
            "given": given,
            "answered": [answer.producer_id, answer.producer_epoch],
            "error": answer.error_code,
        }
        if self._journal.crossed.add(transactional_id, asked_at):
            evidence["crossed"] = True
        fields = self._client.fields()
        self._journal.note(
            decision.Decision(kind=decision.Kind.ADMIT, **fields, api_key=apis.INIT_PRODUCER_ID, evidence=evidence)
        )


class OnlyRecorded:
    """The services of a worker that manages no topics, and has on record who its clients are and what it refuses.

    Args:
        claim: See `Introduction`.
    """

    def __init__(self, journal: Journal, claim: str = SUBJECT) -> None:
        self._journal = journal
        self._claim = claim

    def connected(self, client: Client) -> Service:
        """Returns what looks at one more connection."""
        return _Recorded(Introduction(client, self._journal, self._claim))


class _Recorded:
    """Lets all requests of one client pass."""

    def __init__(self, introduction: Introduction) -> None:
        self.hear = introduction.hear
        self.refused = introduction.refused
        self._introduction = introduction

    async def ready(self) -> None:
        """Returns at once: nothing is managed."""

    def closed(self) -> None:
        """Does nothing: no share sessions are kept."""

    def wants(self, route: Route) -> bool:
        """Whether a request says who the client is."""
        return route.api.key in SAY_WHO or route.api.key in _GREETING

    def concerns(self, topic: str | UUID) -> bool:
        """Leaves no topic to the broker: whatever is wanted is looked at."""
        return True

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Returns no byte strings: there is nothing of Kordon's own to look for."""
        return ()

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Lets everything pass."""
        return self._introduction.look(route, body) if route.api.key in SAY_WHO else None
