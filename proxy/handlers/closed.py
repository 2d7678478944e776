"""Keeps what is Kordon's own (`own_things.py`) closed and hidden, in front of everything that a client asks.

It is the same for stock connections and for those of the dialect, and whether or not anything is managed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import MetadataRequest
from kordon.codecs.look import holds_any, look_said
from kordon.codecs.messages import request, response
from kordon.codecs.metadata_requests import look_names
from kordon.codecs.primitives import RowBudget
from kordon.codecs.row import Row
from kordon.proxy.core import verdicts
from kordon.proxy.core.answers import body_of
from kordon.proxy.core.interception import PROOF, Answering, Decision, Serve, Service, Translate
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.api_handler import BrokerPart, parse_request
from kordon.proxy.handlers.metadata import asks_all
from kordon.proxy.handlers.own_refusals import refusal
from kordon.proxy.own_topics.own_things import OwnThings
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.names import NO_ID

TELL_UNASKED: Final = frozenset(
    {
        apis.METADATA,
        apis.OFFSET_FETCH,
        apis.LIST_GROUPS,
        apis.DESCRIBE_LOG_DIRS,
        apis.ELECT_LEADERS,
        apis.LIST_PARTITION_REASSIGNMENTS,
        apis.LIST_TRANSACTIONS,
        apis.DESCRIBE_TRANSACTIONS,
        apis.CONSUMER_GROUP_HEARTBEAT,
        apis.CONSUMER_GROUP_DESCRIBE,
        apis.LIST_CONFIG_RESOURCES,
        apis.DESCRIBE_TOPIC_PARTITIONS,
        apis.SHARE_GROUP_HEARTBEAT,
        apis.SHARE_GROUP_DESCRIBE,
        apis.STREAMS_GROUP_HEARTBEAT,
        apis.STREAMS_GROUP_DESCRIBE,
        apis.DESCRIBE_SHARE_GROUP_OFFSETS,
    }
)
"""Api keys whose answers may name what the request does not; all others answer for what they are asked for."""

log = client_log(__name__)


class Closed:
    """The service of one client, with what is Kordon's own closed.

    Args:
        service: Decides once nothing of Kordon's own is named any more.
        request_rows: Most rows of a request that is read (`limits.request_rows`).
    """

    def __init__(self, service: Service, own: OwnThings, request_rows: int) -> None:
        self._service = service
        self._own = own
        self._request_rows = request_rows
        self.ready = service.ready
        self.closed = service.closed
        self.hear = service.hear
        self.refused = service.refused
        self.asked_for = own.asked_for
        self.concerns = service.concerns

    def wants(self, route: Route) -> bool:
        """Whether the service looks at a request, or its answer may name something of Kordon's own."""
        return route.api.key in TELL_UNASKED or self._service.wants(route)

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Decides as the service does, on a request that names nothing of Kordon's own any more."""
        key, version = route.api.key, route.version
        raw, renamed = body, None
        if holds_any(look_said(key, version, body), self._own.asked_for(route)):
            value: Row = parse_request(route, body, RowBudget(self._request_rows))
            if (code := self._own.denial(key, value)) is not None:
                return self._refuse(route, refusal(key, version, value, code))
            if self._own.hide(key, value):
                self._note(key)
                renamed = request(key).build(version, value)
                raw = memoryview(bytearray(renamed))
        decision = self._service.decide(route, raw) if self._service.wants(route) else None
        if renamed is None and (key not in TELL_UNASKED or not self._may_tell(route, raw)):
            return decision
        return self._screened(route, decision, renamed)

    def _may_tell(self, route: Route, body: memoryview) -> bool:
        """Whether an answer of `TELL_UNASKED` may name what was not asked for; Metadata does where all topics are."""
        if route.api.key != apis.METADATA:
            return True
        if look_names(route.version, body, RowBudget(self._request_rows)) is not None:
            return False
        asked: MetadataRequest = parse_request(route, body, RowBudget(self._request_rows))
        return asks_all(route.version, asked) or any(row.get("topic_id", NO_ID) != NO_ID for row in asked.topics or ())

    def _screened(self, route: Route, decision: Decision, renamed: bytes | None) -> Decision:
        """Removes from an answer what is Kordon's own and was not asked for."""
        key = route.api.key

        def show(answer: Row) -> None:
            self._own.show(key, answer)

        match decision:
            case None:
                return Translate(renamed, show, () if renamed is not None else self._own.told_by(route))
            case Translate(changed, back):
                return Translate(renamed if changed is None else changed, _both(back, show))
            case Serve(answer):
                return replace(decision, answer=partial(self._answer_screened, route, answer))
            case _:
                return decision

    def _refuse(self, route: Route, refused: Row) -> Serve:
        """Refuses a request once the client's broker has answered something: Kordon speaks to nobody before that."""
        self._note(route.api.key)
        proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(_: Row) -> None:
            if not proven.done():
                proven.set_result(None)

        async def answer(_: object) -> Answer:
            await proven
            return response(route.api.key).build(route.version, refused)

        return Serve(answer, questions=(replace(PROOF, told=told),))

    async def _answer_screened(self, route: Route, answer: Answering, part: BrokerPart) -> Answer:
        return partial(self._shown, route, await answer(part))

    def _shown(self, route: Route, answer: Answer) -> bytes:
        """Takes what is Kordon's own out of an answer that has just been made."""
        message = response(route.api.key)
        value = message.parse(route.version, body_of(answer))
        self._own.show(route.api.key, value)
        return message.build_last(route.version, value)

    def _note(self, key: int) -> None:
        self._own.refusals += 1
        log.warning("own_thing_refused", api=verdicts.api_name(key), why="it names something of Kordon's own")


def _both(first: Callable[[Row], None], second: Callable[[Row], None]) -> Callable[[Row], None]:
    """Returns what lets two change an answer, one after the other."""

    def change(answer: Row) -> None:
        first(answer)
        second(answer)

    return change
