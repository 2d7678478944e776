"""Fetch: Kordon answers for managed topics, the client's broker for the others.

Clients need the right to read the topic. `proxy/reads/` reads the logs, and records what it gives and refuses.

A session (KIP-227) of the client's broker cannot hold managed topics. A request that continues one and names them is
answered FETCH_SESSION_ID_NOT_FOUND. Upon that clients name all their partitions, and are answered without a session.
A client that may not read the topics is told that alone, so the broker's session goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import ClassVar, Final

from kordon.codecs import apis
from kordon.codecs.bodies import FetchRequest as Request
from kordon.codecs.bodies import FetchResponse as Response
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.codecs.turns import ROWS_AT_ONCE
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import HeldRequest
from kordon.proxy.handlers.topic_rows import ServedApi, ServedTopics, TopicRows
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.reads.aborted import FetchServer

_NO_SESSION: Final = -1
_NOTHING_READ: Final[Mapping[str, int]] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
"""Fields that have the broker answer soon and with little: that answer is most likely not used."""
_SESSION_ENDS: Final[Mapping[str, object]] = {
    "session_id": 0,
    "session_epoch": _NO_SESSION,
    "forgotten_topics_data": [],
}


class Fetch(ServedApi[Request, Response]):
    """Answers Fetch."""

    key = apis.FETCH
    right = Operation.READ
    rows = TopicRows("topics", "topic", "responses", number="partition", error={"high_watermark": -1, "records": b""})
    records_itself: ClassVar[bool] = True

    def __init__(self, readers: FetchServer) -> None:
        self._readers = readers

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
        merged = await self.merged(asked, part)
        build = self.built_later(asked.held, merged)
        count = sum(len(row.get("partitions", ())) for row in self.rows.topics_of(merged))
        return build() if count < ROWS_AT_ONCE else build

    async def _end_session(self, held: HeldRequest, part: Awaitable[Response] | None) -> bytes:
        if part is not None:
            await part
        answer = Response(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
        held.shared.refusals.whole(held.client, self.key, answer)
        return response(self.key).build(held.version, answer)


def _continues_session(value: Request) -> bool:
    """Whether a request only says what has changed in a session that the broker keeps."""
    return value.get("session_epoch", _NO_SESSION) > 0
