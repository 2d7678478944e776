"""Figures of a run, their medians, and whether the bar is reached."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psutil

DIRECT: Final = "direct"
FLOOR: Final = "floor"
KORDON: Final = "kordon"
DIRECT_U: Final = "direct, U"
"""With as many partitions as a managed topic has, not as many as it shows."""
MANAGED: Final = "managed"
"""Kordon, with topics that are managed."""
BESIDE: Final = "kordon, beside a managed topic"
"""Requests that name ordinary topics, while another topic is managed."""
RECORDED: Final = "managed, on record"
"""The same, with its decisions written to their topic."""
PLAIN: Final = "managed, without transactions"
"""Kordon with transactions on managed topics, and a producer that has none."""

AIOKAFKA_DIRECT: Final = "aiokafka, direct"
AIOKAFKA_MANAGED: Final = "aiokafka, managed"
SDK: Final = "SDK"
"""For the SDK: aiokafka's clients on the bare broker, through Kordon on a managed topic, and the SDK's there."""
BARE: Final = "OrderedProducer"
SOURCE: Final = "SourceProducer"
SHARE_GROUP: Final = "share group (no order)"
ORDERED_SHARE_GROUP: Final = "ordered share group, through Kordon, V = 96"
"""A broker's, and Kordon's on a managed topic."""
WORKER: Final = "a worker"
"""Measured without a broker."""

PRODUCE_MB: Final = "produce_mb_per_s"
CONSUME_MB: Final = "consume_mb_per_s"
RECORDS: Final = "records_per_s"
INVERSIONS: Final = "inversions"
"""Records that were begun after a later one of their key."""
REPEATS: Final = "repeats"
"""Records that were begun again."""
OTHERS_KEEP: Final = "others_keep"
"""Of the records a second of other keys, while one key's handler is blocked."""
ACKNOWLEDGED_US: Final = "acknowledged_us"
COMMIT_BYTES: Final = "commit_bytes"
RANGES: Final = "ranges"
TAKEN_ON: Final = "taken_on"
"""Records that are started behind so many ranges."""
PRODUCE_CPU: Final = "produce_cpu_s_per_gb"
CONSUME_CPU: Final = "consume_cpu_s_per_gb"
RSS_MB: Final = "peak_rss_mb"
TRANSACTIONS: Final = "transactions_per_s"
CPU_MS: Final = "cpu_ms"
"""Of the client's process: for a transaction, or for a rebalance."""
REBALANCE_SECONDS: Final = "rebalance_s"
TAKEOVER_SECONDS: Final = "takeover_s"
"""Without a record of what the dead one had."""
DOUBLED: Final = "doubled_records"
P50_MS: Final = "p50_ms"
P99_MS: Final = "p99_ms"
IDLE_MB: Final = "idle_rss_mb"
START_MB: Final = "start_rss_mb"
SEALED: Final = "sealed"
"""Who waits: writes of partitions that a resize seals …"""
OTHERS: Final = "others"
"""… and those on connections that carry nothing of them …"""
QUIET: Final = "quiet"
"""… and all, between two resizes."""
RESIZE_MS: Final = "resize_ms"
AMPLIFICATION: Final = "read_amplification"
"""Bytes read from brokers over bytes given to clients."""
HELD_KB: Final = "held_kb_per_virtual_partition"
HELD_MB: Final = "held_mb"
IDLE_CPU: Final = "idle_cpu_ms_per_s"
REQUEST_US: Final = "cpu_us_per_request"
"""Of a batch, where records are written."""
LIVE_CPU: Final = "live_cpu_ms_per_s"
LIVE_FETCHES: Final = "live_fetches_per_s"
LIVE_FETCH_US: Final = "live_cpu_us_per_fetch"
"""All that is taken while consumers wait, over their Fetch requests."""
LIVE_RECORD_US: Final = "live_cpu_us_per_record"
"""The same over the records that come, each with its Produce and the Fetch that brings it."""
PART_COUNT: Final = "count"
PART_BYTES: Final = "bytes_of_one"
"""Of Python objects."""
PART_US: Final = "cpu_us_of_one"
"""To read and build it; of a connection, to look whether it has been silent for too long."""
SCALE_TOGETHER_S: Final = "virtual_s_until_all_serve"
SCALE_FENCE_MS: Final = "virtual_ms_of_fence"
SCALE_DEAD_S: Final = "virtual_s_of_change_with_one_dead"
SCALE_CPU_MS: Final = "cpu_ms_of_one_proxy"
SCALE_RECORDS: Final = "records_of_layouts"
PRODUCE_CLIENT_CPU: Final = "produce_client_cpu_s_per_gb"
CONSUME_CLIENT_CPU: Final = "consume_client_cpu_s_per_gb"
"""Of the client's own process."""
GATE_US: Final = "gate_us_per_fetch"
HEARTBEAT_US: Final = "heartbeat_us"
HEARTBEAT_MOVED_US: Final = "heartbeat_moved_us"
"""Of one that tells another position."""
HEARTBEATS_CORES: Final = "heartbeats_cores"
"""What all members of a group take of a core when each tells another position every three seconds."""
FETCH_US: Final = "consume_cpu_us_per_fetch"
"""What a Fetch takes of a worker, relay and read log included."""


AUDITOR: Final = "auditor"
AUDIT_DECISIONS: Final = "decisions_per_cpu_s"
AUDIT_MB: Final = "topic_mb_per_cpu_s"
AUDIT_SIZE: Final = "decisions_of_a_micro_batch"
"""These three in the steady state, the second half of the day."""
AUDIT_FIRST_CPU: Final = "first_micro_batch_cpu_s"
AUDIT_FLOOR_CPU: Final = "idle_micro_batch_cpu_s"
"""Of the dearest with next to nothing in it, from the tenth of all on."""
AUDIT_STATE_MB: Final = "state_mb"
AUDIT_STATE_MIDDLE_MB: Final = "state_halfway_mb"
AUDIT_PSS_MB: Final = "peak_pss_mb"
AUDIT_JVM_MB: Final = "peak_pss_jvm_mb"
"""What the JVM has of it."""
AUDIT_FINDINGS: Final = "findings"
AUDIT_UNKNOWN: Final = "unknown"
FIRST: Final = "first"
WARM_UP: Final = "warm-up"
STEADY: Final = "steady"
IDLE: Final = "idle"
"""Kinds of micro-batches. Each is a measurement: its kind stands for the contender, and its number for the round."""

_TUPLES: Final = (
    "managed",
    "resizes",
    "holding",
    "requests",
    "live",
    "sdk",
    "transactions",
    "sources",
    "cooperative",
    "audit",
    "scale",
)
"""Fields of `Results` that JSON makes lists of."""


@dataclass(frozen=True)
class Measurement:
    """What one contender did in one round of one case."""

    case: str
    contender: str
    round: int
    figures: dict[str, float]
    """By name; units are in the names, MB are 10^6 bytes, GB 10^9."""


@dataclass(frozen=True)
class Spread:
    """A figure over all rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Results:
    """All measurements of one run, and where it ran."""

    profile: str
    started: str
    """ISO 8601, UTC."""
    rounds: int
    base: str
    """The case that the ratios are taken from."""
    latency: str
    memory: str
    memory_tls: str
    machine: dict[str, str]
    managed: tuple[str, ...] = ()
    """Cases of managed topics; the ratios are taken from the first."""
    log: str = ""
    """The case of what the decision log costs."""
    resizes: tuple[str, ...] = ()
    holding: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    """What single requests take."""
    live: tuple[str, ...] = ()
    sdk: tuple[str, ...] = ()
    """The SDK beside aiokafka, then what was measured without a broker."""
    transactions: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """Transactions of producers in a group, their rebalance, and who takes over."""
    cooperative: tuple[str, ...] = ()
    """How groups work on slow records, then what acknowledgements cost."""
    audit: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()
    """Parts of a proxy by their number, then proxies by theirs."""
    measurements: list[Measurement] = field(default_factory=list)
    took_seconds: float = 0.0

    def contenders(self, case: str) -> list[str]:
        """Who was measured in a case: direct, the floor, Kordon as far as they were, then the others in their order."""
        found = dict.fromkeys(each.contender for each in self.measurements if each.case == case)
        ours = [name for name in (DIRECT, DIRECT_U, FLOOR, KORDON, MANAGED, RECORDED, PLAIN) if name in found]
        return ours + [name for name in found if name not in ours]

    def cases(self) -> list[str]:
        return list(dict.fromkeys(each.case for each in self.measurements))

    def spread(self, case: str, contender: str, figure: str) -> Spread | None:
        """Returns a figure over all rounds; None where it was not measured."""
        values = [
            each.figures[figure]
            for each in self.measurements
            if each.case == case and each.contender == contender and figure in each.figures
        ]
        return Spread.of(values) if values else None

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Reads what `save` wrote.

        Raises:
            OSError: There is no such file.
            ValueError: It holds something else.
        """
        told: dict[str, Any] = json.loads(path.read_text())
        measurements = [Measurement(**each) for each in told.pop("measurements")]
        told |= {name: tuple(told.get(name, ())) for name in _TUPLES}
        return cls(**told, measurements=measurements)


def ratio(results: Results, case: str, contender: str, figure: str, reference: str = DIRECT) -> float | None:
    """Divides a contender's median by that of another; None where either is missing or nothing."""
    own, other = results.spread(case, contender, figure), results.spread(case, reference, figure)
    if own is None or other is None or not other.median:
        return None
    return own.median / other.median


def machine_facts(kafka: str, java: str) -> dict[str, str]:
    """Describes this machine and the versions of what runs on it, without naming it."""
    memory_gib = psutil.virtual_memory().total / 2**30
    cores = psutil.cpu_count() or 0
    packages = ("uvloop", "confluent-kafka")
    return {
        "cores": f"{cores} ({_processor_name()})",
        "memory": f"{memory_gib:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in packages},
        "Kafka": kafka,
        "Java": java,
    }


def _processor_name() -> str:
    lines: Iterable[str] = ()
    source = Path("/proc/cpuinfo")
    if source.exists():
        lines = source.read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
