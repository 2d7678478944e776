"""What Prometheus gets: the families of `/metrics`, made from a worker's tally when it is scraped.

`FAMILIES` is the one table of names, types, labels and meanings; the collector, `docs/metrics.md` and its test
go by it. Several workers are told apart by a label `worker`, added by their supervisor
(`kordon.proxy.process.workers`).
"""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

import kordon
from kordon.codecs.decision import Kind
from kordon.proxy.core.causes import LIMITS, ORDINARY, CloseCause
from kordon.proxy.core.tally import Histogram, Tally
from kordon.proxy.core.verdicts import APIS
from kordon.proxy.runtime.tasks import FAILURES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import Metric

    from kordon.proxy.ordering.lags import LagKey

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LAG_INTERVAL_SECONDS: Final = 0.5
"""How often the event loop's lag is measured; twice a second is seen in no profile."""

Samples = dict[tuple[str, ...], float]
"""Values by label values; `()` for a family without labels."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric as it is documented."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    labels: tuple[str, ...]
    help: str
    """What it means, in one sentence."""


@dataclass(slots=True)
class ManagedNumbers:
    """What a worker counts of managed topics, as it stands when it is asked for."""

    partitions: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    own_refusals: int = 0
    """Requests that named what is Kordon's own."""
    serving: bool = False
    leading: bool = False
    aliens: int = 0
    changes: Samples = field(default_factory=dict[tuple[str, ...], float])
    """Seconds, by topic and stage."""
    takeover_groups: Mapping[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    lease_seconds: float = 0
    missing_lease_seconds: float = 0
    fences: int = 0
    pauses: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    """By topic."""
    waiting_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    fence_seconds: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    """By phase."""
    writes: dict[str, int] = field(default_factory=dict[str, int])
    """By outcome."""
    written_bytes: int = 0
    holds: int = 0
    stalls: int = 0
    apart: int = 0
    witnesses: Mapping[str, int] = field(default_factory=dict[str, int])
    """By outcome."""
    transaction_questions: Mapping[str, int] = field(default_factory=dict[str, int])
    """By whom they were put to."""
    pulled_bytes: int = 0
    served_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cached_bytes: int = 0
    hidden: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    late: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    undecided_seconds: float = 0.0
    producers_carried: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    bypassed: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    passed_over: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """By topic and reason."""
    findings: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    unreadable: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    unserved: int = 0
    janitor_markers: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_read_bytes: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_opened: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_brought_back: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_given_up: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_failures: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_doubts: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_behind_records: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    janitor_behind_seconds: dict[str, float] = field(default_factory=dict[str, float])
    """By topic."""
    gate_holds: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    gate_held_seconds: dict[str, float] = field(default_factory=dict[str, float])
    """By topic."""
    gate_held: int = 0
    count_refusals: dict[str, int] = field(default_factory=dict[str, int])
    """By topic."""
    position_reports: dict[str, int] = field(default_factory=dict[str, int])
    """By outcome."""
    position_records: dict[str, int] = field(default_factory=dict[str, int])
    """By what was done with them."""
    position_failures: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    position_groups: int = 0
    position_members: int = 0
    position_bytes: int = 0
    epochs_lent: dict[str, int] = field(default_factory=dict[str, int])
    """By outcome."""
    epoch_records: dict[str, int] = field(default_factory=dict[str, int])
    """By what was done with them."""
    epoch_failures: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    epoch_ids: int = 0
    individual_commits: dict[str, int] = field(default_factory=dict[str, int])
    """By outcome."""
    individual_records: dict[str, int] = field(default_factory=dict[str, int])
    """By what was done with them."""
    individual_failures: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    individual_held: dict[str, float] = field(default_factory=dict[str, float])
    """What is in memory of them, by what is counted."""
    subscriptions_bytes: int = 0
    subscriptions_forgotten: int = 0
    position_lag: int = 0
    group_lags: Mapping[LagKey, int] = field(default_factory=dict["LagKey", int])
    """By topic, group and partition."""


@dataclass(slots=True)
class DecisionNumbers:
    """What a worker counts of its decision log."""

    taken: dict[str, int] = field(default_factory=dict[str, int])
    """By kind, the dropped ones included."""
    dropped: int = 0
    written: int = 0
    queue_bytes: int = 0
    lag_seconds: float = 0


FAMILIES: Final = {
    family.name: family
    for family in (
        Family("kordon_connections", "gauge", ("listener",), "Open client connections."),
        Family(
            "kordon_connections_accepted_total",
            "counter",
            (),
            "Connections that clients opened.",
        ),
        Family("kordon_connections_closed_total", "counter", ("cause",), "Closed client connections by cause."),
        Family("kordon_requests_total", "counter", ("api", "verdict"), "Requests by what was done to them."),
        Family("kordon_responses_total", "counter", ("api",), "Responses handed to clients."),
        Family("kordon_received_bytes_total", "counter", ("side",), "Bytes read from clients or brokers."),
        Family("kordon_sent_bytes_total", "counter", ("side",), "Bytes written to clients or brokers."),
        Family(
            "kordon_requests_in_flight", "gauge", (), "Requests that wait for their response, within the last second."
        ),
        Family("kordon_leg_seconds", "histogram", ("leg",), "Time on each leg of a request's way."),
        Family(
            "kordon_errors_total",
            "counter",
            ("cause",),
            "Connections that ended because something went wrong, by cause.",
        ),
        Family(
            "kordon_limit_hits_total",
            "counter",
            ("limit",),
            "How often a limit took effect.",
        ),
        Family("kordon_ready", "gauge", (), "1 when clients can be served, else 0: what /readyz says."),
        Family("kordon_upstream_up", "gauge", ("node_id",), "1 when the broker can be reached, else 0."),
        Family("kordon_upstream_connect_failures_total", "counter", (), "Connections to brokers that failed."),
        Family("kordon_held_bytes", "gauge", (), "Bytes held in memory for all connections."),
        Family(
            "kordon_turns_total",
            "counter",
            (),
            "Turns of a few milliseconds that large requests and answers have taken while others were served.",
        ),
        Family("kordon_event_loop_lag_seconds", "histogram", (), "How late the event loop ran what was due."),
        Family("kordon_reloads_total", "counter", ("outcome",), "Reloads of configuration and certificates."),
        Family(
            "kordon_certificate_expiry_timestamp_seconds",
            "gauge",
            ("side",),
            "When the certificate shown to that side expires, in seconds since 1970.",
        ),
        Family("kordon_managed_topics", "gauge", (), "Managed topics of the cluster."),
        Family("kordon_managed_partitions", "gauge", ("topic",), "Partitions that are written to."),
        Family("kordon_managed_layout_epoch", "gauge", ("topic",), "Layout epoch in force here; the same everywhere."),
        Family(
            "kordon_managed_producers_carried",
            "gauge",
            ("topic",),
            "Producers whose past is kept for a change of partitions, by partition they wrote to.",
        ),
        Family("kordon_managed_serving", "gauge", (), "1 while this worker may serve managed topics, else 0."),
        Family("kordon_managed_leading", "gauge", (), "1 while this worker is the controller, else 0."),
        Family(
            "kordon_managed_change_seconds",
            "gauge",
            ("topic", "stage"),
            "How long a change or takeover of a topic has been under way, by what it waits for now.",
        ),
        Family("kordon_managed_takeover_groups", "gauge", ("topic",), "Groups that a takeover waits for."),
        Family("kordon_managed_lease_seconds", "gauge", (), "Seconds until this worker's lease ends; 0: it has none."),
        Family(
            "kordon_managed_missing_lease_seconds",
            "gauge",
            (),
            "Seconds until the leases of missing proxies end, for which changes wait.",
        ),
        Family("kordon_managed_fences", "gauge", (), "Changes of partitions that hold writes now."),
        Family(
            "kordon_managed_fence_seconds",
            "histogram",
            ("phase",),
            "How long changes of partitions hold writes, by phase.",
        ),
        Family(
            "kordon_managed_pause_seconds",
            "histogram",
            ("topic",),
            "How long changes paused a topic's writes and reads.",
        ),
        Family(
            "kordon_managed_waiting_bytes", "gauge", ("topic",), "Bytes of writes that are not sent to brokers yet."
        ),
        Family("kordon_managed_writes_total", "counter", ("outcome",), "Batches for managed topics by their outcome."),
        Family("kordon_managed_written_bytes_total", "counter", (), "Bytes written to managed topics."),
        Family("kordon_managed_holds_total", "counter", (), "Times that writes of a virtual partition were held."),
        Family("kordon_managed_stalls_total", "counter", (), "Connections whose oldest write got no answer for long."),
        Family("kordon_managed_partitions_apart", "gauge", (), "Partitions written to on connections of their own."),
        Family(
            "kordon_managed_transaction_witnesses_total",
            "counter",
            ("outcome",),
            "Witnesses in front of transactions' data, by what brokers answered.",
        ),
        Family(
            "kordon_managed_transaction_questions_total",
            "counter",
            ("asked",),
            "Questions to brokers about transactions, by who was asked.",
        ),
        Family("kordon_managed_pulled_bytes_total", "counter", (), "Bytes read from brokers for managed topics."),
        Family("kordon_managed_served_bytes_total", "counter", (), "Bytes of managed topics given to clients."),
        Family(
            "kordon_managed_cache_looks_total",
            "counter",
            ("outcome",),
            "Lookups in the cache of what was read from brokers before.",
        ),
        Family("kordon_managed_cached_bytes", "gauge", (), "Bytes read from brokers that are kept for other readers."),
        Family(
            "kordon_managed_hidden_batches_total",
            "counter",
            ("kind",),
            "Batches that are not given to readers as they are, by kind.",
        ),
        Family(
            "kordon_managed_late_batches_total",
            "counter",
            ("topic",),
            "Batches written after the end of their transaction that read_committed readers passed.",
        ),
        Family(
            "kordon_managed_undecided_seconds",
            "gauge",
            (),
            "How long read_committed readers have waited for the transaction that they wait for longest.",
        ),
        Family(
            "kordon_managed_bypassed_batches_total",
            "counter",
            ("topic",),
            "Batches that somebody wrote to the brokers without Kordon.",
        ),
        Family(
            "kordon_managed_passed_over_batches_total",
            "counter",
            ("topic", "reason"),
            "Batches that Kordon cannot open and so passes over.",
        ),
        Family(
            "kordon_managed_lag_records",
            "gauge",
            ("topic", "group", "partition"),
            "Offsets that a group has not committed yet, reported by the leading worker.",
        ),
        Family("kordon_managed_findings_total", "counter", ("kind",), "What the controller found wrong with topics."),
        Family("kordon_own_refusals_total", "counter", (), "Requests refused as they named something of Kordon's own."),
        Family(
            "kordon_layouts_unreadable_records_total",
            "counter",
            ("kind",),
            "Records of __kordon.layouts that could not be read, or were forged.",
        ),
        Family(
            "kordon_managed_topics_unserved",
            "gauge",
            (),
            "Managed topics not served, as records of theirs in __kordon.layouts cannot be read.",
        ),
        Family(
            "kordon_janitor_markers_total",
            "counter",
            ("topic",),
            "Tombstones that janitors wrote to partitions that keys have left.",
        ),
        Family("kordon_janitor_read_bytes_total", "counter", ("topic",), "Bytes that janitors have read."),
        Family(
            "kordon_janitor_opened_records_total", "counter", ("topic",), "Records that janitors looked at one by one."
        ),
        Family(
            "kordon_janitor_values_brought_back_total",
            "counter",
            ("topic",),
            "Last values that janitors wrote again, as compaction would have removed them.",
        ),
        Family(
            "kordon_janitor_values_given_up_total",
            "counter",
            ("topic",),
            "Last values that janitors could not write again.",
        ),
        Family("kordon_janitor_failures_total", "counter", ("topic",), "Reads and writes of janitors that failed."),
        Family(
            "kordon_janitor_doubtful_keys",
            "gauge",
            ("topic",),
            "Keys whose last value compaction may remove, and which the janitor looks for.",
        ),
        Family("kordon_janitor_behind_records", "gauge", ("topic",), "Offsets that the janitor has not looked at."),
        Family(
            "kordon_janitor_behind_seconds",
            "gauge",
            ("topic",),
            "How long the janitor has not reached the end of some partition.",
        ),
        Family("kordon_gate_holds_total", "counter", ("topic",), "Times that a dialect client's partition was held."),
        Family(
            "kordon_gate_held_seconds_total", "counter", ("topic",), "How long dialect clients' partitions were held."
        ),
        Family("kordon_gate_held_partitions", "gauge", (), "Partitions of dialect clients that are held now."),
        Family(
            "kordon_gate_refusals_total",
            "counter",
            ("topic",),
            "Fetches of dialect clients refused because the number of partitions has changed.",
        ),
        Family("kordon_positions_reports_total", "counter", ("outcome",), "Reports of members of dialect groups."),
        Family("kordon_positions_records_total", "counter", ("kind",), "Records of __kordon.groups."),
        Family("kordon_positions_failures_total", "counter", ("kind",), "What went wrong with __kordon.groups."),
        Family("kordon_positions_groups", "gauge", (), "Dialect groups whose positions are known."),
        Family("kordon_positions_members", "gauge", (), "Members of dialect groups whose reports are known."),
        Family("kordon_positions_bytes", "gauge", (), "Memory of the reports of dialect groups' members, estimated."),
        Family(
            "kordon_epochs_lent_total",
            "counter",
            ("outcome",),
            "InitProducerId requests of transactional producers that Kordon answered in front of brokers before 2.5.",
        ),
        Family("kordon_epochs_records_total", "counter", ("kind",), "Records of __kordon.producers."),
        Family("kordon_epochs_failures_total", "counter", ("kind",), "What went wrong with __kordon.producers."),
        Family("kordon_epochs_ids", "gauge", (), "Transactional ids whose epochs Kordon keeps."),
        Family(
            "kordon_individual_commits_total",
            "counter",
            ("outcome",),
            "Rows of individual commits, by what came of them.",
        ),
        Family(
            "kordon_individual_commits_records_total",
            "counter",
            ("kind",),
            "Records of __kordon.individual_commits.",
        ),
        Family(
            "kordon_individual_commits_failures_total",
            "counter",
            ("kind",),
            "What went wrong with __kordon.individual_commits.",
        ),
        Family(
            "kordon_individual_commits_places",
            "gauge",
            (),
            "Groups and partitions of which individual commits are known.",
        ),
        Family(
            "kordon_individual_commits_ranges", "gauge", (), "Ranges that groups have done behind their stable offsets."
        ),
        Family("kordon_individual_commits_bytes", "gauge", (), "Memory of what groups have done, estimated."),
        Family(
            "kordon_individual_commits_log_bytes",
            "gauge",
            (),
            "Records of __kordon.individual_commits that count, in bytes.",
        ),
        Family(
            "kordon_individual_commits_oldest_gap_seconds",
            "gauge",
            (),
            "Time since the stable offset moved that has stood longest with ranges behind it; 0: none has any.",
        ),
        Family("kordon_positions_lag_records", "gauge", (), "Records of __kordon.groups that are not read yet."),
        Family("kordon_subscriptions_bytes", "gauge", (), "Memory of what members of KIP-848 groups subscribe to."),
        Family(
            "kordon_subscriptions_forgotten_total",
            "counter",
            (),
            "Members of KIP-848 groups whose subscription was forgotten for lack of room.",
        ),
        Family("kordon_decisions_total", "counter", ("kind",), "Decisions by what was decided, dropped ones included."),
        Family(
            "kordon_decisions_dropped_total", "counter", (), "Decisions that were dropped; only a gap records them."
        ),
        Family("kordon_decisions_written_total", "counter", (), "Decisions that were written."),
        Family("kordon_decisions_queue_bytes", "gauge", (), "Memory of decisions that are not written yet."),
        Family("kordon_decisions_seconds", "gauge", (), "How long a decision waits until it is written."),
        Family("kordon_managed_alien_members", "gauge", (), "Members of the proxies' group that are no proxies."),
        Family(
            "kordon_task_failures_total",
            "counter",
            ("task",),
            "Failures of background tasks, which were then started again.",
        ),
        Family("kordon_build_info", "gauge", ("version", "python"), "Always 1; the labels say what runs."),
    )
}
"""Every family a worker exports, besides the process_ ones of prometheus_client."""

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
        tally: What the worker counts; owned by the caller, only read here.
        read_decisions: Returns what the decision log counts.
    """

    def __init__(
        self,
        tally: Tally,
        read_managed: Callable[[], ManagedNumbers] = ManagedNumbers,
        read_decisions: Callable[[], DecisionNumbers] = DecisionNumbers,
    ) -> None:
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
        self._read_managed = read_managed
        self._read_decisions = read_decisions
        self.managed = ManagedNumbers()
        """What is counted of managed topics, as it stood at the last `collect`."""
        self.decisions = DecisionNumbers()
        """What the decision log counts, as it stood then."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The families in Prometheus' text format, as they stand now (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yields every family of `FAMILIES`, in its order; called by prometheus_client."""
        self.managed, self.decisions = self._read_managed(), self._read_decisions()
        for name, family in FAMILIES.items():
            yield (
                _histogram(family, HISTOGRAMS[name](self))
                if family.kind == "histogram"
                else _plain(family, VALUES[name](self))
            )


def _plain(family: Family, samples: Samples) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in samples.items():
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, histograms: Mapping[tuple[str, ...], Histogram]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, histogram in histograms.items():
        metric.add_metric(labels, buckets=_cumulated(histogram), sum_value=histogram.total)
    return metric


def _cumulated(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus' buckets count what is at most their bound, so each contains the one before."""
    buckets: list[tuple[str, float]] = []
    so_far = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        so_far += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), so_far))
    return buckets


def _by_label(counts: Mapping[str, float], *, always: frozenset[str] = frozenset()) -> Samples:
    """Values by one label; `always` appear as 0 before they first happen, so that rates see their first one."""
    labels = sorted(always | counts.keys())
    return {(label,): float(counts.get(label, 0)) for label in labels}


def _by_side(downstream: float, upstream: float) -> Samples:
    return {("downstream",): downstream, ("upstream",): upstream}


def _responses(metrics: Metrics) -> Samples:
    return {(api.name,): float(n) for api, n in zip(APIS, metrics.tally.responses, strict=True) if n}


CAUSES: Final = frozenset(cause.value for cause in CloseCause)
DECISION_KINDS: Final = frozenset(kind.value for kind in Kind)
ERROR_CAUSES: Final = frozenset(cause.value for cause in set(CloseCause) - ORDINARY)

VALUES: Final[dict[str, Callable[[Metrics], Samples]]] = {
    "kordon_connections": lambda m: _by_label(m.tally.connections),
    "kordon_connections_accepted_total": lambda m: {(): m.tally.accepted},
    "kordon_connections_closed_total": lambda m: _by_label(m.tally.closed, always=CAUSES),
    "kordon_requests_total": lambda m: {key: float(n) for key, n in m.tally.count_by_verdict().items()},
    "kordon_responses_total": _responses,
    "kordon_received_bytes_total": lambda m: _by_side(
        m.tally.received_downstream_bytes, m.tally.received_upstream_bytes
    ),
    "kordon_sent_bytes_total": lambda m: _by_side(m.tally.sent_downstream_bytes, m.tally.sent_upstream_bytes),
    "kordon_requests_in_flight": lambda m: {(): m.tally.in_flight},
    "kordon_errors_total": lambda m: _by_label(m.tally.errors, always=ERROR_CAUSES),
    "kordon_limit_hits_total": lambda m: _by_label(m.tally.limit_hits, always=LIMITS),
    "kordon_ready": lambda m: {(): m.ready},
    "kordon_upstream_up": lambda m: {(str(node_id),): float(up) for node_id, up in m.upstream_up.items()},
    "kordon_upstream_connect_failures_total": lambda m: {(): m.tally.upstream_connect_failures},
    "kordon_held_bytes": lambda m: {(): m.tally.held_bytes},
    "kordon_turns_total": lambda m: {(): m.tally.turns},
    "kordon_reloads_total": lambda m: _by_label(m.reloads),
    "kordon_certificate_expiry_timestamp_seconds": lambda m: _by_label(m.certificate_expiry),
    "kordon_managed_topics": lambda m: {(): len(m.managed.partitions)},
    "kordon_managed_partitions": lambda m: _by_label(m.managed.partitions),
    "kordon_managed_layout_epoch": lambda m: _by_label(m.managed.epochs),
    "kordon_managed_producers_carried": lambda m: _by_label(m.managed.producers_carried),
    "kordon_managed_serving": lambda m: {(): m.managed.serving},
    "kordon_managed_leading": lambda m: {(): m.managed.leading},
    "kordon_managed_change_seconds": lambda m: m.managed.changes,
    "kordon_managed_takeover_groups": lambda m: _by_label(m.managed.takeover_groups),
    "kordon_managed_lease_seconds": lambda m: {(): m.managed.lease_seconds},
    "kordon_managed_missing_lease_seconds": lambda m: {(): m.managed.missing_lease_seconds},
    "kordon_managed_waiting_bytes": lambda m: _by_label(m.managed.waiting_bytes),
    "kordon_managed_fences": lambda m: {(): m.managed.fences},
    "kordon_managed_writes_total": lambda m: _by_label(m.managed.writes),
    "kordon_managed_written_bytes_total": lambda m: {(): m.managed.written_bytes},
    "kordon_managed_holds_total": lambda m: {(): m.managed.holds},
    "kordon_managed_stalls_total": lambda m: {(): m.managed.stalls},
    "kordon_managed_partitions_apart": lambda m: {(): m.managed.apart},
    "kordon_managed_transaction_witnesses_total": lambda m: _by_label(m.managed.witnesses),
    "kordon_managed_transaction_questions_total": lambda m: _by_label(m.managed.transaction_questions),
    "kordon_managed_pulled_bytes_total": lambda m: {(): m.managed.pulled_bytes},
    "kordon_managed_served_bytes_total": lambda m: {(): m.managed.served_bytes},
    "kordon_managed_cache_looks_total": lambda m: _by_label(
        {"hit": m.managed.cache_hits, "miss": m.managed.cache_misses}
    ),
    "kordon_managed_cached_bytes": lambda m: {(): m.managed.cached_bytes},
    "kordon_managed_hidden_batches_total": lambda m: _by_label(m.managed.hidden),
    "kordon_managed_late_batches_total": lambda m: _by_label(m.managed.late),
    "kordon_managed_undecided_seconds": lambda m: {(): m.managed.undecided_seconds},
    "kordon_managed_bypassed_batches_total": lambda m: _by_label(m.managed.bypassed),
    "kordon_managed_lag_records": lambda m: {tuple(place): float(lag) for place, lag in m.managed.group_lags.items()},
    "kordon_managed_passed_over_batches_total": lambda m: {
        labels: float(count) for labels, count in m.managed.passed_over.items()
    },
    "kordon_own_refusals_total": lambda m: {(): m.managed.own_refusals},
    "kordon_managed_findings_total": lambda m: _by_label(m.managed.findings),
    "kordon_layouts_unreadable_records_total": lambda m: _by_label(m.managed.unreadable),
    "kordon_managed_topics_unserved": lambda m: {(): m.managed.unserved},
    "kordon_janitor_markers_total": lambda m: _by_label(m.managed.janitor_markers),
    "kordon_janitor_read_bytes_total": lambda m: _by_label(m.managed.janitor_read_bytes),
    "kordon_janitor_opened_records_total": lambda m: _by_label(m.managed.janitor_opened),
    "kordon_janitor_values_brought_back_total": lambda m: _by_label(m.managed.janitor_brought_back),
    "kordon_janitor_values_given_up_total": lambda m: _by_label(m.managed.janitor_given_up),
    "kordon_janitor_failures_total": lambda m: _by_label(m.managed.janitor_failures),
    "kordon_janitor_doubtful_keys": lambda m: _by_label(m.managed.janitor_doubts),
    "kordon_janitor_behind_records": lambda m: _by_label(m.managed.janitor_behind_records),
    "kordon_janitor_behind_seconds": lambda m: _by_label(m.managed.janitor_behind_seconds),
    "kordon_gate_holds_total": lambda m: _by_label(m.managed.gate_holds),
    "kordon_gate_held_seconds_total": lambda m: _by_label(m.managed.gate_held_seconds),
    "kordon_gate_held_partitions": lambda m: {(): m.managed.gate_held},
    "kordon_gate_refusals_total": lambda m: _by_label(m.managed.count_refusals),
    "kordon_positions_reports_total": lambda m: _by_label(m.managed.position_reports),
    "kordon_positions_records_total": lambda m: _by_label(m.managed.position_records),
    "kordon_positions_failures_total": lambda m: _by_label(m.managed.position_failures),
    "kordon_positions_groups": lambda m: {(): m.managed.position_groups},
    "kordon_positions_members": lambda m: {(): m.managed.position_members},
    "kordon_positions_bytes": lambda m: {(): m.managed.position_bytes},
    "kordon_epochs_lent_total": lambda m: _by_label(m.managed.epochs_lent),
    "kordon_epochs_records_total": lambda m: _by_label(m.managed.epoch_records),
    "kordon_epochs_failures_total": lambda m: _by_label(m.managed.epoch_failures),
    "kordon_epochs_ids": lambda m: {(): m.managed.epoch_ids},
    "kordon_individual_commits_total": lambda m: _by_label(m.managed.individual_commits),
    "kordon_individual_commits_records_total": lambda m: _by_label(m.managed.individual_records),
    "kordon_individual_commits_failures_total": lambda m: _by_label(m.managed.individual_failures),
    "kordon_individual_commits_places": lambda m: {(): m.managed.individual_held.get("places", 0)},
    "kordon_individual_commits_ranges": lambda m: {(): m.managed.individual_held.get("ranges", 0)},
    "kordon_individual_commits_bytes": lambda m: {(): m.managed.individual_held.get("bytes", 0)},
    "kordon_individual_commits_log_bytes": lambda m: {(): m.managed.individual_held.get("log_bytes", 0)},
    "kordon_individual_commits_oldest_gap_seconds": lambda m: {
        (): m.managed.individual_held.get("oldest_gap_seconds", 0)
    },
    "kordon_positions_lag_records": lambda m: {(): m.managed.position_lag},
    "kordon_subscriptions_bytes": lambda m: {(): m.managed.subscriptions_bytes},
    "kordon_subscriptions_forgotten_total": lambda m: {(): m.managed.subscriptions_forgotten},
    "kordon_decisions_total": lambda m: _by_label(m.decisions.taken, always=DECISION_KINDS),
    "kordon_decisions_dropped_total": lambda m: {(): m.decisions.dropped},
    "kordon_decisions_written_total": lambda m: {(): m.decisions.written},
    "kordon_decisions_queue_bytes": lambda m: {(): m.decisions.queue_bytes},
    "kordon_decisions_seconds": lambda m: {(): m.decisions.lag_seconds},
    "kordon_managed_alien_members": lambda m: {(): m.managed.aliens},
    "kordon_task_failures_total": lambda _: _by_label(FAILURES.counts),
    "kordon_build_info": lambda _: {(kordon.__version__, platform.python_version()): 1},
}
"""Where the value of each counter and gauge comes from."""

HISTOGRAMS: Final[dict[str, Callable[[Metrics], dict[tuple[str, ...], Histogram]]]] = {
    "kordon_leg_seconds": lambda m: {
        ("request",): m.tally.request_seconds,
        ("broker",): m.tally.broker_seconds,
        ("response",): m.tally.response_seconds,
    },
    "kordon_event_loop_lag_seconds": lambda m: {(): m.loop_lag.seconds},
    "kordon_managed_fence_seconds": lambda m: {(phase,): seconds for phase, seconds in m.managed.fence_seconds.items()},
    "kordon_managed_pause_seconds": lambda m: {(topic,): seconds for topic, seconds in m.managed.pauses.items()},
}
"""Where the observations of each histogram come from."""
