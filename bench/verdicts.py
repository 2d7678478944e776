"""Whether the bar is reached : ratios within one run, medians of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kordon.bench.results import (
    AIOKAFKA_MANAGED,
    AUDIT_DECISIONS,
    AUDIT_MB,
    AUDITOR,
    CONSUME_CPU,
    CONSUME_MB,
    DIRECT,
    FETCH_US,
    FLOOR,
    GATE_US,
    HEARTBEAT_MOVED_US,
    HEARTBEATS_CORES,
    IDLE_MB,
    KORDON,
    MANAGED,
    OTHERS,
    P99_MS,
    PRODUCE_CPU,
    PRODUCE_MB,
    PROXIES,
    QUIET,
    RECORDED,
    SDK,
    SEALED,
    WORKER,
    Results,
    ratio,
)

MIN_PRODUCE: Final = 0.95
MIN_CONSUME: Final = 0.90
MAX_CPU: Final = 1.35
MAX_IDLE_MB: Final = 100.0
MIN_MANAGED_PRODUCE: Final = 0.8
MIN_MANAGED_CONSUME: Final = 0.6
MAX_MANAGED_CPU: Final = 2.0
MAX_RECORDED_CPU: Final = 1.05
"""Of the same work without a decision log."""
MIN_SDK: Final = 0.9
MAX_GATE_SHARE: Final = 0.05
"""Of a worker's time for a Fetch that brings records."""
MAX_HEARTBEATS_CORES: Final = 0.2
MAX_GROWTH: Final = 1.5
"""Of a heartbeat, from the smallest group to the largest: it costs what its own rows cost."""
MIN_AUDIT_DECISIONS: Final = 50_000.0
MIN_AUDIT_MB: Final = 50.0
MAX_PAUSE_MS: Final = {1: 30.0}
"""By number of proxies; else `MAX_PAUSE_OF_MANY_MS`."""
MAX_PAUSE_OF_MANY_MS: Final = 100.0
NOISE_MS: Final = 5.0
"""A pause of those whom no resize concerns is none, if it is no longer than this above that of quiet times."""


@dataclass(frozen=True)
class Verdict:
    """One line of the bar."""

    what: str
    wanted: str
    got: str
    reached: bool


def verdicts(results: Results, contender: str = KORDON) -> list[Verdict]:
    """Compares a contender with the bar; what was not measured is left out."""
    base = results.base
    found = [
        _throughput(results, base, contender, PRODUCE_MB, done="produced", least=MIN_PRODUCE),
        _throughput(results, base, contender, CONSUME_MB, done="consumed", least=MIN_CONSUME),
        _processor(results, base, contender, PRODUCE_CPU, done="produced", bar=(FLOOR, "the floor's", MAX_CPU)),
        _processor(results, base, contender, CONSUME_CPU, done="consumed", bar=(FLOOR, "the floor's", MAX_CPU)),
        _latency(results, contender),
        _idle(results, contender),
        *(verdict for case in results.managed[:1] for verdict in _managed(results, case)),
        *_log(results),
        *(verdict for case in results.sdk[:1] for verdict in _sdk(results, case)),
        *(_gate(results, case, results.sdk[1:]) for case in results.sdk[:1]),
        *_heartbeats(results, results.sdk[1:]),
        *(verdict for case in results.resizes for verdict in _pauses(results, case)),
        *(verdict for case in results.audit[1:] for verdict in _audit(results, case)),
    ]
    return [each for each in found if each is not None]


def _managed(results: Results, case: str) -> list[Verdict | None]:
    untouched = (KORDON, "the untouched path's", MAX_MANAGED_CPU)
    return [
        _throughput(results, case, MANAGED, PRODUCE_MB, done="produced to managed topics", least=MIN_MANAGED_PRODUCE),
        _throughput(results, case, MANAGED, CONSUME_MB, done="consumed from managed topics", least=MIN_MANAGED_CONSUME),
        _processor(results, case, MANAGED, PRODUCE_CPU, done="produced to managed topics", bar=untouched),
        _processor(results, case, MANAGED, CONSUME_CPU, done="consumed from managed topics", bar=untouched),
    ]


def _log(results: Results) -> list[Verdict | None]:
    unrecorded = (MANAGED, "that without a decision log", MAX_RECORDED_CPU)
    return [
        _processor(results, results.log, RECORDED, figure, done=f"{done} with decisions on record", bar=unrecorded)
        for figure, done in ((PRODUCE_CPU, "produced"), (CONSUME_CPU, "consumed"))
    ]


def _sdk(results: Results, case: str) -> list[Verdict | None]:
    found: list[Verdict | None] = []
    for figure, done in ((PRODUCE_MB, "produced"), (CONSUME_MB, "consumed")):
        value = ratio(results, case, SDK, figure, AIOKAFKA_MANAGED)
        what = f"throughput {done} by the SDK, of aiokafka's on a managed topic"
        found.append(None if value is None else Verdict(what, f">= {MIN_SDK}", f"{value:.2f}", value >= MIN_SDK))
    return found


def _gate(results: Results, sdk: str, cases: Sequence[str]) -> Verdict | None:
    """Judges the gate of the topic that has changed most often."""
    gates, fetch = _of_worker(results, cases, GATE_US), results.spread(sdk, SDK, FETCH_US)
    if not gates or fetch is None:
        return None
    case, gate = gates[-1]
    share = gate / fetch.median
    what = f"{case}, of a worker's time for a Fetch"
    return Verdict(what, f"<= {MAX_GATE_SHARE:.0%}", f"{share:.1%}", share <= MAX_GATE_SHARE)


def _heartbeats(results: Results, cases: Sequence[str]) -> list[Verdict]:
    """Judges those of the largest group: all of them, and one beside one of the smallest group."""
    all_of_them, one = (_of_worker(results, cases, figure) for figure in (HEARTBEATS_CORES, HEARTBEAT_MOVED_US))
    if not all_of_them or not one:
        return []
    (case, cores), (few, least), (_, most) = all_of_them[-1], one[0], one[-1]
    what = f"cores for a {case} from each member every 3 s, all with another position"
    growth = most / least
    return [
        Verdict(what, f"<= {MAX_HEARTBEATS_CORES}", f"{cores:.2f}", cores <= MAX_HEARTBEATS_CORES),
        Verdict(f"CPU of a {case}, of a {few}", f"<= {MAX_GROWTH}", f"{growth:.2f}", growth <= MAX_GROWTH),
    ]


def _of_worker(results: Results, cases: Sequence[str], figure: str) -> list[tuple[str, float]]:
    """Returns the medians of what was measured without a broker, with their cases."""
    return [(case, spread.median) for case in cases if (spread := results.spread(case, WORKER, figure))]


def _pauses(results: Results, case: str) -> list[Verdict]:
    """Those of sealed partitions have a bound; others may pause no longer than when nothing is resized."""
    figures = {
        name: results.spread(case, MANAGED, name)
        for name in (PROXIES, f"{SEALED}_p99_ms", f"{OTHERS}_p99_ms", f"{QUIET}_p99_ms")
    }
    proxies, sealed, others, quiet = (spread.median if spread else None for spread in figures.values())
    if proxies is None or sealed is None or others is None or quiet is None:
        return []
    most, calm = MAX_PAUSE_MS.get(int(proxies), MAX_PAUSE_OF_MANY_MS), quiet + NOISE_MS
    return [
        Verdict(f"p99 pause of sealed partitions, {case}", f"<= {most:.0f} ms", f"{sealed:.0f} ms", sealed <= most),
        Verdict(
            f"p99 pause of connections that carry nothing sealed, {case}",
            f"<= {calm:.0f} ms, as without resizes",
            f"{others:.0f} ms",
            others <= calm,
        ),
    ]


def _audit(results: Results, case: str) -> list[Verdict]:
    """Judges a long audit; tiny ones come first and have no bar."""
    bars = (
        (AUDIT_DECISIONS, "decisions audited per CPU second", MIN_AUDIT_DECISIONS),
        (AUDIT_MB, "MB of topic data audited per CPU second", MIN_AUDIT_MB),
    )
    return [
        Verdict(f"{what}, {case}", f">= {least:,.0f}", f"{spread.median:,.0f}", spread.median >= least)
        for figure, what, least in bars
        if (spread := results.spread(case, AUDITOR, figure))
    ]


def _throughput(results: Results, case: str, contender: str, figure: str, *, done: str, least: float) -> Verdict | None:
    value = ratio(results, case, contender, figure)
    if value is None:
        return None
    return Verdict(f"throughput {done}, of direct", f">= {least:.2f}", f"{value:.2f}", value >= least)


def _processor(
    results: Results, case: str, contender: str, figure: str, *, done: str, bar: tuple[str, str, float]
) -> Verdict | None:
    reference, whose, most = bar
    value = ratio(results, case, contender, figure, reference)
    if value is None:
        return None
    return Verdict(f"processor time per GB {done}, of {whose}", f"<= {most}", f"{value:.2f}", value <= most)


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
