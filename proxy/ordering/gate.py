"""The gate of ordered delivery: what a reader of a physical partition waits for (PARENT-FIRST).

    segment      ──> its predecessors ──> theirs …      a segment is delivered from when all of these are *done*:
    (1, epoch 4)     (0, epoch 0)                       the group has passed their end, or nothing is left there

Done is transitive, so what must be known of a segment is, of each physical partition that ever held its keys, one
offset: the end of the last of its segments there that has records. Proxies and clients of the dialect reckon alike.

Source: KIP-253 "Changes in how consumer consumes partition", 8.4 and 8.5, mended: cuts are sealed, an
empty segment passes on what its own predecessors ask for, and where a reader stands now is what counts, not where it
began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsResponseSegment
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.segments import Segment, SegmentId

_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of where a group stands."""

    positions: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    """By physical partition, the group's next offset; all of one generation, since a later one may begin earlier."""
    log_starts: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    """By physical partition, where its log begins: nothing is left to deliver before that."""

    def reaches(self, partition: int, offset: int) -> bool:
        """Whether nothing of a partition before an offset is still to be delivered."""
        return self.positions.get(partition, -1) >= offset or self.log_starts.get(partition, -1) >= offset


class Gate:
    """Says what a reader waits for, under one layout.

    Args:
        segments: All of a topic, of any order; `of` and `told_segments` give them.
        ordered_delivery: enable.ordered.delivery of KIP-253; False: nothing is held.

    Raises:
        ValueError: A segment has a predecessor that is not among them, or is not older.
    """

    def __init__(self, segments: Iterable[Segment], *, ordered_delivery: bool = True) -> None:
        self.ordered_delivery = ordered_delivery
        ordered = sorted(segments, key=lambda each: each.id.epoch)
        self._lines = _lines(ordered)
        self._needs: dict[SegmentId, Mapping[int, int]] = {}
        """By segment: of each physical partition that held its keys, up to where it must have been delivered."""
        by_id = {segment.id: segment for line in self._lines.values() for segment in line}
        for segment in ordered:
            try:
                self._needs[segment.id] = self._needs_of([by_id[each] for each in segment.predecessors])
            except KeyError as error:
                raise ValueError(f"{segment.id} follows {error}, which is unknown or not older") from error
        self._most_asked = 1 + len(self._lines).bit_length()
        self._ends = {q: [each.end or 0 for each in line[:-1]] for q, line in self._lines.items()}
        """By physical partition, where each of its segments but the last ends: its readers go on to the next there."""
        self._of_others = {q: [_without(q, self._needs[each.id]) for each in line] for q, line in self._lines.items()}
        """By physical partition and segment, `_needs` but for what its reader has passed itself."""

    @classmethod
    def of(cls, layout: Layout) -> Gate:
        """Returns the gate of a layout."""
        return cls(layout.segments, ordered_delivery=layout.ordered_delivery)

    def asks(self, partition: int, offset: int, evidence: Evidence) -> tuple[int, ...]:
        """Returns the physical partitions whose positions may open what a reader is held at; none: it is not held.

        There are at most 2 + log2(n) of a topic with n physical partitions. Where more are missing, those whose
        keys came last come first, and others are asked for when these are known to be done.

        Args:
            partition: The physical partition.
            evidence: The known positions of the other members.
        """
        return tuple(self._missing(partition, offset, evidence)[: self._most_asked])

    def needs(self, partition: int, offset: int) -> Mapping[int, int]:
        """Returns all that a reader is held by: of other physical partitions, up to where they must be delivered.

        Args:
            partition: The physical partition.
        """
        ends = self._ends.get(partition)
        if ends is None or not self.ordered_delivery:
            return _NOTHING
        return self._of_others[partition][bisect_right(ends, offset)]

    def followers(self, partition: int, offset: int, reached: int) -> frozenset[int]:
        """Returns the other physical partitions that may be read since one was, from an offset up to another."""
        needs = self._needs.items() if self.ordered_delivery else ()
        open_by = {segment.partition for segment, each in needs if offset < each.get(partition, 0) <= reached}
        return frozenset(open_by - {partition})

    def done(self, segment: SegmentId, evidence: Evidence) -> bool:
        """Whether a segment and all that its keys lived in before is done for a group.

        Raises:
            KeyError: There is no such segment.
        """
        needs = dict(self._needs[segment])
        own = next(each for each in self._lines[segment.partition] if each.id == segment)
        if own.end is None:
            return False  # more may come
        _raise_needs(needs, own)
        return all(evidence.reaches(q, offset) for q, offset in needs.items())

    def _missing(self, partition: int, offset: int, evidence: Evidence) -> list[int]:
        """Returns the partitions that are not known to be far enough; a reader has passed what its own had before."""
        return [q for q, end in self.needs(partition, offset).items() if not evidence.reaches(q, end)]

    def segment_at(self, partition: int, offset: int) -> Segment | None:
        """Returns the segment of which a reader gets records next: the following one where it stands at an end.

        Args:
            partition: The physical partition.

        Returns:
            As much of it as its log has kept; None: the layout knows no such partition.
        """
        ends = self._ends.get(partition)
        return None if ends is None else self._lines[partition][bisect_right(ends, offset)]

    def last_before(self, segment: Segment) -> int:
        """Returns the last offset of the segments before one in its partition; between two lies what is nobody's.

        Args:
            segment: The segment, as from `segment_at`.

        Returns:
            -1: there is nothing before it.
        """
        line = self._lines[segment.id.partition]
        ends = (each.end for each in line if each.end is not None and each.start < each.end <= segment.start)
        return max(ends, default=0) - 1

    def _needs_of(self, predecessors: Sequence[Segment]) -> Mapping[int, int]:
        needs: dict[int, int] = {}
        for segment in predecessors:
            _raise_needs(needs, segment)
        for segment in predecessors:
            for q, offset in self._needs[segment.id].items():
                needs[q] = max(offset, needs.get(q, 0))
        return needs


def _lines(ordered: Sequence[Segment]) -> dict[int, list[Segment]]:
    """Returns by physical partition its segments as its log has them: each ends where what is kept of it ends.

    Where a log got shorter (BEYOND-LOSS), segments begin below the end of earlier ones.
    """
    lines: dict[int, list[Segment]] = {}
    for segment in reversed(ordered):
        line = lines.setdefault(segment.id.partition, [])
        ends = (segment.kept_end, line[-1].start if line else None)
        end = min((each for each in ends if each is not None), default=None)
        start = segment.start if end is None else min(segment.start, end)
        line.append(replace(segment, start=start, end=end, lost_from=None))
    for line in lines.values():
        line.reverse()
    return lines


def _raise_needs(needs: dict[int, int], segment: Segment) -> None:
    """Takes in that a segment must have been delivered; an empty one asks for nothing but what it asks others."""
    q, end = segment.id.partition, segment.end or 0
    if end > segment.start:
        needs[q] = max(end, needs.get(q, 0))


def _without(partition: int, needs: Mapping[int, int]) -> Mapping[int, int]:
    return {q: end for q, end in needs.items() if q != partition} if partition in needs else needs


def told_segments(partition: int, rows: Iterable[PartitionLeaderEpochsForPartitionsResponseSegment]) -> list[Segment]:
    """Reads a partition's segments as PartitionLeaderEpochsForPartitions tells them (the tag `segments`).

    Args:
        partition: The physical partition.
    """
    return [
        Segment(
            SegmentId(partition, row.layout_epoch),
            row.start_offset,
            None if row.end_offset < 0 else row.end_offset,
            tuple(SegmentId(each.partition, each.layout_epoch) for each in row.predecessors),
        )
        for row in rows
    ]
