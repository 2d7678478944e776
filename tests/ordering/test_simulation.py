"""Clusters in virtual time: whatever is killed, paused, cut off or late, nothing acknowledged is lost or doubled."""

from __future__ import annotations

import os

import pytest

from kordon.testing.simulation.cluster import run

SEEDS = int(os.environ.get("KORDON_SEEDS", "24"))
"""How many clusters live; `make deep` asks for 10,000."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_promises_hold_through_trouble(seed: int) -> None:
    """Growths and shrinks come true; nothing acknowledged is lost, doubled or out of order; positions never fall."""
    cluster = run(seed)
    assert not cluster.failures, "\n".join([*cluster.story_end, *cluster.failures])
