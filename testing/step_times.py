"""How long work holds the event loop: the processor time between two ticks of a timer."""

from __future__ import annotations

import asyncio
from time import thread_time
from typing import Any, Final

PROMISED_SECONDS: Final = 0.05
"""No parse, build or unpack holds the event loop longer (docs/limits.md)."""
_TIMER_SECONDS: Final = 0.005


async def longest_step(doing: asyncio.Future[Any]) -> float:
    """Returns the most processor time between two ticks until something is done, in seconds."""
    longest, before = 0.0, thread_time()
    while not doing.done():
        await asyncio.sleep(_TIMER_SECONDS)
        longest, before = max(longest, thread_time() - before), thread_time()
    return longest
