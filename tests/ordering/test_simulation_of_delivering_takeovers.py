"""Simulated topics with data are taken over while their records are delivered at once: promises hold (TAKEOVER-SHARES).

A producer waits for its acknowledgements when it learns of the new partitions: their order is what is promised.
"""

from itertools import islice

import pytest

from kordon.testing.simulation.cluster import run
from kordon.testing.simulation.noticing import noticing
from kordon.testing.simulation.rules import OF_DELIVERING

pytestmark = pytest.mark.slow

SEEDS = (*range(9), 10, 24)
"""As in test_simulation.py."""
SETTLED_SECONDS = 110.0
"""As in test_simulation.py."""
ENOUGH = 3
"""As many of them notice that a part of the rule is missing, at least."""
NOTICED_IN = {
    "TAKEOVER-SHARES": (2, 0, 1),  # what is written to v >= N is delivered as v mod N
    "TAKEOVER-SHARES: the cut waits for the old view": (8, 10, 24),
    "TAKEOVER-SHARES: wait for groups behind the cut": (3, 4, 7),
}
"""As in test_simulation.py."""


def promises_hold(seed: int) -> None:
    """Lets a cluster live, and shows its last minutes if a promise was broken."""
    cluster = run(seed, delivers=True, heal_seconds=SETTLED_SECONDS)
    assert not cluster.wrong, "\n".join([f"seed {seed}", *cluster.world.story[-40:], *cluster.wrong])
    assert [each.placement.value for each in cluster.layout.epochs[:3]] == ["unmanaged", "shared", "linear"]


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold_where_no_record_waits_for_a_takeover(seed: int) -> None:
    """All that is acknowledged is delivered once, and each key in order, to a group that reads all the time."""
    promises_hold(seed)


@pytest.mark.parametrize("rule", OF_DELIVERING)
def test_without_a_part_of_the_rule_clusters_break_promises(rule: str) -> None:
    """Each of its three parts is needed."""
    assert len([*islice(noticing(rule, SEEDS, NOTICED_IN[rule], SETTLED_SECONDS), ENOUGH)]) == ENOUGH
