"""Segments: what a physical partition holds between two changes of its keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentId:
    """A physical partition and the layout epoch in which the segment was opened."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Offsets [start, end) of a physical partition, written under an unchanged set of virtual partitions."""

    id: SegmentId
    start: int
    end: int | None = None
    """The next offset after the last; None while it is written to."""
    predecessors: tuple[SegmentId, ...] = ()
    """Those that held its keys before."""
    lost_from: int | None = None
    """From where on its records were lost when the log got shorter (BEYOND-LOSS); None: from nowhere."""
    bound_epoch: int = -1
    """Leader epoch in which its end was read, or its start while it is written to; -1: not known."""

    @property
    def kept_end(self) -> int | None:
        """The end of its records, which is before `end` where the log got shorter."""
        return self.end if self.lost_from is None else self.lost_from
