"""What groups of the dialect cost a worker is measured without a broker."""

import time
from itertools import count

import pytest

from kordon.bench import gate_cost, positions, results
from kordon.bench.sdk import WORKER_CASES, measure_worker
from kordon.proxy.ordering.gate import Evidence, Gate


def test_gates_are_measured_of_topics_that_really_changed() -> None:
    """12 partitions; who has read all is held nowhere, and of whom nothing is known is held where keys came from."""
    layout = gate_cost.changed_often(10)
    assert (layout.u, layout.epoch) == (gate_cost.PARTITIONS, 11)
    gate, end = Gate.of(layout), 100 * 11
    known = Evidence(dict.fromkeys(range(gate_cost.PARTITIONS), end))
    assert all(gate.asks(q, end, known) == () for q in range(gate_cost.PARTITIONS))
    assert any(gate.asks(q, end, Evidence()) for q in range(gate_cost.PARTITIONS))


def test_each_cost_has_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page asks for is measured: here in one round, by a clock that goes on whenever somebody looks at it."""
    clock = count()
    for measuring in (gate_cost, positions):
        monkeypatch.setattr(measuring, "ROUNDS", 1)
    monkeypatch.setattr(time, "process_time", lambda: float(next(clock)))
    measured = dict(measure_worker())
    assert tuple(measured) == WORKER_CASES
    assert all(value > 0 for figures in measured.values() for value in figures.values())
    assert {name for figures in measured.values() for name in figures} == {
        results.GATE_US,
        results.HEARTBEAT_US,
        results.HEARTBEAT_MOVED_US,
        results.HEARTBEATS_CORES,
    }
