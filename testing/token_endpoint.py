"""Tokens for tests, signed as a login service signs them, and an endpoint on this machine that hands them out."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

ISSUER: Final = "https://login.kordon.test"
AUDIENCE: Final = "kafka"
CLIENT_ID: Final = "kordon"
CLIENT_SECRET: Final = "a secret: with a colon"  # noqa: S105 - of tests
_KEY_ID: Final = "1"


def _packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _packed_number(number: int) -> str:
    return _packed(number.to_bytes((number.bit_length() + 7) // 8, "big"))


class Issuer:
    """Signs tokens with a key of its own (RS256)."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, seconds: float = 300, **claims: Any) -> str:
        """Returns a token for `kordon` that holds for so many seconds.

        Args:
            claims: Others than usual, such as `aud`.
        """
        now = int(time.time())
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": CLIENT_ID, "iat": now, "exp": now + int(seconds), **claims}
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
        signed = f"{_packed(json.dumps(head).encode())}.{_packed(json.dumps(said).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_packed(signature)}"

    def write_keys(self, file: Path) -> None:
        """Writes the public key as brokers read it (JWKS, RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID}
        key |= {"n": _packed_number(numbers.n), "e": _packed_number(numbers.e)}
        file.write_text(json.dumps({"keys": [key]}))


class TokenEndpoint:
    """Answers as it is told; use `serve` as a context manager."""

    def __init__(self) -> None:
        self.answer = b""
        """What it sends, with the headers."""
        self.issuer: tuple[Issuer, float] | None = None
        """Signs a new token for each question, with its seconds, in place of `answer`."""
        self.keeps_open = False
        """Whether the connection stays open after the answer."""
        self.pieces_of = 0
        """Bytes that are sent at a time; 0: all."""
        self.asked: list[bytes] = []
        """The questions, with their headers."""
        self.url = ""

    @asynccontextmanager
    async def serve(self, context: ssl.SSLContext | None = None) -> AsyncGenerator[TokenEndpoint, None]:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, ssl=context)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}/oauth2/token"
        async with server:
            yield self
            server.close()

    @contextmanager
    def serve_beside(self) -> Generator[TokenEndpoint, None, None]:
        """Serves in a thread of its own, for those who do not run an event loop."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        served = self.serve()
        asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: "))
        self.asked.append(head + await reader.readexactly(int(length.split()[1])))
        answer = self.answer
        if self.issuer is not None:
            issuer, seconds = self.issuer
            answer = json_answer({"access_token": issuer.token(seconds), "expires_in": int(seconds)})
        try:
            step = self.pieces_of or len(answer) or 1
            for begin in range(0, len(answer), step):
                writer.write(answer[begin : begin + step])
                await writer.drain()
                await asyncio.sleep(0)
            while self.keeps_open and await reader.read(1):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()


def json_answer(value: Any, status: str = "200 OK") -> bytes:
    """Returns an answer with JSON and its length."""
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
