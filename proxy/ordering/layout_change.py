"""What a layout's next epoch changes: whose segments end, where others begin, and who writes under another identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from kordon.proxy.ordering.placements import Epoch, Placement
from kordon.proxy.ordering.residence import Residence
from kordon.proxy.ordering.segments import Segment, SegmentId


class LayoutChange:
    """The step from a layout to its next epoch.

    Args:
        before: Where streams live before the change.
        epochs: All epochs before the change, oldest first.
        segments: All segments before the change.
        following: The epoch that begins.
    """

    def __init__(
        self, before: Residence, epochs: Sequence[Epoch], segments: Sequence[Segment], following: Epoch
    ) -> None:
        self._before = before
        self._epochs = epochs
        self._segments = segments
        self._following = following

    @cached_property
    def sealed(self) -> frozenset[int]:
        """The physical partitions whose segment ends.

        Their residents change, or (where partitions are chosen in another way from then on) whose keys are theirs.
        """
        following, open_ones = self._following, frozenset(self._open)
        shortened = frozenset(following.shortened or ())
        if following.placement is not self._placement:
            return open_ones | shortened
        changes = zip(self._before.homes, self._homes, strict=True)
        touched = frozenset(q for change in changes if change[0] != change[1] for q in change if q is not None)
        return touched.union(following.renewed) & open_ones | shortened

    @cached_property
    def opened(self) -> frozenset[int]:
        """The physical partitions on which a segment begins."""
        return frozenset(q for q in self._homes if q is not None and (q in self.sealed or q not in self._open))

    @property
    def touched(self) -> frozenset[int]:
        """The physical partitions that a change needs a cut of: those that are sealed or opened."""
        return self.sealed | self.opened

    @cached_property
    def movers(self) -> tuple[int, ...]:
        """The virtual partitions that write under another identity from then on.

        Their home changes, is renewed, or has lost what they wrote, or what they are was not written down before.
        """
        if self._placement is Placement.UNMANAGED:
            return tuple(range(self._before.placements.n))
        changes = enumerate(zip(self._before.homes, self._homes, strict=True))
        anew = {*(self._following.shortened or ()), *self._following.renewed}
        return tuple(v for v, (q, after) in changes if q is not None and (q != after or q in anew))

    @property
    def moves(self) -> Mapping[int, int]:
        """The coming home of each virtual partition that continues in another physical partition (DOUBLE-ADD)."""
        changes = enumerate(zip(self._before.homes, self._homes, strict=True))
        return {v: after for v, (q, after) in changes if q is not None and after is not None and q != after}

    def made(
        self, cuts: Mapping[int, int], leader_epochs: Mapping[int, int], told: Mapping[int, int]
    ) -> tuple[Segment, ...]:
        """Returns all segments after the change.

        Args:
            cuts: As for `Layout.changed`.
            leader_epochs: As for `Layout.changed`.
            told: As for `Layout.changed`.

        Raises:
            KeyError: A cut is missing.
            ValueError: A cut lies below the start of its segment.
        """
        shortened = self._following.shortened or {}
        tagged = {epoch.number for epoch in self._epochs if epoch.placement is not Placement.UNMANAGED}
        segments: list[Segment] = []
        for segment in self._segments:
            q = segment.id.partition
            if segment.end is not None and q in shortened:
                # where batches carry identities, what was written since then is its writer's: it was acknowledged
                lost_from = cuts[q] if segment.id.epoch in tagged else min(shortened[q], cuts[q])
                segments.append(_shortened(segment, lost_from, leader_epochs.get(q, -1)))
            elif segment.end is None and q in self.sealed:
                ended = _ended(segment, cuts[q], q in shortened, told.get(q, 0))
                segments.append(replace(ended, bound_epoch=leader_epochs.get(q, -1)))
            else:
                segments.append(segment)
        for q in sorted(self.opened):
            opened = Segment(SegmentId(q, self._following.number), cuts[q], predecessors=self._sources(q))
            segments.append(replace(opened, bound_epoch=leader_epochs.get(q, -1)))
        return tuple(segments)

    def _sources(self, partition: int) -> tuple[SegmentId, ...]:
        """Returns the segments in which the residents-to-be of a partition have written last."""
        placements = self._before.placements
        settlers = [v for vs in placements.residents(self._following, partition) for v in vs]
        sources = {self._before.homes[v] for v in settlers} - {None}
        if self._placement is not Placement.LINEAR:
            sources |= {v % placements.n for v in settlers}  # where those write who see N partitions (TAKEOVER-WAITS)
        return tuple(self._open[p].id for p in sorted(p for p in sources if p is not None))

    @property
    def _placement(self) -> Placement:
        return self._epochs[-1].placement

    @cached_property
    def _homes(self) -> tuple[int | None, ...]:
        return self._before.placements.homes(self._following)

    @cached_property
    def _open(self) -> Mapping[int, Segment]:
        return {segment.id.partition: segment for segment in self._segments if segment.end is None}


def _ended(segment: Segment, cut: int, is_shortened: bool, told: int) -> Segment:
    """Ends a segment at a cut; where the log has got shorter than its start, behind all that somebody was told of.

    Raises:
        ValueError: The cut lies below the start, and nobody knew that the log got shorter.
    """
    if not is_shortened:
        if cut < segment.start:
            raise ValueError(f"cut {cut} lies below the start of {segment}")
        return replace(segment, end=cut)
    kept = max(cut, segment.start)  # what was written behind the start since then is all there is of it
    end = max(kept, told)
    return replace(segment, end=end, lost_from=kept if kept < end else None)


def _shortened(segment: Segment, lost_from: int, leader_epoch: int) -> Segment:
    """Says of a segment that had ended that nothing of it is there from an offset on."""
    kept_end = segment.kept_end
    if kept_end is None or kept_end <= lost_from:
        return segment
    return replace(segment, lost_from=max(lost_from, segment.start), bound_epoch=leader_epoch)
