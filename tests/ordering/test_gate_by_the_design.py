"""Gate and positions together, held against design section 3 word by word.

The reference knows every offset of every segment, every report that every member has made, and nothing of how the
product keeps either.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.positions import MemberReport, Positions, TopicReport
from kordon.proxy.ordering.segments import Segment, SegmentId

GROUP, TOPIC = "g", "t"
FEW = settings(max_examples=50)
COUNTS = st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda pair: (pair[0], pair[0] << pair[1]))


@dataclass
class Reference:
    """What design section 3 says, from nothing but segments, offsets and where the group stands."""

    segments: Sequence[Segment]
    positions: Mapping[int, int]
    log_starts: Mapping[int, int]
    undeliverable: frozenset[tuple[int, int]] = frozenset()
    """Control batches, aborted and compacted records: by partition and offset."""

    def done(self, each: SegmentId) -> bool:
        """Its position on q >= s.end, or nothing deliverable is left before that; and every predecessor is done."""
        segment = self._of(each)
        return (
            segment.end is not None
            and not self._is_something_left(segment, segment.end)
            and all(self.done(predecessor) for predecessor in segment.predecessors)
        )

    def opens(self, each: SegmentId) -> bool:
        """A segment is delivered from only when all its predecessors are done."""
        return all(self.done(predecessor) for predecessor in self._of(each).predecessors)

    def _of(self, each: SegmentId) -> Segment:
        return next(segment for segment in self.segments if segment.id == each)

    def _is_something_left(self, segment: Segment, end: int) -> bool:
        q = segment.id.partition
        first = max(segment.start, self.positions.get(q, 0), self.log_starts.get(q, 0))
        return any((q, offset) not in self.undeliverable for offset in range(first, end))


@dataclass
class Topic:
    """Logs that grow, and a layout that changes."""

    layout: Layout
    ends: dict[int, int] = field(default_factory=dict[int, int])
    log_starts: dict[int, int] = field(default_factory=dict[int, int])

    def live(self, random: Random, steps: int) -> None:
        """Lets it be written to, resized, and lose the heads of its logs."""
        for _ in range(steps):
            q = random.randrange(self.layout.v_count)
            end = self.ends.get(q, 0)
            match random.randrange(8):
                case 0 | 1:
                    self._resize(random.randint(self.layout.n, self.layout.v_count))
                case 2:
                    self.log_starts[q] = random.randint(self.log_starts.get(q, 0), end)
                case _:
                    self.ends[q] = end + random.randint(0, 3) * (q in self.layout.open_segments)

    def _resize(self, u: int) -> None:
        following = self.layout.next_epoch(u)
        touched = self.layout.change_to(following).touched
        self.layout = self.layout.changed(following, {q: self.ends.get(q, 0) for q in touched})


def somewhere(random: Random, topic: Topic, q: int) -> int:
    """Returns an offset, most often one at which something changes."""
    cuts = [0, topic.ends.get(q, 0)]
    cuts += [cut for each in topic.layout.segments if each.id.partition == q for cut in (each.start, each.end or 0)]
    return max(0, random.choice(cuts) + random.choice([-1, 0, 0, 0, 1]))


@FEW
@given(COUNTS, st.randoms(use_true_random=False), st.integers(0, 60))
def test_the_gate_is_the_one_rule_of_the_design(counts: tuple[int, int], random: Random, steps: int) -> None:
    """Whatever positions are, also such as rewinds and retention leave: `asks` and `done` follow from it."""
    topic = Topic(Layout.created(TOPIC, UUID(int=1), *counts))
    topic.live(random, steps)
    gate, partitions = Gate.of(topic.layout), range(topic.layout.v_count)
    told = {q: somewhere(random, topic, q) for q in partitions if random.random() < 0.8}
    for segment in topic.layout.segments:
        known = Reference(topic.layout.segments, {q: told.get(q, -1) for q in partitions}, topic.log_starts)
        assert gate.done(segment.id, Evidence(told, topic.log_starts)) == known.done(segment.id)
    for q in partitions:
        offset = somewhere(random, topic, q)
        found = gate.segment_at(q, offset)
        if found is None:
            continue
        evidence = Evidence(told, topic.log_starts)
        is_open = Reference(topic.layout.segments, told | {q: offset}, topic.log_starts).opens(found.id)
        assert (gate.asks(q, offset, evidence) == ()) == is_open


@FEW
@given(COUNTS, st.randoms(use_true_random=False), st.integers(0, 60))
def test_the_gate_opens_nothing_too_early_where_not_all_can_be_delivered(
    counts: tuple[int, int], random: Random, steps: int
) -> None:
    """It does not know of markers and compacted records before somebody has passed them: it may wait, never hurry."""
    topic = Topic(Layout.created(TOPIC, UUID(int=1), *counts))
    topic.live(random, steps)
    gate = Gate.of(topic.layout)
    told = {q: somewhere(random, topic, q) for q in range(topic.layout.v_count)}
    holes = frozenset((q, offset) for q, end in topic.ends.items() for offset in range(end) if random.random() < 0.5)
    for segment in topic.layout.segments:
        known = Reference(topic.layout.segments, told, topic.log_starts, holes)
        assert known.done(segment.id) or not gate.done(segment.id, Evidence(told, topic.log_starts))


@dataclass
class Member:
    """One that reports, as the SDK does: its generations and its numbers rise."""

    generation: int = 0
    sequence: int = 0
    said: list[MemberReport] = field(default_factory=list[MemberReport])


@FEW
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_positions_are_what_each_member_has_said_last(random: Random, steps: int) -> None:
    """Reports of a member may land in any order, its rewinds are lower than what it said before, and members go.

    The group stands where the members of one generation have said so last; nothing of another one counts.
    """
    positions, members, gone = Positions(), {f"m{i}": Member() for i in range(4)}, set[str]()
    for _ in range(steps):
        name = random.choice(sorted(members))
        member, under_way = members[name], list[MemberReport]()
        if random.random() < 0.1:
            positions.apply(GROUP, name, None)
            gone.add(name)
        for _ in range(random.randint(1, 3)):
            new = random.random() < 0.2
            member.generation, member.sequence = member.generation + new, 0 if new else member.sequence + 1
            place = sorted(members).index(name)
            owned = {q: random.randint(-1, 9) for q in (place, place + 4) if random.random() < 0.7}
            report = TopicReport(owned, array("i"))
            under_way.append(MemberReport(member.generation, member.sequence, {TOPIC: report}))
        if name not in gone:
            member.said += under_way
        random.shuffle(under_way)
        for report_under_way in under_way if name not in gone else ():
            positions.apply(GROUP, name, report_under_way)
    for generation in range(max(each.generation for each in members.values()) + 1):
        expected: dict[int, int] = {}
        for name, member in members.items():
            last = max(member.said, key=lambda each: each.order, default=None)
            if last is not None and last.generation_id == generation and name not in gone:
                expected |= {q: at for q, at in last.topics[TOPIC].owned.items() if at >= 0}
        assert dict(positions.of(GROUP, generation, TOPIC)) == expected
