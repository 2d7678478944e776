"""The bench of producers in a group: what it calls a pause and a double, its bars, and that it works."""

from types import SimpleNamespace
from typing import Any

import pytest

from kordon.bench import results
from kordon.bench.plan import PROFILES, Sources
from kordon.bench.report import report
from kordon.bench.results import Measurement, Results
from kordon.bench.sources import doubled, longest_pause, measure_sources
from kordon.bench.verdicts import verdicts
from kordon.testing.broker_features import BUMPED_EPOCHS
from kordon.testing.cluster import Cluster


def record(value: bytes, at_ms: int) -> Any:
    return SimpleNamespace(value=lambda: value, timestamp=lambda: (1, at_ms))


def test_the_longest_pause_is_between_two_records_of_one_writer() -> None:
    """Whatever the order in which partitions were read."""
    assert longest_pause([record(b"2", 7_000), record(b"1", 1_000), record(b"3", 7_050)]) == 6.0
    assert longest_pause([]) == 0.0


def test_records_that_are_there_again_are_doubled() -> None:
    assert doubled([record(b"1", 0), record(b"1", 9), record(b"2", 1), record(b"1", 2)]) == 2.0


@pytest.mark.parametrize(
    ("contender", "figure", "good", "bad"),
    [
        (results.SOURCE, results.TRANSACTIONS, 90.0, 89.0),
        (results.SOURCE, results.REBALANCE_SECONDS, 3.0, 3.1),
        (results.SOURCE, results.TAKEOVER_SECONDS, 8.0, 8.1),
        (results.SOURCE, results.DOUBLED, 0.0, 1.0),
    ],
)
def test_sources_are_judged(contender: str, figure: str, good: float, bad: float) -> None:
    """Each by its own bar."""
    case = PROFILES["full"].sources
    names = (case.name, case.rebalance, case.takeover)
    for value, is_reached in ((good, True), (bad, False)):
        made = Results("test", "2026-01-01", 1, "base", "latency", "idle", "idle over TLS", {}, sources=names)
        for name in names:
            made.measurements.append(Measurement(name, results.BARE, 1, {results.TRANSACTIONS: 100.0}))
            made.measurements.append(Measurement(name, contender, 1, {figure: value}))
        told = {each.what: each.reached for each in verdicts(made)}
        assert all(told.values()) is is_reached, told
        assert "SourceProducer" in report(made, "picture")


@pytest.mark.broker
@pytest.mark.skipif(BUMPED_EPOCHS.is_missing, reason="KIP-447 came with Kafka 2.5")
def test_each_case_is_measured(cluster: Cluster) -> None:
    """All but those that need a broker of their own and whole sessions."""
    case = Sources(3, rounds=1, takeovers=0, partitions=6, members=3, per_transaction=10, warm_up=1)
    found = list(measure_sources(case, cluster.bootstrap(), lambda *_: None))
    assert [(each.case, each.contender) for each in found] == [
        (case.name, results.BARE),
        (case.name, results.SOURCE),
        (case.rebalance, results.SOURCE),
    ]
    assert all(value > 0 for each in found for value in each.figures.values())
