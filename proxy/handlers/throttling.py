"""Holds one client to its byte rates, for what Kordon writes and reads for it (CLIENT-QUOTA, KIP-219).

A broker counts the bytes of a Produce request, and those of the answer to a Fetch. A client that has taken too much is
told for how long it has to wait (`throttle_time_ms`), and is not read meanwhile. Kordon does the same with what it
serves. What it leaves to the client's broker of a request is the broker's to count.

A broker takes records back that it has read for a client which has to wait. Kordon gives them, and the client waits
behind them: what it was given is on record by then. So that no wait is long, an answer has no more than the client may
have in a second, or one batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from kordon.codecs import apis
from kordon.codecs.look import Buffer
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.proxy.access.client_quotas import CONSUMER, PRODUCER, ClientQuotas
from kordon.proxy.core.interception import Answering, Serve
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer, Body, Throttled
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import BrokerPart

_ANSWERED_WITH_RECORDS: Final = frozenset({apis.FETCH, apis.SHARE_FETCH})
_INT32: Final = Struct(">i")
_HEAD_BYTES: Final = 10
"""Of a request, in front of its client id."""
_SAYS_SINCE: Final = 1
"""The first version of Produce and Fetch whose answers say how long a client has to wait."""


class _Served(NamedTuple):
    """A request that Kordon serves."""

    route: Route
    request_bytes: int
    """What no broker counts of it for the client."""
    answer: Answering


class Throttling:
    """Counts what one client takes.

    Args:
        quotas: None: clients are not held to any here.
    """

    def __init__(self, quotas: ClientQuotas | None, client: Client) -> None:
        self._quotas = quotas
        self._client = client

    def bind(self, route: Route, body: memoryview, serve: Serve) -> Serve:
        """Has a request counted when it is answered, if its client may have a quota.

        Args:
            body: All of the request behind the header.
        """
        if self._quotas is None or not self._quotas.are_set:
            self._client.most_fetch_bytes = None
            return serve
        if not (is_write := route.api.brings_records) and route.api.key not in _ANSWERED_WITH_RECORDS:
            return serve
        client = self._client
        if not is_write:
            quota = self._quotas.quota(CONSUMER, client)
            client.most_fetch_bytes = None if quota is None else int(quota.bytes_per_second)
        count = _HEAD_BYTES + len(client.client_id or "") + len(body) - len(serve.rest or b"")
        return Serve(
            partial(self._answer, self._quotas, _Served(route, count, serve.answer)), serve.rest, serve.questions
        )

    async def _answer(self, quotas: ClientQuotas, served: _Served, part: BrokerPart) -> Answer:
        counted = _BrokerPart(part) if part is not None and not served.route.api.brings_records else None
        answer = await served.answer(counted or part)
        of_broker = counted.records_bytes if counted is not None else 0
        if callable(answer):
            return lambda: self._counted(quotas, served, answer(), of_broker)
        return self._counted(quotas, served, answer, of_broker)

    def _counted(
        self, quotas: ClientQuotas, served: _Served, body: Body | Throttled, of_broker: int
    ) -> Body | Throttled:
        """Counts an answer; says in it how long the client has to wait, if it has to."""
        if isinstance(body, Throttled):
            return body
        route = served.route
        is_write = route.api.brings_records
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        count = served.request_bytes if is_write else max(size - of_broker, 0)
        wait_ms = quotas.take(PRODUCER if is_write else CONSUMER, self._client, count)
        if not wait_ms:
            return body
        if not size or route.version < _SAYS_SINCE:
            return Throttled(body, wait_ms)
        return Throttled(_says_so(route, body, wait_ms) if is_write else _begins_with(body, wait_ms), wait_ms)


class _BrokerPart:
    """What the client's broker answers to the rest of a Fetch or ShareFetch, and has counted, before it is merged."""

    def __init__(self, part: Awaitable[Row]) -> None:
        self.records_bytes = 0
        self._part = part

    def __await__(self) -> Generator[object, None, Row]:
        answer = yield from self._part.__await__()
        rows = (row for topic in answer.get("responses", list[Row]()) for row in topic.get("partitions", list[Row]()))
        self.records_bytes = sum(len(row.get("records", b"") or b"") for row in rows)
        return answer


def _says_so(route: Route, body: Body, wait_ms: int) -> Body:
    table = response(route.api.key)
    answer = table.parse(route.version, body if isinstance(body, bytes) else b"".join(body))
    answer.update({"throttle_time_ms": max(answer.get("throttle_time_ms", 0), wait_ms)})
    return table.build(route.version, answer)


def _begins_with(body: Body, wait_ms: int) -> Body:
    """Returns the answer to a Fetch with another first field; its records are not copied."""
    first, *others = [body] if isinstance(body, bytes) else body
    (told,) = _INT32.unpack_from(first)
    pieces: list[Buffer] = [_INT32.pack(max(told, wait_ms)), memoryview(first)[_INT32.size :], *others]
    return pieces
