"""SASL log-in of Kordon's own connections, the first and those that renew a session (KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeVar

from scramp import ScramClient, ScramException

from kordon.codecs import apis
from kordon.codecs.bodies import SaslAuthenticateRequest, SaslHandshakeRequest
from kordon.codecs.messages import sasl_authenticate, sasl_handshake
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.codecs.shown_text import cut, shown
from kordon.proxy.config.config import UpstreamSasl
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.bearer_tokens import first_message, tokens_of

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

OAUTHBEARER: Final = "OAUTHBEARER"
LOG_IN_KEYS: Final = frozenset({apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""What a log-in is made of; a broker takes nothing else between its first and its last request."""
_VERSIONS: Final = range(3)
"""SaslAuthenticate 1 and later tell how long the session lives."""


class LogInConnection(Protocol):
    """What a log-in needs of a connection."""

    address: HostPort

    def version(self, api_key: int, wanted: range) -> int:
        """Returns the newest of the wanted versions that the broker speaks."""
        ...

    def send(self, api: Api[_Request, _Response], version: int, body: _Request) -> asyncio.Future[_Response]:
        """Sends a request."""
        ...


async def log_in(connection: LogInConnection, sasl: UpstreamSasl) -> int:
    """Logs in.

    Returns:
        How long the session lives, in milliseconds; 0 forever.

    Raises:
        UpstreamUnavailable: The broker does not let Kordon in, or is none that has the password (SCRAM).
    """
    hello = await connection.send(sasl_handshake.API, 1, SaslHandshakeRequest(mechanism=sasl.mechanism))
    if hello.error_code:
        what = f"SASL {sasl.mechanism} is not enabled; the broker has {', '.join(hello.mechanisms)}"
        raise UpstreamUnavailable(f"{connection.address}: {what}")
    if sasl.mechanism == OAUTHBEARER:
        return await _log_in_by_token(connection, sasl)
    username, password = sasl.username or "", sasl.password.get_secret_value() if sasl.password else ""
    if sasl.mechanism == "PLAIN":
        _, lifetime_ms = await _authenticate(connection, f"\0{username}\0{password}".encode())
        return lifetime_ms
    client = ScramClient([sasl.mechanism], username, password)
    try:
        token, _ = await _authenticate(connection, client.get_client_first().encode())
        client.set_server_first(token)
        token, lifetime_ms = await _authenticate(connection, client.get_client_final().encode())
        client.set_server_final(token)
    except ScramException as error:
        raise UpstreamUnavailable(f"{connection.address}: log-in failed: {error}") from error
    return lifetime_ms


async def prepare_log_in(sasl: UpstreamSasl) -> None:
    """Gets what a log-in needs from elsewhere, so that the log-in itself takes no longer than the broker does.

    Raises:
        UpstreamUnavailable: There is no token.
    """
    if sasl.mechanism == OAUTHBEARER:
        await tokens_of(sasl).get()


async def _log_in_by_token(connection: LogInConnection, sasl: UpstreamSasl) -> int:
    tokens = tokens_of(sasl)
    token = await tokens.get()
    why, lifetime_ms = await _authenticate(connection, first_message(token, sasl.extensions))
    if why:  # RFC 7628: the broker says why not, and fails the log-in when it has been heard
        tokens.forget(token)
        cure = "compare its issuer, audience, scope and expiry with what the brokers expect (sasl.oauthbearer.*)"
        raise UpstreamUnavailable(f"{connection.address}: the broker refuses the token: {shown(cut(why))}: {cure}")
    return lifetime_ms


async def _authenticate(connection: LogInConnection, token: bytes) -> tuple[str, int]:
    version = connection.version(apis.SASL_AUTHENTICATE, _VERSIONS)
    answer = await connection.send(sasl_authenticate.API, version, SaslAuthenticateRequest(auth_bytes=token))
    if answer.error_code:
        raise UpstreamUnavailable(f"{connection.address}: log-in failed: {answer.error_message}")
    return bytes(answer.auth_bytes).decode(), answer.get("session_lifetime_ms", 0)
