"""What all handlers have in common: a handler says all that Kordon does with one Kafka API in one view.

A handler decides on a request without I/O. It lets the request pass, translates it and the broker's answer, or returns
a `ServedRequest`, which Kordon answers by itself once it is known what the client may have (`guard.py`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from kordon.codecs.look import Buffer
from kordon.codecs.messages import request, response
from kordon.codecs.primitives import RowBudget
from kordon.codecs.row import Row
from kordon.proxy.access.client_quotas import ClientQuotas
from kordon.proxy.core.interception import Announce, Ask, Question, Tell, Translate
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.other_refusals import OtherRefusals
from kordon.proxy.handlers.told_clients import ToldClient
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics

AskedT = TypeVar("AskedT", bound=Row)
"""The body of a request."""
ToldT = TypeVar("ToldT", bound=Row)
"""The body of a response."""
BrokerPart: TypeAlias = Awaitable[Any] | None
"""The broker's answer to what Kordon leaves to it of a request, parsed; None: the broker was not asked.

The api key, and so the type, is known only at run time here; a handler names it."""


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """What all handlers of a view use.

    Attributes:
        topics: The managed topics, which handlers look up again with each request.
        refusals: Records the errors that clients are told.
        turns: The worker's turns, in which long work yields to other connections.
        most_rows: Most rows of a request that is read (`limits.request_rows`).
        quotas: The brokers' quotas for clients. None: Kordon does not enforce them.
    """

    topics: ManagedTopics
    refusals: OtherRefusals
    turns: Turns
    most_rows: int
    quotas: ClientQuotas | None = None


@dataclass(slots=True)
class BrokerOffer:
    """What is known of the broker at the other end of one client's connection."""

    newest_init: int | None = None
    """The newest version of InitProducerId that it speaks; None: it has not said."""

    def learn(self, newest_init: int) -> None:
        """Takes note of what it has said."""
        self.newest_init = newest_init


class HeldRequest:
    """A request of a client, which waits for a decision.

    Args:
        body: All of it behind the header; a handler may keep and change it.
        shared: What all handlers of the view share.
        offer: What is known of the client's broker. None: nothing is.
    """

    __slots__ = ("body", "client", "offer", "route", "shared", "told", "topics", "version")

    def __init__(
        self,
        route: Route,
        body: memoryview,
        shared: HandlerContext,
        told: ToldClient,
        offer: BrokerOffer | None = None,
    ) -> None:
        self.offer = offer or BrokerOffer()
        self.route = route
        self.version = route.version
        self.body = body
        self.shared = shared
        self.topics = shared.topics
        self.told = told
        self.client = told.client

    def budget(self) -> RowBudget:
        """Returns how many rows of the request may be read."""
        return RowBudget(self.shared.most_rows)

    def join_line(self) -> None:
        """Says that the request has batches for managed topics; those of later ones come behind them."""
        self.told.unqueued[self] = None

    def leave_line(self) -> None:
        """Says that all of its batches are queued, or never will be; whoever is first now may continue."""
        line = self.told.unqueued
        line.pop(self, None)
        first = next(iter(line.values()), None)
        if first is not None:
            first.set()

    @property
    def is_first_in_line(self) -> bool:
        """Whether no batches of earlier requests are still to be queued."""
        return next(iter(self.told.unqueued), self) is self

    async def turn(self) -> None:
        """Returns when the batches of all earlier requests are queued; the request is in the line."""
        if not self.is_first_in_line:
            is_first = self.told.unqueued[self] = asyncio.Event()
            await is_first.wait()

    def read(self) -> Any:
        """Reads the request; raises WireError."""
        return parse_request(self.route, self.body, self.budget())

    def build(self, value: Row) -> bytes:
        """Builds what the broker is asked in place of the request."""
        return request(self.route.api.key).build(self.version, value)

    async def record_errors(self, answer: Row) -> None:
        """Records the errors in an answer to the client."""
        await self.shared.turns.do(partial(self.shared.refusals.parts, self.client, self.route.api.key, answer))


def parse_request(route: Route, body: Buffer, rows: RowBudget | None = None) -> Any:
    """Reads a request as brokers do, which ignore bytes behind it: librdkafka 2.16 sends some behind Metadata 13."""
    value, _ = request(route.api.key).at(route.version).parse(body, rows)
    return value


class ServedRequest(ABC):
    """A request that Kordon answers by itself.

    Attributes:
        rest: The body of what the broker is asked besides; None: nothing.
        questions: The questions that the broker is asked before that, for Kordon's own use.
        right: The operation that the client must be allowed to do on its topics. None: the broker checks that.
    """

    may_begin: ClassVar[bool] = False
    """Whether `begin` may answer; otherwise the client's rights are looked up once, when the request is answered."""
    needs_layouts: ClassVar[bool] = True
    """Whether topics whose layouts cannot be read are refused (UNREAD-UNSERVED)."""
    rest: bytes | None = None
    questions: tuple[Question, ...] = ()
    right: Operation | None = None

    def names(self) -> Iterable[str]:
        """Returns the names of its topics; "" stands for a topic that nobody knows."""
        return ()

    def refuse(self, codes: Mapping[str, int]) -> ServedRequest:
        """Returns the request with some topics refused; `codes` has their error codes by name."""
        raise NotImplementedError(codes)

    def begin(self, tell: Tell) -> Callable[[], None] | None:
        """Begins to answer it at once, if that can be; see `interception.EagerAnswering`."""
        return None

    @abstractmethod
    async def answer(self, part: BrokerPart) -> Answer:
        """Answers the request; see `interception.Answering`."""
        ...


class ConferredRequest(ABC):
    """A request that Kordon answers by itself, and asks the client's broker for that."""

    @abstractmethod
    async def answer(self, ask: Ask) -> Row:
        """Returns the answer; see `interception.Confer`."""
        ...


Handled: TypeAlias = Translate | Announce | ServedRequest | ConferredRequest | None
"""What a handler does with a request; None: it passes as it came."""


class ApiHandler(ABC):
    """All that Kordon does with one Kafka API in one view."""

    key: int
    is_always_wanted: ClassVar[bool] = False
    """Whether its requests are looked at even while no topic is managed."""
    concerns_sources: ClassVar[bool] = False
    """Whether they are looked at while there is a source topic."""

    @abstractmethod
    def decide(self, held: HeldRequest) -> Handled:
        """Says what happens to a request; raises WireError if it cannot be read."""
        ...


class Watch(Generic[ToldT]):
    """Looks at the answer to one request, and changes nothing."""

    def answered(self, answer: ToldT) -> None:
        """Looks at it as the broker gives it."""

    def told(self, answer: ToldT) -> None:
        """Looks at it as the client gets it."""


class TranslatedApi(ApiHandler, Generic[AskedT, ToldT]):
    """A handler that has the broker answer, and changes requests and responses on their way."""

    answers_always: ClassVar[bool] = False
    """Whether a response may name managed topics though its request does not."""

    def request(self, version: int, value: AskedT, topics: ManagedTopics) -> bool:
        """Changes a request for the broker, in place; returns whether there was anything to change."""
        return False

    @abstractmethod
    def response(self, version: int, value: ToldT, topics: ManagedTopics, asked: AskedT) -> None:
        """Changes a response for the client, in place; `asked` is the request as the client sent it."""
        ...

    def record(self, held: HeldRequest, answer: ToldT) -> None:
        """Records what a translated answer tells the client; called where decisions are recorded."""

    def watch(self, held: HeldRequest, value: AskedT) -> Watch[ToldT] | None:
        """Returns what looks at the answer to a request, also if nothing is to be changed; `value` is the request."""

    def takes_time(self, topics: ManagedTopics) -> bool:
        """Whether `wait` or `complete` may have something to do, or the translation is long."""
        return False

    async def wait(self, answer: ToldT, topics: ManagedTopics) -> None:
        """Returns when an answer of the broker may be translated."""

    async def complete(self, answer: ToldT) -> None:
        """Adds to a translated answer, in place, what has to be asked for."""

    def decide(self, held: HeldRequest) -> Handled:
        """Has the broker asked what it understands, and its answer translated back."""
        value: AskedT = held.read()
        watch = self.watch(held, value)
        changed = self.request(held.version, value, held.topics)
        if not (changed or self.answers_always or watch):
            return None
        body = bytes(held.body)
        asked = held.build(value) if changed else None
        watch, takes_time = watch or Watch[ToldT](), self.takes_time(held.topics)
        back = self.translation(held, body)

        def translate(answer: ToldT) -> None:
            watch.answered(answer)
            back(answer)
            if not takes_time:
                watch.told(answer)

        if takes_time:
            return TranslatedLater(self, held, Translate(asked or body, translate), watch)
        return Translate(asked, translate)

    def translation(self, held: HeldRequest, body: bytes) -> Callable[[ToldT], None]:
        """Returns what translates an answer of the broker.

        Args:
            body: The body of the request, as it came.
        """

        def back(answer: ToldT) -> None:
            self.response(held.version, answer, held.topics, parse_request(held.route, body))
            if held.shared.refusals.is_on:
                self.record(held, answer)

        return back


class TranslatedLater(ServedRequest, Generic[AskedT, ToldT]):
    """A request whose answer cannot be translated at once."""

    def __init__(
        self, handler: TranslatedApi[AskedT, ToldT], held: HeldRequest, translation: Translate, watch: Watch[ToldT]
    ) -> None:
        self.rest = translation.body
        self.back = translation.back
        self._handler = handler
        self._held = held
        self._watch = watch

    async def answer(self, part: Awaitable[ToldT] | None) -> Answer:
        """Translates the broker's answer when that can be done, and completes it."""
        assert part is not None, "the broker is asked always"
        shared, route, answer = self._held.shared, self._held.route, await part
        await self._handler.wait(answer, shared.topics)
        await shared.turns.do(partial(self.back, answer))
        await self._handler.complete(answer)
        await shared.turns.do(partial(self._watch.told, answer))
        return partial(response(route.api.key).build_last, route.version, answer)
