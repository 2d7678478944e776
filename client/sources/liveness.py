"""Whether the application still does something: case 4 of KIP-509. Pure: the caller tells the time."""

from __future__ import annotations


class Liveness:
    """The application's progress, apart from the process's heartbeats.

    Args:
        seconds: The time for which the application may do nothing.
        now: The current time of the caller's clock.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._last = now
        self._calls = 0
        self._is_warned = False

    def begin(self) -> None:
        """Notes that the application waits for a call, which is no sign of its death."""
        self._calls += 1

    def end(self, now: float) -> None:
        """Notes that the call has returned."""
        self._calls -= 1
        self.alive(now)

    def alive(self, now: float) -> None:
        """Notes that the application is active."""
        self._last = now
        self._is_warned = False

    def is_dead(self, now: float) -> bool:
        """Whether it has done nothing for too long."""
        return not self._calls and now - self._last >= self._seconds

    def is_to_be_warned(self, now: float) -> bool:
        """Whether half of that time has passed; once for each silence."""
        warns = not self._calls and not self._is_warned and now - self._last >= self._seconds / 2
        self._is_warned = self._is_warned or warns
        return warns

    def seconds_left(self, now: float) -> float:
        """Returns when to look again."""
        if self._calls:
            return self._seconds / 2
        idle = now - self._last
        return max(0.0, (self._seconds / 2 if idle < self._seconds / 2 else self._seconds) - idle)
