"""Clusters in virtual time: whatever is killed, paused, cut off or late, nothing acknowledged is lost or doubled."""

from __future__ import annotations

import os

import pytest

from kordon.testing.simulation.cluster import run

QUICK_SEEDS = 24
DEEP_SEEDS = int(os.environ.get("KORDON_SEEDS", "10000"))
"""How many clusters live in `make deep`, at about half a second each."""


def promises_hold(seed: int) -> None:
    """Lets a cluster live, and shows its last minutes if a promise was broken."""
    cluster = run(seed)
    assert not cluster.failures, "\n".join([f"seed {seed}", *cluster.story_end, *cluster.failures])


@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
def test_promises_hold_through_trouble(seed: int) -> None:
    """Growths and shrinks come true; nothing acknowledged is lost, doubled or out of order; positions never fall."""
    promises_hold(seed)


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_promises_hold_through_much_trouble() -> None:
    """The same for thousands of clusters."""
    for seed in range(DEEP_SEEDS):
        promises_hold(seed)


@pytest.mark.parametrize(
    ("rule", "seed"),
    [("C1", 42), ("C2", 0), ("I3", 0), ("I4", 0), ("fence", 0)],
)
def test_without_one_of_its_rules_a_cluster_breaks_a_promise(rule: str, seed: int) -> None:
    """The simulation sees what rules are for: a lease, waiting for the missing, images, openers of a segment."""
    assert run(seed, without=rule).failures
    assert not run(seed).failures
