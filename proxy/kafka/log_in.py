"""SASL log-in of Kordon's own connections, the first and those that renew a session (KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from scramp import ScramClient, ScramException

from kordon.codecs import apis
from kordon.proxy.config.config import HostPort, UpstreamSasl
from kordon.proxy.core.errors import UpstreamUnavailable

SASL_AUTHENTICATE: Final = 36
LOG_IN_KEYS: Final = frozenset({apis.SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""What a log-in is made of; a broker takes nothing else between its first and its last request."""
_VERSIONS: Final = range(3)
"""SaslAuthenticate 1 and later tell how long the session lives."""


class LogInConnection(Protocol):
    """What a log-in needs of a connection."""

    address: HostPort

    def version(self, api_key: int, wanted: range) -> int:
        """Returns the newest of the wanted versions that the broker speaks."""
        ...

    def send(self, api_key: int, version: int, fields: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Sends a request."""
        ...


async def log_in(connection: LogInConnection, sasl: UpstreamSasl) -> int:
    """Logs in.

    Returns:
        How long the session lives, in milliseconds; 0 for ever.

    Raises:
        UpstreamUnavailable: The broker does not let Kordon in, or is none that has the password (SCRAM).
    """
    hello = await connection.send(apis.SASL_HANDSHAKE, 1, {"mechanism": sasl.mechanism})
    if hello.error_code:
        what = f"SASL {sasl.mechanism} is not enabled; the broker has {', '.join(hello.mechanisms)}"
        raise UpstreamUnavailable(f"{connection.address}: {what}")
    password = sasl.password.get_secret_value()
    if sasl.mechanism == "PLAIN":
        _, lifetime_ms = await _authenticate(connection, f"\0{sasl.username}\0{password}".encode())
        return lifetime_ms
    client = ScramClient([sasl.mechanism], sasl.username, password)
    try:
        token, _ = await _authenticate(connection, client.get_client_first().encode())
        client.set_server_first(token)
        token, lifetime_ms = await _authenticate(connection, client.get_client_final().encode())
        client.set_server_final(token)
    except ScramException as error:
        raise UpstreamUnavailable(f"{connection.address}: log-in failed: {error}") from error
    return lifetime_ms


async def _authenticate(connection: LogInConnection, token: bytes) -> tuple[str, int]:
    version = connection.version(SASL_AUTHENTICATE, _VERSIONS)
    answer = await connection.send(SASL_AUTHENTICATE, version, {"auth_bytes": token})
    if answer.error_code:
        raise UpstreamUnavailable(f"{connection.address}: log-in failed: {answer.error_message}")
    return bytes(answer.auth_bytes).decode(), answer.get("session_lifetime_ms", 0)
