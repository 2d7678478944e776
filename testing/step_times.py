"""How long work holds the event loop: the processor time of one round of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import thread_time
from typing import Any, Final, TypeVar

PROMISED_SECONDS: Final = 0.05
"""No parse, build or unpack holds the event loop longer (docs/limits.md)."""
_TRIES: Final = 3

_Result = TypeVar("_Result")


async def in_short_steps(work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Does work and fails if one of its steps is longer than promised.

    On a busy machine one step in thousands takes five times its time. A step that is long in truth is long each time:
    the work is done up to three times, and the best try counts.

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
        assert len(steps) < _TRIES, f"the longest step of each try, in seconds: {steps}"


async def _longest_step(doing: asyncio.Future[Any]) -> float:
    """Returns the most processor time of one round of the event loop until something is done, in seconds."""
    longest = 0.0
    while not doing.done():
        before = thread_time()
        await asyncio.sleep(0)
        longest = max(longest, thread_time() - before)
    return longest
