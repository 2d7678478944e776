"""Does not read from a client for a while, as it has taken more than its quota allows (KIP-219)."""

from __future__ import annotations

import asyncio
from typing import Final

from kordon.proxy.relay.socket_end import SocketEnd

_THROTTLED: Final = "its client has taken more than its quota allows"


class Muting:
    """Mutes one client.

    Args:
        end: The client's end of the connection.
    """

    def __init__(self, end: SocketEnd) -> None:
        self.timer: asyncio.TimerHandle | None = None
        """Ends it; None: the client is not muted."""
        self._end = end

    def mute(self, seconds: float) -> None:
        """Begins it, or has it last longer: of several calls the one counts that ends last."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self.timer is not None and self.timer.when() >= until:
            return
        self.cancel()
        self._end.hold(_THROTTLED)
        self.timer = loop.call_at(until, self._over)

    def cancel(self) -> None:
        """Lets go of the timer, which may be far away: the connection has ended."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _over(self) -> None:
        self.timer = None
        self._end.release(_THROTTLED)
