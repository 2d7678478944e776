"""Fetch: Kordon answers for managed topics, the client's broker for the others.

Clients need the right to read the topic. `proxy/reads/` reads the logs, and records what it gives and refuses.

A session (KIP-227) of the client's broker cannot hold managed topics. A request that continues one and names them is
answered FETCH_SESSION_ID_NOT_FOUND. Upon that clients name all their partitions, and are answered without a session.
A client that may not read the topics is told that alone, so the broker's session goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from kordon.codecs import apis
from kordon.codecs.bodies import FetchRequest as Request
from kordon.codecs.bodies import FetchResponse as Response
from kordon.codecs.error_codes import Code
from kordon.codecs.fetch_requests import FetchLook, look_fetch
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.codecs.turns import ROWS_AT_ONCE
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import BrokerPart, Handled, HeldRequest, ServedRequest
from kordon.proxy.handlers.topic_rows import ServedApi, ServedTopics, TopicRows, named
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.reads.aborted import FetchServer
from kordon.proxy.reads.fetch_rows import asked_by_look

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

    def __init__(self, readers: FetchServer, *, walks: bool = True) -> None:
        self._readers = readers
        self._walks = walks

    def decide(self, held: HeldRequest) -> Handled:
        """Serves managed topics. A request that names nothing else is read where it lies, others by the table."""
        look = look_fetch(held.version, held.body, held.budget()) if self._walks else None
        if look is None:
            return super().decide(held)
        managed = {held.topics.answers_for(each.topic) for each in look.topics}
        if True not in managed:
            return None
        if False in managed or not look.begins_session:
            return super().decide(held)
        return WalkedFetch(self, held, look)

    async def read(self, held: HeldRequest, look: FetchLook) -> Answer:
        """Answers a request that names managed topics only."""
        answer = await self._readers.read(asked_by_look(held.version, look), held.client)
        return self._built(held, answer)

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

    async def _end_session(self, held: HeldRequest, part: Awaitable[Response] | None) -> bytes:
        if part is not None:
            await part
        answer = Response(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
        held.shared.refusals.whole(held.client, self.key, answer)
        return response(self.key).build(held.version, answer)


class WalkedFetch(ServedRequest):
    """A Fetch that names managed topics only and continues no session, as it was read where it lies."""

    right = Fetch.right

    def __init__(self, handler: Fetch, held: HeldRequest, look: FetchLook) -> None:
        self._handler = handler
        self._held = held
        self._look = look

    def names(self) -> Iterable[str]:
        """Returns the names of its topics."""
        topics = self._held.topics
        return (
            each.topic if isinstance(each.topic, str) else named("", each.topic, topics) for each in self._look.topics
        )

    def refuse(self, codes: Mapping[str, int]) -> ServedRequest:
        """Takes topics out; the table reads the request for that."""
        return ServedTopics(self._handler, self._held, self._held.read()).refuse(codes)

    async def answer(self, part: BrokerPart) -> Answer:
        """Reads what it asks for."""
        return await self._handler.read(self._held, self._look)


def _continues_session(value: Request) -> bool:
    """Whether a request only says what has changed in a session that the broker keeps."""
    return value.get("session_epoch", _NO_SESSION) > 0
