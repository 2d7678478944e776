"""Deleted records of virtual partitions (OWN-FLOOR): a floor for each, and what a physical partition need not keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kordon.proxy.ordering.layout import Layout

HIGH_WATERMARK: Final = -1
"""In place of an offset: delete all there is (DeleteRecordsRequest.HIGH_WATERMARK)."""


def with_floors(layout: Layout, floors: Mapping[int, int]) -> Layout:
    """Returns a layout in which floors are raised; none is ever lowered, and the same layout where none rises.

    Args:
        floors: The virtual offset at which the records begin, by virtual partition.
    """
    before = layout.floors or {}
    raised = {v: floor for v, floor in floors.items() if floor > before.get(v, 0)}
    return replace(layout, floors={**before, **raised}) if raised else layout


def wanted_floor(offset: int, start: int, end: int) -> int | None:
    """Returns to which floor a DeleteRecords leads, never below the start that there is.

    Args:
        offset: The virtual offset that the client gave, or `HIGH_WATERMARK`.
        start: The first virtual offset that readers can get.
        end: The end that clients are told.

    Returns:
        None: the offset is out of range.
    """
    if offset == HIGH_WATERMARK:
        return max(start, end)
    return max(start, offset) if 0 <= offset <= end else None


def needed_from(layout: Layout, partition: int) -> int:
    """Returns the offset of a physical partition before which no virtual one needs anything any more.

    Args:
        layout: The layout with all floors.
        partition: The physical partition.

    Returns:
        0 for one that no virtual partition has lived on.
    """
    floors = layout.floors or {}
    kept = [(run.chain, 0) for run in layout.residence.runs if any(v not in floors for v in run.vs)]
    raised = [(layout.chains[v], floor) for v, floor in floors.items() if 0 <= v < layout.v_count]
    stays = [(stay, floor) for chain, floor in (*kept, *raised) for stay in chain.stays]
    here = [(stay, floor - stay.delta) for stay, floor in stays if stay.partition == partition]
    needed = [max(stay.start, floor) for stay, floor in here if stay.end is None or floor < stay.end]
    return min(needed) if needed else max((stay.end or 0 for stay, _ in here), default=0)
