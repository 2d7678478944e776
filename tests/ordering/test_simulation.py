"""Clusters in virtual time: whatever is killed, paused, cut off or late, nothing acknowledged is lost or doubled."""

from __future__ import annotations

import os

import pytest

from kordon.testing.simulation.cluster import run

QUICK_SEEDS = 16
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


NOTICED_IN = {
    "C1": 11,  # nobody serves without a lease
    "C2": 3,  # whoever is missing is waited for
    "C3": 13,  # a lease alone does not let a proxy serve: it reads the layouts first
    "C5": 0,  # nothing is delivered from behind a fence
    "C6": 0,  # a cut is read again if somebody wrote meanwhile
    "C7": 13,  # a success that comes late is held against the layouts
    "F4": 0,  # what retention took from the middle of a chain is passed over
    "F5": 0,  # what seems out of range may stand in a layout that has not been read yet
    "I3": 0,  # the image goes along with a move
    "I4": 0,  # the opener of a segment goes alone
    "fence": 0,  # writes are held while a cut is read
    "predecessors": 0,  # former homes are read first
}
"""By rule, a cluster that breaks a promise without it. Another number only costs time: more are looked through."""


@pytest.mark.parametrize(("rule", "seed"), NOTICED_IN.items())
def test_without_one_of_its_rules_a_cluster_breaks_a_promise(rule: str, seed: int) -> None:
    """The simulation sees what rules are for; with all of them the same clusters keep every promise (above)."""
    assert any(run(each, without=rule).failures for each in (seed, *range(QUICK_SEEDS)))
