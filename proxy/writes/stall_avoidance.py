"""Ways round a physical partition that does not answer (SHARED-LANES).

A broker works on one request of a connection at a time. It answers a request whose copies lag late, after
`replica.lag.time.max.ms` or the producer's own time limit, and holds up what is behind it on the connection. A client
of a broker suffers that from its own partitions only, but a worker's connection carries the writes of many clients. So
what waits too long is answered for by its own partitions: these get connections apart, and all others go round the one
that waits. What was on its way with it by then is answered soon, too: brokers may wait two seconds for copies, and then
are asked again about what is late (`ClientWrite.patience_ms`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.under_way import Partition
from kordon.proxy.writes.broker_writer import BrokerWriter

WRITERS_PER_BROKER: Final = 4
"""Those virtual partitions that share a physical one are neighbours, and a request takes one batch of each
physical partition: so with V = 4U a client's request becomes one request on each of these connections."""
STALL_SECONDS: Final = 0.5
"""How long a request may be unanswered before others go round it."""
APART_SECONDS: Final = 10.0
"""How long a partition that was in such a request goes apart, from when it was last seen to wait."""
_SPARE: Final = 2
"""Connections that take the place of one that waits, at most."""
_FIRST_APART: Final = WRITERS_PER_BROKER * (1 + _SPARE)
_WRITERS_APART: Final = 8
"""Per broker; partitions above that share them."""


class StallAvoidance:
    """Says which connection to a broker the writes of a stream take."""

    def __init__(self) -> None:
        self.stalls = 0
        """Connections that were found waiting; only rises."""
        self._waiting: list[BrokerWriter] = []
        self._apart: dict[Partition, tuple[int, float]] = {}
        """The number of its connection, and when it was last seen to wait."""

    @property
    def apart(self) -> int:
        """Physical partitions that go apart now."""
        return len(self._apart)

    @property
    def is_quiet(self) -> bool:
        """Whether every stream takes its first connection."""
        return not (self._waiting or self._apart)

    def numbers(self, partition: Partition, stream: Stream) -> tuple[int, ...]:
        """Returns the numbers of the connections that may carry a stream's writes, the best one first."""
        if partition in self._apart:
            return (self._apart[partition][0],)
        return tuple(range(stream % WRITERS_PER_BROKER, _FIRST_APART, WRITERS_PER_BROKER))

    def is_free(self, writer: BrokerWriter) -> bool:
        """Whether a connection is not known to wait."""
        return writer not in self._waiting

    def look(self, writers: Iterable[BrokerWriter], now: float) -> list[BrokerWriter]:
        """Finds the connections that wait.

        Args:
            writers: All broker writers.
            now: Seconds of the loop's clock.

        Returns:
            Those that did not wait at the last look: what they have not sent can go round them.
        """
        waiting = [each for each in writers if each.waits_since is not None and now - each.waits_since > STALL_SECONDS]
        found = [each for each in waiting if each not in self._waiting]
        self._waiting = waiting
        self.stalls += len(found)
        for partition in dict.fromkeys(each for writer in waiting for each in writer.under_way):
            number = self._apart[partition][0] if partition in self._apart else self._least_used()
            self._apart[partition] = number, now
        self._apart = {each: seen for each, seen in self._apart.items() if now - seen[1] <= APART_SECONDS}
        return found

    def _least_used(self) -> int:
        used = Counter(number for number, _ in self._apart.values())
        return min(range(_FIRST_APART, _FIRST_APART + _WRITERS_APART), key=lambda number: used[number])
