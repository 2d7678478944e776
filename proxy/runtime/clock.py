"""The clock of leases, and the time of day."""

from __future__ import annotations

import time


def clock() -> float:
    """Returns seconds on a clock that continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Returns the time of day, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
