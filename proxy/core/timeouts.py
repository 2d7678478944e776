"""How long one connection may take for what."""

from __future__ import annotations

from typing import Protocol

from kordon.proxy.core.causes import CloseCause


class TimeLimits(Protocol):
    """The times of one connection (`kordon.proxy.config.config.Limits`)."""

    @property
    def idle_ms(self) -> int:
        """Milliseconds without a byte either way after which a connection ends."""
        ...

    @property
    def handshake_ms(self) -> int:
        """Milliseconds from the connection's beginning to its first whole request."""
        ...

    @property
    def request_ms(self) -> int:
        """Milliseconds from a request's first byte to its last."""
        ...


class Timeouts:
    """The times of one connection, which say what takes too long.

    Args:
        now: The time at which the connection began, in seconds of a monotonic clock.
    """

    __slots__ = ("_limits", "_opened", "active")

    def __init__(self, limits: TimeLimits, now: float) -> None:
        self.active = now
        """The time of the last byte in either direction, in seconds."""
        self._limits = limits
        self._opened = now

    def overdue(
        self, now: float, *, frames: int, frame_started: float | None, is_answered: bool
    ) -> tuple[CloseCause, str] | None:
        """Returns why the connection is to end; None: it may continue.

        Args:
            now: The present time, on the same clock.
            frames: The number of requests that have begun so far.
            frame_started: The time at which the unfinished request began; None: no request is unfinished.
            is_answered: Whether no response is due.
        """
        limits = self._limits
        if not frames and now - self._opened > limits.handshake_ms / 1000:
            detail = f"no whole request within limits.handshake_ms ({limits.handshake_ms})"
            return CloseCause.HANDSHAKE_TIMEOUT, detail
        if frame_started is not None and now - frame_started > limits.request_ms / 1000:
            detail = f"a request was not complete within limits.request_ms ({limits.request_ms})"
            return CloseCause.REQUEST_TIMEOUT, detail
        if now - self.active > limits.idle_ms / 1000 and is_answered:
            return CloseCause.IDLE, f"nothing was sent for limits.idle_ms ({limits.idle_ms})"
        return None
