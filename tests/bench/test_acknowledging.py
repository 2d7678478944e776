"""The bench of acknowledgements counts each step of a record, and what a commit holds."""

from __future__ import annotations

from kordon.bench.acknowledging import measure
from kordon.codecs.ranges import MOST_RANGES


def test_each_step_of_a_record_is_counted() -> None:
    """Every second one is finished, so that there are as many ranges as acknowledgements."""
    cost = measure(1_000, rounds=2)
    assert set(cost.us) == {"fetched", "started", "acknowledged"}
    assert cost.ranges == 1_000
    assert 0 < cost.fitting <= cost.ranges
    assert 0 < cost.metadata_bytes <= 4096


def test_a_consumer_goes_on_behind_as_many_ranges_as_there_may_be() -> None:
    """With the default limits, and a commit of them has 24 KB at most."""
    cost = measure(rounds=1)
    assert cost.ranges == MOST_RANGES
    assert cost.commit_bytes <= 24_000
    assert cost.taken_on == MOST_RANGES
