"""Ways round a physical partition that does not answer (SHARED-LANES).

A broker works on one request of a connection at a time. One whose copies lag is answered late, after
`replica.lag.time.max.ms` or the producer's own time limit, and holds up what is behind it on its connection. Clients of
a broker suffer that from their own partitions only; a lane carries the writes of many clients. So what waits too long
is answered for by its own partitions: these get connections apart, and all others go round the one that waits. What
was on its way with it by then is answered soon, too: brokers are let wait for copies for two seconds, then
asked again about what is late (`Ticket.patience_ms`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.under_way import Partition
from kordon.proxy.writes.lane import Lane

LANES_PER_BROKER: Final = 4
"""Those virtual partitions that share a physical one are neighbours, and a request takes one batch of each
physical partition: so with V = 4U a client's request becomes one request on each lane."""
STALL_SECONDS: Final = 0.5
"""How long a request may be unanswered before others go round it."""
APART_SECONDS: Final = 10.0
"""How long a partition that was in such a request goes apart, from when it was last seen to wait."""
_SPARE: Final = 2
"""Lanes that take the place of one that waits, at most."""
_FIRST_APART: Final = LANES_PER_BROKER * (1 + _SPARE)
_LANES_APART: Final = 8
"""Per broker; partitions above that share them."""


class Detours:
    """Which lane the writes of a stream take."""

    def __init__(self) -> None:
        self.stalls = 0
        """Lanes that were found waiting; only rises."""
        self._waiting: list[Lane] = []
        self._apart: dict[Partition, tuple[int, float]] = {}
        """The number of its lane, and when it was last seen to wait."""

    @property
    def apart(self) -> int:
        """Physical partitions that go apart now."""
        return len(self._apart)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody needs another lane than the first one."""
        return not (self._waiting or self._apart)

    def numbers(self, partition: Partition, stream: Stream) -> tuple[int, ...]:
        """Returns the numbers of the lanes that may carry a stream's writes, the best one first."""
        if partition in self._apart:
            return (self._apart[partition][0],)
        return tuple(range(stream % LANES_PER_BROKER, _FIRST_APART, LANES_PER_BROKER))

    def is_free(self, lane: Lane) -> bool:
        """Whether a lane is not known to wait."""
        return lane not in self._waiting

    def look(self, lanes: Iterable[Lane], now: float) -> list[Lane]:
        """Finds the lanes that wait.

        Args:
            lanes: All there are.
            now: Seconds of the loop's clock.

        Returns:
            Those that did not wait at the last look: what they have not sent can go round them.
        """
        waiting = [lane for lane in lanes if lane.waits_since is not None and now - lane.waits_since > STALL_SECONDS]
        found = [lane for lane in waiting if lane not in self._waiting]
        self._waiting = waiting
        self.stalls += len(found)
        for partition in dict.fromkeys(each for lane in waiting for each in lane.under_way):
            number = self._apart[partition][0] if partition in self._apart else self._least_used()
            self._apart[partition] = number, now
        self._apart = {each: seen for each, seen in self._apart.items() if now - seen[1] <= APART_SECONDS}
        return found

    def _least_used(self) -> int:
        used = Counter(number for number, _ in self._apart.values())
        return min(range(_FIRST_APART, _FIRST_APART + _LANES_APART), key=lambda number: used[number])
