"""How tests wait for something that no event tells: they look at it again and again, and say what did not come."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

SECONDS = 90.0
"""Only guards against hanging: nothing that is waited for is promised within it."""
_PAUSE_SECONDS = 0.05


def wait_until(what: str, holds: Callable[[], T], seconds: float = SECONDS) -> T:
    """Looks until something holds; returns what it looked at; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(_PAUSE_SECONDS)
    return found


async def turns(count: int = 20) -> None:
    """Lets all go on that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(what: str, holds: Callable[[], object], seconds: float = SECONDS, pause: float = _PAUSE_SECONDS) -> Any:
    """Does as `wait_until` in a loop that goes on meanwhile.

    Args:
        pause: Seconds between two looks; 0 looks at each turn of the loop, so that nothing short-lived is missed.

    Raises:
        TimeoutError: It did not hold in time.
    """
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = holds()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(pause)
    except TimeoutError:
        raise TimeoutError(f"{what}: not within {seconds:g} s") from None
