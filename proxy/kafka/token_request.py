"""A question to a token endpoint over HTTP, with bounds on time and size, whatever the other side does.

Source: RFC 6749 §4.4 (client credentials), RFC 9112 (HTTP/1.1).
"""

from __future__ import annotations

import asyncio
import io
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import urlencode, urlsplit

from kordon.proxy.core.errors import KordonError
from kordon.proxy.runtime.tls import explain

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Mapping

MOST_BYTES: Final = 64 * 1024
"""Of an answer with its headers; tokens have one or two KiB."""
TOKEN_SECONDS: Final = 10.0
"""For a whole question, from the name of the host to the last byte."""
_READ_BYTES: Final = 16 * 1024
_HEAD_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class TokenRequestFailed(KordonError):  # noqa: N818 - says what happened
    """Raised if a token endpoint gives no answer that can be read; the message says why."""


class HttpAnswer(NamedTuple):
    """What an endpoint answered, whatever its status."""

    status: int
    body: bytes
    location: str | None
    """Where a redirect leads."""


class _Received:
    """Bytes that have come, in place of the socket that `HTTPResponse` reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        del mode
        return io.BytesIO(self._data)


async def post_form(
    url: str, headers: Mapping[str, str], form: Mapping[str, str], context: ssl.SSLContext | None
) -> HttpAnswer:
    """Sends a form. Redirects are not followed, as the question has a secret.

    Args:
        context: The TLS context for https.

    Raises:
        TokenRequestFailed: There is no answer within `TOKEN_SECONDS`, it is larger than `MOST_BYTES` or is no HTTP.
    """
    parts = urlsplit(url)
    port = parts.port or (80 if context is None else 443)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(TOKEN_SECONDS):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
            writer.write(_request(url, headers, form))
            return await _answer(reader)
    except TimeoutError as error:
        raise TokenRequestFailed(f"no whole answer in {TOKEN_SECONDS:g} s") from error
    except OSError as error:
        raise TokenRequestFailed(explain(error)) from error
    except (HTTPException, ValueError) as error:
        raise TokenRequestFailed("the answer is no HTTP") from error
    finally:
        if writer is not None:
            writer.transport.abort()


def _request(url: str, headers: Mapping[str, str], form: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    body = urlencode(form).encode()
    given = {
        "Host": parts.netloc,
        **headers,
        "Accept": "application/json",
        "Connection": "close",
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode() + body


async def _answer(reader: asyncio.StreamReader) -> HttpAnswer:
    """Reads until the answer is whole; many servers keep the connection open after it."""
    data = bytearray()
    while True:
        received = await reader.read(_READ_BYTES)
        data += received
        if len(data) > MOST_BYTES:
            raise TokenRequestFailed(f"the answer is larger than {MOST_BYTES:,} bytes")
        if not received:
            return _parsed(bytes(data))
        if (head_end := data.find(_HEAD_END)) >= 0 and _is_whole(data, head_end + len(_HEAD_END)):
            return _parsed(bytes(data))


def _is_whole(data: bytearray, body_at: int) -> bool:
    """Says whether the body has come to the end that its headers name; without one it ends with the connection."""
    head = HTTPResponse(_as_socket(bytes(data[:body_at])), method="POST")
    head.begin()
    if head.chunked:
        return data.endswith(_LAST_CHUNK)
    return head.length is not None and len(data) - body_at >= head.length


def _parsed(data: bytes) -> HttpAnswer:
    if not data:
        raise TokenRequestFailed("the connection ended without an answer")
    answer = HTTPResponse(_as_socket(data), method="POST")
    answer.begin()
    return HttpAnswer(answer.status, answer.read(), answer.getheader("Location"))


def _as_socket(data: bytes) -> socket.socket:
    return cast("socket.socket", _Received(data))
