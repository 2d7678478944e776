"""Between one client and what serves managed topics: only what the client may have comes through (RIGHTS-FIRST).

Whether the client speaks the dialect it says in its ApiVersions request; from then on, on that connection, partitions
are physical ones.

What the client may not do is answered as by a broker: TOPIC_AUTHORIZATION_FAILED for each partition of the topic, while
the rest of the request is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from kordon.codecs import apis
from kordon.codecs.dialect import VERSION
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.errors import WireError
from kordon.codecs.messages import REQUESTS
from kordon.codecs.produce import Outcome, ProduceRequest, TopicData
from kordon.proxy.core.interception import Announce, Decision, Interception, Serve, Translate
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.admin_requests import TopicWishes
from kordon.proxy.handlers.followed import LateRefusal, followed_by
from kordon.proxy.handlers.introductions import SAY_WHO, Introduction
from kordon.proxy.handlers.logins import SUBJECT
from kordon.proxy.handlers.other_refusals import OtherRefusals
from kordon.proxy.handlers.parts import ROWS
from kordon.proxy.handlers.position_reports import Reported
from kordon.proxy.handlers.rights import NEEDED, Rights
from kordon.proxy.handlers.told_clients import TELLS_LAYOUTS, ToldClient
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.topics.managed_topics import ManagedTopics

_MOVE_PARTITIONS: Final = frozenset({apis.ALTER_PARTITION_REASSIGNMENTS, apis.ALTER_REPLICA_LOG_DIRS})
"""Are refused for managed topics, whose partitions are others than clients see (`physical.py`)."""
_WITH_TAGS: Final = 3
"""The first flexible version of ApiVersions."""


@dataclass(frozen=True, slots=True)
class PartlyRefused:
    """A request of which nothing or only a part may be done.

    Attributes:
        allowed: What is left to do, as it was decided on; with no topics perhaps.
        rows: Of the response, for the topics that the client may not use so.
    """

    allowed: Any
    rows: list[Any]


@dataclass(frozen=True, slots=True)
class _Guarded:
    request: Any
    names: frozenset[str]
    known: asyncio.Future[None] | None
    """Done when the client's rights are known; None: they are."""


class SharedService(Interception, Protocol):
    """What is the same to all clients, and is told which of them asks."""

    async def ready(self) -> None:
        """Returns when it is known what is managed."""
        ...

    async def serve(self, route: Route, request: Any, part: Awaitable[Any] | None, client: Client) -> Answer:
        """Answers a client's request; see `Service.serve`."""
        ...


class Guard:
    """The service of one client's connection.

    Args:
        service: Serves those who may.
        topics: What is managed.
        rights: The client's.
        needed: Whether clients can have different rights, or may have to log in; else nothing is asked.
        dialect: Serves in place of `service` if the client speaks the dialect; None: that is not offered.
        client: The connection as decisions name it; None: they do not.
        journal: Where decisions are recorded; None: nowhere.
        claim: What names the user in a token that the client logs in by.
    """

    def __init__(
        self,
        service: SharedService,
        topics: ManagedTopics,
        rights: Rights,
        needed: Callable[[], bool],
        dialect: SharedService | None = None,
        *,
        client: Client | None = None,
        journal: Journal | None = None,
        claim: str = SUBJECT,
    ) -> None:
        self._journal = journal or NoJournal()
        self._client = client or self._journal.connected()
        self._told = ToldClient(self._client, topics, self._journal)
        self._introduction = Introduction(self._client, self._journal, claim)
        self._stock = self._service = service
        self._topics = topics
        self._rights = rights
        self._needed = needed
        self._dialect = dialect

    async def ready(self) -> None:
        """Returns when it is known what is managed."""
        await self._stock.ready()

    def wants(self, route: Route) -> bool:
        """Wants what the service wants, and what clients are told that they are, where that is recorded."""
        return self._service.wants(route) or (self._journal.is_on and route.api.key in SAY_WHO)

    def asked_for(self, route: Route) -> tuple[bytes, ...]:
        """Looks for nothing; `Closed` does."""
        return ()

    def hear(self, client_id: str | None) -> None:
        """Takes note of what the client calls itself."""
        self._introduction.hear(client_id)

    def refused(self, api_key: int, api_version: int, reason: str, *, ends: bool) -> None:
        """Records a request that was refused whatever it said."""
        self._introduction.refused(api_key, api_version, reason, ends=ends)

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Decides as the service does, and asks what the client may do where that is not known."""
        if route.api.key == apis.API_VERSIONS:
            return self._greet(route.version, body)
        decision = self._decide(route, body)
        if not isinstance(decision, Serve) or not self._needed():
            return decision
        key = route.api.key
        names = frozenset(names_in(key, decision.request, self._topics)) if key in NEEDED else frozenset[str]()
        if not names and (decision.rest is not None or decision.questions):
            return decision  # the broker is asked anyway
        question, known = self._rights.ask(names - {""})
        questions = (*decision.questions, question) if question is not None else decision.questions
        return Serve(_Guarded(decision.request, names, known), decision.rest, questions)

    def _decide(self, route: Route, body: memoryview) -> Decision:
        """Decides as the service does; where decisions are recorded, what the client is told is looked at."""
        key = route.api.key
        if not self._journal.is_on:
            return self._service.decide(route, body)
        if key in SAY_WHO:
            return self._introduction.look(route, body)
        decision = self._service.decide(route, body)
        if isinstance(decision, Translate) and isinstance(decision.back, LateRefusal):
            refusal = decision.back
            return followed_by(decision, lambda answer: self._note_refusal(key, refusal, answer))
        if key in TELLS_LAYOUTS:
            return followed_by(decision, self._told.looks_at(key))
        if key in _MOVE_PARTITIONS and self._service is self._stock:
            return followed_by(decision, lambda answer: self._note_refused(key, answer))
        return decision

    def _note_refusal(self, api_key: int, refusal: LateRefusal, answer: Any) -> None:
        """Notes a refusal, unless the broker had one of its own."""
        if refusal.stands:
            refused = OtherRefusals(self._journal, self._topics, sees_physical=self._service is not self._stock)
            refused.parts(self._client, api_key, answer, refusal.topics)

    def _note_refused(self, api_key: int, answer: Any) -> None:
        """Notes what Kordon has put into a broker's answer, unless the broker had a reason of its own."""
        names = {topic.name for topic in self._topics} & set(_not_moved(answer))
        if names:
            OtherRefusals(self._journal, self._topics, sees_physical=False).parts(self._client, api_key, answer, names)

    def _greet(self, version: int, body: memoryview) -> Decision:
        """Announces the dialect, and takes note of a client that speaks it."""
        if self._dialect is None or version < _WITH_TAGS:
            return None
        try:
            value, _ = REQUESTS[apis.API_VERSIONS].at(version).parse(body)
        except WireError:
            return None  # the broker says what is wrong with it
        if value.kordon_client >= VERSION:
            self._service = self._dialect
        return Announce(private=self._service is self._dialect)

    async def serve(self, route: Route, request: Any, part: Awaitable[Any] | None) -> Answer:
        """Serves what the client may have, and refuses the rest."""
        if not isinstance(request, _Guarded):
            return await self._service.serve(route, request, part, self._client)
        if request.known is not None:
            await request.known
        codes = {name: self._rights.of(name, NEEDED[route.api.key]) for name in request.names}
        denied = {name: code for name, code in codes.items() if code}
        allowed = refuse(route.api.key, request.request, denied, self._topics) if denied else request.request
        if denied:
            self._note_denied(route.api.key, denied)
        return await self._service.serve(route, allowed, part, self._client)

    def _note_denied(self, api_key: int, denied: Mapping[str, int]) -> None:
        for name, code in denied.items():
            topic = self._topics.served(name)
            self._journal.refused(
                self._client,
                api_key=api_key,
                reason=name_of(code),
                topic=name or None,
                rule="RIGHTS-FIRST",
                layout_epoch=topic.layout.epoch if topic is not None else None,
                layouts_offset=topic.layouts_offset if topic is not None else None,
            )


def names_in(api_key: int, request: Any, topics: ManagedTopics) -> Iterable[str]:
    """Returns the topics for which a client needs rights that no broker looks at; "" for one that nobody knows."""
    if isinstance(request, TopicWishes):
        return request.wishes
    if isinstance(request, Reported):
        return request.names
    return (_name(row, ROWS[api_key].name, topics) for row in _rows(api_key, request))


def refuse(api_key: int, request: Any, denied: Mapping[str, int], topics: ManagedTopics) -> Any:
    """Takes out of a request what is denied.

    Args:
        api_key: Of the request.
        request: What was decided to serve; not changed.
        denied: Error codes by topic.
        topics: What is managed.

    Returns:
        A `PartlyRefused`; of wishes, each of which has one answer, the request with refusals in their place; of a
        report of positions, which has one for all its topics, the request with that.
    """
    if isinstance(request, Reported):
        return replace(request, error_code=min(denied.values()))
    if isinstance(request, TopicWishes):
        refusals = {name: OutcomeRecord(code, "") for name, code in denied.items()}
        return replace(request, wishes={**request.wishes, **refusals})
    left: list[Any] = []
    refused: list[Any] = []
    for row in _rows(api_key, request):
        code = denied.get(_name(row, ROWS[api_key].name, topics))
        if code:
            refused.append(_refused_row(api_key, row, code))
        else:
            left.append(row)
    if isinstance(request, ProduceRequest):
        return PartlyRefused(request._replace(topic_data=left), refused)
    allowed = request.copy()
    allowed.update({ROWS[api_key].asked: left})
    return PartlyRefused(allowed, refused)


def _rows(api_key: int, request: Any) -> Iterable[Any]:
    rows: Iterable[Any] = request.topic_data if isinstance(request, ProduceRequest) else request[ROWS[api_key].asked]
    return rows


def _name(row: Any, field: str, topics: ManagedTopics) -> str:
    """Returns the name of a row's topic, be it named or known by an id."""
    name, topic_id = row[:2] if isinstance(row, TopicData) else (row.get(field), row.get("topic_id"))
    if name or topic_id is None:
        return name or ""
    topic = topics.served_by_id(topic_id)
    return topic.name if topic is not None else ""


def _not_moved(answer: Any) -> Iterable[str]:
    """Yields the topics of which Kordon says in an answer that their partitions are virtual (`physical.py`)."""
    for row in answer.get("responses") or answer.get("results") or ():
        if any(each["error_code"] == Code.INVALID_REQUEST for each in row["partitions"]):
            yield row.get("name") or row.get("topic_name")


class _Partitions(NamedTuple):
    """How a topic's row names partitions, and what an error leaves of an answer; the tables know the rest."""

    asked: str
    number: str
    answered: str = "partitions"
    answered_number: str = "partition_index"
    error: Mapping[str, Any] = MappingProxyType({})


_PARTITIONS: Final[Mapping[int, _Partitions]] = {
    apis.PRODUCE: _Partitions("partition_data", "index", "partition_responses", "index", {"base_offset": -1}),
    apis.FETCH: _Partitions("partitions", "partition", error={"high_watermark": -1, "records": b""}),
    apis.LIST_OFFSETS: _Partitions("partitions", "partition_index"),
    apis.OFFSET_FOR_LEADER_EPOCH: _Partitions("partitions", "partition", answered_number="partition"),
    apis.DELETE_RECORDS: _Partitions("partitions", "partition_index", error={"low_watermark": -1}),
}


def _refused_row(api_key: int, row: Any, code: int) -> Any:
    """Answers for all partitions of a topic that a request names."""
    if isinstance(row, TopicData):
        return row.name, row.topic_id, [Outcome(each.partition, code) for each in row.partition_data]
    if api_key == apis.PARTITION_LEADER_EPOCHS:
        return {"topic": row.topic, "error_code": code}
    form = _PARTITIONS[api_key]
    partitions = [
        {form.answered_number: each[form.number], "error_code": code, **form.error} for each in row[form.asked]
    ]
    named = {field: row[field] for field in ("name", "topic", "topic_id") if field in row}
    return {**named, form.answered: partitions}
