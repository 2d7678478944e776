"""An event loop whose clock stands still while the machine keeps it from running.

A test's process shares its machine with brokers, Spark and images that are built: at times it does not run for
seconds. All timers that come due in such a stall fire at once when it ends, and what had only to be read then is taken
for lost. So this loop's clock leaves stalls out. What a test waits for takes as long as ever.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Final

_AT_ONCE_SECONDS: Final = 0.5
"""What runs for longer between two looks at the sockets, or wakes later than that, was stalled for the rest."""

_Ready = list[tuple[selectors.SelectorKey, int]]


class _StallSelector(selectors.DefaultSelector):
    """Counts by how much more than half a second the loop's own steps and its waking up take."""

    def __init__(self) -> None:
        super().__init__()
        self.stalled_seconds = 0.0
        self._left = time.monotonic()

    def select(self, timeout: float | None = None) -> _Ready:
        """As `selectors`; `timeout` in seconds, None waits until something is ready."""
        entered = time.monotonic()
        self._count(entered - self._left)
        ready = super().select(timeout)
        self._left = time.monotonic()
        if timeout is not None:
            self._count(self._left - entered - max(timeout, 0.0))
        return ready

    def _count(self, late: float) -> None:
        self.stalled_seconds += max(0.0, late - _AT_ONCE_SECONDS)


class StallLoop(asyncio.SelectorEventLoop):
    """asyncio's own event loop, with a clock that leaves stalls out."""

    def __init__(self) -> None:
        self._stalls = _StallSelector()
        super().__init__(self._stalls)

    def time(self) -> float:
        return super().time() - self._stalls.stalled_seconds
