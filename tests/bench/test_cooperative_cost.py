"""The bench of cooperative consumers counts each step of a record, and what a commit holds."""

from __future__ import annotations

import pytest

from kordon.bench import cooperative


async def test_each_step_of_a_record_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With records that end at random, so that there are ranges to commit."""
    monkeypatch.setattr(cooperative, "RECORDS", 3_000)
    cost = await cooperative.measure(1_000)
    assert set(cost.us) == {"fetched", "started", "acknowledged"}
    assert 0 < cost.fitting <= cost.ranges
    assert 0 < cost.metadata_bytes <= 4096
    assert 0 < cost.commit_bytes <= 3 * cost.ranges + 9
