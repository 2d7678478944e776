"""What happens in a model, one after another, on a clock that nobody waits for; a seed decides all chance."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from random import Random


class Timeline:
    """Events that are to come, and the time that it is, in seconds since the beginning."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311 - a seed replays
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        """Has something happen in so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def live_on(self, life: Iterator[float]) -> None:
        """Goes on with somebody who does something, and names the seconds until its next step."""
        seconds = next(life, None)
        if seconds is not None:
            self.at(seconds, lambda: self.live_on(life))

    def until(self, end: float, is_over: Callable[[], object]) -> None:
        """Lets everything happen up to a time, or until it is over."""
        while self._events and self._events[0][0] <= end and not is_over():
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = max(self.now, end)
