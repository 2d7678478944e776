"""Layouts and chains over random histories of growth and shrink."""

import itertools
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.hashing import (
    LARGEST_PARTITIONS,
    home,
    homes,
    linear,
    parent,
    residents,
    shortest_run,
    slot,
    why_not,
)
from kordon.proxy.ordering.identity import LARGEST_CLIENT_ID, Identity, tag, untag, writer_id, writer_of
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.runs import RunHistory
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.layout_histories import COUNTS, histories

TOPIC_ID = UUID(int=7)


def chain_by_its_definition(layout: Layout, v: int) -> tuple[Stay, ...]:
    """Joins the segments of one virtual partition, epoch by epoch, by the home that its slot has in each."""
    stays: list[Stay] = []
    for epoch in layout.epochs:
        own = v if v < layout.n and epoch.placement is not Placement.LINEAR else None
        q = own if own is not None else home(v, layout.n, epoch.u, layout.v_count)
        q = v % layout.n if epoch.placement is Placement.SHARED else q
        if own is None and epoch.placement is Placement.UNMANAGED:
            continue
        for segment in layout.segments:
            if (segment.id.partition, segment.id.epoch) != (q, epoch.number):
                continue
            tagged = epoch.placement is not Placement.UNMANAGED
            last = stays[-1] if stays else None
            moves = last is not None and (last.partition != q or q in {*(epoch.shortened or ()), *epoch.renewed})
            if last is not None and last.tagged == tagged and last.lost_from is None and not moves:
                stays[-1] = replace(last, end=segment.end, lost_from=segment.lost_from)
                continue
            start = 0 if epoch.number == 0 else -segment.start
            delta = start if last is None else (last.end or 0) + last.delta - segment.start
            move = 0 if last is None else last.move + moves
            stays.append(Stay(q, move, segment.start, segment.end, delta, segment.lost_from, tagged=tagged))
    return tuple(stays)


@given(histories())
def test_chains_are_what_each_virtual_partition_by_itself_would_come_to(layout: Layout) -> None:
    """They are derived run by run, and runs in order hold all virtual partitions."""
    assert [v for run in layout.residence.runs for v in run.vs] == list(range(layout.v_count))
    for v in range(layout.v_count):
        assert layout.chains[v].stays == chain_by_its_definition(layout, v)
    history = RunHistory(layout.residence.placements, layout.epochs, layout.segments)
    assert history.steps <= history.most_steps


@given(COUNTS, st.data())
def test_homes_are_those_of_the_slots(counts: tuple[int, int], data: st.DataObject) -> None:
    """They are found run by run, without asking for each slot."""
    n, v_count = counts
    u = data.draw(st.integers(n, v_count))
    assert homes(n, u, v_count) == tuple(home(v, n, u, v_count) for v in range(v_count))
    runs = [residents(q, n, u, v_count) for q in range(u)]
    assert [list(run) for run in runs] == [[v for v in range(v_count) if home(v, n, u, v_count) == q] for q in range(u)]
    assert min(map(len, runs)) == shortest_run(n, u, v_count)


def test_what_a_long_history_costs_does_not_grow_with_the_virtual_partitions() -> None:
    """16,384 of them over 100 growths by one: each growth goes on with the runs that move, not with all there are."""
    layout = Layout.created("orders", TOPIC_ID, 1, 16_384)
    for number in range(100):
        following = layout.next_epoch(number + 2)
        cuts = dict.fromkeys(layout.change_to(following).touched, 1_000 * number)
        layout = layout.changed(following, cuts)
    history = RunHistory(layout.residence.placements, layout.epochs, layout.segments)
    assert history.count == 128
    assert history.steps < 2_000
    made = {id(stay) for chain in layout.chains for stay in chain.stays}
    assert len(made) <= history.steps


def test_a_topic_goes_on_behind_what_a_shortened_log_lost() -> None:
    """BEYOND-LOSS: partition 0 was cut at 200 and read up to 250; its new leader has 100, nobody is told of 200 twice.

    Where virtual partition 0 lived on, and where 1 had lived before the cut, the records from 100 on are gone; both
    go on where they had come to.
    """
    created = Layout.created("orders", TOPIC_ID, 1, 2)
    grown = created.changed(created.next_epoch(2), {0: 200, 1: 0}, leader_epochs={0: 5, 1: 0})
    assert grown.last_bounds == {0: (200, 5), 1: (0, 0)}
    mending = grown.next_epoch(2, shortened={0: 100})
    assert (grown.change_to(mending).sealed, grown.change_to(mending).movers) == (frozenset({0}), (0,))
    mended = grown.changed(mending, {0: 100}, leader_epochs={0: 7}, told={0: 250})
    before = Stay(0, 0, 0, 200, 0, 100)
    assert mended.chains[0].stays == (before, Stay(0, 0, 200, 250, 0, 200), Stay(0, 1, 100, None, 150))
    assert mended.chains[1].stays == (before, Stay(1, 1, 0, None, 200))
    assert mended.last_bounds == {0: (100, 7), 1: (0, 0)}
    assert LAYOUT_JSON.validate_json(LAYOUT_JSON.dump_json(mended)) == mended


def test_what_was_written_behind_the_cut_since_a_log_got_shorter_stays() -> None:
    """It was acknowledged where readers find it, although what stood there before is lost."""
    created = Layout.created("orders", TOPIC_ID, 1, 1)
    whole = created.changed(created.next_epoch(1, shortened={0: 0}), {0: 10}, told={0: 10})
    again = whole.changed(whole.next_epoch(1, shortened={0: 4}), {0: 30}, told={0: 20})
    assert again.chains[0].stays[-2:] == (Stay(0, 1, 10, 30, 0), Stay(0, 2, 30, None, 0))


def test_a_cut_below_its_segment_is_no_cut() -> None:
    """A change does not commit what an unclean election has made impossible meanwhile."""
    created = Layout.created("orders", TOPIC_ID, 1, 4)
    grown = created.changed(created.next_epoch(2), {0: 200, 1: 0})
    with pytest.raises(ValueError, match="below the start"):
        grown.changed(grown.next_epoch(1), {0: 100, 1: 0})


@given(COUNTS, st.data())
def test_every_physical_partition_holds_one_run_of_neighbours(counts: tuple[int, int], data: st.DataObject) -> None:
    """Assignors that give neighbours to one consumer make it read few partitions."""
    n, v_count = counts
    u = data.draw(st.integers(n, v_count))
    homes = [home(v, n, u, v_count) for v in range(v_count)]
    assert set(homes) == set(range(u))
    borders = sum(before != after for before, after in itertools.pairwise(homes))
    assert borders == u - 1


@given(COUNTS, st.data())
def test_a_growth_by_one_splits_only_the_parent(counts: tuple[int, int], data: st.DataObject) -> None:
    """KIP-253: the keys of a new partition come from its parent alone."""
    n, v_count = counts
    if v_count == n:
        return
    u = data.draw(st.integers(n, v_count - 1))
    moved = {
        (home(v, n, u, v_count), home(v, n, u + 1, v_count))
        for v in range(v_count)
        if home(v, n, u, v_count) != home(v, n, u + 1, v_count)
    }
    assert moved == {(parent(u, n), u)}


@given(COUNTS)
def test_slots_number_all_virtual_partitions(counts: tuple[int, int]) -> None:
    """No two share a slot, and each slot is below V."""
    n, v_count = counts
    assert sorted(slot(v, n, v_count) for v in range(v_count)) == list(range(v_count))


def test_linear_hashing_as_in_the_proposal() -> None:
    """KIP-253's picture: with N = 3 and U = 5, partitions 0 and 1 are split and 2 is not."""
    assert [linear(x, 3, 5) for x in range(12)] == [0, 1, 2, 3, 4, 2, 0, 1, 2, 3, 4, 2]


@given(histories())
def test_a_chain_has_no_hole_and_no_overlap(layout: Layout) -> None:
    """Laid end to end, the stays of a virtual partition are one log: each begins where the last one ends."""
    for v, chain in enumerate(layout.chains):
        for before, after in zip(chain.stays, chain.stays[1:], strict=False):
            assert before.virtual_end == after.virtual_start
            assert (after.move, after.tagged) != (before.move, before.tagged) or before.lost_from is not None
        assert all(stay.end is not None for stay in chain.stays[:-1])
        if chain.home is not None:
            assert chain.home.end is None
            assert chain.home.partition == layout.homes[v]
            assert chain.start == 0 or chain.stays[0].delta == 0


@given(histories())
def test_segments_of_a_partition_follow_one_another(layout: Layout) -> None:
    """Nothing that a partition still has lies in two segments, and sealed ones are never opened again."""
    for q in {segment.id.partition for segment in layout.segments}:
        segments = [segment for segment in layout.segments if segment.id.partition == q]
        assert [s.id.epoch for s in segments] == sorted(s.id.epoch for s in segments)
        assert all(segment.end is not None for segment in segments[:-1])
        kept = [segment for segment in segments if segment.kept_end != segment.start]
        for before, after in itertools.pairwise(kept):
            assert before.kept_end is not None
            assert before.kept_end <= after.start


@given(histories())
def test_the_chain_of_a_physical_partition_has_no_hole_and_no_overlap(layout: Layout) -> None:
    """Whoever has read a segment goes on in the next one, at offsets of the log."""
    for q in {segment.id.partition for segment in layout.segments}:
        stays = layout.chain(physical_stream(q)).stays
        assert all(before.end == after.start for before, after in itertools.pairwise(stays))
        assert all(stay.end is None or stay.start <= (stay.kept_end or 0) <= stay.end for stay in stays)
        assert {stay.delta for stay in stays} == {0}


@given(histories(), st.data())
def test_only_partitions_whose_residents_change_are_sealed(layout: Layout, data: st.DataObject) -> None:
    """A partition whose key set stays the same keeps its segment, once a takeover is through."""
    following = layout.next_epoch(data.draw(st.integers(layout.n, layout.v_count)))
    ends = dict.fromkeys(range(layout.v_count), 10000)
    after = layout.changed(following, ends)
    for q in layout.open_segments:
        if layout.epochs[-1].placement is Placement.LINEAR:
            assert (q in layout.change_to(following).sealed) == (
                layout.residence.residents(q) != after.residence.residents(q)
            )
    for v in layout.change_to(following).movers:
        assert layout.chains[v].home is not None
        assert after.chains[v].stays[-2].end == 10_000


@given(histories())
def test_predecessors_are_the_former_homes(layout: Layout) -> None:
    """A segment's predecessors are sealed, and hold what its residents had before."""
    by_id = {segment.id: segment for segment in layout.segments}
    for segment in layout.segments:
        for before in segment.predecessors:
            assert by_id[before].end is not None
            assert before.epoch < segment.id.epoch
    for chain in layout.chains:
        for stay in chain.stays[1:]:
            assert any(s.id.partition == stay.partition and s.start == stay.start for s in layout.segments)


@given(histories())
def test_each_placement_has_segments_of_its_own(layout: Layout) -> None:
    """Whoever writes to physical partitions chooses them in another way when a takeover goes on (COUNT-FENCE)."""
    for before, after in itertools.pairwise(layout.epochs):
        if after.placement is not before.placement:
            opened = {segment.id.partition for segment in layout.segments if segment.id.epoch == after.number}
            assert opened >= set(range(layout.n))
            for segment in layout.segments:
                assert segment.id.epoch > before.number or segment.end is not None


def test_behind_a_takeover_a_key_waits_for_the_partition_of_its_hash_before() -> None:
    """TAKEOVER-WAITS: clients that saw 3 partitions wrote keys of virtual partition 4 to partition 1, of 11 to 2."""
    unmanaged = Layout.unmanaged("orders", TOPIC_ID, 3, 12)
    taken = unmanaged.changed(unmanaged.next_epoch(3), {0: 10, 1: 20, 2: 30})
    for segment in taken.segments:
        if segment.id.epoch == 1:
            before = {v % 3 for v in taken.residence.residents(segment.id.partition)}
            assert {each.partition for each in segment.predecessors} == before


@given(histories(), st.data())
def test_a_virtual_offset_stands_in_one_stay(layout: Layout, data: st.DataObject) -> None:
    """Real offsets come back from virtual ones, and below the first there is nothing."""
    v = data.draw(st.integers(0, layout.v_count - 1))
    chain = layout.chains[v]
    if not chain.stays:
        return
    assert chain.stay_of(chain.start - 1) is None
    offset = data.draw(st.integers(chain.start, chain.start + 1_000))
    stay = chain.stay_of(offset)
    assert stay is not None
    assert stay.virtual_start <= offset
    assert stay.virtual_end is None or offset < stay.virtual_end or chain.after(stay) is None


def test_a_topic_with_data_keeps_its_offsets() -> None:
    """PAST-STAYS: v < N is the partition of old with its offsets; v >= N begins at 0 when it is born."""
    layout = Layout.unmanaged("orders", TOPIC_ID, 3, 6)
    assert layout.homes == (0, 1, 2, None, None, None)
    taken = layout.changed(layout.next_epoch(3, Placement.OWN), {0: 100, 1: 200, 2: 300}, withheld=True)
    assert taken.chains[1].stays == (Stay(1, 0, 0, 200, 0, tagged=False), Stay(1, 0, 200, None, 0))
    assert taken.chains[5].start == 0
    settled = taken.changed(taken.next_epoch(3), {0: 110, 1: 220, 2: 330})
    assert settled.chains[1].stays[-1] == Stay(0, 1, 110, None, 110)
    assert settled.chains[1].stays[-2].virtual_end == 220


def test_impossible_counts_are_explained() -> None:
    """Whoever asks for them reads what would be possible."""
    assert why_not(3, 3, 10) == "10 virtual partitions are not 3 times a power of two; 3, 6, 12, 24, 48, … would be"
    assert "the least there can be" in (why_not(3, 2, 12) or "")
    assert "some would stay empty" in (why_not(3, 13, 12) or "")
    assert why_not(1, LARGEST_PARTITIONS, 1 << 12) is None
    assert "that a managed topic can have" in (why_not(1, LARGEST_PARTITIONS + 1, 1 << 12) or "")
    with pytest.raises(ValueError, match="power of two"):
        Layout.created("orders", TOPIC_ID, 3, 10)


@given(histories())
def test_layouts_survive_their_record(layout: Layout) -> None:
    """What is written into the layouts topic is read back equal."""
    assert LAYOUT_JSON.validate_json(LAYOUT_JSON.dump_json(layout)) == layout


@given(
    st.integers(0, 32_765),
    st.integers(0, 1000),
    st.integers(0, LARGEST_CLIENT_ID),
    st.sampled_from([None, *Protocol]),
)
def test_identities_survive_the_log(v: int, move: int, client_id: int, protocol: Protocol | None) -> None:
    """ORIGIN-TAG: who wrote a batch, and by which protocol, is read back from its producer id, which stays positive."""
    writer = writer_id(client_id, protocol)
    producer_id = tag(v, move, writer)
    assert 0 < producer_id < 1 << 63
    assert untag(producer_id) == Identity(v, move % 256, client_id, protocol)
    assert writer_of(producer_id) == Identity(v, move % 256, client_id, protocol).writer == writer
    assert writer == client_id or protocol is not None
    assert untag(client_id) is None
    assert untag(-1) is None
