"""The admin pages, asked by a client we did not write (aiohttp's) and by clients that misbehave."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kordon.proxy.config.host_port import HostPort
from kordon.proxy.process import admin
from kordon.proxy.process.admin import AdminServer, fetch_page
from kordon.testing.ports import free_ports
from kordon.testing.waiting import until


class Fake:
    """Something to observe."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.fault: Exception | None = None
        self.slow = asyncio.Event()
        self.slow.set()

    async def unready(self) -> list[str]:
        return self.reasons

    async def notes(self) -> list[str]:
        return []

    async def metrics(self) -> bytes:
        await self.slow.wait()
        return b"kordon_workers 1.0\n"

    async def status(self) -> dict[str, Any]:
        if self.fault is not None:
            raise self.fault
        return {"state": "running"}

    async def topics(self) -> dict[str, Any]:
        return {"topics": ["orders"]}

    async def topic(self, name: str) -> dict[str, Any] | None:
        return {"topic": name} if name == "orders" else None


@asynccontextmanager
async def serving(fake: Fake, *, probes_alone: bool = False) -> AsyncIterator[HostPort]:
    """Serves the pages on a free port."""
    address = HostPort("127.0.0.1", free_ports(1))
    server = AdminServer(fake, probes_alone=probes_alone)
    await server.listen(address)
    try:
        yield address
    finally:
        await server.close()


async def ask(address: HostPort, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type and body of a page."""
    async with aiohttp.ClientSession() as session, session.request(method, f"http://{address}{path}") as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def send(address: HostPort, request: bytes) -> bytes:
    """Everything that is answered to raw bytes until the end of the connection, also if that is a reset."""
    return await asyncio.to_thread(_send, address, request)


def _send(address: HostPort, request: bytes) -> bytes:
    answer = b""
    with socket.create_connection((address.host, address.port), 60) as sock:
        with suppress(ConnectionError):
            sock.sendall(request)
        with suppress(ConnectionError):
            while data := sock.recv(65_536):
                answer += data
    return answer


@pytest.mark.parametrize(
    ("path", "status", "content_type", "body"),
    [
        ("/livez", 200, "application/json", '"live": true'),
        ("/readyz", 200, "application/json", '"ready": true'),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "kordon_workers 1.0\n"),
        ("/status", 200, "application/json", '"state": "running"'),
        ("/status/?pretty=1", 200, "application/json", '"state": "running"'),
        ("/topics", 200, "application/json", '"orders"'),
        ("/topics/orders", 200, "application/json", '"topic": "orders"'),
        ("/topics/%6frders", 200, "application/json", '"topic": "orders"'),
        ("/topics/pay%0D%0Aments", 404, "application/json", '"error": "no managed topic pay\\r\\nments"'),
        ("/nope", 404, "application/json", '"/metrics"'),
        ("/", 404, "application/json", '"/status"'),
    ],
)
async def test_page_answers(path: str, status: int, content_type: str, body: str) -> None:
    """Each page has its status and type; an unknown one names those there are."""
    async with serving(Fake()) as address:
        got = await ask(address, path)
    assert got[:2] == (status, content_type)
    assert body in got[2]


async def test_unready_says_why() -> None:
    """/readyz is 503 with the reasons, while /livez stays 200."""
    fake = Fake()
    fake.reasons = ["upstream: no answer in time"]
    async with serving(fake) as address:
        status, _, body = await ask(address, "/readyz")
        assert (status, "upstream: no answer in time" in body) == (503, True)
        assert (await ask(address, "/livez"))[0] == 200


async def test_probes_alone_tell_nothing_else() -> None:
    """No page names a broker, topic or group; not even that of what is not ready."""
    fake = Fake()
    fake.reasons = ["upstream: 10.0.0.1:9092 does not answer"]
    async with serving(fake, probes_alone=True) as address:
        assert (await ask(address, "/livez"))[0] == 200
        status, _, body = await ask(address, "/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False})
        fake.reasons = []
        assert (await ask(address, "/readyz"))[0] == 200
        for path in ("/metrics", "/status", "/topics", "/topics/orders"):
            status, _, body = await ask(address, path)
            assert (status, json.loads(body)["pages"]) == (404, ["/livez", "/readyz"])


async def test_fault_in_a_page_is_its_own() -> None:
    """A page that fails answers 500 and the others go on."""
    fake = Fake()
    fake.fault = LookupError("broken")
    async with serving(fake) as address:
        status, _, body = await ask(address, "/status")
        assert (status, "broken" in body) == (500, False)
        assert (await ask(address, "/metrics"))[0] == 200


async def test_head_has_no_body() -> None:
    """HEAD answers with the length of the page and without it (RFC 9110 §9.3.2)."""
    async with serving(Fake()) as address:
        answer = await send(address, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 19\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /status HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /status\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),
        (b"GET  HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /" + b"x" * 20_000, b"431"),
    ],
)
async def test_what_is_no_request_is_refused(request_bytes: bytes, status: bytes) -> None:
    """Other methods, TLS, half a line and endless lines are answered with the fitting refusal."""
    async with serving(Fake()) as address:
        assert (await send(address, request_bytes)).startswith(b"HTTP/1.1 " + status)


async def test_head_that_never_ends_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that says nothing more is answered 408 when its time is over."""
    monkeypatch.setattr(admin, "HEAD_SECONDS", 0.05)
    async with serving(Fake()) as address:
        assert (await send(address, b"GET /livez HTT")).startswith(b"HTTP/1.1 408")


async def test_page_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that hangs is answered 504 instead of hanging its reader."""
    monkeypatch.setattr(admin, "ANSWER_SECONDS", 0.05)
    fake = Fake()
    fake.slow.clear()
    async with serving(fake) as address:
        assert (await ask(address, "/metrics"))[0] == 504


async def test_connections_beyond_the_bound_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent connections fill the places they are given, and no more; when they go, pages answer again."""
    monkeypatch.setattr(admin, "CONNECTIONS", 3)
    async with serving(Fake()) as address:
        silent = [await asyncio.open_connection(address.host, address.port) for _ in range(3)]
        assert await send(address, b"GET /livez HTTP/1.1\r\n\r\n") == b""
        for _, writer in silent:
            writer.close()

        async def answers() -> bool:
            return (await send(address, b"GET /livez HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")

        await until("the server has seen that they are closed", answers)


async def test_port_in_use_is_an_error_of_the_system() -> None:
    """Whoever starts the server hears that the port is taken."""
    async with serving(Fake()) as address:
        with pytest.raises(OSError, match="in use"):
            await AdminServer(Fake()).listen(address)


async def test_unix_socket_serves_the_same_pages(tmp_path: Path) -> None:
    """A worker's pages are had through its socket; a socket nobody serves is no answer."""
    server = AdminServer(Fake())
    await server.listen_unix(tmp_path / "admin.sock")
    try:
        assert await fetch_page(tmp_path / "admin.sock", "/metrics") == b"kordon_workers 1.0\n"
    finally:
        await server.close()
    assert await fetch_page(tmp_path / "nobody.sock", "/metrics") is None
