"""Where a group stands on physical partitions that has read virtual ones until now.

Each virtual partition's commit says which of its records have been read; they lie on one physical partition after the
other, between those of other virtual partitions. A physical partition begins at the first record there that has not
been read. What others that lived there had read behind it comes once more: at least once, as always when a group begins
where it has committed. Where all was read to its end, as after a stop in good order, nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from kordon.proxy.ordering.layout import Layout


def inherited_positions(layout: Layout, committed: Mapping[int, int]) -> dict[int, int]:
    """Returns the next offsets of a group on physical partitions.

    Args:
        committed: The virtual offset that the group has committed, by virtual partition. Missing ones count as unread.
    """
    positions = {q: bound for q, bound in _ends(layout).items() if bound is not None}
    for v, chain in enumerate(layout.chains):
        offset = max(committed.get(v, chain.start), (layout.floors or {}).get(v, 0))
        for stay in chain.stays:
            if stay.virtual_end is None or offset < stay.virtual_end:
                unread = max(stay.start, offset - stay.delta)
                positions[stay.partition] = min(unread, positions.get(stay.partition, unread))
    return positions


def _ends(layout: Layout) -> dict[int, int | None]:
    """The end of each retired physical partition; None while it is written to."""
    newest = {segment.id.partition: segment for segment in sorted(layout.segments, key=lambda each: each.id.epoch)}
    return {q: segment.end for q, segment in newest.items()}
