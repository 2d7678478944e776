"""How long fences last, and what they wait for: by it operators see where the pause of a resize comes from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from typing import Final

from kordon.proxy.core.tally import Histogram


class Phase(Enum):
    """What a fence waits for; `HOLD` is all of it, as one worker's clients see it."""

    HOLD = "hold"
    """Writes are held here: until the next layout is adopted, or the fence cancelled."""
    DRAIN = "drain"
    """What was under way here comes to its end, and reading is frozen."""
    ACKNOWLEDGE = "acknowledge"
    """The controller waits for all proxies."""
    CUT = "cut"
    """The controller reads ends and producers of the sealed partitions."""
    COMMIT = "commit"
    """The controller writes the layout."""


class FenceTimes:
    """Counts phases of one worker's fences by their length."""

    def __init__(self) -> None:
        self.seconds: Final[Mapping[Phase, Histogram]] = {phase: Histogram() for phase in Phase}
        self._since: dict[tuple[Phase, str], float] = {}

    def begin(self, phase: Phase, topic: str) -> None:
        """A phase begins; one of the same topic that has not ended is left out."""
        self._since[phase, topic] = time.monotonic()

    def end(self, phase: Phase, topic: str) -> None:
        """A phase has ended, if it had begun."""
        since = self._since.pop((phase, topic), None)
        if since is not None:
            self.seconds[phase].observe(time.monotonic() - since)
