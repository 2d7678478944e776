"""Kordon's own connection to a broker: a question, its answer. Clients' traffic never takes it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from scramp import ScramClient, ScramException

from kordon.codecs.errors import WireError
from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import request, response
from kordon.proxy import apis
from kordon.proxy.config import HostPort, Upstream, UpstreamSasl
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.tls import explain

SASL_AUTHENTICATE: Final = 36
CLIENT_ID: Final = "kordon"
_LARGEST_ANSWER: Final = 64 * 1024 * 1024
_METADATA_VERSIONS: Final = range(1, 10)
"""Version 0 takes an empty list of topics for all of them."""


class UpstreamClient:
    """One connection to one broker, used by one task at a time.

    Use it as an asynchronous context manager; entering connects, asks for ApiVersions and logs in.
    """

    def __init__(self, address: HostPort, config: Upstream, context: ssl.SSLContext | None) -> None:
        self.address = address
        self._config = config
        self._context = context
        self._timeout = config.connect_timeout_ms / 1000
        self._correlation_id = 0
        self._versions: dict[int, range] = {}

    async def __aenter__(self) -> Self:
        """Connects.

        Raises:
            UpstreamUnavailable: It cannot be reached, or does not let Kordon in; the message says why.
        """
        name = (self._config.tls.server_name if self._config.tls else None) or self.address.host
        try:
            self._reader, self._writer = await asyncio.wait_for(
                asyncio.open_connection(
                    self.address.host,
                    self.address.port,
                    ssl=self._context,
                    server_hostname=name if self._context else None,
                ),
                self._timeout,
            )
        except (OSError, TimeoutError) as error:
            raise UpstreamUnavailable(f"{self.address}: {explain(error)}") from error
        try:
            await self._open()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the connection, at once."""
        self._writer.transport.abort()

    async def nodes(self) -> tuple[str | None, dict[int, tuple[str, int]]]:
        """Asks for the cluster's brokers.

        Returns:
            The cluster id, and host and port by node id.

        Raises:
            UpstreamUnavailable: The broker does not answer, or not without a log-in.
        """
        version = self._version(apis.METADATA, _METADATA_VERSIONS)
        answer = await self.ask(apis.METADATA, version, {"topics": [], "allow_auto_topic_creation": False})
        return answer.get("cluster_id"), {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}

    async def ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Sends a request and waits for its response.

        Raises:
            UpstreamUnavailable: The connection ends, the answer is late or cannot be read.
        """
        try:
            return await asyncio.wait_for(self._ask(api_key, version, fields), self._timeout)
        except (OSError, TimeoutError, EOFError, WireError) as error:
            what = "the broker closed the connection" if isinstance(error, EOFError) else explain(error)
            raise UpstreamUnavailable(f"{self.address}: {apis.api_name(api_key)}: {what}") from error

    async def _ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        self._correlation_id += 1
        header = build_request_header(api_key, version, self._correlation_id, CLIENT_ID)
        frame = header + request(api_key).build(version, fields)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
        if not 4 <= size <= _LARGEST_ANSWER:
            raise WireError(f"a response of {size} bytes; this is no Kafka broker")
        answer = await self._reader.readexactly(size)
        _, consumed = parse_response_header(api_key, version, answer)
        return response(api_key).parse(version, answer[consumed:])

    async def _open(self) -> None:
        answer = await self.ask(apis.API_VERSIONS, 0, {})
        self._versions = {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}
        if self._config.sasl is not None:
            await self._log_in(self._config.sasl)

    def _version(self, api_key: int, wanted: range) -> int:
        offered = self._versions.get(api_key, range(0))
        common = [version for version in wanted if version in offered]
        if not common:
            raise UpstreamUnavailable(f"{self.address}: no common version of {apis.api_name(api_key)}")
        return common[-1]

    async def _log_in(self, sasl: UpstreamSasl) -> None:
        hello = await self.ask(apis.SASL_HANDSHAKE, 1, {"mechanism": sasl.mechanism})
        if hello.error_code:
            offered = ", ".join(hello.mechanisms)
            raise UpstreamUnavailable(f"{self.address}: SASL {sasl.mechanism} is not enabled; the broker has {offered}")
        password = sasl.password.get_secret_value()
        if sasl.mechanism == "PLAIN":
            await self._authenticate(f"\0{sasl.username}\0{password}".encode())
            return
        client = ScramClient([sasl.mechanism], sasl.username, password)
        try:
            client.set_server_first(await self._authenticate(client.get_client_first().encode()))
            client.set_server_final(await self._authenticate(client.get_client_final().encode()))
        except ScramException as error:
            raise UpstreamUnavailable(f"{self.address}: log-in failed: {error}") from error

    async def _authenticate(self, token: bytes) -> str:
        answer = await self.ask(SASL_AUTHENTICATE, 0, {"auth_bytes": token})
        if answer.error_code:
            raise UpstreamUnavailable(f"{self.address}: log-in failed: {answer.error_message}")
        return bytes(answer.auth_bytes).decode()
