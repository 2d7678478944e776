"""How long work holds the event loop: the processor time between two ticks of a timer."""

from __future__ import annotations

import asyncio
from statistics import median
from time import thread_time
from typing import Any, Final

PROMISED_SECONDS: Final = 0.05
"""No parse, build or unpack holds the event loop longer (docs/limits.md)."""
_TIMER_SECONDS: Final = 0.005
_YARDSTICK_SECONDS: Final = 0.000_14
"""What `_yardstick` takes on a machine as in docs/benchmarks.md that does nothing else."""


async def longest_step(doing: asyncio.Future[Any]) -> float:
    """Returns the most processor time between two ticks until something is done, in seconds.

    A processor that shares its core with another one takes up to twice the time for the same work. So after each tick
    a piece of work is timed whose time is known, and slowness is taken out.
    """
    longest, slowness = 0.0, [1.0]
    before = thread_time()
    while not doing.done():
        await asyncio.sleep(_TIMER_SECONDS)
        longest = max(longest, thread_time() - before)
        slowness.append(_yardstick() / _YARDSTICK_SECONDS)
        before = thread_time()
    return longest / max(1.0, median(slowness))


def _yardstick() -> float:
    """Times some work of the kind that codecs do, in seconds."""
    began = thread_time()
    rows: list[dict[str, int]] = [{"index": number, "code": 0} for number in range(2_000)]
    del rows
    return thread_time() - began
