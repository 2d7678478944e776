"""Clients of the dialect write in simulated clusters, beside others: promises hold, and need all of COUNT-FENCE."""

from itertools import islice

import pytest

from kordon.testing.simulation.cluster import run
from kordon.testing.simulation.kept_seeds import DIALECT_WRITERS, kept
from kordon.testing.simulation.noticing import noticing
from kordon.testing.simulation.rules import OF_WRITERS

pytestmark = pytest.mark.slow

SEEDS = (*range(5), 10)
"""As in test_simulation.py."""
SETTLED_SECONDS = 110.0
"""As in test_simulation.py."""
ENOUGH = 3
"""As many of them notice that a part of the rule is missing, at least."""
NOTICED_IN = {
    "COUNT-FENCE: the image before the count": (2, 0, 10),
    "COUNT-FENCE: images of physical partitions": (3, 10, 0),
    "COUNT-FENCE: the count": (3, 0, 2),
}
"""As in test_simulation.py."""


def promises_hold(seed: int) -> None:
    """Lets a cluster live, and shows its last minutes if a promise was broken."""
    cluster = run(seed, has_dialect_writers=True, heal_seconds=SETTLED_SECONDS)
    assert not cluster.wrong, "\n".join([f"seed {seed}", *cluster.world.story[-40:], *cluster.wrong])


@pytest.mark.parametrize("seed", [*SEEDS, *kept(DIALECT_WRITERS)])
def test_promises_hold_where_clients_write_to_physical_partitions(seed: int) -> None:
    """What is refused by its count is asked about, and goes elsewhere: once, and each key in order, for all readers."""
    promises_hold(seed)


@pytest.mark.parametrize("rule", OF_WRITERS)
def test_without_a_part_of_the_count_fence_clusters_break_promises(rule: str) -> None:
    """The image before the count, an image for each sealed partition, and the count: none of them can be left out."""
    assert len([*islice(noticing(rule, SEEDS, NOTICED_IN[rule], SETTLED_SECONDS), ENOUGH)]) == ENOUGH
