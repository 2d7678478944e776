"""The gate of ordered delivery, held against a model in which every record of every key is known."""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kordon.codecs.bodies import (
    PartitionLeaderEpochsForPartitionsResponsePredecessor,
    PartitionLeaderEpochsForPartitionsResponseSegment,
)
from kordon.proxy.ordering.gate import Evidence, Gate, told_segments
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import reading_place
from kordon.proxy.ordering.segments import Segment, SegmentId
from kordon.proxy.ordering.streams import physical_stream
from kordon.testing.known import known

TOPIC_ID = UUID(int=7)
NOTHING = Evidence()


class Kip253Gate(Gate):
    """KIP-253's own rule in place of done(): 8.4 at the earliest offset only, 8.5 by the log end as it is read now."""

    log_ends: dict[int, int]
    """By physical partition that is marked for deletion, its log end when it was read."""

    def asks(self, partition: int, offset: int, evidence: Evidence) -> tuple[int, ...]:
        """Looks at the direct predecessors only."""
        segment = known(self.segment_at(partition, offset))
        others = [each for each in segment.predecessors if each.partition != partition]
        is_growth = partition not in {each.partition for each in segment.predecessors}
        if is_growth and offset > evidence.log_starts.get(partition, 0):
            others = []  # 8.4: only "whose startPosition equals the earliest offset"
        for other in others:
            position = evidence.positions.get(other.partition, -1)
            if is_growth:
                threshold = next(s.end or 0 for s in self._lines[other.partition] if s.id == other) - 1
                is_open = position > threshold  # 8.4.4
            else:
                is_open = position >= self.log_ends[other.partition]  # 8.5.3
            if not is_open:
                return (other.partition,)
        return ()


def grown_and_shrunk() -> Layout:
    """3 -> 4 -> 3."""
    layout = Layout.created("orders", TOPIC_ID, 3, 12)
    layout = layout.changed(layout.next_epoch(4), {0: 120, 3: 0})
    return layout.changed(layout.next_epoch(3), {0: 300, 3: 95})


def doubled(cut: int) -> Layout:
    """1 -> 2."""
    layout = Layout.created("orders", TOPIC_ID, 1, 2)
    return layout.changed(layout.next_epoch(2), {0: cut, 1: 0})


@dataclass
class Cluster:
    """A topic whose records are its keys, one for each virtual partition, and a group that reads it."""

    layout: Layout
    gate_type: type[Gate] = Gate
    records: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """By physical partition, the key at each offset; -1: nothing to deliver (a marker, a stray)."""
    written: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    """By key, the places of its records in the order in which they were acknowledged."""
    positions: dict[int, int] = field(default_factory=dict[int, int])
    reported: dict[int, int] = field(default_factory=dict[int, int])
    log_starts: dict[int, int] = field(default_factory=dict[int, int])
    early: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Places of records that were delivered before an earlier one of their key."""

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.reported, self.log_starts)

    @property
    def gate(self) -> Gate:
        return self.gate_type.of(self.layout)

    def end(self, q: int) -> int:
        return len(self.records.get(q, ()))

    def write(self, key: int) -> None:
        """Appends a record of a key where it lives."""
        q = known(self.layout.homes[key])
        self.written.setdefault(key, []).append((q, self.end(q)))
        self.records.setdefault(q, []).append(key)

    def resize(self, u: int) -> None:
        following = self.layout.next_epoch(u)
        touched = self.layout.change_to(following).touched
        self.layout = self.layout.changed(following, {q: self.end(q) for q in touched})

    def stray(self, q: int) -> None:
        """Lets something land behind the cut of a retired partition."""
        if q not in self.layout.open_segments:
            self.records.setdefault(q, []).append(-1)

    def read(self, q: int, most: int = 1 << 30) -> int:
        """Delivers what the gate allows; returns how far the reader got."""
        position = self.positions.get(q, 0)
        place = reading_place(self.layout.chain(physical_stream(q)), position, 0)
        if place is None or self.gate.asks(q, position, self.evidence):
            end = position
        else:
            end = min(self.end(q) if place.stay.end is None else place.stay.end, position + most)
        for offset in range(max(position, self.log_starts.get(q, 0)), end):
            self._deliver(q, offset)
        self.positions[q] = max(position, end)
        return self.positions[q] - position

    def _deliver(self, q: int, offset: int) -> None:
        key = self.records[q][offset]
        places = self.written.get(key, [])
        earlier = places[: places.index((q, offset))] if key >= 0 else []
        if any(not self._is_over(*place) for place in earlier if place[0] != q):
            self.early.append((q, offset))

    def _is_over(self, q: int, offset: int) -> bool:
        return offset < self.positions.get(q, 0) or offset < self.log_starts.get(q, 0)

    def step_over_strays(self, q: int) -> int:
        """Moves a reader over what stands between two segments: there is nothing to deliver."""
        position = self.positions.get(q, 0)
        while self.positions.get(q, 0) < self.end(q) and self.records[q][self.positions.get(q, 0)] < 0:
            self.positions[q] = self.positions.get(q, 0) + 1
        return self.positions.get(q, 0) - position

    def seek(self, q: int, offset: int) -> None:
        """Goes to an offset; the group is told before anybody reads on."""
        self.positions[q] = self.reported[q] = offset

    def report(self, q: int) -> None:
        """Tells the group how far one has come."""
        self.reported[q] = self.positions.get(q, 0)

    def read_out(self) -> None:
        """Everybody reports and reads on, until nobody gets on."""
        partitions, is_on = range(self.layout.v_count), True
        while is_on:
            for q in partitions:
                self.report(q)
            is_on = sum(self.read(q) + self.step_over_strays(q) for q in partitions) > 0


def lived(counts: tuple[int, int], random: Random, steps: int) -> Cluster:
    """A cluster that has lived through growths and shrinks, slow members, rewinds and retention."""
    cluster = Cluster(Layout.created("orders", TOPIC_ID, *counts))
    for _ in range(steps):
        q = random.randrange(cluster.layout.v_count)
        match random.randrange(12):
            case 0:
                cluster.resize(random.randint(cluster.layout.n, cluster.layout.v_count))
            case 1 | 2 | 3 | 4:
                for _ in range(random.randint(1, 6)):
                    cluster.write(random.randrange(cluster.layout.v_count))
            case 5:
                cluster.seek(q, random.randint(0, cluster.end(q)))
            case 6:
                cluster.log_starts[q] = random.randint(cluster.log_starts.get(q, 0), cluster.end(q))
            case 7:
                cluster.stray(q)
            case 8 | 9:
                cluster.report(q)
            case _:
                cluster.read(q, random.randint(1, 8))
    return cluster


COUNTS = st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda pair: (pair[0], pair[0] << pair[1]))


@given(COUNTS, st.randoms(use_true_random=False), st.integers(0, 120))
def test_no_record_is_delivered_before_an_earlier_one_of_its_key(
    counts: tuple[int, int], random: Random, steps: int
) -> None:
    """Whatever the group's positions are and however topics grow and shrink, also where readers go back."""
    cluster = lived(counts, random, steps)
    cluster.read_out()
    assert cluster.early == []


@given(COUNTS, st.randoms(use_true_random=False), st.integers(0, 120))
@example((1, 2), Random(1445), 5)  # all has been read that may be, and not reported
def test_whoever_is_held_goes_on_once_all_others_have_read_on(
    counts: tuple[int, int], random: Random, steps: int
) -> None:
    """There is no circle in which each waits for the next."""
    cluster = lived(counts, random, steps)
    cluster.read_out()
    assert cluster.positions == {q: cluster.end(q) for q in range(cluster.layout.v_count)} | cluster.positions
    for q in range(cluster.layout.v_count):
        position, end = cluster.positions.get(q, 0), cluster.end(q)
        assert position >= min(end, cluster.log_starts.get(q, end))
        assert all(key < 0 for key in cluster.records.get(q, [])[position:])


@given(COUNTS, st.randoms(use_true_random=False), st.integers(0, 120))
def test_few_positions_are_asked_for_at_a_time(counts: tuple[int, int], random: Random, steps: int) -> None:
    """Not more than 2 + log2(n) of n physical partitions, each once, and never the reader's own."""
    cluster = lived(counts, random, steps)
    gate = cluster.gate
    n = len({segment.id.partition for segment in cluster.layout.segments})
    for q in range(cluster.layout.v_count):
        offset = cluster.positions.get(q, 0)
        asked = gate.asks(q, offset, cluster.evidence)
        assert len(asked) <= 2 + n.bit_length() - 1
        assert len(set(asked) - {q}) == len(asked)


@given(st.integers(1, 4), st.integers(0, 6))
def test_a_topic_that_only_grew_asks_for_its_ancestors(n: int, doublings: int) -> None:
    """A partition's keys came from its parent, and its parent's from the parent before: log2(U / N) of them at most."""
    layout = Layout.created("orders", TOPIC_ID, n, n << doublings)
    ends = dict.fromkeys(range(layout.v_count), 0)
    for u in range(n + 1, layout.v_count + 1):
        ends = {q: end + 1 for q, end in ends.items()}
        layout = layout.changed(layout.next_epoch(u), ends)
    gate = Gate.of(layout)
    starts = {q: segment.start for q, segment in layout.open_segments.items()}
    assert max(len(gate.asks(q, start, NOTHING)) for q, start in starts.items()) <= doublings


@given(COUNTS, st.randoms(use_true_random=False), st.integers(0, 120))
def test_clients_reckon_as_the_proxy_does(counts: tuple[int, int], random: Random, steps: int) -> None:
    """What PartitionLeaderEpochsForPartitions tells of the segments makes the same gate."""
    cluster = lived(counts, random, steps)
    told = [
        segment
        for q in range(cluster.layout.v_count)
        for segment in told_segments(q, [_row(each) for each in cluster.layout.segments if each.id.partition == q])
    ]
    ours, theirs = cluster.gate, Gate(told)
    for q in range(cluster.layout.v_count):
        for offset in range(cluster.end(q) + 1):
            assert ours.asks(q, offset, cluster.evidence) == theirs.asks(q, offset, cluster.evidence)


def _row(segment: Segment) -> PartitionLeaderEpochsForPartitionsResponseSegment:
    return PartitionLeaderEpochsForPartitionsResponseSegment(
        layout_epoch=segment.id.epoch,
        start_offset=segment.start,
        end_offset=-1 if segment.end is None else segment.end,
        predecessors=[
            PartitionLeaderEpochsForPartitionsResponsePredecessor(partition=each.partition, layout_epoch=each.epoch)
            for each in segment.predecessors
        ],
    )


RULES = pytest.mark.parametrize(("rule", "is_sound"), [(Gate, True), (Kip253Gate, False)], ids=["done", "KIP-253"])
"""Each of the proposal's unsound cases: in order by done(), out of order by the proposal's own rule (8.4, 8.5)."""


@RULES
def test_an_empty_intermediate_child_does_not_open_the_gate(rule: type[Gate], is_sound: bool) -> None:
    """1 -> 2 -> 4 partitions at once: 3 comes from 1, which is empty, while 3's keys lie unread in 0."""
    cluster = Cluster(Layout.created("orders", TOPIC_ID, 1, 4), rule)
    for _ in range(5):
        for key in range(4):
            cluster.write(key)
    cluster.resize(2)
    cluster.resize(4)
    (key,) = cluster.layout.residence.residents(3)
    cluster.write(key)
    for q in (1, 0, 2):
        cluster.report(q)  # everybody stands at 0, the end of 1
    assert cluster.layout.chain(~1).stays[0].end == 0
    assert cluster.read(3) == (0 if is_sound else 1)
    cluster.read_out()
    assert (cluster.early == []) is is_sound


@RULES
def test_the_live_log_end_of_a_retired_partition_is_no_cut(rule: type[Gate], is_sound: bool) -> None:
    """2 -> 1: the reader of 1 has reached the log end as 0's reader knows it; one more append lands before the cut."""
    cluster = Cluster(Layout.created("orders", TOPIC_ID, 1, 2), rule)
    cluster.resize(2)
    (key,) = cluster.layout.residence.residents(1)
    cluster.write(key)
    cluster.report(0)
    assert cluster.read(1) == 1
    cluster.report(1)
    Kip253Gate.log_ends = {1: cluster.end(1)}
    cluster.write(key)  # under the old count, after the log end was read
    cluster.resize(1)
    cluster.write(key)
    assert cluster.read(0) == (0 if is_sound else 1)
    cluster.read_out()
    assert (cluster.early == []) is is_sound


@RULES
def test_a_rewind_is_gated_again(rule: type[Gate], is_sound: bool) -> None:
    """A group goes back to the beginning of 0, and to the second record of its child 1, which is not the earliest."""
    cluster = Cluster(Layout.created("orders", TOPIC_ID, 1, 2), rule)
    cluster.write(0)
    cluster.write(1)
    cluster.resize(2)
    (key,) = cluster.layout.residence.residents(1)
    for _ in range(3):
        cluster.write(key)
    cluster.read_out()
    assert (cluster.positions[1], cluster.early) == (3, [])
    cluster.seek(0, 0)
    cluster.seek(1, 1)
    assert cluster.read(1) == (0 if is_sound else 2)
    cluster.read_out()
    assert (cluster.early == []) is is_sound


def test_whoever_goes_back_may_know_who_has_gone_on_by_what_it_had_read() -> None:
    """3 -> 4 -> 3: the keys of 0 went to 3 at 120, and came back at 300 of 0; what is no follower is not named."""
    gate = Gate.of(grown_and_shrunk())
    assert gate.needs(3, 0) == {0: 120}
    assert gate.needs(0, 299) == {}
    assert gate.needs(0, 300) == {3: 95}
    assert gate.followers(0, 119, 120) == {3}
    assert gate.followers(0, 119, 119) == gate.followers(0, 120, 400) == gate.followers(1, 0, 400) == frozenset()
    assert gate.followers(3, 94, 95) == {0}


def test_what_follows_a_segment_is_judged_anew() -> None:
    """3 is retired and its keys go back to 0: whoever has read 0 up to there waits for 3's reader."""
    gate = Gate.of(grown_and_shrunk())
    passed = Evidence({0: 120})
    assert (gate.asks(3, 0, NOTHING), gate.asks(3, 0, passed)) == ((0,), ())
    assert gate.asks(0, 0, NOTHING) == gate.asks(0, 120, NOTHING) == gate.asks(1, 0, NOTHING) == ()
    assert gate.asks(0, 300, NOTHING) == gate.asks(0, 300, Evidence({3: 94})) == (3,)
    assert gate.asks(0, 300, Evidence({3: 95})) == ()
    assert gate.done(SegmentId(3, 1), Evidence({0: 120, 3: 95}))
    assert not gate.done(SegmentId(3, 1), Evidence({0: 119, 3: 95}))
    assert not gate.done(SegmentId(0, 2), Evidence({0: 1000, 3: 95}))


def test_what_retention_has_taken_is_not_waited_for() -> None:
    """Nobody owns a retired partition any more once its log is empty: that its log begins behind the cut is enough."""
    gate = Gate.of(doubled(120))
    assert gate.asks(1, 0, Evidence({}, {0: 119})) == (0,)
    assert gate.asks(1, 0, Evidence({}, {0: 120})) == ()


def test_what_was_lost_is_not_waited_for() -> None:
    """BEYOND-LOSS: 0's log was cut short below its cut; its readers come no further than its records."""
    layout = doubled(200)
    layout = layout.changed(layout.next_epoch(2, shortened={0: 100}), {0: 100}, told={0: 250})
    gate = Gate.of(layout)
    assert (gate.asks(1, 0, Evidence({0: 99})), gate.asks(1, 0, Evidence({0: 100}))) == ((0,), ())


def test_strays_between_two_segments_belong_to_neither() -> None:
    """3 was retired at 95 and is used again from 98 on: whoever stands in between waits for what 98 waits for."""
    layout = grown_and_shrunk()
    layout = layout.changed(layout.next_epoch(4), {0: 310, 3: 98})
    gate = Gate.of(layout)
    at_cut = known(gate.segment_at(3, 96))
    assert at_cut.id == SegmentId(3, 3)
    assert (gate.asks(3, 96, Evidence({0: 309})), gate.asks(3, 96, Evidence({0: 310}))) == ((0,), ())


def test_without_ordered_delivery_nothing_is_held() -> None:
    """enable.ordered.delivery=false of KIP-253."""
    layout = doubled(120)
    gate = Gate(layout.segments, ordered_delivery=False)
    assert gate.asks(1, 0, NOTHING) == ()


def test_segments_that_cannot_be_are_told_so() -> None:
    """A client is told segments by whom it asks; one that would wait for itself waited for ever."""
    with pytest.raises(ValueError, match="unknown or not older"):
        Gate([Segment(SegmentId(0, 1), 0, None, (SegmentId(0, 1),))])
    with pytest.raises(ValueError, match="unknown or not older"):
        Gate([Segment(SegmentId(0, 1), 0, None, (SegmentId(5, 0),))])
