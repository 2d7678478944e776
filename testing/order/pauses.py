"""How long producers waited while the topic was resized, or a proxy killed: the gaps between acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kordon.testing.order.history import Acknowledged, Done, Write

AROUND_US: Final = (250_000, 5_000_000)
"""Before an action begins, and after it ended: a gap that touches this time is counted to the action."""


@dataclass(slots=True)
class Gaps:
    """The longest gaps between acknowledgements in one time, in microseconds."""

    by_producer: dict[str, int] = field(default_factory=dict[str, int])
    by_partition: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True, slots=True)
class Pause:
    """What was seen around one action."""

    done: Done
    gaps: Gaps


class Pauses:
    """Watches acknowledgements pass."""

    def __init__(self, actions: Sequence[Done]) -> None:
        self.pauses = [Pause(done, Gaps()) for done in actions]
        self.usual = Gaps()
        """Away from all actions, for comparison."""

    def seeing(self, written: Iterable[tuple[str, Write]]) -> Iterator[tuple[str, Write]]:
        """Passes producers' events on, which come in the order of time, and takes the gaps."""
        producers: dict[str, int] = {}
        partitions: dict[int, int] = {}
        for producer, event in written:
            if isinstance(event, Acknowledged):
                since = producers.get(producer)
                if since is not None:
                    self._take_producer(producer, since, event.time_us)
                since = partitions.get(event.partition)
                if since is not None:
                    self._take_partition(event.partition, since, event.time_us)
                producers[producer] = partitions[event.partition] = event.time_us
            yield producer, event

    def _take_producer(self, producer: str, since_us: int, until_us: int) -> None:
        for gaps in self._gaps_at(since_us, until_us):
            if until_us - since_us > gaps.by_producer.get(producer, -1):
                gaps.by_producer[producer] = until_us - since_us

    def _take_partition(self, partition: int, since_us: int, until_us: int) -> None:
        for gaps in self._gaps_at(since_us, until_us):
            if until_us - since_us > gaps.by_partition.get(partition, -1):
                gaps.by_partition[partition] = until_us - since_us

    def _gaps_at(self, since_us: int, until_us: int) -> list[Gaps]:
        before, after = AROUND_US
        touched = [
            pause.gaps
            for pause in self.pauses
            if since_us <= pause.done.ended_us + after and until_us >= pause.done.began_us - before
        ]
        return touched or [self.usual]
