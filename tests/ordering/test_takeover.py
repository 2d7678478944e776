"""A topic with data comes under management while producers write and groups read (PAST-STAYS, TAKEOVER-WAITS)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering import takeover as rules
from kordon.proxy.ordering.changes import Abandoned, Change, Command, Commit, Prepare, Producers, ReadCuts
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import ImageRecord, Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.reading import Resident, reading_place, tenancies
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, Value, dump, load
from kordon.proxy.ordering.takeover import (
    Takeover,
    TakeoverStep,
    first_placement,
    looked_at,
    next_step,
    outdates_views,
    shown,
)

UNTAGGED = 7
"""A producer id as clients know it."""
UNTIL = 1000
LATER = UNTIL + 1


@dataclass
class Producer:
    """Numbers the records of each of its keys, and places a key by any hash of its own."""

    hashes: tuple[int, ...]
    sees: int
    """Partitions, as of its metadata."""
    sent: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.sent = [0] * len(self.hashes)


@dataclass
class Topic:
    """Logs of brokers, a topic that is taken over, one group that reads it."""

    layout: Layout
    takeover: Takeover | None = None
    logs: dict[int, list[tuple[int, tuple[int, int, int]]]] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=lambda: {0: 0})
    """The group has committed before: one that begins only later is not waited for (docs/taking-over.md)."""
    read: list[tuple[int, int, int]] = field(default_factory=list)

    def write(self, v: int, record: tuple[int, int, int]) -> None:
        """Appends a batch to the home of a virtual partition, as lanes do, or as clients do before."""
        home = self.layout.chains[v].home
        assert home is not None, "a client writes only to what it sees"
        producer_id = tag(v, home.move, UNTAGGED) if home.tagged else UNTAGGED
        self.logs.setdefault(home.partition, []).append((producer_id, record))

    def begin(self, placement: Placement) -> None:
        """Another layout begins, at the ends of now."""
        cuts = {q: len(self.logs.get(q, ())) for q in range(self.layout.n)}
        self.layout = self.layout.changed(self.layout.next_epoch(self.layout.n, placement), cuts, withheld=True)
        self.takeover = Takeover(UNTIL, cuts if placement is Placement.LINEAR else {})

    def look(self) -> None:
        """The controller looks at the group."""
        assert self.takeover is not None
        committed = {v: offset for v, offset in self.positions.items() if v < self.layout.n}
        behind = ["group"] if rules.left_to_read(self.takeover, committed, {}) else []
        self.takeover = looked_at(self.takeover, behind)
        if self.takeover is None:
            self.layout = replace(self.layout, withheld=False)

    def poll(self, v: int) -> bool:
        """The group reads, and commits, up to the next record of a virtual partition; False: there is none."""
        chain = self.layout.chains[v]
        if not chain.stays or (self.layout.withheld and v >= self.layout.n):
            return False
        offset = self.positions.get(v, 0)
        while True:
            place = reading_place(chain, offset, 0)
            assert place is not None
            log = self.logs.get(place.stay.partition, [])
            if place.position >= len(log):
                self.positions[v] = offset
                return False
            producer_id, record = log[place.position]
            owner = tenancies(self.layout)[place.stay.partition].owner(producer_id, place.position, is_control=False)
            offset += 1
            if isinstance(owner, Resident) and owner.v == v:
                self.positions[v] = offset
                self.read.append(record)
                return True


def check(topic: Topic, producers: list[Producer]) -> None:
    """All that was written was read, once, each key in its order."""
    expected = {
        (i, k, s) for i, each in enumerate(producers) for k, count in enumerate(each.sent) for s in range(count)
    }
    assert len(topic.read) == len(set(topic.read)), "doubled"
    assert set(topic.read) == expected, "lost"
    for key in {record[:2] for record in topic.read}:
        numbers = [record[2] for record in topic.read if record[:2] == key]
        assert numbers == sorted(numbers), f"key {key} is out of order"


@dataclass
class Play:
    """Clients that do what they like when they like, while a topic is taken over."""

    data: st.DataObject
    topic: Topic
    producers: list[Producer]

    def write(self) -> None:
        number = self.data.draw(st.integers(0, len(self.producers) - 1))
        producer = self.producers[number]
        key = self.data.draw(st.integers(0, len(producer.hashes) - 1))
        self.topic.write(producer.hashes[key] % producer.sees, (number, key, producer.sent[key]))
        producer.sent[key] += 1

    def poll(self) -> None:
        """The group reads a record of one partition."""
        self.topic.poll(self.data.draw(st.integers(0, self.topic.layout.v_count - 1)))

    def see(self) -> None:
        self.data.draw(st.sampled_from(self.producers)).sees = self.topic.layout.v_count

    def some(self, *acts: Callable[[], None]) -> None:
        for act in self.data.draw(st.lists(st.sampled_from(acts), max_size=25)):
            act()

    def end(self) -> None:
        """The group reads all, while the controller looks at it."""
        topic = self.topic
        for _ in range(3):
            while any(topic.poll(v) for v in range(topic.layout.v_count)):
                pass
            if topic.takeover is not None:
                topic.look()
        assert topic.takeover is None, "a group that has read all is not waited for"
        check(topic, self.producers)


@given(st.data())
def test_no_record_is_lost_doubled_or_reordered(data: st.DataObject) -> None:
    """Whatever the hash of its producers, whatever a group has read when, online or quiesced."""
    n, k = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    hashes = st.lists(st.integers(0, 1000), min_size=1, max_size=4)
    producers = [Producer(tuple(data.draw(hashes)), n) for _ in range(data.draw(st.integers(1, 2)))]
    topic = Topic(Layout.unmanaged("orders", UUID(int=1), n, n << k))
    play = Play(data, topic, producers)

    play.some(play.write, play.poll)
    topic.begin(first_placement(topic.layout, quiesced=data.draw(st.booleans()), delivers=False))
    if topic.layout.epochs[-1].placement is Placement.OWN:
        play.some(play.write, play.poll, play.see)
    for producer in producers:
        producer.sees = topic.layout.v_count
    if topic.takeover is not None and next_step(topic.layout, topic.takeover, LATER) is TakeoverStep.CUT:
        play.some(play.write, play.poll)
        topic.begin(Placement.LINEAR)
    for _ in range(4):
        play.some(play.write, play.poll)
        if topic.takeover is not None:
            topic.look()
    play.end()


def nobody_is_behind(*_: object) -> int:
    """In place of a look at what a group has left to read."""
    return 0


def _behind(monkeypatch: pytest.MonkeyPatch, *, waits: bool) -> list[tuple[int, int, int]]:
    """A key's old records are unread when its new virtual partition gets others; what a group reads, v >= N first."""
    if not waits:
        monkeypatch.setattr(rules, "left_to_read", nobody_is_behind)
    topic = Topic(Layout.unmanaged("orders", UUID(int=1), 1, 2))
    producer = Producer((1,), 1)
    topic.write(0, (0, 0, 0))
    topic.positions[0] = 0
    topic.begin(Placement.LINEAR)
    topic.write(1, (0, 0, 1))
    producer.sent[0] = 2
    topic.look()
    for v in (1, 0):
        topic.poll(v)
    if topic.takeover is not None:
        topic.look()
        topic.poll(1)
    return topic.read


def test_a_key_is_not_read_at_its_new_place_before_its_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What v >= N holds is read once its keys are read in the partition where they were; without that, disorder."""
    assert _behind(monkeypatch, waits=True) == [(0, 0, 0), (0, 0, 1)]
    assert _behind(monkeypatch, waits=False) == [(0, 0, 1), (0, 0, 0)]


TOPIC = Layout.unmanaged("orders", UUID(int=1), 2, 4)
FACE = UUID(int=2)


def cuts(**ends: int) -> dict[int, Producers]:
    """Partitions p0 and p1 with a producer that has written 5 records to each."""
    return {int(name[1:]): Producers(end, {UNTAGGED: (0, 4)}) for name, end in ends.items()}


def committed(commands: Sequence[object]) -> dict[str, Value | None]:
    (commit,) = commands
    assert isinstance(commit, Commit)
    return dict(commit.records)


def take_over(
    made: Controller, record: TopicRecord, placement: Placement, expected: dict[int, int] | None = None
) -> list[Command]:
    """Begins to manage a topic that has data."""
    made.known.know(record, {})
    return made.begin(Change("orders", 2, placement=placement, expected=expected), 0.0)


def test_the_controller_takes_over_in_two_changes() -> None:
    """First v < N stay where they are, with images of producers that know nothing; then all go to their homes."""
    made = Controller(frozenset({"a"}), -80.0)
    record = TopicRecord(TOPIC, FACE, Takeover(UNTIL))
    assert take_over(made, record, Placement.OWN) == [Prepare("orders", 2)]
    made.on_prepared("orders", None, 0.0)
    fence = committed(made.on_tick(0.1, "f1"))["fence/orders"]
    assert isinstance(fence, FenceRecord)
    assert fence.taking_over == record, "members that do not know the topic hold it by this"
    assert load("fence/orders", dump(fence)) == fence
    made.on_committed("orders", 0.1)
    made.on_confirmed("orders", 0.1)
    assert made.on_ack(fence.id, "a", 0.2) == [ReadCuts("orders", fence.id, frozenset({0, 1}))]
    written = committed(made.on_cuts("orders", fence.id, cuts(p0=5, p1=9), 0.3))
    assert written["image/orders/1/1"] == ImageRecord({UNTAGGED: Written(0, 4)}, cut_ms=0)
    taken = written["topic/orders"]
    assert isinstance(taken, TopicRecord)
    assert (taken.layout.homes[:2], taken.layout.withheld, taken.takeover) == ((0, 1), True, Takeover(UNTIL))
    made.on_committed("orders", 0.4)

    made.begin(Change("orders", 2), 1.0)
    made.on_prepared("orders", None, 1.0)
    fence = committed(made.on_tick(1.1, "f2"))["fence/orders"]
    assert isinstance(fence, FenceRecord)
    assert (fence.taking_over, fence.sealed) == (None, frozenset({0, 1}))
    made.on_committed("orders", 1.1)
    made.on_confirmed("orders", 1.1)
    made.on_ack(fence.id, "a", 1.2)
    taken = committed(made.on_cuts("orders", fence.id, cuts(p0=15, p1=19), 1.3))["topic/orders"]
    assert isinstance(taken, TopicRecord)
    assert taken.layout.homes == (0, 0, 1, 1)
    assert taken.takeover == Takeover(UNTIL, {0: 15, 1: 19})
    assert taken.layout.withheld


def change(made: Controller, asked: list[Command], read: dict[int, Producers], told: dict[int, int]) -> TopicRecord:
    """Has a change come to its end that has just begun; returns what is written down of the topic."""
    assert asked == [Prepare("orders", 2)]
    made.on_prepared("orders", None, 0.0)
    fence = committed(made.on_tick(0.1, "f"))["fence/orders"]
    assert isinstance(fence, FenceRecord)
    made.on_committed("orders", 0.1)
    made.on_confirmed("orders", 0.1)
    made.on_ack(fence.id, "a", 0.2, told)
    record = committed(made.on_cuts("orders", fence.id, read, 0.3))["topic/orders"]
    assert isinstance(record, TopicRecord)
    made.on_committed("orders", 0.4)
    return record


@pytest.mark.parametrize("placement", [Placement.OWN, Placement.SHARED])
def test_groups_must_pass_all_that_stands_before_the_cut_of_a_log_that_got_shorter_meanwhile(
    placement: Placement,
) -> None:
    """Their commits go on behind what was lost (BEYOND-LOSS), so the log's end is no offset to hold them against.

    A group that had read to the end before the loss was taken for one that had passed the cut, and got what is behind
    it before 25 records that it had not read.
    """
    made = Controller(frozenset({"a"}), -80.0)
    asked = take_over(made, TopicRecord(TOPIC, FACE, Takeover(UNTIL)), placement)
    change(made, asked, cuts(p0=50, p1=90), {})
    change(made, made.mend("orders", {1: 60}, 1.0), cuts(p1=65), {1: 120})
    cut = change(made, made.begin(Change("orders", 2), 2.0), cuts(p0=100, p1=90), {})
    assert cut.takeover is not None
    assert cut.takeover.cuts == {0: 100, 1: 120 + (90 - 65)}
    assert rules.left_to_read(cut.takeover, {0: 100, 1: 120}, {}) == 25


def test_a_log_that_gets_shorter_while_it_is_cut_is_passed_where_it_goes_on() -> None:
    """One layout mends it and moves all to their homes: nothing that a group has read already is to be read again."""
    made = Controller(frozenset({"a"}), -80.0)
    asked = take_over(made, TopicRecord(TOPIC, FACE, Takeover(UNTIL)), Placement.SHARED)
    change(made, asked, cuts(p0=50, p1=90), {})
    asked = made.begin(Change("orders", 2), 2.0)
    assert made.mend("orders", {1: 60}, 2.0) == []
    cut = change(made, asked, cuts(p0=100, p1=65), {1: 120})
    assert cut.takeover is not None
    assert cut.takeover.cuts == {0: 100, 1: 120}


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (cuts(p0=5, p1=10), "somebody writes to orders: partitions [1]"),
        (cuts(p0=5) | {1: Producers(9, {}, in_transaction=True)}, "transactions are open on orders, partitions [1]"),
    ],
)
def test_what_is_not_quiesced_is_given_up_before_anything_has_changed(read: dict[int, Producers], says: str) -> None:
    """A record behind the proven end, or an open transaction: the fence goes, the layout never was."""
    made = Controller(frozenset({"a"}), -80.0)
    take_over(made, TopicRecord(TOPIC, FACE, Takeover(UNTIL)), Placement.LINEAR, {0: 5, 1: 9})
    made.on_prepared("orders", None, 0.0)
    fence = committed(made.on_tick(0.1, "f1"))["fence/orders"]
    assert isinstance(fence, FenceRecord)
    made.on_committed("orders", 0.1)
    made.on_confirmed("orders", 0.1)
    made.on_ack(fence.id, "a", 0.2)
    assert committed(made.on_cuts("orders", fence.id, read, 0.3)) == {
        "fence/orders": None,
        f"ack/{fence.id}/a": None,
    }
    (given_up,) = made.on_committed("orders", 0.4)
    assert isinstance(given_up, Abandoned)
    assert says in given_up.problem
    assert made.changes == {}


def test_a_takeover_that_lost_its_controller_before_the_cut_is_begun_again_by_its_wish() -> None:
    """The next one takes the fence away, so that clients go on; it does not know what had been proven."""
    fence = FenceRecord("old", "orders", TOPIC.next_epoch(2), frozenset({0, 1}), TopicRecord(TOPIC, FACE))
    made = Controller(frozenset({"a"}), -80.0)
    assert committed(made.found_fence(fence, 0.0)) == {"fence/orders": None}
    (given_up,) = made.on_committed("orders", 0.1)
    assert isinstance(given_up, Abandoned)
    assert made.changes == {}


def test_a_group_is_waited_for_until_it_has_read_what_was_there() -> None:
    """By its commits; records that retention has taken are nobody's to read; who has no commit reads something else."""
    takeover = Takeover(UNTIL, {0: 10, 1: 20})
    assert rules.left_to_read(takeover, {0: 10, 1: 19}, {}) == 1
    assert rules.left_to_read(takeover, {0: 10}, {}) == 20, "it has all of partition 1 to read yet"
    assert rules.left_to_read(takeover, {0: 10, 1: 20}, {}) == 0
    assert rules.left_to_read(takeover, {0: 3, 1: 30}, {0: 10}) == 0
    assert rules.left_to_read(takeover, {}, {}) == 0


def test_a_group_that_is_left_out_is_not_waited_for() -> None:
    """The operator says that nobody reads by it any more."""
    takeover = Takeover(UNTIL, {0: 10}, left_out=("dead",))
    assert looked_at(takeover, ["dead", "slow"]) == replace(takeover, waits_for=("slow",))
    assert looked_at(takeover, ["dead"]) is None


def test_the_time_of_the_old_view_runs_from_when_the_new_one_is_shown() -> None:
    """A client that saw the old view last just before keeps it for the whole transition, however late V is shown.

    It was counted from the wish. A controller that died, or a proxy that was missing, took some of it away; then
    producers with the old view wrote behind the cut, and their keys were read out of order.
    """
    asked = Takeover(None, transition_ms=100)
    own = TOPIC.changed(TOPIC.next_epoch(2, Placement.OWN), {0: 5, 1: 9}, withheld=True)
    assert next_step(own, asked, LATER) is TakeoverStep.SHOWN
    counted = shown(asked, LATER)
    assert next_step(own, counted, LATER + 99) is TakeoverStep.WAIT
    assert next_step(own, counted, LATER + 100) is TakeoverStep.CUT


def test_the_old_view_is_waited_out_online_and_left_out_quiesced() -> None:
    """Only where clients come to see more partitions than before there are two views at all."""
    own = TOPIC.changed(TOPIC.next_epoch(2, Placement.OWN), {0: 5, 1: 9}, withheld=True)
    assert next_step(own, Takeover(None), LATER) is TakeoverStep.SHOWN
    assert next_step(own, Takeover(UNTIL), UNTIL - 1) is TakeoverStep.WAIT
    assert next_step(own, Takeover(UNTIL), UNTIL) is TakeoverStep.CUT
    assert first_placement(TOPIC, quiesced=False, delivers=False) is Placement.OWN
    assert first_placement(TOPIC, quiesced=False, delivers=True) is Placement.SHARED
    assert first_placement(TOPIC, quiesced=True, delivers=False) is Placement.LINEAR
    same = Layout.unmanaged("orders", UUID(int=1), 2, 2)
    assert first_placement(same, quiesced=False, delivers=True) is Placement.LINEAR


def test_only_a_quiesced_takeover_leaves_clients_no_time_to_see_more_partitions() -> None:
    """Idle producers are told then; nobody need be who has time for it, sees no more, or has seen it already."""
    online, quiesced = (
        TOPIC.changed(TOPIC.next_epoch(2, placement), {0: 5, 1: 9}, withheld=True)
        for placement in (Placement.OWN, Placement.LINEAR)
    )
    assert outdates_views(TOPIC, quiesced)
    assert not outdates_views(TOPIC, online)
    assert not outdates_views(online, quiesced)
    same = Layout.unmanaged("orders", UUID(int=1), 2, 2)
    assert not outdates_views(same, same.changed(same.next_epoch(2, Placement.LINEAR), {0: 5, 1: 9}))
