"""Whether a layout that was read is sound: everything that is derived from it must succeed and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kordon.proxy.ordering.hashing import LARGEST_VIRTUAL_PARTITIONS, why_not

if TYPE_CHECKING:
    from kordon.proxy.ordering.layout import Epoch, Layout, Segment


def why_unsound(layout: Layout) -> str:
    """Says what is wrong with a layout; empty if Kordon can have written it."""
    if not layout.epochs or [each.number for each in layout.epochs] != list(range(len(layout.epochs))):
        return "its epochs are not numbered upwards from 0"
    counts = (why_not(layout.n, epoch.u, layout.v_count) for epoch in layout.epochs)
    if problem := next(filter(None, counts), None):
        return problem
    if len({segment.id for segment in layout.segments}) < len(layout.segments):
        return "a segment stands there twice"
    if odd := [segment.id for segment in layout.segments if not _is_possible(segment, layout.epoch)]:
        return f"segment {odd[0]} is impossible"
    homes = {q for q in layout.homes if q is not None}
    if missing := homes - layout.open_segments.keys():
        return f"partition {min(missing)} is written to, and has no open segment"
    return ""


def why_impossible(layout: Layout, following: Epoch) -> str:
    """Says why a layout cannot go over into an epoch; empty if it can."""
    return why_not(layout.n, following.u, layout.v_count) or ""


def _is_possible(segment: Segment, newest: int) -> bool:
    q, epoch = segment.id.partition, segment.id.epoch
    ends = segment.end is None or segment.end >= segment.start
    return 0 <= q < LARGEST_VIRTUAL_PARTITIONS and 0 <= epoch <= newest and segment.start >= 0 and ends
