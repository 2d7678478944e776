"""What may happen to a request that concerns managed topics: the words between a connection's core and who decides.

While a cluster has no managed topic, nothing is intercepted and every request streams through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kordon.codecs import apis
from kordon.codecs.messages import request
from kordon.proxy.core import verdicts
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer


@dataclass(frozen=True, slots=True)
class Translate:
    """The broker is asked something else on the client's own connection, and its answer translated back."""

    body: bytes | None
    """Of the request as the broker gets it; None: as it came."""
    back: Callable[[Any], None]
    """Changes the parsed response in place."""
    only_with: tuple[bytes, ...] = ()
    """If given, `back` has something to change only in a response whose bytes hold one of these."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request of Kordon's own on the client's connection; its answer does not reach the client."""

    route: Route
    body: bytes
    told: Callable[[Any], None]
    """Is given the parsed response."""


PROOF: Final = Question(
    next(each for each in verdicts.ROUTES if (each.api.key, each.version) == (apis.METADATA, 9)),
    request(apis.METADATA).build(9, {"topics": [], "allow_auto_topic_creation": False}),
    lambda _: None,
)
"""Metadata of no topic: every broker since 2.4 answers it to any client that it has accepted, and to no other."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Kordon answers by itself, later."""

    request: Any
    """What to answer: a word between who decides and who serves."""
    rest: bytes | None = None
    """The body of what the broker is asked besides, on the client's own connection; its answer is merged in."""
    questions: tuple[Question, ...] = ()
    """What the broker is asked before that, for Kordon to know."""


@dataclass(frozen=True, slots=True)
class Announce:
    """An ApiVersions request passes; its answer says what Kordon speaks beside what the broker does (the dialect)."""

    private: bool
    """Whether the api keys of Kordon's own are listed too: to those who have said that they speak the dialect."""


Decision = Translate | Serve | Announce | None
"""None: the request passes as it came."""


class Interception(Protocol):
    """Decides on requests; does no I/O."""

    def wants(self, route: Route) -> bool:
        """Whether a request may concern a managed topic, so that it is held until it is whole."""
        ...

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Returns byte strings: a request that holds one of them is held as well until it is whole, and decided on.

        That is how a request is found that may name something of Kordon's own, without being read.
        """
        ...

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Says what happens to a request.

        Args:
            route: Of the request.
            body: All of it behind the header, in memory of its own; who serves it may keep and change it.

        Raises:
            WireError: It cannot be read.
        """
        ...

    def hear(self, client_id: str | None) -> None:
        """Takes note of what the client calls itself, in front of `decide`."""
        ...

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Takes note that a request was refused before anybody was asked for a decision.

        Args:
            api_key: Of the request.
            api_version: Likewise.
            reason: The name of the error.
            ends: Whether that ends the connection.
        """
        ...


class Service(Interception, Protocol):
    """Decides on requests, and answers those that it said it would."""

    async def ready(self) -> None:
        """Returns when it is known what is managed; before that no client's request may pass."""
        ...

    def serve(self, route: Route, request: Any, part: Awaitable[Any] | None) -> Coroutine[Any, Any, Answer]:
        """Answers a request.

        Args:
            route: Of the request.
            request: Of the decision (`Serve.request`).
            part: The broker's answer to the rest of it, parsed; None if it was not asked.

        Returns:
            The body of the response, or what makes it, which is called once.

        Raises:
            SilentWriteFailed: Nobody waits for the response, and it would be an error: the connection is to end.
        """
        ...


class Services(Protocol):
    """What clients' connections get their services of."""

    def connected(self, client: Any) -> Service:
        """Returns what decides and answers for one more connection, `client` as decisions name it."""
        ...


class NothingManaged:
    """The service of a cluster without managed topics."""

    def wants(self, route: Route) -> bool:
        """Wants nothing."""
        return False

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Looks for nothing."""
        return ()

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Lets everything pass."""
        return None

    def hear(self, client_id: str | None) -> None:
        """Keeps nothing."""

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Keeps nothing."""

    def connected(self, client: Any) -> Service:
        """Is the same to all."""
        return self

    async def ready(self) -> None:
        """Knows at once."""

    async def serve(self, route: Route, request: Any, part: Awaitable[Any] | None) -> Answer:
        """Is never asked."""
        raise NotImplementedError(route.api.name)
