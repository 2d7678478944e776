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

PRODUCE_MB: Final = "produce_mb_per_s"
CONSUME_MB: Final = "consume_mb_per_s"
PRODUCE_CPU: Final = "produce_cpu_s_per_gb"
CONSUME_CPU: Final = "consume_cpu_s_per_gb"
RSS_MB: Final = "peak_rss_mb"
P50_MS: Final = "p50_ms"
P99_MS: Final = "p99_ms"
IDLE_MB: Final = "idle_rss_mb"
START_MB: Final = "start_rss_mb"

MIN_PRODUCE: Final = 0.95
MIN_CONSUME: Final = 0.90
MAX_CPU: Final = 1.35
MAX_IDLE_MB: Final = 100.0


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
        """Takes the median and the extremes of at least one value."""
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
    measurements: list[Measurement] = field(default_factory=list)
    took_seconds: float = 0.0

    def contenders(self) -> list[str]:
        """Names: direct, the floor and Kordon as far as they are there, then the others as they were measured."""
        found = dict.fromkeys(each.contender for each in self.measurements)
        ours = [name for name in (DIRECT, FLOOR, KORDON) if name in found]
        return ours + [name for name in found if name not in ours]

    def cases(self) -> list[str]:
        """Names of the cases that were measured, in order."""
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
        """Writes everything as JSON."""
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
        return cls(**told, measurements=measurements)


@dataclass(frozen=True)
class Verdict:
    """One line of the bar."""

    what: str
    wanted: str
    got: str
    reached: bool


def verdicts(results: Results, contender: str = KORDON) -> list[Verdict]:
    """Compares a contender with the bar; what was not measured is left out."""
    found = [
        _throughput(results, contender, PRODUCE_MB, "produced", MIN_PRODUCE),
        _throughput(results, contender, CONSUME_MB, "consumed", MIN_CONSUME),
        _processor(results, contender, PRODUCE_CPU, "produced"),
        _processor(results, contender, CONSUME_CPU, "consumed"),
        _latency(results, contender),
        _idle(results, contender),
    ]
    return [each for each in found if each is not None]


def ratio(results: Results, case: str, contender: str, figure: str, reference: str = DIRECT) -> float | None:
    """Divides a contender's median by that of another; None where either is missing or nothing."""
    own, other = results.spread(case, contender, figure), results.spread(case, reference, figure)
    if own is None or other is None or not other.median:
        return None
    return own.median / other.median


def _throughput(results: Results, contender: str, figure: str, done: str, least: float) -> Verdict | None:
    value = ratio(results, results.base, contender, figure)
    if value is None:
        return None
    return Verdict(f"throughput {done}, of direct", f">= {least:.2f}", f"{value:.2f}", value >= least)


def _processor(results: Results, contender: str, figure: str, done: str) -> Verdict | None:
    value = ratio(results, results.base, contender, figure, FLOOR)
    if value is None:
        return None
    return Verdict(f"processor time per GB {done}, of the floor's", f"<= {MAX_CPU}", f"{value:.2f}", value <= MAX_CPU)


def _latency(results: Results, contender: str) -> Verdict | None:
    """Within the noise is: no more above direct's median than direct's own rounds lie apart (1 ms, the tool's step)."""
    own = results.spread(results.latency, contender, P99_MS)
    direct = results.spread(results.latency, DIRECT, P99_MS)
    if own is None or direct is None:
        return None
    noise = max(direct.most - direct.least, 1.0)
    added = own.median - direct.median
    wanted = f"<= {noise:.0f} ms, the spread of direct"
    return Verdict(f"p99 added, {results.latency}", wanted, f"{added:+.0f} ms", added <= noise)


def _idle(results: Results, contender: str) -> Verdict | None:
    idle = results.spread(results.memory, contender, IDLE_MB)
    if idle is None:
        return None
    return Verdict(
        f"memory at {results.memory}", f"< {MAX_IDLE_MB:.0f} MB", f"{idle.median:.0f} MB", idle.median < MAX_IDLE_MB
    )


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
