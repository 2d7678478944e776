"""Tokens for Kordon's own log-in by OAUTHBEARER: from a token endpoint, or from a file that somebody else renews.

A token of an endpoint serves all connections of this process until most of its life is over. Then the next log-in asks
for another one. If that fails, the old one serves to its end. A file is read for each log-in, as Kubernetes replaces
its projected tokens.

Source: KIP-255 and KIP-768 (OAUTHBEARER), KIP-342 (extensions), RFC 6749 §4.4, RFC 6750 §2.1, RFC 7628 §3.1.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kordon.codecs.shown_text import cut, shown
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.token_request import MOST_BYTES, HttpAnswer, TokenRequestFailed, post_form

if TYPE_CHECKING:
    from pathlib import Path

    from kordon.proxy.config.config import UpstreamSasl

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a token may consist of (RFC 6750); a broker would take other bytes for the end of the token."""
_USED_PART: Final = 0.8
"""Of a token's life. Sessions that it begins are renewed later than that (KIP-368), and so with another token."""
_AGAIN_SECONDS: Final = 1.0
"""After a failure the endpoint is left alone for so long."""
_REFUSED: Final = frozenset({400, 401, 403})
_MOST_SECONDS: Final = 10 * 365 * 86400


class _Token(NamedTuple):
    """A token, and until when it is used and holds, in seconds of the monotonic clock."""

    text: str
    used_until: float
    holds_until: float


@lru_cache(maxsize=16)
def tokens_of(sasl: UpstreamSasl) -> BearerTokens:
    """Returns the tokens of a log-in, the same for all connections of this process."""
    return BearerTokens(sasl)


class BearerTokens:
    """Gets tokens for one log-in."""

    def __init__(self, sasl: UpstreamSasl) -> None:
        self._sasl = sasl
        self._one = asyncio.Lock()
        self._token: _Token | None = None
        self._failed: UpstreamUnavailable | None = None
        self._failed_at = 0.0
        self._context: ssl.SSLContext | None = None

    async def get(self) -> str:
        """Returns a token that holds for a while.

        Raises:
            UpstreamUnavailable: There is none; the message says why and what would help.
        """
        if self._sasl.token_file is not None:
            return _checked(
                _read(self._sasl.token_file, "token_file"), f"upstream.sasl.token_file {self._sasl.token_file}"
            )
        async with self._one:
            now = time.monotonic()
            if self._token is not None and now < self._token.used_until:
                return self._token.text
            if self._failed is None or now > self._failed_at + _AGAIN_SECONDS:
                await self._ask()
            if self._failed is None and self._token is not None:
                return self._token.text
            if self._token is not None and now < self._token.holds_until:
                return self._token.text
            raise self._failed or UpstreamUnavailable("no token")

    def forget(self, token: str) -> None:
        """Has the next log-in ask for another token: a broker has refused this one."""
        if self._token is not None and self._token.text == token:
            self._token = None

    async def _ask(self) -> None:
        try:
            self._token = await self._fetch()
            self._failed = None
        except UpstreamUnavailable as error:
            self._failed, self._failed_at = error, time.monotonic()

    async def _fetch(self) -> _Token:
        sasl, url = self._sasl, self._sasl.token_url or ""
        secret = _read(sasl.client_secret_file, "client_secret_file") if sasl.client_secret_file is not None else ""
        basic = base64.b64encode(f"{sasl.client_id}:{secret}".encode()).decode()
        form = {"grant_type": "client_credentials"} | ({"scope": sasl.scope} if sasl.scope else {})
        asked_at = time.monotonic()
        try:
            context = self._tls() if url.startswith("https:") else None
            answer = await post_form(url, {"Authorization": f"Basic {basic}"}, form, context)
        except (TokenRequestFailed, OSError) as error:
            raise UpstreamUnavailable(f"token endpoint {url}: {error} (upstream.sasl.token_url)") from error
        text, seconds = _token_in(answer, f"token endpoint {url}")
        return _Token(text, asked_at + seconds * _USED_PART, asked_at + seconds)

    def _tls(self) -> ssl.SSLContext:
        """Returns what the endpoint's certificate is checked by; made once, as it takes a while."""
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._sasl.token_ca)
        return self._context


def first_message(token: str, extensions: dict[str, str]) -> bytes:
    r"""Returns what a client of OAUTHBEARER says first.

    >>> first_message("e30.e30.", {"logicalCluster": "lkc-1"})
    b'n,,\x01auth=Bearer e30.e30.\x01logicalCluster=lkc-1\x01\x01'
    """
    said = "".join(f"{name}={value}\1" for name, value in extensions.items())
    return f"n,,\1auth=Bearer {token}\1{said}\1".encode()


def _read(file: Path, option: str) -> str:
    """Reads a small file.

    Raises:
        UpstreamUnavailable: The token file cannot be read, is empty or too large.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        text = data.decode().strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "is no text"
        raise UpstreamUnavailable(f"upstream.sasl.{option} {file}: {why.lower()}") from error
    if not text or len(data) > MOST_BYTES:
        what = "is empty" if not text else f"is larger than {MOST_BYTES:,} bytes"
        raise UpstreamUnavailable(f"upstream.sasl.{option} {file}: {what}")
    return text


def _token_in(answer: HttpAnswer, where: str) -> tuple[str, float]:
    """Returns the token of an answer and the seconds for which it holds.

    Raises:
        UpstreamUnavailable: The answer has no token.
    """
    found = _object(answer.body)
    if answer.status in _REFUSED:
        told = " ".join(str(found[name]) for name in ("error", "error_description") if found.get(name))
        cure = "check upstream.sasl.client_id, client_secret_file and scope"
        raise UpstreamUnavailable(f"{where}: {answer.status} {shown(cut(told))}: {cure}")
    if answer.location is not None:
        raise UpstreamUnavailable(
            f"{where} redirects to {shown(cut(answer.location))}: upstream.sasl.token_url has to name that"
        )
    if answer.status != 200:
        raise UpstreamUnavailable(f"{where}: {answer.status}: check upstream.sasl.token_url")
    token = found.get("access_token")
    if not isinstance(token, str):
        raise UpstreamUnavailable(f"{where}: the answer is no JSON with an access_token: check upstream.sasl.token_url")
    return _checked(token, where), _life(found.get("expires_in"), token)


def _checked(token: str, where: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise UpstreamUnavailable(f"{where}: what is there is no token")
    return token


def _life(told: object, token: str) -> float:
    """Returns the seconds for which a token holds: as the endpoint tells, or as the token itself does; 0: unknown."""
    if isinstance(told, str) and told.isdecimal():
        told = int(told)
    if not isinstance(told, int | float) or isinstance(told, bool):
        expires = _object(_payload(token)).get("exp")
        told = expires - time.time() if isinstance(expires, int | float) else 0
    return float(min(max(told, 0), _MOST_SECONDS))


def _payload(token: str) -> bytes:
    parts = token.split(".")
    try:
        return base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except (ValueError, IndexError):
        return b""


def _object(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
