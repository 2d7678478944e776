"""Offsets by time in topics with transactions: never that of a witness or a marker (STABLE-END has the ends).

Both have the time at which they were written, and records may say much older ones. So a broker that looks for a time
finds them, and records behind them need not be as young.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from kordon.codecs.records import CURRENT_MAGIC, MAGIC_AT, look_batch
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.lookups import LATEST
from kordon.proxy.ordering.physical_reading import log_read_by
from kordon.proxy.ordering.reading import ReadingPlace, reading_place
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.events import Marker, Witness
from kordon.proxy.reads.segment_views import LogSegmentView
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

NOWHERE: Final = -1
"""No record is as young."""
_SECONDS: Final = 2.0
_MOST_READS: Final = 16
"""Of a megabyte, for one answer."""
_WITNESS_OFFSETS: Final = 2
"""At most."""


class TimedOffsets:
    """Corrects what brokers have found by time."""

    def __init__(self, reads: WorkerReads) -> None:
        self._reads = reads

    async def of(self, topic: ManagedTopic, stream: Stream, offset: int, timestamp: int) -> int | None:
        """Returns where the first record of a stream stands, from an offset on, that can be as young as a time.

        Args:
            topic: A topic with transactions.
            offset: The offset that a broker has found, as clients count.
            timestamp: Milliseconds since 1970.

        Returns:
            The offset itself if no witness or marker stands there, and where the search ended if that took too long;
            `NOWHERE`; None: the log cannot be read now.
        """
        layout, home = topic.layout, topic.layout.chain(stream).stays[-1]
        search = _Search(stream, timestamp, offset, offset)
        try:
            async with asyncio.timeout(_SECONDS):
                end = (await self._reads.ends.of(topic.name, (home.partition,), LATEST)).get(home.partition)
                for _ in range(_MOST_READS):
                    place = reading_place(layout.chain(stream), search.position, 0)
                    if end is None or place is None or topic.layout is not layout:
                        return None
                    if place.is_home and place.position >= end:
                        return NOWHERE
                    log = self._reads.logs.of(topic, log_read_by(stream, place.stay.partition))
                    view = log.views.at(place.position)
                    if view is None and not await log.arrives(place.position):
                        return None
                    if view is not None and search.is_over(view, place):
                        break
        except TimeoutError:
            pass
        return search.position if topic.layout is layout else None


@dataclass(slots=True)
class _Search:
    stream: Stream
    timestamp: int
    begin: int
    position: int
    """Both as clients count."""

    def is_over(self, view: LogSegmentView, place: ReadingPlace) -> bool:
        """Looks through a view; returns whether the position is the answer."""
        if self.position == self.begin and not _is_event(view, place.position):
            return True
        young = _first_young(view, self.stream, place.position, self.timestamp)
        self.position = _behind(view, place.stay) if young is None else young + place.stay.delta
        return young is not None


def _is_event(view: LogSegmentView, position: int) -> bool:
    """Whether a witness or a marker stands at a position."""
    markers = {each.offset for each in view.seen if isinstance(each, Marker)}
    witnesses = (each.offset for each in view.seen if isinstance(each, Witness))
    return position in markers or any(position - _WITNESS_OFFSETS < each <= position for each in witnesses)


def _first_young(view: LogSegmentView, stream: Stream, position: int, timestamp: int) -> int | None:
    """Returns the first offset of a batch of a stream in a view that has a record as young; None: there is none."""
    for entry in view.entries.get(stream, []):
        if entry.next_offset > position and _youngest(entry.data) >= timestamp:
            return max(entry.base_offset, position)
    return None


def _youngest(batch: memoryview) -> int:
    return look_batch(batch, 0).max_timestamp if batch[MAGIC_AT] == CURRENT_MAGIC else 2**63 - 1


def _behind(view: LogSegmentView, stay: Stay) -> int:
    """Returns the offset after a view, or after the stay, as clients count."""
    end = view.end if stay.kept_end is None else min(view.end, stay.kept_end)
    return (stay.end if stay.end is not None and end >= (stay.kept_end or 0) else end) + stay.delta
