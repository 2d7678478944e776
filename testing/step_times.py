"""How long work holds the event loop: the processor time of one round of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from statistics import median
from time import thread_time
from typing import Any, Final, TypeVar

PROMISED_SECONDS: Final = 0.05
"""No parse, build or unpack holds the event loop longer (docs/limits.md)."""
TRIES: Final = 10
YARDSTICK_SECONDS: Final = 0.000_14
"""What `yardstick` takes on a machine as in docs/benchmarks.md that does nothing else."""
_LONG_SECONDS: Final = 0.002
"""Rounds that take longer may be the longest one: behind them it is seen how slow the machine is."""

_Result = TypeVar("_Result")


async def in_short_steps(work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Does work and fails if one of its steps is longer than promised.

    A processor that shares its core with another one takes up to twice the time for the same work. So behind each long
    step a piece of work is timed whose time is known, and slowness is taken out. Moreover one step in thousands takes
    five times its time on a busy machine. A step that is long in truth is long each time: the work is done up to ten
    times, and the best try counts.

    Returns:
        What the work returns.
    """
    steps: list[float] = []
    while True:
        doing = asyncio.ensure_future(work())
        steps.append(await _longest_step(doing))
        result = await doing
        if steps[-1] < PROMISED_SECONDS:
            return result
        assert len(steps) < TRIES, f"the longest step of each try, in seconds of an idle machine: {steps}"


async def _longest_step(doing: asyncio.Future[Any]) -> float:
    """Returns the most processor time of one round of the event loop until something is done, in seconds."""
    longest, slowness = 0.0, [yardstick() / YARDSTICK_SECONDS]
    while not doing.done():
        before = thread_time()
        await asyncio.sleep(0)
        taken = thread_time() - before
        longest = max(longest, taken)
        if taken > _LONG_SECONDS:
            slowness.append(yardstick() / YARDSTICK_SECONDS)
    return longest / max(1.0, median(slowness))


def yardstick() -> float:
    """Times some work of the kind that codecs do, in seconds."""
    began = thread_time()
    rows: list[dict[str, int]] = [{"index": number, "code": 0} for number in range(2_000)]
    del rows
    return thread_time() - began
