"""What Prometheus gets from a running audit; `families.py` says what there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics import MetricWrapperBase

from kordon.spark_jobs.families import FAMILIES
from kordon.spark_jobs.judging.rule import LATE

_KINDS: Final[Mapping[str, Callable[..., MetricWrapperBase]]] = {"counter": Counter, "gauge": Gauge}
_KINDS_COUNTED: Final = {"bypass": "kordon_audit_bypasses_total", "gap": "kordon_audit_gaps_total"}
"""By kind of finding, the metric of its own."""
_SECONDS: Final = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)


class Counted(NamedTuple):
    """How many findings of a kind a micro-batch has, or how much came too late for a rule."""

    name: str
    """The name of the rule."""
    verdict: str
    kind: str | None
    amount: int


class Behind(NamedTuple):
    """How far an audit is behind."""

    decisions: int
    seconds: float
    """Age of the oldest of them."""
    bytes: int
    """The bytes of topic data, about."""


class AuditMetrics:
    """The metrics of one audit.

    Args:
        rules: The names of the rules by number. Each rule has its series from the start.
    """

    def __init__(self, rules: Mapping[int, str] | None = None) -> None:
        self.registry = CollectorRegistry()
        self._metrics: dict[str, Any] = {
            family.name: Histogram(family.name, family.help, registry=self.registry, buckets=_SECONDS)
            if family.kind == "histogram"
            else _KINDS[family.kind](family.name, family.help, family.labels, registry=self.registry)
            for family in FAMILIES.values()
        }
        self._counted: dict[str, int] = {}
        self._finished: Callable[[], None] = lambda: None
        for name in (rules or {}).values():
            self._metrics["kordon_audit_late_total"].labels(name)
            for verdict in ("fail", "unknown"):
                self._metrics["kordon_audit_findings_total"].labels(name, verdict)
        for place in ("topic", "table"):
            self._metrics["kordon_audit_undelivered_findings"].labels(place)

    def serve(self, host: str, port: int) -> int:
        """Answers scrapes from now on, in a thread.

        Returns:
            The port, which the system chose if 0 was asked for.

        Raises:
            OSError: The address cannot be used.
        """
        server, thread = start_http_server(port, host, registry=self.registry)

        def finish() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._finished = finish
        return int(server.server_port)

    def close(self) -> None:
        """Stops answering scrapes."""
        self._finished()
        self._finished = lambda: None

    def resume(self, totals: Mapping[str, int]) -> None:
        """Says what was counted before this process began, and is not counted again."""
        self._counted = dict(totals)

    def count_batch(self, totals: Mapping[str, int], seconds: float) -> None:
        """Counts a micro-batch."""
        names = {"decisions": "kordon_audit_decisions_total", "bytes": "kordon_audit_bytes_total"}
        for total, name in names.items():
            self._metrics[name].inc(max(0, totals[total] - self._counted.get(total, 0)))
        self._counted = dict(totals)
        self._metrics["kordon_audit_batch_seconds"].observe(seconds)
        self._metrics["kordon_audit_last_batch_timestamp_seconds"].set(time.time())

    def count_findings(self, counted: Iterable[Counted]) -> None:
        """Counts what a micro-batch has found, once it is complete."""
        for name, verdict, kind, amount in counted:
            if verdict == LATE:
                self._metrics["kordon_audit_late_total"].labels(name).inc(amount)
                continue
            self._metrics["kordon_audit_findings_total"].labels(name, verdict).inc(amount)
            if kind in _KINDS_COUNTED:
                self._metrics[_KINDS_COUNTED[kind]].inc(amount)

    def undelivered(self, place: str, count: int) -> None:
        """Says how many findings wait to be written to the topic or the table."""
        self._metrics["kordon_audit_undelivered_findings"].labels(place).set(count)

    def lag(self, behind: Behind) -> None:
        """Says how far the audit is behind."""
        self._metrics["kordon_audit_lag_decisions"].set(behind.decisions)
        self._metrics["kordon_audit_lag_seconds"].set(behind.seconds)
        self._metrics["kordon_audit_lag_bytes"].set(behind.bytes)
