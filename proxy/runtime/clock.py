"""The clock of leases."""

from __future__ import annotations

import time


def clock() -> float:
    """Returns seconds on a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
