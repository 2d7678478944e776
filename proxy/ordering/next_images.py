"""The images of a layout to come, made before its fence: under it only what was written since is added (STILL-CUT).

Of 10^6 producers it takes seconds to ask, to sort and to write down, for which clients' writes cannot be held. So all
of that is done while writes go on, run by run. The parts that are written ahead begin to count with the layout; until
then, the present homes continue by the images they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import Owner, owner_of, untag
from kordon.proxy.ordering.images import (
    PRODUCERS_OF_A_PART,
    ImageParts,
    ImageRecord,
    Written,
    in_client_count,
    runs_of,
    still_needed,
)
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Epoch
from kordon.proxy.ordering.streams import Stream, physical_stream

Found: TypeAlias = dict[Owner | None, dict[int, Written]]
"""What producers have written to a partition, by whose it is (None: nobody's) and the writer (`identity.writer_id`)."""

_NO_IMAGE: Final = ImageParts()
_ENOUGH: Final = PRODUCERS_OF_A_PART // 2
"""Producers that are written as one part; more may come while other parts are written."""


def homes_left(layout: Layout, following: Epoch) -> dict[Stream, Stay | None]:
    """Returns the streams that write under another identity from `following` on, with the homes they leave.

    Of physical partitions as such those are all that are sealed (SEQ-IMAGE). None: a stream has no home, or all of it
    was lost. What was written there since may lie where no reader looks, and is in no image: its client is told of a
    gap, and sends it under another epoch (BEYOND-LOSS).
    """
    shortened = following.shortened or {}
    physical = map(physical_stream, layout.change_to(following).sealed & layout.open_segments.keys())
    homes = {stream: layout.chain(stream).home for stream in (*layout.change_to(following).movers, *physical)}
    return {
        stream: None if home is None or home.start > shortened.get(home.partition, home.start) else home
        for stream, home in homes.items()
    }


def sorted_out(written: Mapping[int, tuple[int, int]]) -> Found:
    """Sorts what producers have written to a partition, by tagged producer id: epoch and last sequence."""
    found: Found = {}
    for producer_id, (epoch, last_sequence) in written.items():
        identity = untag(producer_id)
        owner, writer = (identity.owner, identity.writer) if identity is not None else (None, producer_id)
        found.setdefault(owner, {})[writer] = Written(epoch, last_sequence)
    return found


def written_by(stream: Stream, home: Stay, found: Found) -> dict[int, Written]:
    """Returns who has written of a stream on its present home, by writer (`identity.writer_id`)."""
    nobodys = {} if home.tagged else found.get(None, {})
    return nobodys | found.get(owner_of(stream, home.move), {})


class Ahead(NamedTuple):
    """A part that is to be written down before the fence."""

    stream: Stream
    number: int
    part: ImageRecord


class NextImages:
    """The images of one layout to come.

    Args:
        standing: All parts that stand in the layouts topic, by stream.
        remembered_ms: The time for which brokers remember a silent producer, in milliseconds.
    """

    def __init__(
        self, layout: Layout, following: Epoch, standing: Mapping[Stream, ImageParts], remembered_ms: int
    ) -> None:
        self.following = following
        self.homes = homes_left(layout, following)
        self._remembered_ms = remembered_ms
        self._before = {stream: standing.get(stream, _NO_IMAGE).in_force(layout.epoch) for stream in self.homes}
        self._next_number = {stream: max(standing.get(stream, _NO_IMAGE).parts, default=0) + 1 for stream in self.homes}
        self._parts: dict[Stream, dict[int, ImageRecord]] = {stream: {} for stream in self.homes}
        self._rows: dict[Stream, dict[int, Written]] = {stream: {} for stream in self.homes}
        self._newer: dict[Stream, set[int]] = {stream: set() for stream in self.homes}
        self.to_write: list[Ahead] = []
        """Parts that nobody has taken yet."""

    def add(self, partition: int, rows: Iterable[tuple[int, int, int]], read_ms: int) -> None:
        """Takes in a run of who has written to a partition.

        Args:
            partition: The physical partition.
            rows: Tagged producer id, epoch and last sequence.
            read_ms: When they were read, in milliseconds since 1970.
        """
        found = sorted_out({producer_id: (epoch, last) for producer_id, epoch, last in rows})
        here = [stream for stream, home in self.homes.items() if home is not None and home.partition == partition]
        for stream in here:
            home = self.homes[stream]
            assert home is not None
            self._rows[stream] |= in_client_count(self._before[stream], written_by(stream, home, found))
        fullest = max(here, key=lambda stream: len(self._rows[stream]), default=None)
        if fullest is not None and len(self._rows[fullest]) >= _ENOUGH:  # one at a time takes no long
            self._put_down(fullest, read_ms)

    def carry(self, read_ms: int) -> Iterator[None]:
        """Writes what is left, and carries silent producers over, in as many steps as there are parts."""
        for stream, before in self._before.items():
            if self._rows[stream]:
                self._put_down(stream, read_ms)
            yield
            for number, part in before.parts.items():
                left = still_needed(part, self._newer[stream], read_ms - self._remembered_ms)
                if left is part:
                    self._parts[stream][number] = part
                elif left is not None:
                    self._write(stream, left.written, left.cut_ms)
                self._newer[stream].update(part.written)
                yield
        self._newer.clear()

    def take(self, most: int | None = None) -> list[Ahead]:
        """Returns what is to be written down by now, once; at most so many parts."""
        taken, self.to_write = self.to_write[:most], self.to_write[most:] if most is not None else []
        return taken

    def at_cut(self, written: Mapping[int, Mapping[int, tuple[int, int]]], cut_ms: int) -> dict[Stream, ImageParts]:
        """Returns the images as they are at the cut.

        Args:
            written: The epoch and last sequence of later writers, by physical partition and tagged producer id.
            cut_ms: When the cut was read, in milliseconds since 1970.
        """
        found = {partition: sorted_out(rows) for partition, rows in written.items()}
        images: dict[Stream, ImageParts] = {}
        for stream, home in self.homes.items():
            here = {} if home is None else written_by(stream, home, found.get(home.partition, {}))
            parts = dict(self._parts[stream])
            since = runs_of(in_client_count(self._before[stream], here))
            parts |= {number: ImageRecord(run, cut_ms) for number, run in enumerate(since, self._next_number[stream])}
            images[stream] = ImageParts(parts)
        return images

    def _put_down(self, stream: Stream, read_ms: int) -> None:
        rows, self._rows[stream] = self._rows[stream], {}
        if self._before[stream]:
            self._newer[stream].update(rows)
        self._write(stream, rows, read_ms)

    def _write(self, stream: Stream, rows: Mapping[int, Written], cut_ms: int) -> None:
        number = self._next_number[stream]
        self._next_number[stream] += 1
        part = self._parts[stream][number] = ImageRecord(rows, cut_ms, begins=self.following.number)
        self.to_write.append(Ahead(stream, number, part))
