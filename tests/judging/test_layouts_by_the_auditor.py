"""The auditor's own reading of layouts, held against the product's over random histories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.proxy.ordering.placements import Placement
from kordon.spark_jobs.judging.layouts import TOLD, SegmentRow, StayRow, expand, newest
from kordon.spark_jobs.judging.schema import DECISIONS
from kordon.testing.audits.judged import table
from kordon.testing.layout_histories import histories


@given(histories())
def test_the_auditor_derives_the_stays_that_the_product_derives(layout: Layout) -> None:
    """Two derivations by different code: an error in either shows."""
    _, stays = expand(LAYOUT_JSON.dump_json(layout).decode())
    product = [
        StayRow(
            *("orders", stream, stay.move, stay.partition, stay.start, stay.end, stay.kept_end),
            *(stay.tagged, place, stay.start, False),
        )
        for stream in layout.residence.streams
        for place, stay in enumerate(layout.chain(stream).stays)
    ]
    told = [stay._replace(floor=stay.start, shortened=False, shared_from=None, shared_to=None) for stay in stays]
    assert sorted(told, key=_by_place) == sorted(product, key=_by_place)
    assert all(stay.shortened for stay in stays if stay.stream >= 0 and stay.kept_end != stay.end)
    assert not any(stay.shortened for stay in stays if not any(epoch.shortened for epoch in layout.epochs))


@given(histories())
def test_the_auditor_knows_where_all_is_given_out_as_the_old_partition(layout: Layout) -> None:
    """In the segments of a takeover that shares them, for all who lived there (TAKEOVER-SHARES)."""
    epochs = {epoch.number for epoch in layout.epochs if epoch.placement is Placement.SHARED}
    segments = {(each.id.partition, each.start, each.end) for each in layout.segments if each.id.epoch in epochs}
    _, stays = expand(LAYOUT_JSON.dump_json(layout).decode())
    shared = {(stay.partition, stay.shared_from, stay.shared_to) for stay in stays if stay.shared_from is not None}
    assert shared == segments
    guests = [stay for stay in stays if stay.stream not in {stay.partition, ~stay.partition}]
    assert all(stay.floor >= (stay.shared_to or 0) for stay in guests)


@given(histories())
def test_the_auditor_reads_the_segments_as_they_are(layout: Layout) -> None:
    """Predecessors, cuts and the count by which dialect clients had to choose partitions."""
    segments, _ = expand(LAYOUT_JSON.dump_json(layout).decode())
    counts = {epoch.number: epoch.u if epoch.placement is Placement.LINEAR else -1 for epoch in layout.epochs}
    product = [
        SegmentRow(
            *("orders", each.id.epoch, each.id.partition, each.start, each.end, each.kept_end),
            [(before.partition, before.epoch) for before in each.predecessors],
            counts[each.id.epoch],
            False,
        )
        for each in sorted(layout.segments, key=lambda each: (each.id.epoch, each.id.partition))
    ]
    assert segments == product


def _by_place(stay: StayRow) -> tuple[int, int]:
    return stay.stream, stay.place


def test_a_commit_that_may_have_failed_tells_no_layout() -> None:
    """Nor that there is none: what came of it is told by those who adopt it."""
    told: list[dict[str, Any]] = [
        {"kind": "commit", "topic": "orders", "layout_epoch": 1, "reason": "unknown", "evidence": '{"of_fence": "f"}'},
        {"kind": "commit", "topic": "sure", "layout_epoch": 0, "layouts_offset": 3, "evidence": '{"layout": {}}'},
    ]
    found = newest(table(told, DECISIONS), TOLD.to_frame())
    assert found.select("topic", "layouts_offset", "layout").rows() == [("sure", 3, "{}")]
    known = newest(table([{"kind": "forget", "topic": "sure", "layouts_offset": 5}], DECISIONS), found)
    assert known.select("topic", "layout", "let_go").rows() == [("sure", None, 5)]
