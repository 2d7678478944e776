"""What the gate of ordered delivery takes of a worker's time for one Fetch.

For each partition of a request the gate is asked what its reader waits for. Layouts that have grown and shrunk
often are measured beside one that never has, in turn, so that a busy machine is as busy for the one as for the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Final
from uuid import UUID

from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.layout import Layout

PARTITIONS: Final = 12
"""Of the topic when it is read, all of them in one Fetch."""
ROUNDS: Final = 5
_FETCHES: Final = 500


def changed_often(changes: int) -> Layout:
    """Returns a layout of 12 partitions that goes from 12 to 6 and back, in turn, for so many changes."""
    layout = Layout.created("orders", UUID(int=1), PARTITIONS // 4, 4 * PARTITIONS)
    layout = layout.changed(layout.next_epoch(PARTITIONS), dict.fromkeys(range(PARTITIONS), 1))
    for number in range(changes):
        following = layout.next_epoch(PARTITIONS // 2 if number % 2 == 0 else PARTITIONS)
        layout = layout.changed(following, dict.fromkeys(range(PARTITIONS), 100 * (number + 1)))
    return layout


def measure(changes: Sequence[int]) -> list[float]:
    """Measures layouts that changed so often, in turn, for a group that stands at the ends, so that nothing is held.

    Returns:
        CPU seconds for one Fetch of all partitions, medians over rounds.
    """
    gates = [Gate.of(changed_often(each)) for each in changes]
    end = 100 * max(changes, default=0) + 100
    rounds = [
        [_fetch(gate, end, Evidence(dict.fromkeys(range(PARTITIONS), end))) for gate in gates] for _ in range(ROUNDS)
    ]
    return [median(times) for times in zip(*rounds, strict=True)]


def _fetch(gate: Gate, offset: int, evidence: Evidence) -> float:
    began = time.process_time()
    for _ in range(_FETCHES):
        for q in range(PARTITIONS):
            gate.asks(q, offset, evidence)
    return (time.process_time() - began) / _FETCHES
