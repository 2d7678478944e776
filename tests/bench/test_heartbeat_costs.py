"""The bench of dialect groups' heartbeats runs, and says what it measured."""

import time
from itertools import count

import pytest

from kordon.bench.positions import Costs, measure


async def test_groups_of_each_size_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker decides and answers counts, for each member; what is between the two is the broker's.

    By a clock that goes on by one second whenever somebody looks at it: a true one may stand still on a busy machine.
    """
    clock = count()
    monkeypatch.setattr(time, "process_time", lambda: float(next(clock)))
    assert await measure((2, 30)) == [Costs(2, 2 / 2, 2 / 2), Costs(30, 2 / 30, 2 / 30)]
