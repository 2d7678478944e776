"""What Prometheus gets, judged by prometheus_client's own parser."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kordon.proxy.config.config import Config, Limits
from kordon.proxy.core.causes import LIMITS, CloseCause
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import APIS
from kordon.proxy.process.managed_families import FAMILIES
from kordon.proxy.process.merge import SUPERVISOR, merge_metrics
from kordon.proxy.process.server import Proxy
from kordon.proxy.runtime.families import Family, FamilySource, counter, gauge
from kordon.proxy.runtime.metrics import LAG_INTERVAL_SECONDS, LoopLag, Metrics
from kordon.spark_jobs.families import FAMILIES as AUDIT_FAMILIES

if TYPE_CHECKING:
    from collections.abc import Callable

ANYWHERE = {"upstream": {"bootstrap": ["127.0.0.1:9"]}, "listen": {"address": "127.0.0.1:9"}}
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def samples(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Values by name and labels, as a scraper reads them."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def sample(page: bytes, name: str, **labels: str) -> float:
    """One value; KeyError if it is not there."""
    return samples(page)[name, frozenset(labels.items())]


def some_tally() -> Tally:
    """A tally in which every counter has a value of its own."""
    tally = Tally()
    tally.accepted, tally.in_flight, tally.held_bytes, tally.upstream_connect_failures = 11, 12, 13, 14
    tally.closed["idle"] = 15
    tally.connections["bootstrap"] = 16
    tally.requests[0], tally.answered[0], tally.responses[0] = 20, 3, 18
    tally.refused["LeaderAndIsr"] = 19
    tally.downstream.received_bytes, tally.upstream.received_bytes = 21, 22
    tally.downstream.sent_bytes, tally.upstream.sent_bytes = 23, 24
    tally.errors["not_kafka"], tally.limit_hits["idle_ms"] = 25, 26
    for seconds in (0.00005, 0.0001, 0.3, 99):
        tally.request_seconds.observe(seconds)
    return tally


async def test_a_worker_that_knows_nothing_shows_every_family() -> None:
    """Each value can be read from the start, and one without labels is there as nought."""
    page = samples(Proxy(Config.model_validate(ANYWHERE)).metrics.render())
    shown = {name for name, _ in page}
    assert {each.name for each in FAMILIES.values() if not each.labels and each.kind != "histogram"} <= shown
    assert page["kordon_individual_commits_records_total", frozenset({("kind", "read")})] == 0


async def test_without_managed_topics_their_numbers_are_nought() -> None:
    """An alert on one of them finds it."""
    page = samples(Proxy(Config.model_validate(ANYWHERE | {"ordering": {"enabled": False}})).metrics.render())
    assert page["kordon_managed_serving", frozenset()] == 0


def test_a_scrape_looks_once_at_what_many_families_are_read_from() -> None:
    """With thousands of topics what is costly is asked once, not once for each metric."""
    looks: list[None] = []

    def look() -> dict[str, float]:
        looks.append(None)
        return {"orders": 9}

    families: list[Family[dict[str, float]]] = [
        gauge("kordon_one", lambda m: m, "One.", "topic"),
        counter("kordon_two_total", lambda m: {("orders", "hold"): m["orders"]}, "Two.", "topic", "stage"),
    ]
    page = Metrics(Tally(), FamilySource(families, look)).render()
    assert len(looks) == 1
    assert sample(page, "kordon_one", topic="orders") == 9
    assert sample(page, "kordon_two_total", topic="orders", stage="hold") == 9


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("kordon_connections", {"listener": "bootstrap"}, 16),
        ("kordon_connections_accepted_total", {}, 11),
        ("kordon_connections_closed_total", {"cause": "idle"}, 15),
        ("kordon_connections_closed_total", {"cause": "drained"}, 0),
        ("kordon_requests_total", {"api": APIS[0].name, "verdict": APIS[0].verdict.value}, 17),
        ("kordon_requests_total", {"api": APIS[0].name, "verdict": "answer"}, 3),
        ("kordon_requests_total", {"api": "LeaderAndIsr", "verdict": "refuse"}, 19),
        ("kordon_responses_total", {"api": APIS[0].name}, 18),
        ("kordon_received_bytes_total", {"side": "downstream"}, 21),
        ("kordon_received_bytes_total", {"side": "upstream"}, 22),
        ("kordon_sent_bytes_total", {"side": "downstream"}, 23),
        ("kordon_sent_bytes_total", {"side": "upstream"}, 24),
        ("kordon_requests_in_flight", {}, 12),
        ("kordon_leg_seconds_count", {"leg": "request"}, 4),
        ("kordon_leg_seconds_bucket", {"leg": "request", "le": "0.0001"}, 2),
        ("kordon_leg_seconds_bucket", {"leg": "request", "le": "0.25"}, 2),
        ("kordon_leg_seconds_bucket", {"leg": "request", "le": "0.5"}, 3),
        ("kordon_leg_seconds_bucket", {"leg": "request", "le": "30.0"}, 3),
        ("kordon_leg_seconds_bucket", {"leg": "request", "le": "+Inf"}, 4),
        ("kordon_leg_seconds_sum", {"leg": "request"}, 99.30015),
        ("kordon_leg_seconds_count", {"leg": "response"}, 0),
        ("kordon_errors_total", {"cause": "not_kafka"}, 25),
        ("kordon_limit_hits_total", {"limit": "idle_ms"}, 26),
        ("kordon_limit_hits_total", {"limit": "connections"}, 0),
        ("kordon_ready", {}, 1),
        ("kordon_upstream_up", {"node_id": "1"}, 1),
        ("kordon_upstream_up", {"node_id": "2"}, 0),
        ("kordon_upstream_connect_failures_total", {}, 14),
        ("kordon_held_bytes", {}, 13),
        ("kordon_event_loop_lag_seconds_count", {}, 1),
        ("kordon_reloads_total", {"outcome": "partly"}, 27),
        ("kordon_reloads_total", {"outcome": "applied"}, 0),
        ("kordon_certificate_expiry_timestamp_seconds", {"side": "upstream"}, 28),
    ],
)
def test_what_was_counted_is_exported(name: str, labels: dict[str, str], value: float) -> None:
    """Each counter of the tally, and what the proxy notes beside it, arrives under its documented name."""
    metrics = Metrics(some_tally())
    metrics.ready = True
    metrics.upstream_up.update({1: True, 2: False})
    metrics.loop_lag.seconds.observe(0.01)
    metrics.reloads["partly"] = 27
    metrics.certificate_expiry["upstream"] = 28
    assert sample(metrics.render(), name, **labels) == pytest.approx(value)


def test_process_metrics_come_with_them() -> None:
    """Memory and processor time are there under Prometheus' usual names."""
    assert sample(Metrics(Tally()).render(), "process_resident_memory_bytes") > 1_000_000


def test_limits_that_are_counted_are_options() -> None:
    """Each label of the limit metric is the name of an option, so that a reader finds it."""
    assert set(Limits.model_fields) >= LIMITS


async def test_the_status_page_tells_of_the_limits_that_the_metric_does() -> None:
    """Whoever looks for a limit that took effect finds it in both."""
    proxy = Proxy(Config.model_validate(ANYWHERE | {"ordering": {"enabled": False}}))
    proxy.metrics.tally.limit_hits["requests_in_flight"] = 3
    hits = proxy.status()["limits"]["hits"]
    assert hits.keys() == LIMITS
    assert hits["requests_in_flight"] == 3


def test_every_cause_and_limit_is_there_before_it_happens() -> None:
    """A rate over the first occurrence needs the zero before it."""
    page = samples(Metrics(Tally()).render())
    closed = {labels for name, labels in page if name == "kordon_connections_closed_total"}
    assert closed == {frozenset({("cause", cause.value)}) for cause in CloseCause}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
def test_page_is_to_prometheus_taste() -> None:
    """Prometheus' own linter has nothing to say about names, types and help texts, of one worker or of two."""
    page = Metrics(some_tally()).render()
    for text in (page, merge_metrics({0: page, 1: page}, {0: 1, 1: 0})):
        lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (lint.returncode, lint.stderr) == (0, b"")


# Several workers


def test_workers_are_told_apart_by_a_label() -> None:
    """The merged page holds each worker's series once, with its number, and the supervisor's own."""
    pages = {number: Metrics(some_tally()).render() for number in (0, 1)}
    page = merge_metrics(pages, {0: 0, 1: 3, 2: 5})
    assert sample(page, "kordon_connections_accepted_total", worker="0") == 11
    assert sample(page, "kordon_leg_seconds_bucket", worker="1", leg="request", le="+Inf") == 4
    assert sample(page, "kordon_workers") == 2
    assert sample(page, "kordon_worker_restarts_total", worker="1") == 3
    assert page.count(b"# TYPE kordon_requests_total counter") == 1
    assert all("worker" in dict(labels) for name, labels in samples(page) if name != "kordon_workers")


def test_merged_page_without_workers_is_a_page() -> None:
    """While no worker runs, the supervisor still answers the scraper."""
    assert sample(merge_metrics({}, {0: 1}), "kordon_workers") == 0


# Event loop


class FakeLoop:
    """A loop whose clock stands still until told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., None], *arguments: object) -> FakeTimer:
        self.timers.append((when, callback, arguments))
        return FakeTimer(self)

    def run_next(self, at: float) -> None:
        """Runs what is due, at a time that may be too late."""
        self.now = at
        _, callback, arguments = self.timers.pop(0)
        callback(*arguments)


class FakeTimer:
    """What `call_at` gives back."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop

    def cancel(self) -> None:
        self.loop.timers.clear()


def test_loop_lag_is_how_late_a_timer_runs() -> None:
    """A timer 40 ms late is observed as 40 ms, the next one is due an interval after that."""
    loop, lag = FakeLoop(), LoopLag()
    lag.start(loop)  # type: ignore[arg-type]
    loop.run_next(100.0 + LAG_INTERVAL_SECONDS + 0.04)
    assert lag.seconds.total == pytest.approx(0.04)
    assert loop.timers[0][0] == pytest.approx(100.04 + 2 * LAG_INTERVAL_SECONDS)
    lag.stop()
    assert not loop.timers


async def test_loop_lag_leaves_nothing_behind() -> None:
    """Started and stopped, also twice, it owns no timer."""
    lag = LoopLag()
    for _ in range(2):
        lag.start(asyncio.get_running_loop())
        lag.stop()
    lag.stop()


# Documentation


def documented() -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Rows of the tables of docs/metrics.md by metric."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in DOCS.read_text().splitlines()
            if line.startswith("| `kordon_")]  # fmt: skip
    return {
        name.strip("`"): (kind, tuple(label.strip(" `") for label in labels.split(",") if label), text)
        for name, kind, labels, text in rows
    }


def test_documented_metrics_are_those_there_are() -> None:
    """Name, type, labels and meaning of every metric stand in the manual, and no others."""
    proxy = {each.name: (each.kind, each.labels, each.help) for each in (*FAMILIES.values(), *SUPERVISOR)}
    auditor = {each.name: (each.kind, each.labels, each.help) for each in AUDIT_FAMILIES.values()}
    assert documented() == proxy | auditor


@pytest.mark.parametrize("cause", CloseCause, ids=lambda cause: cause.value)
def test_every_close_cause_is_explained(cause: CloseCause) -> None:
    """The manual says of each cause what it means."""
    assert f"| `{cause.value}` | " in DOCS.read_text()


async def test_exported_families_have_their_documented_type() -> None:
    """What is rendered has the types of the table, in its order."""
    page = Proxy(Config.model_validate(ANYWHERE)).metrics.render()
    types = [line.split()[2:] for line in page.decode().splitlines() if line.startswith("# TYPE")]
    assert [row for row in types if row[0].startswith("kordon_")] == [[f.name, f.kind] for f in FAMILIES.values()]
