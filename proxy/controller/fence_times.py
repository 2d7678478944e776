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


MOST_TOPICS: Final = 200
"""Have a histogram of their own; those that come later share one."""
OTHERS: Final = "(others)"
"""No name of a topic."""
_PAUSE_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class FenceTimes:
    """Counts phases of one worker's fences by their length.

    Attributes:
        pauses: By topic, how long fences have held its writes and frozen its reads here: its phases `HOLD`. A topic
            has one from its first layout or fence on, so that its first pause is seen as an increase.
    """

    def __init__(self) -> None:
        self.pauses: dict[str, Histogram] = {}
        self.seconds: Final[Mapping[Phase, Histogram]] = {phase: Histogram() for phase in Phase}
        self._since: dict[tuple[Phase, str], float] = {}

    def begin(self, phase: Phase, topic: str) -> None:
        """A phase begins; one of the same topic that has not ended is left out."""
        self._since[phase, topic] = time.monotonic()

    def end(self, phase: Phase, topic: str) -> None:
        """A phase has ended, if it had begun."""
        pause = self._pause_of(topic) if phase is Phase.HOLD else None
        since = self._since.pop((phase, topic), None)
        if since is None:
            return
        seconds = time.monotonic() - since
        self.seconds[phase].observe(seconds)
        if pause is not None:
            pause.observe(seconds)

    def forget(self, topic: str) -> None:
        """Forgets a topic that is no longer managed."""
        self.pauses.pop(topic, None)
        for phase in Phase:
            self._since.pop((phase, topic), None)

    def _pause_of(self, topic: str) -> Histogram:
        name = topic if topic in self.pauses or len(self.pauses) < MOST_TOPICS else OTHERS
        return self.pauses.setdefault(name, Histogram(_PAUSE_BUCKETS))
