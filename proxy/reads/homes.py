"""Where the streams of one topic are read now, as far as somebody has asked: looked up for each row of each Fetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.physical_reading import log_read_by
from kordon.proxy.ordering.reading import first_readable
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.logs import PartitionLog


class StreamHome(NamedTuple):
    """The place where a stream is now written and delivered."""

    stream: Stream
    stay: Stay
    log: PartitionLog
    """The log of its physical partition."""
    least: int
    """The lowest virtual offset that is read there."""
    delta: int
    """The number that is added to a physical offset to get the virtual one."""
    is_first: bool
    """Whether it has lived nowhere else."""

    @property
    def start(self) -> int:
        """The offset at which clients are told that a stream begins that has lived nowhere else."""
        return max(self.least, (self.log.log_start or 0) + self.delta)


class TopicHomes(dict[Stream, StreamHome]):
    """The homes of a topic's streams under one layout, by stream; made when they are asked for.

    Args:
        log: Returns the log of a `log_read_by`.
    """

    def __init__(self, layout: Layout, log: Callable[[int], PartitionLog]) -> None:
        super().__init__()
        self._layout = layout
        self._log = log

    def find(self, stream: Stream) -> StreamHome | None:
        """Returns where a stream is written and delivered now; None: nowhere."""
        home = self.get(stream)
        if home is None and (stay := self._layout.open_home(stream)) is not None:
            log = self._log(log_read_by(stream, stay.partition))
            floor = (self._layout.floors or {}).get(stream, 0)
            is_first = len(self._layout.chain(stream).stays) == 1
            least = max(stay.virtual_start, floor)
            home = self[stream] = StreamHome(stream, stay, log, least, stay.delta, is_first)
        return home

    def start_of(self, stream: Stream) -> int:
        """Returns the offset at which clients are told that a stream begins, as far as is known here."""
        home = self.find(stream)
        if home is not None and home.is_first:
            return home.start
        floor = (self._layout.floors or {}).get(stream, 0)
        return first_readable(
            self._layout.chain(stream),
            floor,
            lambda partition: self._log(log_read_by(stream, partition)).log_start or 0,
        )
