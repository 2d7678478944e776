"""Tests of short steps notice each step that is long in truth, and none that a busy machine makes long."""

from collections.abc import Iterator

import pytest

from kordon.testing import step_times
from kordon.testing.step_times import TRIES, YARDSTICK_SECONDS, in_short_steps


class Clock:
    """The processor time of this thread; it stands still but for what work is said to take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def work(self, tries: Iterator[float]) -> str:
        self.seconds += next(tries)
        return "done"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(step_times, "thread_time", lambda: made.seconds)
    return made


async def test_a_step_that_is_long_each_time_is_noticed(clock: Clock) -> None:
    """Though by little."""
    with pytest.raises(AssertionError, match="the longest step of each try"):
        await in_short_steps(lambda: clock.work(iter([0.051])))


async def test_a_step_that_is_short_once_is_short(clock: Clock) -> None:
    """Else the machine had other work."""
    tries = iter([0.3] * (TRIES - 1) + [0.049])
    assert await in_short_steps(lambda: clock.work(tries)) == "done"


async def test_the_slowness_of_the_machine_is_taken_out(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as fast, a step takes twice as long."""
    monkeypatch.setattr(step_times, "yardstick", lambda: 2 * YARDSTICK_SECONDS)
    assert await in_short_steps(lambda: clock.work(iter([0.099]))) == "done"
