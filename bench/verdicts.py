"""Whether the bar is reached: ratios within one run, medians of its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kordon.bench import results
from kordon.bench.plan import Groups
from kordon.bench.results import Results, ratio

MIN_PRODUCE: Final = 0.95
MIN_CONSUME: Final = 0.90
MAX_CPU: Final = 1.35
MAX_IDLE_MB: Final = 100.0
MIN_MANAGED_PRODUCE: Final = 0.8
MIN_MANAGED_CONSUME: Final = 0.6
MAX_MANAGED_CPU: Final = 2.0
MAX_BESIDE_CPU: Final = 1.05
"""Of the same request while nothing is managed."""
MAX_REST_CPU: Final = 2.0
MAX_LIVE_CPU: Final = 3.0
"""Of consumers of as many ordinary partitions, while nothing comes and while few records do."""
MAX_RECORDED_CPU: Final = 1.05
"""Of the same work without a decision log."""
MIN_TRANSACTIONS: Final = 0.8
MAX_TRANSACTIONS_CPU: Final = 1.1
"""Of the same work without transactions."""
MIN_GROUP_RECORDS: Final = 20_000.0
MIN_OF_SHARE_GROUP: Final = 0.6
"""Of the records a second of a broker's share group, by one of Kordon's that keeps each key in order."""
"""A second of CooperativeConsumers, where so many are possible twice."""
MIN_OTHERS_KEEP: Final = 0.95
MAX_ACKNOWLEDGED_US: Final = 2.0
MAX_COMMIT_BYTES: Final = 24_000.0
MIN_SDK: Final = 0.9
MAX_REBALANCE_SECONDS: Final = 3.0
MAX_SILENT_SECONDS: Final = 8.0
"""The session, and two seconds."""
MAX_GATE_SHARE: Final = 0.05
"""Of a worker's time for a Fetch that brings records."""
MAX_HEARTBEATS_CORES: Final = 0.2
MAX_GROWTH: Final = 1.5
"""Of a heartbeat, from the smallest group to the largest: it costs what its own rows cost."""
MIN_AUDIT_DECISIONS: Final = 50_000.0
MIN_AUDIT_MB: Final = 1_000.0
MAX_AUDIT_FIRST_CPU: Final = 12.0
MAX_AUDIT_FLOOR_CPU: Final = 1.5
MAX_AUDIT_MB: Final = 1_200.0
MAX_AUDIT_GROWTH: Final = 1.01
"""Of what it keeps, from half time to the end."""
MAX_ADDED_P50_MS: Final = 0.2
MAX_PAUSE_MS: Final = 15.0
"""Of sealed partitions, beyond what others of the same run wait."""
NOISE_MS: Final = 5.0
"""A pause of those whom no resize concerns is none, if it is no longer than this above that of quiet times."""


_SO_MANY: Final = f"{Groups().records:,} records"
"""Work with fewer is for a look only."""
_LEAST: Final = {
    results.KORDON: (MIN_PRODUCE, MIN_CONSUME),
    results.MANAGED: (MIN_MANAGED_PRODUCE, MIN_MANAGED_CONSUME),
}


@dataclass(frozen=True)
class Verdict:
    """One line of the bar."""

    what: str
    wanted: str
    got: str
    reached: bool


def verdicts(figures: Results) -> list[Verdict]:
    """Compares Kordon with the bar; what was not measured is left out."""
    found = [*_against_direct(figures, figures.base, results.KORDON, (results.FLOOR, "the floor's", MAX_CPU))]
    found += [*_latency(figures)]
    if (idle := _median(figures, figures.memory, results.KORDON, results.IDLE_MB)) is not None:
        what, wanted = f"memory at {figures.memory}", f"< {MAX_IDLE_MB:.0f} MB"
        found.append(Verdict(what, wanted, f"{idle:.0f} MB", idle < MAX_IDLE_MB))
    for case in figures.managed[:1]:
        found += _against_direct(
            figures, case, results.MANAGED, (results.KORDON, "the untouched path's", MAX_MANAGED_CPU)
        )
    for figure, done in ((results.PRODUCE_CPU, "produced"), (results.CONSUME_CPU, "consumed")):
        what = f"processor time per GB {done} with decisions on record, of that without a decision log"
        found += _most(what, ratio(figures, figures.log, results.RECORDED, figure, results.MANAGED), MAX_RECORDED_CPU)
    for case in figures.requests:
        beside = ratio(figures, case, results.BESIDE, results.REQUEST_US, results.KORDON)
        found += _most(f"processor time beside a managed topic, of that without: {case}", beside, MAX_BESIDE_CPU)
    for case in figures.live:
        live = ratio(figures, case, results.MANAGED, results.LIVE_CPU, results.KORDON)
        most = MAX_REST_CPU if case.endswith(" 0 records/s") else MAX_LIVE_CPU
        found += _most(f"processor time of waiting consumers, of the untouched path's: {case}", live, most)
    found += _sdk(figures, *figures.sdk) if figures.sdk else []
    for case in figures.resizes:
        found += _pauses(figures, case)
    for case in figures.transactions:
        found += _transactions(figures, case)
    found += _sources(figures, *figures.sources) if figures.sources else []
    for case in figures.cooperative:
        found += _groups(figures, case)
    for case in figures.audit:
        found += _audit(figures, case)
    return found


def _least(what: str, value: float | None, least: float, form: str = "{:.2f}") -> list[Verdict]:
    if value is None:
        return []
    return [Verdict(what, f">= {form.format(least)}", form.format(value), value >= least)]


def _most(what: str, value: float | None, most: float, form: str = "{:.2f}", *, why: str = "") -> list[Verdict]:
    if value is None:
        return []
    return [Verdict(what, f"<= {form.format(most)}{why}", form.format(value), value <= most)]


def _median(figures: Results, case: str, contender: str, figure: str) -> float | None:
    spread = figures.spread(case, contender, figure)
    return None if spread is None else spread.median


def _against_direct(figures: Results, case: str, contender: str, cpu: tuple[str, str, float]) -> Iterator[Verdict]:
    """Judges throughput by that of direct, and processor time by that of another, who is named, with the most of it."""
    whose, title, most = cpu
    where = " managed topics" if contender == results.MANAGED else ""
    done = (f"produced{where and f' to{where}'}", f"consumed{where and f' from{where}'}")
    for what, figure, least in zip(done, (results.PRODUCE_MB, results.CONSUME_MB), _LEAST[contender], strict=True):
        yield from _least(f"throughput {what}, of direct", ratio(figures, case, contender, figure), least)
    for what, figure in zip(done, (results.PRODUCE_CPU, results.CONSUME_CPU), strict=True):
        value = ratio(figures, case, contender, figure, whose)
        yield from _most(f"processor time per GB {what}, of {title}", value, most)


def _transactions(figures: Results, case: str) -> Iterator[Verdict]:
    """Judges by the same transactions directly, and by the same records without transactions.

    What the same producer waits for where it does not commit is an acknowledged write.
    """
    rate = ratio(figures, case, results.MANAGED, results.TRANSACTIONS)
    yield from _least(f"transactions/s on managed topics, of direct, {case}", rate, MIN_TRANSACTIONS)
    own, direct = (_median(figures, case, each, results.P99_MS) for each in (results.MANAGED, results.DIRECT))
    write = _median(figures, case, results.PLAIN, results.P50_MS)
    if own is not None and direct is not None and write is not None:
        why = ", direct and one acknowledged write"
        yield from _most(f"p99 of a commit in ms, {case}", own, direct + write, "{:.1f}", why=why)
    cpu = ratio(figures, case, results.MANAGED, results.PRODUCE_CPU, results.PLAIN)
    yield from _most(f"processor time of that without transactions, {case}", cpu, MAX_TRANSACTIONS_CPU)


def _latency(figures: Results) -> list[Verdict]:
    """The 99th percentile may be no more above direct's median than direct's own rounds lie apart."""
    own, own_p50 = (
        _median(figures, figures.latency, results.KORDON, name) for name in (results.P99_MS, results.P50_MS)
    )
    direct, p50 = (figures.spread(figures.latency, results.DIRECT, name) for name in (results.P99_MS, results.P50_MS))
    if own is None or direct is None:
        return []
    noise, added = direct.most - direct.least, own - direct.median
    wanted = f"<= {noise:.2f} ms, the spread of direct"
    found = [Verdict(f"p99 added, {figures.latency}", wanted, f"{added:+.2f} ms", added <= noise)]
    if own_p50 is not None and p50 is not None:
        found += _most(f"p50 added, {figures.latency}", own_p50 - p50.median, MAX_ADDED_P50_MS, "{:.2f} ms")
    return found


def _sdk(figures: Results, case: str, *of_worker: str) -> Iterator[Verdict]:
    """Judges the SDK's clients; of what was measured without a broker, the largest case beside the smallest."""
    for figure, done in ((results.PRODUCE_MB, "produced"), (results.CONSUME_MB, "consumed")):
        what = f"throughput {done} by the SDK, of aiokafka's on a managed topic"
        yield from _least(what, ratio(figures, case, results.SDK, figure, results.AIOKAFKA_MANAGED), MIN_SDK)
    gates, moved, cores = (
        [(each, value) for each in of_worker if (value := _median(figures, each, results.WORKER, figure)) is not None]
        for figure in (results.GATE_US, results.HEARTBEAT_MOVED_US, results.HEARTBEATS_CORES)
    )
    fetch_us = _median(figures, case, results.SDK, results.FETCH_US)
    if gates and fetch_us:
        gate, gate_us = gates[-1]
        yield from _most(f"{gate}, of a worker's time for a Fetch", gate_us / fetch_us, MAX_GATE_SHARE, "{:.1%}")
    if moved and cores:
        (few, least), (many, most) = moved[0], moved[-1]
        what = f"cores for a {many} from each member every 3 s, all with another position"
        yield from _most(what, cores[-1][1], MAX_HEARTBEATS_CORES)
        yield from _most(f"CPU of a {many}, of a {few}", most / least, MAX_GROWTH)


def _sources(figures: Results, case: str, rebalance: str, takeover: str) -> Iterator[Verdict]:
    """Judges producers in a group."""
    share = ratio(figures, case, results.SOURCE, results.TRANSACTIONS, results.BARE)
    yield from _least(f"transactions/s of those of a bare producer, {case}", share, MIN_SDK)
    seconds = _median(figures, rebalance, results.SOURCE, results.REBALANCE_SECONDS)
    yield from _most(f"one more member, {rebalance}", seconds, MAX_REBALANCE_SECONDS, "{:.1f} s")
    silent = _median(figures, takeover, results.SOURCE, results.TAKEOVER_SECONDS)
    yield from _most(f"silence, {takeover}", silent, MAX_SILENT_SECONDS, "{:.1f} s")
    doubled = _median(figures, takeover, results.SOURCE, results.DOUBLED)
    yield from _most(f"records doubled, {takeover}", doubled, 0, "{:.0f}")


def _groups(figures: Results, case: str) -> Iterator[Verdict]:
    """Judges CooperativeConsumers through a Kordon, and what acknowledgements cost them."""
    ours = [each for each in figures.contenders(case) if each.startswith("CooperativeConsumer")]
    for each in ours:
        keep = _median(figures, case, each, results.OTHERS_KEEP)
        yield from _least(f"{each}: records/s of other keys, {case}", keep, MIN_OTHERS_KEEP)
        inversions = _median(figures, case, each, results.INVERSIONS)
        yield from _most(f"{each}: inversions, {case}", inversions, 0.0, "{:.0f}")
        if keep is None and case.startswith(_SO_MANY):
            rate = _median(figures, case, each, results.RECORDS)
            yield from _least(f"{each}: records/s, {case}", rate, MIN_GROUP_RECORDS, "{:,.0f}")
    yield from _share_groups(figures, case)
    us, size = (_median(figures, case, results.SDK, name) for name in (results.ACKNOWLEDGED_US, results.COMMIT_BYTES))
    yield from _most(f"CPU µs of each of {case}", us, MAX_ACKNOWLEDGED_US)
    yield from _most(f"bytes of a commit behind {case}", size, MAX_COMMIT_BYTES, "{:,.0f}")
    taken_on = _median(figures, case, results.SDK, results.TAKEN_ON)
    yield from _least(f"records started behind {case}", taken_on, 1.0, "{:,.0f}")


def _share_groups(figures: Results, case: str) -> Iterator[Verdict]:
    """Judges a share group that keeps each key in order, beside a broker's that does not."""
    ours, brokers = results.ORDERED_SHARE_GROUP, results.SHARE_GROUP
    of_brokers = ratio(figures, case, ours, results.RECORDS, brokers)
    yield from _least(f"{ours}: records/s of those of a {brokers}, {case}", of_brokers, MIN_OF_SHARE_GROUP)
    inversions = _median(figures, case, ours, results.INVERSIONS)
    yield from _most(f"{ours}: inversions, {case}", inversions, 0.0, "{:.0f}")


def _audit(figures: Results, case: str) -> Iterator[Verdict]:
    """Judges an audit. A first micro-batch has a bar where it has next to nothing in it: where no steady ones come."""
    names = (results.AUDIT_DECISIONS, results.AUDIT_MB, results.AUDIT_STATE_MIDDLE_MB, results.AUDIT_STATE_MB)
    decisions, mb, halfway, at_end = (_median(figures, case, results.AUDITOR, name) for name in names)
    others = (results.AUDIT_FIRST_CPU, results.AUDIT_FLOOR_CPU, results.AUDIT_PSS_MB)
    first, floor, peak_mb = (_median(figures, case, results.AUDITOR, name) for name in others)
    yield from _least(f"decisions per CPU second, {case}", decisions, MIN_AUDIT_DECISIONS, "{:,.0f}")
    yield from _least(f"MB of topic data per CPU second, {case}", mb, MIN_AUDIT_MB, "{:,.0f}")
    if halfway and at_end:
        yield from _most(f"state at the end, of that halfway, {case}", at_end / halfway, MAX_AUDIT_GROWTH)
    else:
        yield from _most(f"the first micro-batch, {case}", first, MAX_AUDIT_FIRST_CPU, "{:.1f} CPU s")
    what = f"a micro-batch with next to nothing, from the tenth on, {case}"
    yield from _most(what, floor, MAX_AUDIT_FLOOR_CPU, "{:.2f} CPU s")
    yield from _most(f"memory (PSS) of JVM and Python, {case}", peak_mb, MAX_AUDIT_MB, "{:,.0f} MB")


def _pauses(figures: Results, case: str) -> list[Verdict]:
    """Those of sealed partitions are held against others; these may pause no longer than when nothing is resized."""
    names = (f"{who}_p99_ms" for who in (results.SEALED, results.OTHERS, results.QUIET))
    sealed, others, quiet = (_median(figures, case, results.MANAGED, name) for name in names)
    if sealed is None or others is None or quiet is None:
        return []
    what = f"p99 pause of sealed partitions, beyond that of connections that carry nothing sealed, {case}"
    found = _most(what, sealed - others, MAX_PAUSE_MS, "{:.0f} ms")
    what = f"p99 pause of connections that carry nothing sealed, {case}"
    return found + _most(what, others, quiet + NOISE_MS, "{:.0f} ms", why=", as without resizes")
