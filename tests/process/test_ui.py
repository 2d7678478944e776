"""The page for people on the admin port, as a real browser shows it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kordon.proxy.config.host_port import HostPort
from kordon.proxy.process.admin import AdminServer
from kordon.testing.pages import browser
from kordon.testing.ports import free_ports
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(
        browser.PROGRAM is None, reason="there is no Chromium here: install it (Debian: apt install chromium)"
    ),
]
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def brief(partitions: int, epoch: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "initial_partition_count": 3,
        "undeleted_partition_count": partitions,
        "virtual_partitions": 12,
        "layout_epoch": epoch,
        "ordered_delivery": True,
        "held": [],
    }


class Shown:
    """A proxy whose topic is grown by the test."""

    def __init__(self) -> None:
        self.orders = brief(3, 0)
        self.findings: list[dict[str, Any]] = []

    async def unready(self) -> list[str]:
        return []

    async def notes(self) -> list[str]:
        return []

    async def metrics(self) -> bytes:
        lag = 'kordon_managed_lag_records{topic="orders",group="billing",partition="%d"} %d\n'
        holds = (
            'kordon_managed_fence_seconds_count{phase="hold"} 2\nkordon_managed_fence_seconds_sum{phase="hold"} 0.05\n'
        )
        return ((lag % (3, 1200)) + (lag % (7, 34)) + holds).encode()

    async def status(self) -> dict[str, Any]:
        nodes = [{"node_id": 1, "up": True}, {"node_id": 2, "up": False}]
        return {
            "version": "1.2.3",
            "uptime_seconds": 600,
            "upstream": {"nodes": nodes, "cluster_id": "abc"},
            "connections": {"open": 5},
            "requests": {"in_flight": 1},
            "unready": [],
            "notes": [],
            "ordering": {"serves": True, "leads": True, "lease_seconds_left": 18.9},
        }

    async def topics(self) -> dict[str, Any]:
        control = {"members": [{"host": "a"}, {"host": "b"}]}
        return {"enabled": True, "control": control, "topics": [self.orders], "findings": self.findings}

    async def topic(self, name: str) -> dict[str, Any] | None:
        count = self.orders["undeleted_partition_count"]
        rows = [
            {"partition": q, "state": "written", "virtual_partitions": [v for v in range(12) if v % count == q]}
            for q in range(count)
        ]
        epochs = [{"undeleted_partition_count": each} for each in ([3] if count == 3 else [3, count])]
        extra = {"partitions": rows, "epochs": epochs, "held_for_groups": [], "bypassed_batches": 0}
        return {**self.orders, **extra} if name == "orders" else None


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def url(shown: Shown) -> Iterator[str]:
    """The page, served by a proxy's own admin server."""
    loop, port = asyncio.new_event_loop(), free_ports(1)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = AdminServer(shown)
    asyncio.run_coroutine_threadsafe(server.listen(HostPort("127.0.0.1", port)), loop).result(30)
    try:
        yield f"http://127.0.0.1:{port}/ui"
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[browser.Page]:
    with browser.browser(tmp_path) as started:
        yield started


def text(page: browser.Page) -> str:
    found: str = page.value("document.body.innerText")
    return found


def test_the_page_shows_what_is_managed_and_follows_a_change(shown: Shown, url: str, page: browser.Page) -> None:
    """State, partitions, lag; when the topic grows, the page says so by itself, and asks nobody but its server."""
    page.load(url)
    wait_until("the topic is shown", lambda: "steady" in text(page))
    first = text(page)
    assert "3 of 12" in first
    assert "1 of 2" in first
    assert "The brokers had 3." in first
    assert "1,200 on 3" in first
    assert "1,234" in first
    assert "25 ms each on average" in first
    shown.orders = brief(6, 1)
    wait_until("the change is seen", lambda: "orders: 3 → 6 partitions" in text(page))
    assert "The brokers had 3 → 6." in text(page)
    assert page.troubles == []
    assert {each.rsplit("/", 1)[0] for each in page.requests if not each.startswith("data:")} <= {
        url.removesuffix("/ui"),
        url.replace("/ui", "/topics"),
    }


def test_words_of_others_are_text(shown: Shown, url: str, page: browser.Page) -> None:
    """A finding and a group's name run nothing."""
    shown.findings = [{"topic": "orders", "kind": "records_lost", "text": HOSTILE, "found": "now"}]
    shown.orders = {**brief(3, 0), "held": [{"partitions": [0], "virtual_partitions": [0], "why": HOSTILE}]}
    page.load(url)
    wait_until("the finding is shown", lambda: "records_lost" in text(page))
    assert text(page).count(HOSTILE) >= 2
    assert page.value("document.images.length") == 0
    assert page.value("document.title") == "Kordon"


def test_a_proxy_that_goes_away_is_seen(url: str, page: browser.Page) -> None:
    """What is on the page stays, with its time; the state says that nobody answers."""
    page.load(url)
    wait_until("the topic is shown", lambda: "steady" in text(page))
    page.value("window.fetch = () => Promise.reject(new Error('gone'))")
    wait_until("the silence is shown", lambda: "no answer for" in text(page))
    assert "orders" in text(page)
