"""Between one client and the handlers: only what the client may have comes through (RIGHTS-FIRST).

Whether the client speaks the dialect it says in its ApiVersions request; from then on, on that connection, partitions
are physical ones.

What the client may not do is answered as by a broker: TOPIC_AUTHORIZATION_FAILED for each partition of the topic, while
the rest of the request is served. In the same way NOT_LEADER_OR_FOLLOWER refuses topics that are not served because
records of them cannot be read (UNREAD-UNSERVED, `ordering/unread.py`). Clients take that for a moment's trouble, and
ask again until the topic is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.proxy.core.interception import (
    Announce,
    Answering,
    Ask,
    Confer,
    Decision,
    EagerAnswering,
    Serve,
    Tell,
    Translate,
)
from kordon.proxy.core.rewrite import TakeAnswer
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.events import OwnError
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import BrokerOffer, BrokerPart, ConferredRequest, HeldRequest, ServedRequest
from kordon.proxy.handlers.handlers import Handlers
from kordon.proxy.handlers.introductions import LOG_IN, SAY_WHO, Introduction
from kordon.proxy.handlers.logins import SUBJECT
from kordon.proxy.handlers.rights import Rights
from kordon.proxy.handlers.throttling import Throttling
from kordon.proxy.handlers.told_clients import ToldClient


class Guard:
    """The service of one client's connection.

    Args:
        handlers: The handlers that decide until the client says that it speaks the dialect.
        ready: Returns when it is known what is managed.
        needed: Whether clients can have different rights, or may have to log in; else nothing is asked.
        claim: The claim that names the user in a token with which the client logs in.
    """

    def __init__(
        self,
        handlers: Handlers,
        dialect: Handlers,
        ready: Callable[[], Awaitable[None]],
        rights: Rights,
        needed: Callable[[], bool],
        *,
        client: Client,
        journal: Journal,
        claim: str = SUBJECT,
    ) -> None:
        self._handlers = handlers
        self._dialect = dialect
        self._ready = ready
        self._rights = rights
        self._needed = needed
        self._client = client
        self._journal = journal
        self._topics = handlers.shared.topics
        self._told = ToldClient(client, self._topics, journal)
        self._introduction = Introduction(client, journal, claim)
        self._offer = BrokerOffer()
        quotas = handlers.shared.quotas
        self._throttling = Throttling(quotas, client)
        self._say_who = SAY_WHO if journal.is_on else LOG_IN if quotas is not None else frozenset[int]()

    async def ready(self) -> None:
        """Returns when it is known what is managed."""
        await self._ready()

    def closed(self) -> None:
        """Ends the connection's share sessions."""
        self._told.shares.close()

    def wants(self, route: Route) -> bool:
        """Whether a handler looks at a request, or it says who the client is, for decisions or quotas."""
        return self._handlers.wants(route) or route.api.key in self._say_who

    def concerns(self, topic: str | UUID) -> bool:
        """Whether a topic is answered for here, though it may be coming only (TAKEOVER-WAITS), or takes no records."""
        return self._topics.answers_for(topic) or topic in self._topics.sources

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Returns no byte strings; `Closed` looks for those of Kordon's own things."""
        return ()

    def hear(self, client_id: str | None) -> None:
        """Notes what the client calls itself."""
        self._introduction.hear(client_id)

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Records a request that was refused whatever it said."""
        self._introduction.refused(api_key, api_version, reason, ends=ends)

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Decides as the handler does, and asks what the client may do where that is not known."""
        looked = self._introduction.look(route, body) if route.api.key in self._say_who else None
        handler = self._handlers.by_key.get(route.api.key)
        if handler is None:
            return looked
        decision = handler.decide(HeldRequest(route, body, self._handlers.shared, self._told, self._offer))
        if isinstance(decision, ServedRequest):
            return self._throttling.bind(route, body, self._serve(route, decision))
        if isinstance(decision, ConferredRequest):
            tell = looked.back if isinstance(looked, Translate) else None
            return Confer(partial(_conferred, route, decision, tell))
        if decision is None:
            return looked
        if isinstance(decision, Translate) and isinstance(looked, Translate):
            return replace(decision, back=partial(_both, decision.back, looked.back))
        if isinstance(decision, Announce) and decision.private:
            self._handlers = self._dialect
        return decision

    def _serve(self, route: Route, asked: ServedRequest) -> Serve:
        """Has a request answered once the client's rights are known."""
        key = route.api.key
        answer: Answering = partial(self._answer, key, asked)
        if asked.may_begin:
            answer = EagerAnswering(answer, partial(self._begin, asked))
        known_anyway = Serve(answer, asked.rest, asked.questions)
        if not self._needed():
            return known_anyway
        names = frozenset(asked.names()) if asked.right is not None else frozenset[str]()
        if not names and (asked.rest is not None or asked.questions):  # the broker is asked anyway
            return known_anyway
        question, known = self._rights.ask(names - {""})
        questions = (*asked.questions, question) if question is not None else asked.questions
        answer = partial(self._answer_if_allowed, key, asked, names, known)
        if asked.may_begin:
            answer = EagerAnswering(answer, partial(self._begin_if_allowed, asked, names, known))
        return Serve(answer, asked.rest, questions)

    async def _answer_if_allowed(
        self,
        api_key: int,
        asked: ServedRequest,
        names: frozenset[str],
        known: asyncio.Future[None] | None,
        part: BrokerPart,
    ) -> Answer:
        """Refuses what the client may not have, and answers the rest."""
        if known is not None:
            await known
        denied = self._denied(asked, names)
        if denied:
            self._record(api_key, denied, rule="RIGHTS-FIRST")
            asked = asked.refuse(denied)
        return await self._answer(api_key, asked, part)

    def _denied(self, asked: ServedRequest, names: frozenset[str]) -> dict[str, int]:
        """Returns the error codes of the topics that the client may not have."""
        codes = {name: self._rights.of(name, asked.right) for name in names} if asked.right is not None else {}
        return {name: code for name, code in codes.items() if code}

    def _begin(self, asked: ServedRequest, tell: Tell) -> Callable[[], None] | None:
        """Begins to answer at once; None: something may have to be refused, or it takes a task."""
        return None if self._topics.unserved and asked.needs_layouts else asked.begin(tell)

    def _begin_if_allowed(
        self, asked: ServedRequest, names: frozenset[str], known: asyncio.Future[None] | None, tell: Tell
    ) -> Callable[[], None] | None:
        """Begins to answer at once if it is known that the client may have all of it."""
        return None if known is not None or self._denied(asked, names) else self._begin(asked, tell)

    async def _answer(self, api_key: int, asked: ServedRequest, part: BrokerPart) -> Answer:
        """Refuses what is not served, and answers the rest."""
        if self._topics.unserved and asked.needs_layouts:
            unserved = dict.fromkeys(
                sorted({*asked.names()} & self._topics.unserved.keys()), Code.NOT_LEADER_OR_FOLLOWER
            )
            if unserved:
                self._record(api_key, unserved, rule="UNREAD-UNSERVED")
                asked = asked.refuse(unserved)
        return await asked.answer(part)

    def _record(self, api_key: int, refused: Mapping[str, int], *, rule: str) -> None:
        for name, code in refused.items():
            topic = self._topics.served(name)
            error = OwnError.about(topic, api_key, code, name=name or None, rule=rule)
            self._journal.refused(self._client, error)


def _both(first: TakeAnswer, second: TakeAnswer, answer: Row) -> None:
    first(answer)
    second(answer)


async def _conferred(route: Route, asked: ConferredRequest, tell: TakeAnswer | None, ask: Ask) -> Answer:
    """Answers a request, and has the answer looked at."""
    answer: Row = await asked.answer(ask)
    if tell is not None:
        tell(answer)
    return response(route.api.key).build(route.version, answer)
