"""What a worker counts: plain integers that the hot path raises, and that `runtime/metrics.py` reads for a scrape.

prometheus_client's own counters cost about a microsecond and a lock each; a frame that passes is counted eight times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from kordon.proxy.core.verdicts import APIS, Verdict

SECONDS_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds in seconds: 0.1 ms is a frame that passes at once, 30 s a client's request timeout."""


class Histogram:
    """Counts observations by bucket, as Prometheus' histograms do, with one bisection and two additions."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Observations by bucket, not cumulated; the last is what exceeds every bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one observation, in the unit of the bounds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Flow:
    """Bytes that came from clients, or from brokers, and that went there."""

    __slots__ = ("received_bytes", "sent_bytes")

    def __init__(self) -> None:
        self.received_bytes = self.sent_bytes = 0


class Tally:
    """The counters of one worker; every attribute only rises but those that say "now"."""

    def __init__(self) -> None:
        self.accepted = 0
        """Connections that clients opened, refused ones included."""
        self.closed: Counter[str] = Counter()
        """Closed connections by cause."""
        self.connections: Counter[str] = Counter()
        """Open connections now, by listener ("bootstrap", or the node id)."""
        self.requests = [0] * len(APIS)
        """Requests that were forwarded or answered, by place in `APIS`."""
        self.answered = [0] * len(APIS)
        """Those of `requests` that were answered here, by place in `APIS`."""
        self.refused: Counter[str] = Counter()
        """Requests that ended their connection, by api name."""
        self.responses = [0] * len(APIS)
        """Responses handed to clients, by place in `APIS`."""
        self.in_flight = 0
        """Requests without their response, within the last second."""
        self.downstream = Flow()
        self.upstream = Flow()
        self.request_seconds = Histogram()
        """From a request's first byte here to its last one handed to the broker's socket."""
        self.broker_seconds = Histogram()
        """From there to the first byte of the response."""
        self.response_seconds = Histogram()
        """From a response's first byte here to its last one handed to the client's socket."""
        self.errors: Counter[str] = Counter()
        """What went wrong, by cause: close causes that are no ordinary day, and what ended no connection."""
        self.limit_hits: Counter[str] = Counter()
        """How often a limit took effect, by its name in the configuration."""
        self.upstream_connect_failures = 0
        self.turns = 0
        """Turns that large requests and answers have taken, a few milliseconds each."""
        self.held_bytes = 0
        """Bytes kept in memory now: unsent chunks and frames that wait to be whole."""

    def count_by_verdict(self) -> dict[tuple[str, str], int]:
        """Requests by (api name, verdict), without those that never came."""
        counts = {
            (api.name, verdict.value): count
            for place, api in enumerate(APIS)
            for verdict, count in (
                (api.verdict, self.requests[place] - self.answered[place]),
                (Verdict.ANSWER, self.answered[place]),
            )
            if count
        }
        return counts | {(name, Verdict.REFUSE.value): count for name, count in self.refused.items()}
