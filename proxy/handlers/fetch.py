"""Fetch: Kordon answers for managed topics, the client's broker for the others.

Clients need the right to read the topic. `proxy/reads/` reads the logs, and records what it gives and refuses.

A client that asks for a session (KIP-227) and names managed topics only gets one of Kordon's, which its connection
keeps (`reads/fetch_sessions.py`). One that names other topics too gets none, since its broker has only these. A session
of the broker cannot hold managed topics, and one of Kordon's no others: a request that goes on with either and names
the wrong ones is answered FETCH_SESSION_ID_NOT_FOUND. Upon that clients name all their partitions. A session ends with
the client's right to any of its topics, and when one of them is managed no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from kordon.codecs import apis
from kordon.codecs.bodies import FetchRequest as Request
from kordon.codecs.bodies import FetchResponse as Response
from kordon.codecs.error_codes import Code
from kordon.codecs.fetch_requests import look_fetch
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.codecs.turns import ROWS_AT_ONCE
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import BrokerPart, Handled, HeldRequest, ServedRequest
from kordon.proxy.handlers.topic_rows import ServedApi, ServedTopics, TopicRows, named
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.fetch_rows import IDS_SINCE, AskedFetch, asked_by_look, asked_by_table
from kordon.proxy.reads.fetch_sessions import FetchSession, built_answer

_NO_SESSION: Final = -1
_NOTHING_READ: Final[Mapping[str, int]] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
"""Fields that have the broker answer soon and with little: that answer is most likely not used."""
_SESSION_ENDS: Final[Mapping[str, object]] = {
    "session_id": 0,
    "session_epoch": _NO_SESSION,
    "forgotten_topics_data": [],
}


class Fetch(ServedApi[Request, Response]):
    """Answers Fetch.

    Args:
        walks: Whether partitions are virtual ones. The dialect says more in its requests, so the table reads these.
    """

    key = apis.FETCH
    right = Operation.READ
    rows = TopicRows("topics", "topic", "responses", number="partition", error={"high_watermark": -1, "records": b""})
    records_itself: ClassVar[bool] = True

    def __init__(self, readers: FetchHandler, *, walks: bool = True) -> None:
        self._readers = readers
        self._walks = walks

    def decide(self, held: HeldRequest) -> Handled:
        """Serves managed topics. A request that names nothing else is read where it lies, others by the table."""
        look = look_fetch(held.version, held.body, held.budget()) if self._walks else None
        if look is None:
            return self._decide_by_table(held)
        if not look.begins_session:
            return self._go_on(held, look.session_id, asked_by_look(held.version, look)) or super().decide(held)
        managed = {held.topics.answers_for(each.topic) for each in look.topics}
        if True not in managed:
            return None
        if False in managed:
            return super().decide(held)
        held.told.fetches.session = None
        return WalkedFetch(self, held, asked_by_look(held.version, look, held.told.fetches.take_named()))

    def _decide_by_table(self, held: HeldRequest) -> Handled:
        if self._walks and (value := held.read()).get("session_epoch", _NO_SESSION) > 0:
            handled = self._go_on(held, value.session_id, asked_by_table(held.version, value))
            if handled is not None:
                return handled
        return super().decide(held)

    def _go_on(self, held: HeldRequest, session_id: int, asked: AskedFetch) -> Handled:
        """Decides on a request that goes on with the connection's session; None: it does not."""
        kept, topics = held.told.fetches, held.topics
        session = kept.session
        if session is None or session.id != session_id:
            return None
        if session.epoch != asked.session_epoch:
            return RefusedSession(held, Code.INVALID_FETCH_SESSION_EPOCH)
        if session.has_ids != (asked.version >= IDS_SINCE):
            return RefusedSession(held, Code.FETCH_SESSION_TOPIC_ID_ERROR)
        if not all(topics.answers_for(each.name or each.topic_id) for each in (*session.topics, *asked.topics)):
            kept.session = None
            return RefusedSession(held, Code.FETCH_SESSION_ID_NOT_FOUND)
        session.advance()
        return WalkedFetch(self, held, asked, session)

    async def read(self, held: HeldRequest, asked: AskedFetch, session: FetchSession | None) -> Answer:
        """Answers a request that names managed topics only."""
        answer = await self._readers.read(asked, held.client, held.told.fetches, session)
        body = built_answer(held.version, answer)
        return self._built(held, answer) if body is None else body

    async def serve(self, version: int, request: Request, client: Client) -> Response:
        """Reads what a request asks for."""
        return await self._readers.serve(version, request, client)

    def leave(self, held: HeldRequest, value: Request, others: Sequence[Row]) -> bytes | None:
        """Has the broker asked about the other topics without a session, or about the session it keeps."""
        goes_on = _continues_session(value)
        if not (others or goes_on):
            return None
        value.update({"topics": others, **(_NOTHING_READ if goes_on else _SESSION_ENDS)})
        return held.build(value)

    async def answer(self, asked: ServedTopics[Request, Response], part: Awaitable[Response] | None) -> Answer:
        """Returns the response; a short one at once, since it comes too often to be built in turns for nothing."""
        if _continues_session(asked.value) and asked.rows:
            return await self._end_session(asked.held, part)
        return self._built(asked.held, await self.merged(asked, part))

    def _built(self, held: HeldRequest, answer: Row) -> Answer:
        build = self.built_later(held, answer)
        count = sum(len(row.get("partitions", ())) for row in self.rows.topics_of(answer))
        return build() if count < ROWS_AT_ONCE else build

    async def _end_session(self, held: HeldRequest, part: Awaitable[Response] | None) -> Answer:
        if part is not None:
            await part
        return await RefusedSession(held, Code.FETCH_SESSION_ID_NOT_FOUND).answer(None)


class WalkedFetch(ServedRequest):
    """A Fetch of managed topics only.

    Args:
        asked: The request.
        session: The session that the request continues. None: the request names all its partitions.
    """

    right = Fetch.right

    def __init__(
        self, handler: Fetch, held: HeldRequest, asked: AskedFetch, session: FetchSession | None = None
    ) -> None:
        self._handler = handler
        self._held = held
        self._asked = asked
        self._session = session

    def names(self) -> Iterable[str]:
        """Returns the names of its topics, those of the session included."""
        topics = self._asked.topics if self._session is None else (*self._session.topics, *self._asked.topics)
        return (named(each.name, each.topic_id, self._held.topics) for each in topics)

    def refuse(self, codes: Mapping[str, int]) -> ServedRequest:
        """Takes topics out; the table reads the request for that. A session ends."""
        if self._session is not None:
            self._held.told.fetches.session = None
            return RefusedSession(self._held, Code.FETCH_SESSION_ID_NOT_FOUND)
        return ServedTopics(self._handler, self._held, self._held.read()).refuse(codes)

    async def answer(self, part: BrokerPart) -> Answer:
        """Reads what it asks for."""
        return await self._handler.read(self._held, self._asked, self._session)


class RefusedSession(ServedRequest):
    """A Fetch that goes on with a session that cannot go on."""

    def __init__(self, held: HeldRequest, code: Code) -> None:
        self._held = held
        self._code = code

    async def answer(self, part: BrokerPart) -> Answer:
        """Says so; upon that clients name all their partitions."""
        answer = Response(error_code=int(self._code))
        self._held.shared.refusals.whole(self._held.client, Fetch.key, answer)
        return response(Fetch.key).build(self._held.version, answer)


def _continues_session(value: Request) -> bool:
    """Whether a request only says what has changed in a session that the broker keeps."""
    return value.get("session_epoch", _NO_SESSION) > 0
