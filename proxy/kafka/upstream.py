"""Kordon's own connection to a broker: questions one after the other, answers in their order.

Clients' traffic never takes it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from kordon.codecs import apis
from kordon.codecs.bodies import ApiVersionsRequest, MetadataRequest
from kordon.codecs.look import Buffer
from kordon.codecs.messages import api_versions, metadata
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.config.config import Upstream, UpstreamSasl
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.kafka.log_in import log_in, prepare_log_in
from kordon.proxy.kafka.request_pipeline import RequestPipeline
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.runtime.tls import explain

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

_METADATA_VERSIONS: Final = range(1, 10)
"""Version 0 takes an empty list of topics for all of them."""
_RENEW_AT: Final = 0.85
"""Part of a SASL session after which it is renewed; Java clients take 0.85 to 0.95 (KIP-368)."""


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
        self._pipeline = RequestPipeline(str(address), self._end_renewal)
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
        return self._pipeline.closed

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answers."""
        return self._pipeline.count

    async def open(self) -> None:
        """Connects.

        Raises:
            UpstreamUnavailable: The broker cannot be reached, or does not let Kordon in. The message says why.
        """
        name = (self._config.tls.server_name if self._config.tls else None) or self.address.host
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                transport, _ = await loop.create_connection(
                    self._pipeline.receiver,
                    self.address.host,
                    self.address.port,
                    ssl=self._context,
                    server_hostname=name if self._context else None,
                )
        except (OSError, TimeoutError) as error:
            raise UpstreamUnavailable(f"{self.address}: {explain(error)}") from error
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._pipeline.open(transport)
        try:
            await self._greet()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the connection at once; what is unanswered fails."""
        self._pipeline.close("closed by Kordon")

    async def nodes(self) -> tuple[str | None, dict[int, tuple[str, int]]]:
        """Asks for the cluster's brokers.

        Returns:
            The cluster id, and host and port by node id.

        Raises:
            UpstreamUnavailable: The broker does not answer, or not without a log-in.
        """
        version = self.version(apis.METADATA, _METADATA_VERSIONS)
        answer = await self.ask(metadata.API, version, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        cluster_id = answer.cluster_id if "cluster_id" in answer else None
        return cluster_id, {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}

    def version(self, api_key: int, wanted: range) -> int:
        """Returns the newest of the wanted versions that the broker speaks.

        Raises:
            NoCommonVersion: The broker speaks none of the versions.
        """
        offered = self.versions.get(api_key, range(0))
        common = [version for version in wanted if version in offered]
        if not common:
            raise NoCommonVersion(f"{self.address}: no common version of {verdicts.api_name(api_key)}")
        return common[-1]

    async def ask(
        self, api: Api[_Request, _Response], version: int, body: _Request, timeout: float | None = None
    ) -> _Response:
        """Sends a request and waits for its response, and before it for room where too much is unanswered.

        Args:
            version: The version of the request, from `version`.
            timeout: Seconds in all; by default `upstream.connect_timeout_ms`.

        Raises:
            UpstreamUnavailable: The connection ends, the answer is late or cannot be read.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await self.room()
                return await self.send(api, version, body, seconds)
        except TimeoutError as error:
            raise self._pipeline.unavailable(api.key, explain(error)) from error

    def send(
        self, api: Api[_Request, _Response], version: int, body: _Request, timeout: float | None = None
    ) -> asyncio.Future[_Response]:
        """Sends a request at once; order of calls = order on the wire.

        Args:
            api: The api key of the request, which must have an answer: this connection cannot send acks=0.
            version: The version of the request, from `version`.
            timeout: Seconds; by default `upstream.connect_timeout_ms`. When the oldest request is unanswered for
                longer, the connection is closed: no later one can be answered either.

        Returns:
            The response to come; or UpstreamUnavailable when the connection ends, the answer cannot be read, or
            `MOST_UNANSWERED` are waiting already. Cancelling it takes nothing back from the wire.
        """
        pieces = (api.request.build(version, body),)
        seconds = self._timeout if timeout is None else timeout
        return self._pipeline.send(api.key, version, pieces, partial(api.response.parse, version), seconds)

    def send_body(
        self, api_key: int, version: int, pieces: Sequence[Buffer], timeout: float | None = None
    ) -> asyncio.Future[memoryview]:
        """Sends as `send` does a body that was built elsewhere.

        Args:
            pieces: The body; they must not be changed before the answer.
            timeout: Seconds, as of `send`.

        Returns:
            The body of the response to come, in memory of its own.
        """
        return self._pipeline.send(api_key, version, pieces, _as_it_is, self._timeout if timeout is None else timeout)

    async def room(self) -> None:
        """Returns when the socket takes bytes and fewer than `MOST_UNANSWERED` wait, or the connection is closed."""
        await self._pipeline.room()

    async def _greet(self) -> None:
        answer = await self.ask(api_versions.API, 0, ApiVersionsRequest())
        self.versions = {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}
        if self._config.sasl is not None:
            lifetime_ms = await log_in(self, self._config.sasl)
            if lifetime_ms > 0:
                self._renewal = self._tasks.start(self._renew(self._config.sasl, lifetime_ms), name="renew log-in")

    async def _renew(self, sasl: UpstreamSasl, lifetime_ms: int) -> None:
        """Logs in again for ever; what is sent meanwhile is held, as a broker takes nothing else until it is over."""
        while lifetime_ms > 0:
            await asyncio.sleep(lifetime_ms / 1000 * _RENEW_AT)
            try:
                await prepare_log_in(sasl)
                self._pipeline.hold()
                lifetime_ms = await log_in(self, sasl)
            except UpstreamUnavailable as error:
                self._pipeline.close(error)
                return
            self._pipeline.release()

    def _end_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()


def _as_it_is(body: memoryview) -> memoryview:
    return body
