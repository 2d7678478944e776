"""Wakes who waits for records of a share group that are free again, one at a time: most would get nothing."""

from __future__ import annotations

import asyncio
from collections import deque


class Bell:
    """Wakes the waiting members of one group and partition, one at a time."""

    def __init__(self) -> None:
        self.rung = 0
        """The number of times that it was rung."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    def ring(self) -> None:
        """Says that there may be something; wakes one who waits."""
        self.rung += 1
        self.wake()

    def wake(self) -> None:
        """Wakes one more, as whoever got something does."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                return

    def wait(self) -> asyncio.Future[None]:
        """Returns what is done once it is rung for the caller, who calls `leave` in the end."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def leave(self, waiter: asyncio.Future[None]) -> None:
        """Ends the wait."""
        if not waiter.done():
            self._waiting.remove(waiter)
