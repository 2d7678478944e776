"""Does long work in turns with the event loop, so that a large message of one client does not hold up the others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kordon.codecs.turns import LongWork
from kordon.proxy.core.tally import Tally

_Result = TypeVar("_Result")


class Turns:
    """The long work of one worker: one after the other, so that one large message at most is in memory as objects."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._one = asyncio.Lock()

    async def do(self, work: Callable[[], _Result]) -> _Result:
        """Does work that may be long; what takes less than a turn is done at once.

        Args:
            work: The work. It changes nothing that others look at before it ends, because they have their turn in its
                midst.

        Raises:
            Exception: The error that the work raises.
        """
        long = LongWork(work)
        result: _Result = long.switch()
        if not long.dead:
            result = await self._go_on(long, result)
        return result

    async def _go_on(self, long: LongWork, result: _Result) -> _Result:
        """Gives work turn after turn."""
        try:
            async with self._one:
                with _collector_at_rest():
                    while not long.dead:
                        await asyncio.sleep(0)
                        self._tally.turns += 1
                        result = long.switch()
            return result
        finally:
            if not long.dead:
                long.throw()


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Keeps the collector away: going through all rows at hand takes it longer than a turn."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
