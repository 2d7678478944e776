"""A cooperative group through any history of trouble: nothing is lost, no key is out of order, little is repeated."""

from __future__ import annotations

import pytest

from kordon.testing.cooperative_group import Group


def play(seeds: range) -> int:
    """Plays histories; returns how many records were repeated in them."""
    repeats = 0
    for seed in seeds:
        group = Group(seed)
        group.run()
        repeats += group.repeats
    return repeats


def test_nothing_is_lost_nor_out_of_order_in_simulated_groups() -> None:
    """Members die at each step, commits are late or lost, partitions move, offsets go back, the topic is made again."""
    assert play(range(100)) > 0, "nothing was repeated: this has shown nothing of crashes"


@pytest.mark.deep
def test_nothing_is_lost_nor_out_of_order_in_many_simulated_groups() -> None:
    """Ten thousand of them."""
    assert play(range(100, 10_100)) > 0
