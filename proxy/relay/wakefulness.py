"""Whether the process has run all the while, or has slept for as long as others wait for it (LIVE-LEASE)."""

from __future__ import annotations

from collections.abc import Callable

from kordon.proxy.runtime import log_limits
from kordon.proxy.runtime.clock import clock

log = log_limits.client_log(__name__)


class Wakefulness:
    """Notices when the process has stood still for longer than a lease.

    Others do not wait for longer than a lease for a process that is stopped or starved. What its clients sent before,
    and what brokers have answered, may concern a topic that has come to be managed meanwhile.

    Args:
        lease_seconds: The seconds for which the process may stand still; infinite where nothing can be managed.
        on_woken: Called with the seconds for which it has stood still, if they are more.
    """

    def __init__(self, lease_seconds: float, on_woken: Callable[[float], None]) -> None:
        self._lease_seconds = lease_seconds
        self._on_woken = on_woken
        self._looked = clock()
        self.asleep_after = self._looked + lease_seconds
        """By `clock`, when a whole lease has passed since the last `look`."""

    def look(self) -> bool:
        """Returns whether the process has run since the last look; calls `on_woken` if not."""
        now = clock()
        slept, self._looked, self.asleep_after = now - self._looked, now, now + self._lease_seconds
        if slept <= self._lease_seconds:
            return True
        log.warning("woke_up", seconds=round(slept, 1))
        self._on_woken(slept)
        return False
