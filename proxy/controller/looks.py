"""How often the controller looks at the groups of a topic that is taken over: often at first, and seldom later.

New virtual partitions are withheld until a look finds that all groups have passed the cuts (TAKEOVER-SHARES). Groups
that keep up do so with their next commit, so a look must not come long after it. A group that has not done so for half
a minute is not in a hurry, and each look asks the coordinators of all groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kordon.proxy.runtime.clock import clock

SHORTEST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 3.0
_SHARE: Final = 0.1
"""Of the time that a step of the takeover has lasted: so much later than it could, a look may end the step."""


@dataclass(slots=True)
class _Step:
    """A step of a takeover.

    Attributes:
        epoch: The layout epoch, which is another one in each step.
        since: The time of the first look, in seconds of a monotonic clock.
        due: The time of the next look, in seconds of a monotonic clock.
    """

    epoch: int
    since: float
    due: float


class Looks:
    """Says when the groups of each topic are looked at."""

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}

    def is_due(self, topic: str, epoch: int) -> bool:
        """Whether they are looked at now; if so, the next look is due later.

        Args:
            topic: The topic's name.
            epoch: The topic's layout epoch. The first look under another epoch is due at once.
        """
        now = clock()
        step = self._steps.get(topic)
        if step is None or step.epoch != epoch:
            step = self._steps[topic] = _Step(epoch, now, now)
        if now < step.due:
            return False
        step.due = now + min(max((now - step.since) * _SHARE, SHORTEST_SECONDS), LONGEST_SECONDS)
        return True

    def hurry(self, topic: str) -> None:
        """Has the groups of a topic looked at again at once, and often for a while."""
        self._steps.pop(topic, None)
