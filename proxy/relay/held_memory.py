"""How much memory the connections of a worker hold together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Holder(Protocol):
    """A connection, as far as its memory is concerned."""

    noted_bytes: int
    """What it held when it was last noted."""


class HeldMemory:
    """Counts what connections hold, and has some closed when it is too much.

    Args:
        limit_bytes: Returns `limits.held_bytes`, which a reload may change.
        shed: Called to close connections until the rest holds no more than the limit.
    """

    def __init__(self, limit_bytes: Callable[[], int], shed: Callable[[], None]) -> None:
        self.bytes = 0
        self.is_too_much = False
        """Whether it was more than the limit when something was last noted."""
        self.shed = shed
        self._limit_bytes = limit_bytes
        self._holders: set[Holder] = set()

    def join(self, holder: Holder) -> None:
        """Counts a connection from now on."""
        self._holders.add(holder)

    def leave(self, holder: Holder) -> None:
        """Counts a connection no more."""
        self.note(holder, 0)
        self._holders.discard(holder)

    def note(self, holder: Holder, held_bytes: int) -> None:
        """Takes down what a connection holds now, if it is counted."""
        if holder in self._holders:
            self.bytes += held_bytes - holder.noted_bytes
            holder.noted_bytes = held_bytes
            self.is_too_much = self.bytes > self._limit_bytes()
