"""Kordon's own connection to a broker: questions one after the other, answers in their order.

Clients' traffic never takes it. Many callers may use one at a time: a request is on the wire when `send` returns, so
the order of calls is the order on the wire, and the broker answers in that order (Kafka protocol guide, "Network").
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from struct import Struct
from types import TracebackType
from typing import Any, Final, Self

from kordon.codecs import apis
from kordon.codecs.errors import WireError
from kordon.codecs.headers import parse_response_header, request_header_version, response_header_version
from kordon.codecs.messages import request, response
from kordon.codecs.schema import Buffer
from kordon.proxy.config.config import HostPort, Upstream, UpstreamSasl
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.kafka.answer_frames import AnswerFrames
from kordon.proxy.kafka.log_in import LOG_IN_KEYS, log_in
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.runtime.tls import explain

CLIENT_ID: Final = "kordon"
MOST_UNANSWERED: Final = 1000
"""Requests on one connection that wait for their answers; more are refused."""
_METADATA_VERSIONS: Final = range(1, 10)
"""Version 0 takes an empty list of topics for all of them."""
_RENEW_AT: Final = 0.85
"""Part of a SASL session after which it is renewed; Java clients take 0.85 to 0.95 (KIP-368)."""
_SIZE: Final = Struct(">i")
_CLIENT_ID: Final = CLIENT_ID.encode()
_REQUEST_HEADER: Final = Struct(f">hhih{len(_CLIENT_ID)}s")
_CORRELATION_ID: Final = Struct(">i")


@dataclass(slots=True, eq=False)
class _OpenRequest:
    """What is known of a request until it is answered."""

    api_key: int
    version: int
    pieces: Sequence[Buffer]
    """Its body; empty once it is written."""
    read: Callable[[memoryview], Any] | None
    """Makes the outcome of the answer's body; None: that is the outcome."""
    outcome: asyncio.Future[Any]
    deadline: float
    """By the loop's clock."""
    correlation_id: int = 0


class UpstreamClient:
    """One connection to one broker.

    Use it as an asynchronous context manager, or by `open` and `close`; opening connects, asks for ApiVersions and
    logs in. A connection that breaks stays `closed`: make another one. A SASL session is renewed before it ends
    (KIP-368); what is sent meanwhile waits for the few milliseconds that this takes, in its order.
    """

    def __init__(self, address: HostPort, config: Upstream, context: ssl.SSLContext | None) -> None:
        self.address = address
        self.versions: Mapping[int, range] = {}
        """By api key, what the broker speaks."""
        self._config = config
        self._context = context
        self._timeout = config.connect_timeout_ms / 1000
        self._transport: asyncio.Transport | None = None
        self._broken: str | None = "the connection is not open"
        self._correlation_id = 0
        self._unanswered: deque[_OpenRequest] = deque()
        self._held: list[_OpenRequest] | None = None
        """What waits for the end of a log-in, while there is one on an open connection."""
        self._room = asyncio.Event()
        self._blocked = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self._tasks = Tasks()
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Opens it; see there."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the connection, at once."""
        self.close()

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._broken is not None

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answers."""
        return len(self._unanswered) + len(self._held or ())

    async def open(self) -> None:
        """Connects.

        Raises:
            UpstreamUnavailable: It cannot be reached, or does not let Kordon in; the message says why.
        """
        name = (self._config.tls.server_name if self._config.tls else None) or self.address.host
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                self._transport, _ = await loop.create_connection(
                    lambda: AnswerFrames(self._on_answer, self._break, self._on_flow),
                    self.address.host,
                    self.address.port,
                    ssl=self._context,
                    server_hostname=name if self._context else None,
                )
        except (OSError, TimeoutError) as error:
            raise UpstreamUnavailable(f"{self.address}: {explain(error)}") from error
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._broken = None
        self._tell_room()
        try:
            await self._greet()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the connection at once; what is unanswered fails."""
        self._break("closed by Kordon")

    async def nodes(self) -> tuple[str | None, dict[int, tuple[str, int]]]:
        """Asks for the cluster's brokers.

        Returns:
            The cluster id, and host and port by node id.

        Raises:
            UpstreamUnavailable: The broker does not answer, or not without a log-in.
        """
        version = self.version(apis.METADATA, _METADATA_VERSIONS)
        answer = await self.ask(apis.METADATA, version, {"topics": [], "allow_auto_topic_creation": False})
        return answer.get("cluster_id"), {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}

    def version(self, api_key: int, wanted: range) -> int:
        """Returns the newest of the wanted versions that the broker speaks.

        Raises:
            NoCommonVersion: It speaks none of them.
        """
        offered = self.versions.get(api_key, range(0))
        common = [version for version in wanted if version in offered]
        if not common:
            raise NoCommonVersion(f"{self.address}: no common version of {verdicts.api_name(api_key)}")
        return common[-1]

    async def ask(self, api_key: int, version: int, fields: Mapping[str, Any], timeout: float | None = None) -> Any:
        """Sends a request and waits for its response, and before it for room where too much is unanswered.

        Args:
            api_key: Of the request.
            version: Of the request, by `version`.
            fields: Of its body.
            timeout: Seconds in all; by default `upstream.connect_timeout_ms`.

        Returns:
            The response's fields, as a Container.

        Raises:
            UpstreamUnavailable: The connection ends, the answer is late or cannot be read.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await self.room()
                return await self.send(api_key, version, fields, seconds)
        except TimeoutError as error:
            raise self._unavailable(api_key, explain(error)) from error

    def send(
        self, api_key: int, version: int, fields: Mapping[str, Any], timeout: float | None = None
    ) -> asyncio.Future[Any]:
        """Sends a request at once; order of calls = order on the wire.

        Args:
            api_key: Of the request, which must have an answer: acks=0 is nothing for this connection.
            version: Of the request, by `version`.
            fields: Of its body.
            timeout: Seconds; by default `upstream.connect_timeout_ms`. When the oldest request is unanswered for
                longer, the connection is closed: no later one can be answered either.

        Returns:
            The response's fields to come, as a Container; or UpstreamUnavailable when the connection ends, the answer
            cannot be read, or `MOST_UNANSWERED` are waiting already. Cancelling it takes nothing back from the wire.
        """
        body = request(api_key).build(version, fields)
        table = response(api_key)
        return self._send(api_key, version, (body,), lambda answer: table.parse(version, answer), timeout)

    def send_body(
        self, api_key: int, version: int, pieces: Sequence[Buffer], timeout: float | None = None
    ) -> asyncio.Future[memoryview]:
        """Sends as `send` does a body that was built elsewhere.

        Args:
            api_key: Of the request.
            version: Of the request.
            pieces: The body; they must not be changed before the answer.
            timeout: Seconds, as of `send`.

        Returns:
            The body of the response to come, in memory of its own.
        """
        return self._send(api_key, version, pieces, None, timeout)

    async def room(self) -> None:
        """Returns when the socket takes bytes and fewer than `MOST_UNANSWERED` wait, or the connection is closed."""
        while not self._room.is_set():
            await self._room.wait()

    def _send(
        self,
        api_key: int,
        version: int,
        pieces: Sequence[Buffer],
        read: Callable[[memoryview], Any] | None,
        timeout: float | None,
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout if timeout is None else timeout)
        asked = _OpenRequest(api_key, version, pieces, read, loop.create_future(), deadline)
        if self._broken is not None:
            asked.outcome.set_exception(self._unavailable(api_key, self._broken))
        elif api_key in LOG_IN_KEYS:
            self._write(asked)
        elif self.unanswered >= MOST_UNANSWERED:
            asked.outcome.set_exception(self._unavailable(api_key, f"{MOST_UNANSWERED} requests are unanswered"))
        elif self._held is not None:
            self._held.append(asked)
        else:
            self._write(asked)
        self._tell_room()
        return asked.outcome

    def _write(self, asked: _OpenRequest) -> None:
        assert self._transport is not None
        self._correlation_id = asked.correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = _REQUEST_HEADER.pack(asked.api_key, asked.version, asked.correlation_id, len(_CLIENT_ID), _CLIENT_ID)
        if request_header_version(asked.api_key, asked.version) == 2:
            header += b"\0"  # no tagged fields
        size = len(header) + sum(map(len, asked.pieces))
        self._unanswered.append(asked)
        self._transport.writelines([_SIZE.pack(size) + header, *asked.pieces])
        asked.pieces = ()
        self._watch()

    def _on_answer(self, frame: memoryview) -> None:
        if self._broken is not None:
            return
        asked = self._unanswered[0] if self._unanswered else None
        if asked is None or _CORRELATION_ID.unpack_from(frame)[0] != asked.correlation_id:
            self._break("an answer that nobody asked for; this is no Kafka broker")
            return
        self._unanswered.popleft()
        self._watch()
        if not asked.outcome.done():
            try:
                body = frame[_header_bytes(asked, frame) :]
                asked.outcome.set_result(asked.read(body) if asked.read is not None else body)
            except WireError as error:
                asked.outcome.set_exception(self._unavailable(asked.api_key, explain(error)))
        self._tell_room()

    def _on_flow(self, takes: bool) -> None:
        self._blocked = not takes
        self._tell_room()

    def _tell_room(self) -> None:
        if self._broken is not None or not (self._blocked or self.unanswered >= MOST_UNANSWERED):
            self._room.set()
        else:
            self._room.clear()

    def _watch(self) -> None:
        """Sets an alarm for the oldest request; while answers come it is left alone as long as it is early enough."""
        if self._unanswered and self._unanswered[0].deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = self._unanswered[0].deadline
            self._alarm = asyncio.get_running_loop().call_at(self._alarm_at, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self._alarm_at = None, inf
        if self._unanswered and self._unanswered[0].deadline <= asyncio.get_running_loop().time():
            self._break(explain(TimeoutError()))
        else:
            self._watch()

    def _break(self, reason: Exception | str) -> None:
        if self._broken is not None:
            return
        self._broken = explain(reason) if isinstance(reason, Exception) else reason
        if self._transport is not None:
            self._transport.abort()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        left = [*self._unanswered, *(self._held or ())]
        self._unanswered.clear()
        self._held = None
        for asked in left:
            if not asked.outcome.done():
                asked.outcome.set_exception(self._unavailable(asked.api_key, self._broken))
        self._tell_room()

    def _unavailable(self, api_key: int, what: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"{self.address}: {verdicts.api_name(api_key)}: {what}")

    async def _greet(self) -> None:
        answer = await self.ask(apis.API_VERSIONS, 0, {})
        self.versions = {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}
        if self._config.sasl is not None:
            lifetime_ms = await log_in(self, self._config.sasl)
            if lifetime_ms > 0:
                self._renewal = self._tasks.start(self._renew(self._config.sasl, lifetime_ms), name="renew log-in")

    async def _renew(self, sasl: UpstreamSasl, lifetime_ms: int) -> None:
        """Logs in again for ever; what is sent meanwhile is held, as a broker takes nothing else until it is over."""
        while lifetime_ms > 0:
            await asyncio.sleep(lifetime_ms / 1000 * _RENEW_AT)
            self._held = []
            try:
                lifetime_ms = await log_in(self, sasl)
            except UpstreamUnavailable as error:
                self._break(error)
                return
            held, self._held = self._held, None
            for asked in held:
                if not asked.outcome.cancelled():
                    self._write(asked)


def _header_bytes(asked: _OpenRequest, frame: memoryview) -> int:
    if response_header_version(asked.api_key, asked.version) == 0:
        return 4  # the correlation id
    if frame[4] == 0:
        return 5  # and no tagged fields
    return parse_response_header(asked.api_key, asked.version, frame)[1]
