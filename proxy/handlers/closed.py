"""Keeps what is Kordon's own (`own_things.py`) closed and hidden, in front of everything that a client asks.

It is the same for stock connections and for those of the dialect, and whether or not anything is managed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.look import holds_any, look_names_of_body
from kordon.codecs.messages import request, response
from kordon.codecs.primitives import RowBudget
from kordon.proxy.core import verdicts
from kordon.proxy.core.answers import body_of
from kordon.proxy.core.interception import PROOF, Decision, Serve, Service, Translate
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.followed import both
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


@dataclass(frozen=True, slots=True)
class _Refused:
    """A request about a group or transactional id of Kordon's own."""

    fields: Mapping[str, Any]
    proven: asyncio.Future[None]
    """Done when the client's broker has answered, so the client has logged in."""


@dataclass(frozen=True, slots=True)
class _Screened:
    """A request whose answer may name something of Kordon's own."""

    request: Any


class Closed:
    """The service of one client, with what is Kordon's own closed.

    Args:
        service: Serves the client otherwise.
        own: Knows what is Kordon's own.
        request_rows: Most rows of a request that is read (`limits.request_rows`).
    """

    def __init__(self, service: Service, own: OwnThings, request_rows: int) -> None:
        self._service = service
        self._own = own
        self._request_rows = request_rows
        self.ready = service.ready
        self.hear = service.hear
        self.refused = service.refused
        self.asked_for = own.asked_for

    def wants(self, route: Route) -> bool:
        """Wants what the service does, and what may be answered with something of Kordon's own."""
        return route.api.key in TELL_UNASKED or self._service.wants(route)

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Decides as the service does, on a request that names nothing of Kordon's own any more."""
        key, version = route.api.key, route.version
        raw, renamed = body, None
        if holds_any(_said(route, body), self._own.asked_for(route)):
            value = self._parsed(route, body)
            if (code := self._own.denial(key, value)) is not None:
                return self._refuse(key, refusal(key, version, value, code))
            if self._own.hide(key, value):
                self._note(key)
                renamed = request(key).build(version, value)
                raw = memoryview(bytearray(renamed))
        decision = self._service.decide(route, raw) if self._service.wants(route) else None
        if renamed is None and (key not in TELL_UNASKED or not self._may_tell(route, raw)):
            return decision
        return self._screened(route, decision, renamed)

    def _parsed(self, route: Route, body: memoryview) -> Any:
        """Reads a request as brokers do, which ignore bytes behind it."""
        value, _ = request(route.api.key).at(route.version).parse(body, RowBudget(self._request_rows))
        return value

    def _may_tell(self, route: Route, body: memoryview) -> bool:
        """Whether an answer of `TELL_UNASKED` may name what was not asked for; Metadata does where all topics are."""
        version = route.version
        if route.api.key != apis.METADATA:
            return True
        topics = self._parsed(route, body).topics
        return (
            topics is None
            or (version == 0 and not topics)
            or any(row.get("topic_id", NO_ID) != NO_ID for row in topics)
        )

    def _screened(self, route: Route, decision: Decision, renamed: bytes | None) -> Decision:
        """Removes from an answer what is Kordon's own and was not asked for."""
        key = route.api.key

        def show(answer: Any) -> None:
            self._own.show(key, answer)

        match decision:
            case None:
                return Translate(renamed, show, () if renamed is not None else self._own.told_by(route))
            case Translate(changed, back):
                return Translate(renamed if changed is None else changed, both(back, show))
            case Serve(asked):
                return replace(decision, request=_Screened(asked))
            case _:
                return decision

    def _refuse(self, key: int, fields: Mapping[str, Any]) -> Serve:
        """Refuses a request once the client's broker has answered something: Kordon speaks to nobody before that."""
        self._note(key)
        proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(_: Any) -> None:
            if not proven.done():
                proven.set_result(None)

        return Serve(_Refused(fields, proven), questions=(replace(PROOF, told=told),))

    def serve(self, route: Route, request: Any, part: Awaitable[Any] | None) -> Coroutine[Any, Any, Answer]:
        """Answers as the service does, and what is Kordon's own with a refusal."""
        if isinstance(request, _Refused):
            return self._refused(route, request)
        if isinstance(request, _Screened):
            return self._serve_screened(route, request, part)
        return self._service.serve(route, request, part)

    async def _refused(self, route: Route, request: _Refused) -> Answer:
        await request.proven
        return response(route.api.key).build(route.version, request.fields)

    async def _serve_screened(self, route: Route, request: _Screened, part: Awaitable[Any] | None) -> Answer:
        return partial(self._shown, route, await self._service.serve(route, request.request, part))

    def _shown(self, route: Route, answer: Answer) -> bytes:
        """Takes what is Kordon's own out of an answer that has just been made."""
        message = response(route.api.key)
        value = message.parse(route.version, body_of(answer))
        self._own.show(route.api.key, value)
        return message.build_last(route.version, value)

    def _note(self, key: int) -> None:
        self._own.refusals += 1
        log.warning("own_thing_refused", api=verdicts.api_name(key), why="it names something of Kordon's own")


def _said(route: Route, body: memoryview) -> bytes:
    """Returns what a request says; of a Produce request what stands around its records, which are most of it."""
    names = look_names_of_body(body, route.version) if route.api.key == apis.PRODUCE else None
    return bytes(body) if names is None else names
