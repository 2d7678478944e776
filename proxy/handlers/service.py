"""Decides, request by request, what concerns managed topics: what passes, what is translated, what is answered here.

While nothing is managed no request is held, and this module costs a look at an empty mapping.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from kordon.codecs.apis import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    METADATA,
    PRODUCE,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.codecs.primitives import RowBudget
from kordon.codecs.produce import Outcome, ProduceRequest
from kordon.codecs.schema import Buffer
from kordon.codecs.turns import ROWS_AT_ONCE
from kordon.proxy.config.config import Limits
from kordon.proxy.core.interception import Decision, Serve, Service, Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.admin_requests import AdminRequests, TopicWishes
from kordon.proxy.handlers.closed import Closed
from kordon.proxy.handlers.followed import Judge, TranslatedLater
from kordon.proxy.handlers.guard import Guard, PartlyRefused
from kordon.proxy.handlers.logins import SUBJECT
from kordon.proxy.handlers.metadata import wait_until_shown
from kordon.proxy.handlers.other_refusals import OtherRefusals
from kordon.proxy.handlers.parts import ROWS, continues_session, merge, take_apart
from kordon.proxy.handlers.produce import Looked
from kordon.proxy.handlers.refusals import REFUSALS
from kordon.proxy.handlers.rights import Rights
from kordon.proxy.handlers.unserved import without_unserved
from kordon.proxy.own_topics.own_things import OwnThings
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.writes.write_outcomes import answer_of, end_if_failed

_SAID_ONCE: Final = frozenset({CONSUMER_GROUP_HEARTBEAT})
"""Names topics that may be managed only later; it is not said again then."""
_SAYS_WHO: Final = frozenset({API_VERSIONS})
"""Says what the client speaks, which its `Guard` has to know."""
_MOST_AT_ONCE: Final = 1_000
"""Virtual partitions, of all topics, that Metadata shows at once; of more it is translated in turns."""
_SAY_COUNTS: Final = frozenset({METADATA, DESCRIBE_TOPIC_PARTITIONS})
"""Say how many partitions topics have: that changes once, when a topic with data is taken over (TAKEOVER-WAITS)."""


class Server(Protocol):
    """Answers one api for managed topics."""

    async def serve(self, version: int, request: Any) -> Mapping[str, Any]:
        """Answers a request that names managed topics only; returns the response's fields."""
        ...


class ClientServer(Protocol):
    """Answers one api for managed topics, and has on record to whom."""

    async def serve(self, version: int, request: Any, client: Client) -> Mapping[str, Any]:
        """Answers a request that names managed topics only; returns the response's fields."""
        ...


class PrivateServer(ClientServer, Protocol):
    """Answers an api of Kordon's own: all of a request is its, whatever topics that names."""

    def decide(self, version: int, request: Any) -> Serve:
        """Says what is to be served, and what the client's broker is asked before that."""
        ...


class ProduceServer(ClientServer, Protocol):
    """Answers Produce for managed topics without the tables, as most of its requests name nothing else."""

    def look(self, version: int, body: memoryview, rows: RowBudget) -> Looked:
        """Walks over a request."""
        ...

    async def write(
        self, version: int, request: ProduceRequest, client: Client
    ) -> list[tuple[str, UUID | None, list[Outcome]]]:
        """Does what a request asks for that names managed topics only; returns what came of it, by topic."""
        ...


class Translation(Protocol):
    """Changes the requests and responses of one api on their way, in place."""

    @property
    def answers_always(self) -> bool:
        """Whether a response may name managed topics though its request does not."""
        ...

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Changes a request for the broker; False: there is nothing to change."""
        ...

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Changes a response for the client; `asked` is the request as the client sent it."""
        ...


Completion: TypeAlias = Callable[[Any], Awaitable[None]]


class ManagedService:
    """The service of a worker.

    Args:
        topics: What is managed, as it stands; looked at anew with each request.
        produce: Answers Produce.
        fetch: Answers Fetch; None: nobody asks.
        servers: By api key, who answers the others; keys of `ROWS`.
        translations: By api key, what is translated.
        admin: Answers the requests by which topics are managed.
        judges: By api key, what looks at a request and at the broker's answer to it, and refuses it there perhaps.
        completions: By api key of translations, what completes a translated response in place.
        asks_rights: Whether clients may have different rights, so that each is asked about.
        rights_max_age_seconds: How long what was said of a client's rights is believed.
        private: By api key, who answers what only the dialect has.
        dialect: Serves clients that speak the dialect; None: it is not offered.
        journal: Where decisions are recorded; None: nowhere.
        claim: What names the user in a token that a client logs in by.
        request_rows: Most rows of a request that is read (`limits.request_rows`).
        own: What is closed to clients; None: nothing.
        turns: Of the worker.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        produce: ProduceServer,
        servers: Mapping[int, Server],
        translations: Mapping[int, Translation],
        admin: AdminRequests,
        *,
        fetch: ClientServer | None = None,
        judges: Mapping[int, Judge] = REFUSALS,
        completions: Mapping[int, Completion] = MappingProxyType({}),
        asks_rights: Callable[[], bool] = lambda: False,
        rights_max_age_seconds: float = 1.0,
        private: Mapping[int, PrivateServer] = MappingProxyType({}),
        dialect: ManagedService | None = None,
        journal: Journal | None = None,
        claim: str = SUBJECT,
        request_rows: int = Limits().request_rows,
        own: OwnThings | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._claim = claim
        self._request_rows = request_rows
        self._own = own
        self._turns = turns or Turns(Tally())
        self._journal = journal or NoJournal()
        self._refused = OtherRefusals(self._journal, topics, sees_physical=bool(private))
        self._asks_rights = asks_rights
        self._rights_max_age = rights_max_age_seconds
        self._topics = topics
        self._admin = admin
        self._produce = produce
        self._private = private
        self._dialect = dialect
        self._servers = servers
        self._for_clients: Mapping[int, ClientServer] = {
            PRODUCE: produce,
            **({FETCH: fetch} if fetch else {}),
            **private,
        }
        self._translations = translations
        self._judges = judges
        self._completions = completions
        self._keys = self._for_clients.keys() | self._servers.keys() | translations.keys() | judges.keys()
        self._always = frozenset(admin.KEYS) | _SAID_ONCE | _SAYS_WHO | private.keys()
        self._known = asyncio.Event()

    def doubt(self) -> None:
        """Takes note that `topics` may be old: no request of a new connection passes before `know`."""
        self._known.clear()

    def know(self) -> None:
        """Takes note that `topics` says all there is."""
        self._known.set()

    @property
    def knows(self) -> bool:
        """Whether the managed topics are known; before that no request passes."""
        return self._known.is_set()

    def connected(self, client: Client) -> Service:
        """Returns what serves one more client, as far as its rights go."""
        rights = Rights(self._rights_max_age, time.monotonic)
        guard = Guard(
            self,
            self._topics,
            rights,
            self._asks_rights,
            self._dialect,
            client=client,
            journal=self._journal,
            claim=self._claim,
        )
        return Closed(guard, self._own, self._request_rows) if self._own is not None else guard

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Is not asked: what stands in front of each client is."""
        return ()

    def hear(self, client_id: str | None) -> None:
        """Is not told: each client's `Guard` is."""

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Is not told: each client's `Guard` is."""

    async def ready(self) -> None:
        """Returns when it is known what is managed."""
        await self._known.wait()

    def wants(self, route: Route) -> bool:
        """Wants what may name a topic, where any is managed, what may have one managed, and what is said but once."""
        key = route.api.key
        return (key in self._keys and bool(self._topics)) or key in self._always

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Says what happens to a request; see `Interception.decide`."""
        key, version = route.api.key, route.version
        if key == PRODUCE:
            looked = self._produce.look(version, body, RowBudget(self._request_rows))
            if not (looked.managed and looked.others):
                return Serve(looked.request) if looked.managed else None
        value = _parsed(key, version, body, RowBudget(self._request_rows))
        if key in self._private:
            return self._private[key].decide(version, value)
        if key in self._judges:
            reply = self._judges[key](value, self._topics)
            return Translate(request(key).build(version, value) if reply.changed else None, reply) if reply else None
        if key in self._admin.KEYS:
            asked = self._admin.take(key, version, value)
            return Serve(asked, asked.rest) if asked is not None else None
        if key in self._servers or key in self._for_clients:
            parts = take_apart(key, version, value, self._topics)
            return Serve(parts.managed, parts.rest) if parts is not None else None
        translation = self._translations.get(key)
        return self._translate(translation, route, value, bytes(body)) if translation is not None else None

    def _translate(self, translation: Translation, route: Route, value: Any, body: bytes) -> Decision:
        """Has a request and its answer translated."""
        key, version = route.api.key, route.version
        changed = translation.request(version, value, self._topics)
        if not changed and not translation.answers_always:
            return None

        def back(answer: Any) -> None:
            translation.response(version, answer, self._topics, _parsed(key, version, body))

        asked = request(key).build(version, value) if changed else None
        takes_time = key in self._completions or (
            key in _SAY_COUNTS and (self._topics.are_coming or self._topics.partition_count > _MOST_AT_ONCE)
        )
        return Serve(TranslatedLater(back), asked or body) if takes_time else Translate(asked, back)

    async def serve(self, route: Route, request: Any, part: Awaitable[Any] | None, client: Client) -> Answer:
        """Answers a client's request; see `Service.serve`."""
        key, version = route.api.key, route.version
        if self._topics.unserved:
            request = without_unserved(key, request, self._topics, partial(self._note_unserved, client, key))
        if isinstance(request, ProduceRequest):
            return answer_of(version, request.acks, await self._produce.write(version, request, client))
        if isinstance(request, TopicWishes):
            fields = await self._admin.answer(key, request, None if part is None else await part)
            self._refused.parts(client, key, fields, request.wishes.keys())
            return partial(response(key).build, version, fields)
        if isinstance(request, TranslatedLater):
            assert part is not None  # the broker is asked always
            return partial(response(key).build_last, version, await self._translated(key, request, await part))
        refused: list[Any] = []
        if isinstance(request, PartlyRefused):
            request, refused = request.allowed, request.rows
            if isinstance(request, ProduceRequest):
                written = await self._produce.write(version, request, client)
                return answer_of(version, request.acks, [*written, *refused])
        if continues_session(key, request) and request.topics:
            return await self._end_session(version, part, client)
        asked, answered = ROWS[key].asked, ROWS[key].answered
        asks = key in self._private or request[asked]
        served = await self._served(key, version, request, client) if asks else {answered: []}
        served = {**served, answered: [*served[answered], *refused]} if refused else served
        if key == PRODUCE and not request.acks:
            end_if_failed(each["error_code"] for row in served[answered] for each in row["partition_responses"])
        merged = merge(key, served, None if part is None else await part)
        build = partial(response(key).build_pieces, version, merged)
        return build() if key == FETCH and _is_short(merged) else build

    async def _end_session(self, version: int, part: Awaitable[Any] | None, client: Client) -> bytes:
        """Has a client name all its partitions: its session cannot hold what is managed."""
        if part is not None:
            await part
        fields = {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND}
        self._refused.whole(client, FETCH, fields)
        return response(FETCH).build(version, fields)

    def _note_unserved(self, client: Client, key: int, name: str) -> None:
        topic = self._topics.served(name)
        self._journal.refused(
            client,
            api_key=key,
            reason=Code.NOT_LEADER_OR_FOLLOWER.name,
            topic=name,
            rule="UNREAD-UNSERVED",
            layout_epoch=topic.layout.epoch if topic is not None else None,
            layouts_offset=topic.layouts_offset if topic is not None else None,
        )

    async def _served(self, key: int, version: int, request: Any, client: Client) -> Mapping[str, Any]:
        """Has a request answered that names managed topics only."""
        if key in self._for_clients:
            served = await self._for_clients[key].serve(version, request, client)
            if key not in self._private:  # who answers Produce and Fetch notes it himself, with what it rests on
                return served
        else:
            served = await self._servers[key].serve(version, request)
        await self._turns.do(partial(self._refused.parts, client, key, served, None))
        return served

    async def _translated(self, key: int, request: TranslatedLater, answer: Any) -> Any:
        """Translates an answer once that can be done, and completes it."""
        if key in _SAY_COUNTS:
            await wait_until_shown(answer, self._topics)
        await self._turns.do(partial(request.back, answer))
        if key in self._completions:
            await self._completions[key](answer)
        return answer


def _is_short(answer: Any) -> bool:
    """Whether a Fetch answer is built before a turn ends: it comes too often to have it done in turns for nothing."""
    return sum(len(row["partitions"]) for row in answer["responses"]) < ROWS_AT_ONCE


def _parsed(api_key: int, version: int, body: Buffer, rows: RowBudget | None = None) -> Any:
    """Reads a request as brokers do, which ignore bytes behind it: librdkafka 2.16 sends some behind Metadata 13."""
    value, _ = request(api_key).at(version).parse(body, rows)
    return value
