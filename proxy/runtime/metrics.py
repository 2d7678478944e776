"""What Prometheus gets from a worker when it scrapes `/metrics`, and the families of the worker itself.

Other rooms have tables of their own, which `Metrics` gets as sources. Several workers are told apart by a label
`worker`, added by their supervisor (`kordon.proxy.process.merge`).
"""

from __future__ import annotations

import platform
from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

import kordon
from kordon.proxy.core.causes import LIMITS, ORDINARY, CloseCause
from kordon.proxy.core.tally import Histogram, Tally
from kordon.proxy.core.verdicts import APIS
from kordon.proxy.runtime.families import Collected, Family, FamilySource, counter, gauge, histogram
from kordon.proxy.runtime.tasks import FAILURES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LAG_INTERVAL_SECONDS: Final = 0.5
"""How often the event loop's lag is measured; twice a second is seen in no profile."""
RELOAD_OUTCOMES: Final = ("applied", "partly", "refused")
"""applied: all of it; partly: some options need a restart; refused: mistakes, the old one stays."""


class LoopLag:
    """Measures how late the event loop is: what the slowest step between two events costs everybody."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        """Lateness of a timer that is due every `LAG_INTERVAL_SECONDS`."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to measure; again after `stop` is fine."""
        self._schedule(loop)

    def stop(self) -> None:
        """Ends the measuring, so that nothing is left in the loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + LAG_INTERVAL_SECONDS
        self._timer = loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.seconds.observe(max(0.0, loop.time() - due))
        self._schedule(loop)


class Metrics(Collector):
    """The metrics of one worker.

    Args:
        tally: The worker's counts. The caller owns them, and they are only read here.
        others: Families that are read from something else.
    """

    def __init__(self, tally: Tally, *others: Collected) -> None:
        self.tally = tally
        self.loop_lag = LoopLag()
        self.ready = False
        """Whether clients can be served; kept up to date by the proxy."""
        self.upstream_up: dict[int, bool] = {}
        """Whether a broker can be reached, by node id; kept up to date by the proxy."""
        self.certificate_expiry: dict[str, float] = {}
        """Seconds since 1970 by side, "downstream" or "upstream"; kept up to date at start and reload."""
        self.reloads: Counter[str] = Counter(dict.fromkeys(RELOAD_OUTCOMES, 0))
        """Reloads by outcome."""
        self._sources = (FamilySource(WORKER, lambda: self), *others)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The families in Prometheus' text format, as they stand now (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yields every family of every source, in order; called by prometheus_client."""
        for source in self._sources:
            yield from source.collect()


def _always(labels: Iterable[str], counts: Counter[str]) -> dict[str, float]:
    """Adds labels that are 0 before they first happen, so that rates see their first one."""
    return {label: counts[label] for label in (*labels, *counts)}


def _by_side(downstream: float, upstream: float) -> dict[str, float]:
    return {"downstream": downstream, "upstream": upstream}


def _by_leg(tally: Tally) -> dict[str, Histogram]:
    return {"request": tally.request_seconds, "broker": tally.broker_seconds, "response": tally.response_seconds}


def _responses(tally: Tally) -> dict[str, float]:
    return {api.name: n for api, n in zip(APIS, tally.responses, strict=True) if n}


CAUSES: Final = frozenset(cause.value for cause in CloseCause)
ERROR_CAUSES: Final = frozenset(cause.value for cause in set(CloseCause) - ORDINARY)

# fmt: off
WORKER: Final[tuple[Family[Metrics], ...]] = (
    gauge("kordon_connections", lambda m: m.tally.connections, "Open client connections.", "listener"),
    counter("kordon_connections_accepted_total", lambda m: m.tally.accepted, "Connections that clients opened."),
    counter("kordon_connections_closed_total", lambda m: _always(CAUSES, m.tally.closed),
            "Closed client connections by cause.", "cause"),
    counter("kordon_requests_total", lambda m: m.tally.count_by_verdict(),
            "Requests by what was done to them.", "api", "verdict"),
    counter("kordon_responses_total", lambda m: _responses(m.tally), "Responses handed to clients.", "api"),
    counter("kordon_received_bytes_total",
            lambda m: _by_side(m.tally.downstream.received_bytes, m.tally.upstream.received_bytes),
            "Bytes read from clients or brokers.", "side"),
    counter("kordon_sent_bytes_total",
            lambda m: _by_side(m.tally.downstream.sent_bytes, m.tally.upstream.sent_bytes),
            "Bytes written to clients or brokers.", "side"),
    gauge("kordon_requests_in_flight", lambda m: m.tally.in_flight,
          "Requests that wait for their response, within the last second."),
    histogram("kordon_leg_seconds", lambda m: _by_leg(m.tally), "Time on each leg of a request's way.", "leg"),
    counter("kordon_errors_total", lambda m: _always(ERROR_CAUSES, m.tally.errors),
            "Connections that ended because something went wrong, by cause.", "cause"),
    counter("kordon_limit_hits_total", lambda m: _always(LIMITS, m.tally.limit_hits),
            "How often a limit took effect.", "limit"),
    gauge("kordon_ready", lambda m: m.ready, "1 when clients can be served, else 0: what /readyz says."),
    gauge("kordon_upstream_up", lambda m: {str(node_id): up for node_id, up in m.upstream_up.items()},
          "1 when the broker can be reached, else 0.", "node_id"),
    counter("kordon_upstream_connect_failures_total", lambda m: m.tally.upstream_connect_failures,
            "Connections to brokers that failed."),
    gauge("kordon_held_bytes", lambda m: m.tally.held_bytes, "Bytes held in memory for all connections."),
    counter("kordon_turns_total", lambda m: m.tally.turns,
            "Turns of a few milliseconds that large requests and answers have taken while others were served."),
    histogram("kordon_event_loop_lag_seconds", lambda m: m.loop_lag.seconds,
              "How late the event loop ran what was due."),
    counter("kordon_reloads_total", lambda m: m.reloads, "Reloads of configuration and certificates.", "outcome"),
    gauge("kordon_certificate_expiry_timestamp_seconds", lambda m: m.certificate_expiry,
          "When the certificate shown to that side expires, in seconds since 1970.", "side"),
    counter("kordon_task_failures_total", lambda _: FAILURES.counts,
            "Failures of background tasks, which were then started again.", "task"),
    gauge("kordon_build_info", lambda _: {(kordon.__version__, platform.python_version()): 1},
          "Always 1; the labels say what runs.", "version", "python"),
)
# fmt: on
