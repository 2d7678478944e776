"""The admin server: a few read-only pages over HTTP, for probes, Prometheus and `kordon status`.

    GET /livez    200 while the process serves at all
    GET /readyz   200 when clients can be served, else 503 with the reasons
    GET /metrics  Prometheus' text format
    GET /status   one JSON object, as told in docs/cli.md
    GET /topics   the managed topics in short, and how their control is; /topics/NAME all about one of them
    GET /ui       a page for people that shows these live

It speaks only as much HTTP/1.1 (RFC 9112) as that takes: a head of bounded size within a bounded time, one
answer, end of connection. A general web server would bring 28 MB to every worker and no bound on a head that
never ends.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from kordon.proxy.runtime.metrics import CONTENT_TYPE as METRICS_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kordon.proxy.config.host_port import HostPort
    from kordon.proxy.process.explain import Facts

HEAD_BYTES: Final = 8192
HEAD_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0
PAGE_SECONDS: Final = 5.0
"""How long a supervisor waits for a page of a worker."""
CONNECTIONS: Final = 64
"""More at once are closed unheard: probes and scrapers are few."""
UI_FILE: Final = Path(__file__).with_name("ui.html")
UI_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
)
"""Of the page for people: it runs its own script and asks this server alone."""
TOPIC_PREFIX: Final = "/topics/"

log = structlog.get_logger(__name__)


class Observed(Protocol):
    """The subject of the pages: one proxy, or a supervisor that asks its workers."""

    async def unready(self) -> list[str]:
        """The reasons why clients cannot be served now; empty: they can."""
        ...

    async def notes(self) -> list[str]:
        """Faults for which clients need not go elsewhere."""
        ...

    async def metrics(self) -> bytes:
        """Everything Prometheus gets, in its text format."""
        ...

    async def status(self) -> Facts:
        """The object of /status."""
        ...

    async def topics(self) -> Facts:
        """The object of /topics."""
        ...

    async def topic(self, name: str) -> Facts | None:
        """The object of /topics/NAME; None: no such topic is managed."""
        ...


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    policy: str = "default-src 'none'"
    """What a browser lets the page do (Content-Security-Policy)."""

    @classmethod
    def of(cls, value: object, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
        """A JSON answer, indented because people read it, too."""
        return cls(status, json.dumps(value, indent=2, default=str).encode() + b"\n")

    def head(self) -> bytes:
        """Status line and header fields, up to the empty line."""
        return (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            f"Content-Security-Policy: {self.policy}; frame-ancestors 'none'\r\n"
            "Connection: close\r\n\r\n"
        ).encode("ascii")


def probes(observed: Observed) -> dict[str, Callable[[], Awaitable[HttpResponse]]]:
    """The pages by path that tell strangers nothing of the cluster; reasons would name brokers, topics and groups."""

    async def livez() -> HttpResponse:
        return HttpResponse.of({"live": True})

    async def readyz() -> HttpResponse:
        ready = not await observed.unready()
        return HttpResponse.of({"ready": ready}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    return {"/livez": livez, "/readyz": readyz}


def pages(observed: Observed) -> dict[str, Callable[[], Awaitable[HttpResponse]]]:
    """All pages by path."""

    async def readyz() -> HttpResponse:
        reasons = await observed.unready()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return HttpResponse.of({"ready": not reasons, "reasons": reasons, "notes": await observed.notes()}, status)

    async def metrics() -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, await observed.metrics(), METRICS_TYPE)

    async def status() -> HttpResponse:
        return HttpResponse.of(await observed.status())

    async def topics() -> HttpResponse:
        return HttpResponse.of(await observed.topics())

    async def ui() -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, UI_FILE.read_bytes(), "text/html; charset=utf-8", UI_POLICY)

    found = {"/readyz": readyz, "/metrics": metrics, "/status": status, "/topics": topics, "/ui": ui}
    return {**probes(observed), **found}


async def page_of_topic(observed: Observed, name: str) -> HttpResponse:
    """The page of a managed topic."""
    topic = await observed.topic(name)
    return (
        HttpResponse.of({"error": f"no managed topic {name}"}, HTTPStatus.NOT_FOUND)
        if topic is None
        else HttpResponse.of(topic)
    )


class AdminServer:
    """Serves the pages of what it observes, on a TCP address or a Unix socket.

    Args:
        probes_alone: Whether it serves only /livez and /readyz, without reasons.
    """

    def __init__(self, observed: Observed, *, probes_alone: bool = False) -> None:
        self._observed = observed
        self._probes_alone = probes_alone
        self._pages: Mapping[str, Callable[[], Awaitable[HttpResponse]]] = (probes if probes_alone else pages)(observed)
        self._servers: list[asyncio.Server] = []
        self._open = 0

    async def listen(self, address: HostPort) -> None:
        """Begins to serve on a TCP address.

        Raises:
            OSError: The address cannot be used, for example because the port is in use.
        """
        server = await asyncio.start_server(self._connected, address.host, address.port, limit=HEAD_BYTES)
        self._servers.append(server)

    async def listen_unix(self, path: Path) -> None:
        """Begins to serve on a Unix socket, which must not exist yet.

        Raises:
            OSError: The socket cannot be made.
        """
        self._servers.append(await asyncio.start_unix_server(self._connected, path, limit=HEAD_BYTES))

    async def close(self) -> None:
        """Stops listening; answers under way are finished by their own tasks."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS:
                await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the peer went away; it asked for nothing that would be missed
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            method, answer = "GET", _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except TimeoutError:
            method, answer = "GET", _refusal(HTTPStatus.REQUEST_TIMEOUT)
        else:
            method, answer = await self._answer(head)
        writer.write(answer.head() + (b"" if method == "HEAD" else answer.body))
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAD_SECONDS):
                await writer.drain()

    async def _answer(self, head: bytes) -> tuple[str, HttpResponse]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return "GET", _refusal(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        if method not in {"GET", "HEAD"}:
            return "GET", _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        page = self._page(target.split("?", 1)[0].rstrip("/"))
        if page is None:
            return method, HttpResponse.of({"error": "no such page", "pages": list(self._pages)}, HTTPStatus.NOT_FOUND)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return method, await page()
        except TimeoutError:
            return method, _refusal(HTTPStatus.GATEWAY_TIMEOUT)
        except Exception:
            # The outermost edge of this connection: a page that fails must say so and leave traffic alone.
            log.exception("admin_page_failed", path=target)
            return method, _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _page(self, path: str) -> Callable[[], Awaitable[HttpResponse]] | None:
        if path.startswith(TOPIC_PREFIX) and not self._probes_alone:
            return partial(page_of_topic, self._observed, urllib.parse.unquote(path[len(TOPIC_PREFIX) :]))
        return self._pages.get(path)


async def fetch_page(admin_socket: Path, path: str) -> bytes | None:
    """Asks a worker for an admin page.

    Returns:
        The page's body, whatever the status (/readyz answers 503 with reasons); None if the worker does not answer.
    """
    try:
        async with asyncio.timeout(PAGE_SECONDS):
            reader, writer = await asyncio.open_unix_connection(admin_socket)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n".encode("ascii"))
                answer = await reader.read(-1)
            finally:
                writer.close()
    except OSError:
        return None
    return answer.partition(b"\r\n\r\n")[2]


def _refusal(status: HTTPStatus) -> HttpResponse:
    return HttpResponse.of({"error": status.phrase.lower()}, status)
