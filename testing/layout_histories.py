"""Layouts with a history made at random, for tests of what is derived from them."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement

COUNTS = st.tuples(st.integers(1, 6), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] << pair[1]))
"""n and V = n * 2^k."""


@st.composite
def histories(draw: st.DrawFn) -> Layout:
    """A layout that has grown and shrunk, was taken over, lost the end of a log, began segments anew."""
    n, v_count = draw(COUNTS)
    taken_over = draw(st.booleans())
    layout = (Layout.unmanaged if taken_over else Layout.created)("orders", UUID(int=7), n, v_count)
    ends = dict.fromkeys(range(v_count), 0)
    ways = st.sampled_from([Placement.OWN, Placement.SHARED])
    placements = [draw(ways)] if taken_over and draw(st.booleans()) else []
    for number in range(draw(st.integers(0, 8))):
        u = layout.u if number < len(placements) else draw(st.integers(n, v_count))
        placement = placements[number] if number < len(placements) else Placement.LINEAR
        for q in ends:
            ends[q] += draw(st.integers(0, 50))
        if layout.is_managed and draw(st.booleans()):
            q = draw(st.sampled_from(sorted(layout.last_bounds)))
            told, ends[q] = ends[q], draw(st.integers(0, ends[q]))
            if ends[q] < layout.last_bounds[q].offset:
                following = layout.next_epoch(layout.u, layout.epochs[-1].placement, {q: ends[q]})
                layout = layout.changed(following, ends, told={q: told})
        elif layout.is_managed and draw(st.booleans()):
            renewed = draw(st.sets(st.sampled_from(sorted(layout.open_segments)), min_size=1))
            following = layout.next_epoch(layout.u, layout.epochs[-1].placement, renewed=renewed)
            layout = layout.changed(following, ends)
        layout = layout.changed(layout.next_epoch(u, placement), ends)
    return layout
