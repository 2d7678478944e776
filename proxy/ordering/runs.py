"""Runs of virtual partitions: neighbours that have always lived together, and so share one chain."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.hashing import shortest_run
from kordon.proxy.ordering.placements import Epoch, Placement, Placements
from kordon.proxy.ordering.segments import Segment


class Run(NamedTuple):
    """Virtual partitions that have always lived together: neighbours."""

    vs: range
    chain: Chain
    """The chain of each of them."""


class RunHistory:
    """Derives the runs of a layout from its history.

    Args:
        placements: Say where virtual partitions live in an epoch.
        epochs: All so far, oldest first.
        segments: All segments so far.
    """

    def __init__(self, placements: Placements, epochs: Sequence[Epoch], segments: Sequence[Segment]) -> None:
        self._placements = placements
        self._epochs = epochs
        self._segments = segments

    def runs(self) -> tuple[Run, ...]:
        """Returns the runs, each with where it has lived."""
        lines: list[list[Stay]] = [[] for _ in self._starts]
        by_epoch = self._segments_by_epoch()
        for epoch in self._epochs:
            begins_anew = {*(epoch.shortened or ()), *epoch.renewed}
            for q, segment in by_epoch.get(epoch.number, {}).items():
                before: Stay | None = None
                after: list[Stay] = []
                for place in itertools.chain(*self._runs_on(epoch, q)):
                    line = lines[place]
                    last = line.pop() if line else None
                    if not after or last is not before:  # else the run before this one has come the same way
                        before, after = last, _gone_on(last, epoch, segment, begins_anew=q in begins_anew)
                    line += after
        ends = (*self._starts[1:], self._placements.v_count)
        return tuple(
            Run(range(start, end), Chain(tuple(line)))
            for start, end, line in zip(self._starts, ends, lines, strict=True)
        )

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        n, v_count = self._placements
        starts = range(0, v_count, shortest_run(n, max(epoch.u for epoch in self._epochs), v_count))
        if all(epoch.placement is Placement.LINEAR for epoch in self._epochs):
            return tuple(starts)
        if any(epoch.placement is Placement.SHARED for epoch in self._epochs):
            return tuple(range(v_count))  # neighbours have lived apart
        return tuple(sorted({*starts, *range(min(n + 1, v_count))}))  # v < N have lived each by itself

    def _runs_on(self, epoch: Epoch, partition: int) -> list[range]:
        """Finds the runs that lived on a physical partition in an epoch, by their places."""
        starts = self._starts
        return [
            range(bisect_left(starts, vs.start), bisect_left(starts, vs.stop))
            for vs in self._placements.residents(epoch, partition)
        ]

    @property
    def count(self) -> int:
        """How many runs there are."""
        return len(self._starts)

    @property
    def most_steps(self) -> int:
        """At least as many as `steps`, found at once: in one epoch a run lives in one segment."""
        return len({each.id.epoch for each in self._segments}) * self.count

    @property
    def steps(self) -> int:
        """How often any of the runs has gone on in another segment, which is what deriving the chains takes."""
        segments = ((self._epochs[each.id.epoch], each.id.partition) for each in self._segments)
        return sum(len(places) for epoch, q in segments for places in self._runs_on(epoch, q))

    def _segments_by_epoch(self) -> dict[int, dict[int, Segment]]:
        found: dict[int, dict[int, Segment]] = {}
        for segment in self._segments:
            found.setdefault(segment.id.epoch, {})[segment.id.partition] = segment
        return found


def _gone_on(last: Stay | None, epoch: Epoch, segment: Segment, *, begins_anew: bool) -> list[Stay]:
    """Returns what comes in the place of a last stay when its virtual partitions live on in a segment.

    Segments in a row on one partition, without a gap, are one stay, unless the partition was to begin again.
    """
    q, start, end, lost_from = segment.id.partition, segment.start, segment.end, segment.lost_from
    tagged = epoch.placement is not Placement.UNMANAGED
    if last is None:
        delta = 0 if epoch.number == 0 else -start
        return [Stay(q, 0, start, end, delta, lost_from, tagged=tagged)]
    moves = last.partition != q or begins_anew
    if last.tagged == tagged and last.lost_from is None and not moves:
        return [Stay(q, last.move, last.start, end, last.delta, lost_from, tagged=tagged)]
    delta = (last.end or 0) + last.delta - start
    return [last, Stay(q, last.move + moves, start, end, delta, lost_from, tagged=tagged)]
