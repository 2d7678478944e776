"""Whether a layout that was read is sound: everything that is derived from it must succeed, and end soon.

A topic keeps its whole past: its layout grows with each change, and nothing is ever taken out of it. What it may grow
to is bounded, because a worker does nothing else while it reads a record and derives from it where everything is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kordon.proxy.ordering.hashing import LARGEST_VIRTUAL_PARTITIONS, why_not
from kordon.proxy.ordering.runs import RunHistory

if TYPE_CHECKING:
    from kordon.proxy.ordering.layout import Layout
    from kordon.proxy.ordering.placements import Epoch
    from kordon.proxy.ordering.segments import Segment

MOST_CHANGES: Final = 1_000
"""Of a topic in its life: growths, shrinks, and what its janitor or a log that got shorter makes necessary."""
MOST_SEGMENTS: Final = 6_000
"""Of a layout. A growth by one partition adds two, a change of all partitions as many as there are then."""
MOST_STEPS: Final = 40_000
"""Of a layout (`RunHistory.steps`)."""
_SPARED: Final = 0.9
"""Of each bound, what wishes and janitors may use up: a log that got shorter has to be mended behind that."""


def why_unsound(layout: Layout) -> str:
    """Says what is wrong with a layout; empty if Kordon can have written it."""
    if not layout.epochs or [each.number for each in layout.epochs] != list(range(len(layout.epochs))):
        return "its epochs are not numbered upwards from 0"
    counts = (why_not(layout.n, epoch.u, layout.v_count) for epoch in layout.epochs)
    if problem := next(filter(None, counts), None) or next(_too_many(layout, 1.0), None):
        return problem
    if len({(segment.id.partition, segment.id.epoch) for segment in layout.segments}) < len(layout.segments):
        return "a segment stands there twice"
    if odd := [segment.id for segment in layout.segments if not _is_possible(segment, layout.epoch)]:
        return f"segment {odd[0]} is impossible"
    homes = {q for q in layout.homes if q is not None}
    if missing := homes - layout.open_segments.keys():
        return f"partition {min(missing)} is written to, and has no open segment"
    return next(_too_many_steps(layout, 1.0), "")


def why_impossible(layout: Layout, following: Epoch) -> str:
    """Says why a layout cannot go over into an epoch; empty if it can."""
    return why_not(layout.n, following.u, layout.v_count) or ""


def why_full(layout: Layout) -> str:
    """Says why a topic is not to get to a layout by a wish, or by its janitor; empty if it can.

    It is larger than what stays so far below the bounds that there is room for what has to be.
    """
    return next(_too_many(layout, _SPARED), "") or next(_too_many_steps(layout, _SPARED), "")


def _too_many(layout: Layout, share: float) -> Iterator[str]:
    renewed = sum(len(epoch.renewed) + len(epoch.shortened or ()) for epoch in layout.epochs)
    for what, number, most in (
        ("changes", len(layout.epochs) - 1, MOST_CHANGES),
        ("segments", len(layout.segments), MOST_SEGMENTS),
        ("renewed segments", renewed, MOST_SEGMENTS),
    ):
        if number > most * share:
            yield f"it has {number} {what} behind it, and at most {most * share:.0f} are followed"


def _too_many_steps(layout: Layout, share: float) -> Iterator[str]:
    most = MOST_STEPS * share
    history = RunHistory(layout.residence.placements, layout.epochs, layout.segments)
    if history.most_steps > most and (steps := history.steps) > most:
        yield f"it has {steps} steps of virtual partitions behind it, and at most {most:.0f} are followed"


def _is_possible(segment: Segment, newest: int) -> bool:
    q, epoch = segment.id.partition, segment.id.epoch
    ends = segment.end is None or segment.end >= segment.start
    return 0 <= q < LARGEST_VIRTUAL_PARTITIONS and 0 <= epoch <= newest and segment.start >= 0 and ends
