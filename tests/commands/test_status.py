"""`kordon status`: what a person sees of /status, of one proxy and of several workers."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from rich.console import Console

from kordon.proxy.commands.admin_client import StatusUnavailable
from kordon.proxy.commands.status import fetch_status, print_status
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.process.merge import best_view, merge_status


def a_status(worker: int = 0, **changes: Any) -> dict[str, Any]:
    """The status of a proxy in front of two brokers, one of them down."""
    status = {
        "version": "1.2.3",
        "started_at": "2026-11-21T05:00:00+00:00",
        "uptime_seconds": 7265.0,
        "worker": worker,
        "state": "running",
        "upstream": {
            "bootstrap": ["kafka:9092"],
            "cluster_id": "4L6g3nShT-eMCtK--X86sw",
            "nodes": [
                {"node_id": 1, "address": "b1:9092", "advertised": "k:19094", "port": 19094, "up": True, "error": None},
                {"node_id": 2, "address": "b2:9092", "advertised": "k:19095", "port": 19095, "up": False,
                 "error": "connection refused"},
            ],
            "last_refresh_seconds_ago": 12.3,
        },
        "listeners": [
            {"address": "0.0.0.0:19092", "role": "bootstrap", "connections": 3},
            {"address": "0.0.0.0:19094", "role": "1", "connections": 1200},
        ],
        "connections": {"open": 1203, "accepted": 5000, "closed": {"client_closed": 3790, "not_kafka": 7}},
        "requests": {"total": 72_650, "in_flight": 4},
        "bytes": {"received_downstream": 999, "sent_downstream": 1_500_000},
        "limits": {"hits": {"idle_ms": 0, "frame_bytes": 9}},
        "ordering": an_ordering(),
        "unready": [],
    }  # fmt: skip
    return status | changes


def an_ordering(**changes: Any) -> dict[str, Any]:
    """The section of a worker that serves two managed topics and is not the controller."""
    ordering = {
        "enabled": True,
        "topics": 2,
        "serves": True,
        "why_not": None,
        "generation": 7,
        "leads": False,
        "lease_seconds_left": 17.2,
        "layouts_position": 41,
        "fences": 0,
        "procedures": 0,
    }
    return ordering | changes


def shown(status: dict[str, Any]) -> str:
    """What is printed, on a terminal wide enough."""
    console = Console(file=io.StringIO(), width=120)
    print_status(status, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(" ".join(line.split()) for line in console.file.getvalue().splitlines())


@pytest.mark.parametrize(
    "line",
    [
        "kordon 1.2.3 running ready up 2h 1m since 2026-11-21T05:00:00+00:00",
        "Brokers of 4L6g3nShT-eMCtK--X86sw (asked 12s ago)",
        "1 b1:9092 k:19094 up",
        "2 b2:9092 k:19095 down connection refused",
        "0.0.0.0:19094 1 1,200",
        "connections open 1,203",
        "closed: not_kafka 7",
        "requests 72,650 (10.0/s)",
        "requests in flight 4",
        "bytes received downstream 999 B",
        "bytes sent downstream 1.5 MB",
        "limit hit: frame_bytes 9",
        "Managed topics 2, served; generation 7, lease 17.2 s",
    ],
)
def test_status_shows(line: str) -> None:
    """Each part of the status is in its table, with units and thousands for people."""
    assert line in shown(a_status())


def test_limits_never_hit_are_left_out() -> None:
    """What needs no attention takes no line."""
    assert "idle_ms" not in shown(a_status())


def test_reasons_stand_at_the_top() -> None:
    """A proxy that is not ready says so, and why, before anything else."""
    lines = shown(a_status(state="draining", unready=["the proxy is draining"])).splitlines()
    assert lines[0].startswith("kordon 1.2.3 draining not ready up")
    assert lines[1] == "- the proxy is draining"


def test_unknown_brokers_show_the_bootstrap() -> None:
    """Before the cluster has answered, what is known is where it is looked for."""
    upstream = {"bootstrap": ["a:1", "b:2"], "cluster_id": None, "nodes": [], "last_refresh_seconds_ago": None}
    text = shown(a_status(upstream=upstream))
    assert "Brokers: none known yet" in text
    assert "bootstrap a:1, b:2" in text


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"leads": True, "fences": 1, "procedures": 1},
            "2, served; generation 7, the controller, lease 17.2 s; 1 fence",
        ),
        (
            {"serves": False, "why_not": "the lease has ended", "lease_seconds_left": 0.0},
            "2, not served: the lease has",
        ),
    ],
)
def test_managed_topics_say_what_needs_a_look(changes: dict[str, Any], line: str) -> None:
    """A change under way, or a lease that has ended, is in the line of the managed topics."""
    assert f"Managed topics {line}" in shown(a_status(ordering=an_ordering(**changes)))


@pytest.mark.parametrize("changes", [{"enabled": False}, {"generation": None}])
def test_no_line_where_nothing_is_managed(changes: dict[str, Any]) -> None:
    """Whoever has no managed topics does not read about them."""
    assert "Managed topics" not in shown(a_status(ordering=an_ordering(**changes)))


# Several workers


def test_workers_are_summed() -> None:
    """Counts of all workers are added, listeners by address, causes by name; reasons say whose they are."""
    other = a_status(1, state="draining", unready=["the proxy is draining"])
    other["connections"] = {"open": 1, "accepted": 2, "closed": {"not_kafka": 1, "idle": 5}}
    merged = merge_status([a_status(), other])
    assert merged["connections"] == {
        "open": 1204,
        "accepted": 5002,
        "closed": {"client_closed": 3790, "not_kafka": 8, "idle": 5},
    }
    assert merged["requests"] == {"total": 145_300, "in_flight": 8}
    assert [listener["connections"] for listener in merged["listeners"]] == [6, 2400]
    assert (merged["state"], merged["unready"]) == ("draining", ["worker 1: the proxy is draining"])


def test_managed_topics_are_as_served_as_the_worst_worker_serves_them() -> None:
    """Counts are not added, all workers know the same topics; what fails anywhere is told."""
    waits = an_ordering(serves=False, why_not="the lease has ended", lease_seconds_left=0.0, layouts_position=40)
    leads = an_ordering(leads=True, procedures=1, fences=1)
    merged = merge_status([a_status(ordering=each) for each in (leads, waits)])["ordering"]
    worst = {"serves": False, "why_not": "the lease has ended", "lease_seconds_left": 0.0, "layouts_position": 40}
    assert merged == an_ordering(leads=True, procedures=1, fences=1, **worst)
    assert merge_status([a_status(ordering={"enabled": False})])["ordering"] == {"enabled": False}


def test_the_controller_s_view_is_the_best() -> None:
    """Of several workers' pages the one that knows the procedures is shown, then one that serves."""
    knows = {"control": {"procedures": [], "serves": False, "layouts_position": 1}}
    serves = {"control": {"procedures": None, "serves": True, "layouts_position": 1}}
    behind = {"control": {"procedures": None, "serves": False, "layouts_position": 9}}
    failed = {"error": "no managed topic x"}
    assert best_view([behind, knows, serves, failed]) is knows
    assert best_view([behind, serves, failed]) is serves
    assert best_view([failed]) is None


def test_workers_have_a_table() -> None:
    """Each worker has a row, one that does not run, too."""
    rows = [
        {"worker": 0, "pid": 4711, "state": "running", "connections": 1203, "restarts": 0},
        {"worker": 1, "pid": None, "state": "not running", "connections": 0, "restarts": 2},
    ]
    text = shown(merge_status([a_status()]) | {"workers": rows})
    assert "0 4711 running 1,203 0" in text
    assert "1 - not running 0 2" in text


def test_no_worker_is_a_status_as_well() -> None:
    """While no worker runs, the tables still draw, and say so."""
    assert "no worker is running" in shown(merge_status([]) | {"workers": []})


# Fetching


@contextmanager
def serving(status: int, body: bytes) -> Iterator[HostPort]:
    """An HTTP server that always answers the same."""

    class Always(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Always) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield HostPort("127.0.0.1", server.server_port)
        finally:
            server.shutdown()
            thread.join()


def test_status_is_fetched() -> None:
    """The object arrives as it is."""
    with serving(200, b'{"state": "running"}') as address:
        assert fetch_status(address) == {"state": "running"}


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (404, b"{}"), (500, b'{"state": "x"}'), (200, b"[]"), (200, b"\xff")]
)
def test_somebody_else_is_recognised(status: int, body: bytes) -> None:
    """What answers but is no Kordon is told apart from nobody."""
    with serving(status, body) as address, pytest.raises(StatusUnavailable, match="check --admin"):
        fetch_status(address)


def test_nobody_there_is_told_with_the_cure() -> None:
    """When nobody listens, the message says what to look at."""
    with serving(200, b"") as address:
        gone = address
    with pytest.raises(StatusUnavailable, match=f"connection refused; is it running, with --admin {gone}"):
        fetch_status(gone)
