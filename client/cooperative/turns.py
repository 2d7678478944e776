"""Which record is started next. No I/O, no clock."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import Generic

from kordon.client.cooperative.entry import P, R, RecordInHand, State


class StartQueue(Generic[P, R]):
    """Records that may be started, those that became so first come first; and those that wait for their next try."""

    def __init__(self) -> None:
        self._ready: deque[RecordInHand[P, R]] = deque()
        self._waiting: list[tuple[float, int, RecordInHand[P, R]]] = []
        self._numbers = itertools.count()

    def add(self, entry: RecordInHand[P, R]) -> None:
        """A record may be started."""
        entry.state = State.READY
        self._ready.append(entry)

    def wait(self, entry: RecordInHand[P, R], due: float) -> None:
        """A record may be started again, but not before a time."""
        entry.state = State.WAITING
        heapq.heappush(self._waiting, (due, next(self._numbers), entry))

    def next(self, now: float) -> RecordInHand[P, R] | None:
        """Returns the next record, and marks it as started. None: no record can start now."""
        self._awake(now)
        while self._ready:
            entry = self._ready.popleft()
            if entry.state is State.READY:
                entry.state = State.RUNNING
                entry.attempts += 1
                return entry
        return None

    def is_any(self, now: float) -> bool:
        """Whether `next` may return a record."""
        self._awake(now)
        return bool(self._ready)

    def next_due(self) -> float | None:
        """Returns when the next record that waits may be started again."""
        return self._waiting[0][0] if self._waiting else None

    def _awake(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            entry = heapq.heappop(self._waiting)[2]
            if entry.state is State.WAITING:
                self.add(entry)
