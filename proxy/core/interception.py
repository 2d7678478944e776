"""What may happen to a request that concerns managed topics: the words between a connection's core and who decides.

While a cluster has no managed topic, nothing is intercepted and every request streams through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.messages import request
from kordon.proxy.core import verdicts
from kordon.proxy.core.rewrite import TakeAnswer
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer, Body, Throttled

_Client_contra = TypeVar("_Client_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Translate:
    """The broker is asked something else on the client's own connection, and its answer translated back."""

    body: bytes | None
    """The body of the request as the broker gets it; None: as it came."""
    back: TakeAnswer
    """Changes the parsed response in place."""
    only_with: tuple[bytes, ...] = ()
    """If given, `back` has something to change only in a response whose bytes hold one of these."""
    streams: Callable[[], bool] | None = field(default=None, compare=False)
    """If given, asked when the response begins: whether `back` has nothing to change, so that the response streams on
    as if its request had passed."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request of Kordon's own on the client's connection; its answer does not reach the client."""

    route: Route
    body: bytes
    told: TakeAnswer


PROOF: Final = Question(
    next(each for each in verdicts.ROUTES if (each.api.key, each.version) == (apis.METADATA, 9)),
    request(apis.METADATA).build(9, {"topics": [], "allow_auto_topic_creation": False}),
    lambda _: None,
)
"""Metadata of no topic: every broker since 2.4 answers it to any client that it has accepted, and to no other."""


Answering: TypeAlias = Callable[[Awaitable[Any] | None], Awaitable[Answer]]
"""Answers a request.

Its argument is the broker's answer to the rest of the request, parsed; None if the broker was not asked. It returns the
body of the response, or what makes that, which is called once. It raises SilentWriteFailed where nobody waits for the
response, and it would be an error: the connection is to end.
"""


Tell: TypeAlias = Callable[[Callable[[], Body | Throttled]], None]
"""Takes what makes an answer. That is called later, when whoever tells has returned."""


class EagerAnswering:
    """An `Answering` that can often begin at once, and then needs no task.

    Args:
        answer: Answers the request if it has not begun.
        begin: Begins to answer a request of which the broker is asked no part, if that can be done at once. Its
            argument is called once, perhaps before `begin` returns, when it is known what is answered. `begin` returns
            what is to be called if the client goes away before that. None: nothing has begun.
    """

    __slots__ = ("_answer", "begin")

    def __init__(self, answer: Answering, begin: Callable[[Tell], Callable[[], None] | None]) -> None:
        self._answer = answer
        self.begin = begin

    def __call__(self, part: Awaitable[Any] | None) -> Awaitable[Answer]:
        """Answers the request; see `Answering`."""
        return self._answer(part)


@dataclass(frozen=True, slots=True)
class Serve:
    """Kordon answers by itself, later."""

    answer: Answering
    rest: bytes | None = None
    """The body of what the broker is asked besides, on the client's own connection; its answer is merged in."""
    questions: tuple[Question, ...] = ()
    """What Kordon asks the broker before that, for its own decision."""


Ask: TypeAlias = Callable[[Route, bytes], Awaitable[Any]]
"""Asks the client's broker, on the client's own connection, and returns its answer, parsed. Takes a body of a request.

If the connection ends, no answer comes: the wait is the caller's to bound.
"""


@dataclass(frozen=True, slots=True)
class Confer:
    """Kordon answers by itself, later, and asks the client's broker before that, as often as it needs to.

    The client is not read meanwhile. So nothing that it asks stands between Kordon's questions and their answers.
    """

    answer: Callable[[Ask], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Announce:
    """An ApiVersions request passes; its answer says what Kordon speaks beside what the broker does."""

    private: bool
    """Whether the api keys of Kordon's own are listed too: to those who have said that they speak the dialect."""
    ordered: bool = True
    """Whether the dialect is announced."""
    lends_epochs: bool = False
    """Whether InitProducerId is offered with id and epoch where the broker does not have that (KIP-360)."""
    cooperative: bool = False
    """Whether individual commit is announced."""
    told: Callable[[int], None] | None = field(default=None, compare=False)
    """Is given the newest version of InitProducerId that the broker itself speaks."""


Decision = Translate | Serve | Confer | Announce | None
"""None: the request passes as it came."""


class Interception(Protocol):
    """Decides on requests; does no I/O."""

    def wants(self, route: Route) -> bool:
        """Whether a request may concern a managed topic, so that it is held until it is whole."""
        ...

    def concerns(self, topic: str | UUID) -> bool:
        """Whether a Produce or Fetch that `wants` wants is to be decided on if it names a topic, by name or id.

        One that names no such topic streams on as if it were not wanted.
        """
        ...

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Returns byte strings: a request that holds one of them is held as well until it is whole, and decided on.

        That is how a request is found that may name something of Kordon's own, without being read.
        """
        ...

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Says what happens to a request.

        Args:
            body: The whole body behind the header, in memory of its own. The decision may keep and change it.

        Raises:
            WireError: The request cannot be read.
        """
        ...

    def hear(self, client_id: str | None) -> None:
        """Notes what the client calls itself; called before `decide`."""
        ...

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Notes that a request was refused before `decide` was called.

        Args:
            ends: Whether the refusal ends the connection.
        """
        ...


class Service(Interception, Protocol):
    """Decides on the requests of one connection."""

    async def ready(self) -> None:
        """Returns when it is known what is managed; before that no client's request may pass."""
        ...

    def closed(self) -> None:
        """Notes that the connection has ended."""
        ...


class Services(Protocol[_Client_contra]):
    """The source of the services of clients' connections."""

    def connected(self, client: _Client_contra) -> Service:
        """Returns what decides for one more connection, `client` as decisions name it."""
        ...


class NothingManaged:
    """The service of a cluster without managed topics."""

    def wants(self, route: Route) -> bool:
        """Holds no request."""
        return False

    def concerns(self, topic: str | UUID) -> bool:
        """Leaves no topic to the broker: whatever is wanted is decided on."""
        return True

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Returns no byte strings."""
        return ()

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Lets everything pass."""
        return None

    def hear(self, client_id: str | None) -> None:
        """Does nothing."""

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Does nothing."""

    def connected(self, client: object) -> Service:
        """Returns itself: all clients have the same service."""
        return self

    async def ready(self) -> None:
        """Returns at once."""

    def closed(self) -> None:
        """Does nothing."""
