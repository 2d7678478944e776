"""The SDK's part of BENCHMARKS.md."""

from __future__ import annotations

from typing import Final

from kordon.bench import results
from kordon.bench.results import Results, ratio
from kordon.bench.tables import middle, number, shown, table

_FIGURES: Final = (
    (results.PRODUCE_MB, "produce MB/s", 1),
    (results.CONSUME_MB, "consume MB/s", 1),
    (results.PRODUCE_CLIENT_CPU, "client's CPU s/GB produced", 1),
    (results.CONSUME_CLIENT_CPU, "client's CPU s/GB consumed", 1),
    (results.PRODUCE_CPU, "Kordon's CPU s/GB produced", 2),
    (results.CONSUME_CPU, "Kordon's CPU s/GB consumed", 2),
    (results.FETCH_US, "Kordon's CPU µs per Fetch", 0),
)


def sdk_tables(figures: Results) -> list[str]:
    """Draws the SDK beside aiokafka, and what gate and heartbeats cost; nothing where that was not measured."""
    if not figures.sdk or figures.sdk[0] not in figures.cases():
        return []
    case, *of_worker = figures.sdk
    rows: list[list[str]] = []
    for contender in figures.contenders(case):
        cells = [shown(figures.spread(case, contender, figure), digits) for figure, _, digits in _FIGURES]
        shares = (
            ratio(figures, case, contender, figure, results.AIOKAFKA_MANAGED)
            for figure in (results.PRODUCE_MB, results.CONSUME_MB)
        )
        rows.append([contender, *cells, " / ".join(number(share) for share in shares)])
    names = ["clients", *(title for _, title, _ in _FIGURES), "produce / consume of aiokafka's, managed"]
    lines = [f"## {case}: OrderedProducer and OrderedConsumer beside aiokafka's own", "", *table(names, rows)]
    costs = [row for each in of_worker for row in _costs(figures, each)]
    return lines + table(["what it costs a worker", "CPU µs"], costs) if costs else lines


def _costs(figures: Results, case: str) -> list[list[str]]:
    titles = (
        (results.GATE_US, case),
        (results.HEARTBEAT_US, case),
        (results.HEARTBEAT_MOVED_US, f"{case}, that tells another position"),
    )
    spreads = [(title, figures.spread(case, results.WORKER, figure)) for figure, title in titles]
    return [[title, middle(spread, 1)] for title, spread in spreads if spread is not None]
