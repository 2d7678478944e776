"""The auditor's own derivation of homes and stays, held against the proxy's."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.hashing import homes, linear
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout, Placement
from kordon.spark_jobs import layouts

_ID = UUID(int=7)


@st.composite
def histories(draw: st.DrawFn) -> Layout:
    """Layouts after some changes: growths, shrinks, renewals, logs that got shorter, take-overs."""
    n, doublings = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    v_count = n << doublings
    layout = draw(st.sampled_from([Layout.created, Layout.unmanaged]))("t", _ID, n, v_count)
    ends = dict.fromkeys(range(v_count), 0)
    for _ in range(draw(st.integers(0, 6))):
        own = not layout.is_managed
        u = n if own else draw(st.integers(n, v_count))
        renewed = draw(st.sets(st.sampled_from(sorted(layout.open_segments)), max_size=1)) if u == layout.u else ()
        following = layout.next_epoch(u, Placement.OWN if own else Placement.LINEAR, renewed=() if own else renewed)
        ends = {q: end + draw(st.integers(0, 5)) for q, end in ends.items()}
        cuts = {q: ends[q] for q in layout.sealed_by(following) | layout.opened_by(following)}
        layout = layout.changed(following, cuts)
    return layout


@given(histories())
def test_homes_and_stays_are_those_of_the_proxy(layout: Layout) -> None:
    """Both derive from one history the same segments, stays and moves."""
    read = layouts.read(LAYOUT_JSON.dump_json(layout).decode())
    assert [(row.layout_epoch, row.partition, row.start, row.end, row.kept_end) for row in read.segments] == [
        (each.id.epoch, each.id.partition, each.start, each.end, each.kept_end) for each in layout.segments
    ]
    assert [row.predecessors for row in read.segments] == [
        [(each.partition, each.epoch) for each in segment.predecessors] for segment in layout.segments
    ]
    expected = {
        (stream, stay.move, stay.partition, stay.start, stay.end, stay.kept_end, stay.tagged)
        for stream in layout.streams
        for stay in layout.chain(stream).stays
    }
    assert {row[1:] for row in read.stays} == expected
    assert len(read.stays) == len(expected)


@given(st.integers(1, 50), st.data())
def test_linear_hashing_is_that_of_the_proxy(n: int, data: st.DataObject) -> None:
    """Two ways to work it out, one outcome."""
    u = data.draw(st.integers(n, n * 16))
    assert [layouts.linear(value, n, u) for value in range(200)] == [linear(value, n, u) for value in range(200)]
    assert tuple(layouts.homes(n, u, n * 16)) == homes(n, u, n * 16)


def test_a_log_that_got_shorter_begins_another_stay() -> None:
    """What was lost ends the stay before its end (rule C10)."""
    layout = Layout.created("t", _ID, 1, 2)
    layout = layout.changed(layout.next_epoch(2), {0: 100, 1: 0})
    layout = layout.changed(layout.next_epoch(2, shortened={0: 120}), {0: 120}, told={0: 150})
    read = layouts.read(LAYOUT_JSON.dump_json(layout).decode())
    expected = {
        (stream, stay.move, stay.partition, stay.start, stay.end, stay.kept_end)
        for stream in layout.streams
        for stay in layout.chain(stream).stays
    }
    assert {row[1:-1] for row in read.stays} == expected


def test_the_newest_layout_counts_by_its_offset() -> None:
    """A worker that is behind takes nothing back; a topic that is managed no more is known as such."""
    known = [layouts.Known("a", 5, "{}"), layouts.Known("b", 3, "{}")]
    told = [layouts.Known("a", 4, "old"), layouts.Known("b", 9, None), layouts.Known("c", 1, "new")]
    assert layouts.newest(known, told) == [
        layouts.Known("a", 5, "{}"), layouts.Known("b", 9, None), layouts.Known("c", 1, "new"),
    ]  # fmt: skip


@pytest.mark.parametrize("told", ["{}", '{"topic": 1}', "[]", "nonsense", '{"topic":"t","segments":[],"epochs":[]}'])
def test_what_is_no_layout_is_refused(told: str) -> None:
    """Never half a layout."""
    with pytest.raises(ValueError, match=r"no layout|Expecting"):
        layouts.read(told)
