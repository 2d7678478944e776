"""What the gate of ordered delivery takes of a worker's time for one Fetch: `python -m kordon.bench.gate_cost`.

For each partition of a request the gate is asked up to where it may be delivered. Layouts that have grown and shrunk
often are measured beside one that never has, in turn, so that a busy machine is as busy for the one as for the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final
from uuid import UUID

import click

from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.layout import Layout

PARTITIONS: Final = 12
"""Of the topic when it is read, all of them in one Fetch."""
ROUNDS: Final = 5
_FETCHES: Final = 500


@dataclass(frozen=True)
class Cost:
    """CPU seconds for one Fetch of all partitions, medians over rounds."""

    changes: int
    """How often the topic grew or shrank before."""
    open: float
    """Of a group that stands at the ends: nothing is held."""
    held: float
    """Of a group of which nothing is known: each partition that had a predecessor is held."""


def changed_often(changes: int) -> Layout:
    """Returns a layout of 12 partitions that goes from 12 to 6 and back, in turn, for so many changes."""
    layout = Layout.created("orders", UUID(int=1), PARTITIONS // 4, 4 * PARTITIONS)
    layout = layout.changed(layout.next_epoch(PARTITIONS), dict.fromkeys(range(PARTITIONS), 1))
    for number in range(changes):
        following = layout.next_epoch(PARTITIONS // 2 if number % 2 == 0 else PARTITIONS)
        layout = layout.changed(following, dict.fromkeys(range(PARTITIONS), 100 * (number + 1)))
    return layout


def measure(changes: Sequence[int]) -> list[Cost]:
    """Measures layouts that changed so often, in turn."""
    gates = [Gate.of(changed_often(each)) for each in changes]
    end = 100 * max(changes, default=0) + 100
    known = Evidence(dict.fromkeys(range(PARTITIONS), end))
    nothing = Evidence()
    rounds = [[(_fetch(gate, end, known), _fetch(gate, end, nothing)) for gate in gates] for _ in range(ROUNDS)]
    return [
        Cost(each, *(median(times[place][kind] for times in rounds) for kind in (0, 1)))
        for place, each in enumerate(changes)
    ]


def _fetch(gate: Gate, offset: int, evidence: Evidence) -> float:
    began = time.process_time()
    for _ in range(_FETCHES):
        for q in range(PARTITIONS):
            gate.limit(q, offset, evidence)
    return (time.process_time() - began) / _FETCHES


@click.command()
@click.option("--changes", type=int, multiple=True, default=(0, 10, 100), show_default=True)
def main(changes: tuple[int, ...]) -> None:
    """Prints what the gate takes of a Fetch of 12 partitions, by how often the topic grew and shrank before."""
    for cost in measure(changes):
        click.echo(
            f"{cost.changes:5} changes: {cost.open * 1e6:5.1f} us CPU per Fetch, "
            f"{cost.held * 1e6:5.1f} us where nothing is known of the group"
        )


if __name__ == "__main__":
    main()
