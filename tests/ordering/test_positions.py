"""Where groups stand, by what their members have reported: any members, generations and orders of what is written."""

import gc
import json
import sys
import tracemalloc
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kordon.proxy.ordering.position_records import MemberKey, dump, key_of, load, place_of
from kordon.proxy.ordering.positions import UNKNOWN, MemberReport, Positions, ToldPosition, TopicReport

GROUP = "readers"
TOPIC = "orders"
MEGABYTE = 1024 * 1024


def report(
    generation: int, owned: dict[int, int] | None = None, wanted: tuple[int, ...] = (), sequence: int = -1
) -> MemberReport:
    return MemberReport(generation, sequence, {TOPIC: TopicReport(owned or {}, array("i", wanted))})


def told(positions: Positions, member: str) -> list[ToldPosition]:
    return positions.answer(GROUP, member).get(TOPIC, [])


def test_who_asks_is_told_and_who_is_asked_for_learns_of_it() -> None:
    """One member hears the position that it waits for; its owner hears that somebody waits."""
    positions = Positions()
    positions.apply(GROUP, "a", report(1, {0: 40, 1: 7}))
    assert told(positions, "a") == []
    positions.apply(GROUP, "b", report(1, {3: UNKNOWN}, wanted=(0,)))
    assert told(positions, "a") == [ToldPosition(0, True, 40)]
    assert told(positions, "b") == [ToldPosition(0, False, 40)]


def test_a_member_that_waits_for_its_own_partition_is_not_asked_for_it() -> None:
    """Only what another member wants to know is asked for."""
    positions = Positions()
    positions.apply(GROUP, "a", report(1, {0: 40}, wanted=(0,)))
    assert told(positions, "a") == [ToldPosition(0, False, 40)]
    positions.apply(GROUP, "b", report(1, {1: 0}, wanted=(0,)))
    assert told(positions, "a") == [ToldPosition(0, True, 40)]


def test_a_position_that_is_not_known_is_asked_for_as_unknown() -> None:
    """By it an owner sees that what it had said was lost, and says it again."""
    positions = Positions()
    positions.apply(GROUP, "b", report(1, {}, wanted=(0,)))
    assert told(positions, "b") == [ToldPosition(0, False, UNKNOWN)]
    positions.apply(GROUP, "a", report(1, {0: UNKNOWN}))
    assert told(positions, "a") == [ToldPosition(0, True, UNKNOWN)]
    assert positions.of(GROUP, 1, TOPIC) == {}


def test_a_position_may_fall() -> None:
    """A reader that goes back is believed at once."""
    positions = Positions()
    positions.apply(GROUP, "a", report(1, {0: 40}, sequence=1))
    positions.apply(GROUP, "a", report(1, {0: 3}, sequence=2))
    assert positions.of(GROUP, 1, TOPIC) == {0: 3}


def test_what_a_report_does_not_name_is_not_owned_any_more() -> None:
    """A report is whole."""
    positions = Positions()
    positions.apply(GROUP, "a", report(1, {0: 40, 1: 7}))
    positions.apply(GROUP, "a", report(1, {1: 7}))
    assert positions.of(GROUP, 1, TOPIC) == {1: 7}


def test_generations_know_nothing_of_one_another() -> None:
    """Where an owner of the last generation stood says nothing of where the next owner begins."""
    positions = Positions()
    positions.apply(GROUP, "a", report(1, {0: 40}))
    positions.apply(GROUP, "b", report(2, {0: UNKNOWN}, wanted=(0,)))
    assert positions.of(GROUP, 2, TOPIC) == {}
    assert positions.of(GROUP, 1, TOPIC) == {0: 40}
    assert told(positions, "b") == [ToldPosition(0, False, UNKNOWN)]


def test_a_report_that_comes_late_does_not_count() -> None:
    """One that was held up on its way, and lands behind a later one of the same member, changes nothing."""
    positions = Positions()
    positions.apply(GROUP, "a", report(2, {0: 3}, sequence=5))
    for late in (report(2, {0: 40}, sequence=4), report(1, {0: 90}, sequence=9)):
        positions.apply(GROUP, "a", late)
        assert positions.of(GROUP, 2, TOPIC) == {0: 3}
        assert positions.of(GROUP, 1, TOPIC) == {}


def test_what_a_late_report_stands_behind_is_written_again() -> None:
    """A compacted log keeps the last record of a member, and that is the late one."""
    positions = Positions()
    first = MemberReport(2, 5, {TOPIC: TopicReport({0: 3}, array("i"))}, said_ms=1_000)
    positions.apply(GROUP, "a", first)
    assert (said := positions.said(GROUP, "a")) is not None
    assert said.said_ms == 1_000
    positions.apply(GROUP, "a", report(2, {0: 40}, sequence=4))
    assert (said := positions.said(GROUP, "a")) == first
    assert said is not None
    assert said.said_ms == 0


def test_a_member_that_is_gone_does_not_come_back_by_a_late_report() -> None:
    """What a proxy that was paused writes for a member of the group's former life is not believed."""
    positions = Positions()
    positions.apply(GROUP, "a", report(1, {0: 40}))
    positions.apply(GROUP, "a", None)
    positions.apply(GROUP, "new", report(1, {0: 0}))
    positions.apply(GROUP, "a", report(1, {0: 40}))
    assert positions.of(GROUP, 1, TOPIC) == {0: 0}
    positions.apply(GROUP, "a", report(2, {0: 41}))
    assert positions.of(GROUP, 2, TOPIC) == {0: 41}


def test_when_the_room_is_used_up_the_oldest_reports_are_forgotten() -> None:
    """They are unknown then, so that readers wait and their owners are asked; the newest stay."""
    one = report(1, {0: 40}).size
    positions = Positions(most_bytes=3 * one)
    for number in range(5):
        positions.apply(GROUP, f"member {number}", report(1, {number: 1}))
    assert set(positions.members(GROUP)) == {"member 2", "member 3", "member 4"}
    assert positions.of(GROUP, 1, TOPIC) == {2: 1, 3: 1, 4: 1}
    assert positions.forgotten == 2


def test_groups_that_nobody_is_in_leave_nothing_behind() -> None:
    """Neither groups nor generations nor topics are kept for members that are gone."""
    positions = Positions()
    for generation in range(1, 50):
        positions.apply(GROUP, "a", report(generation, {generation: 1}, wanted=(0,)))
    assert positions.bytes == report(1, {1: 1}, wanted=(0,)).size
    positions.apply(GROUP, "a", None)
    assert (len(positions), positions.member_count, positions.bytes) == (0, 0, 0)


numbers = st.integers(0, 5)
topic_reports = st.builds(
    lambda owned, wanted: TopicReport(owned, array("i", sorted(wanted))),
    st.dictionaries(numbers, st.integers(UNKNOWN, 100)),
    st.sets(numbers),
)
reports = st.builds(
    MemberReport,
    st.integers(0, 3),
    st.integers(-1, 5),
    st.dictionaries(st.sampled_from(["orders", "payments"]), topic_reports),
    st.integers(0, 1 << 50),
)


class AnyOrder(RuleBasedStateMachine):
    """Members report, late and again, in any generations, are taken out, and come back: held against plain sums."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()
        self.last: dict[str, MemberReport] = {}
        self.gone: dict[str, int] = {}
        self.turn = 0
        self.said_at: dict[str, int] = {}

    @rule(member=st.sampled_from("abcd"), said=reports)
    def say(self, member: str, said: MemberReport) -> None:
        """A record of a member is read."""
        self.positions.apply(GROUP, member, said)
        former = self.last.get(member)
        if former is None and said.generation_id <= self.gone.get(member, -1):
            return
        self.turn += 1
        self.said_at[member] = self.turn
        if former is None or said.order >= former.order:
            self.last[member] = said

    @precondition(lambda self: self.last)
    @rule(member=st.sampled_from("abcd"))
    def leave(self, member: str) -> None:
        self.positions.apply(GROUP, member, None)
        if (former := self.last.pop(member, None)) is not None:
            self.gone[member] = former.generation_id

    @invariant()
    def each_position_is_its_owners(self) -> None:
        """A position is what the last who claimed the partition in that generation says, or is not known."""
        for generation in range(4):
            for topic in ("orders", "payments"):
                claims: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
                for member, said in self.last.items():
                    if said.generation_id == generation and topic in said.topics:
                        for partition, position in said.topics[topic].owned.items():
                            claims[partition].append((self.said_at[member], position))
                found = self.positions.of(GROUP, generation, topic)
                assert found.keys() <= claims.keys()
                for partition, each in claims.items():
                    if len(each) == 1:  # of several owners the last one may have gone
                        assert found.get(partition, UNKNOWN) in (each[0][1], UNKNOWN)
                    assert found.get(partition, UNKNOWN) in {UNKNOWN, max(each)[1]}

    @invariant()
    def each_member_is_told_what_it_and_others_want(self) -> None:
        """Rows are those that the member wants, and those of its own that another one of its generation wants."""
        for member, said in self.last.items():
            answer = self.positions.answer(GROUP, member)
            for topic, rows in said.topics.items():
                others = [
                    other.topics[topic].wanted
                    for name, other in self.last.items()
                    if name != member and other.generation_id == said.generation_id and topic in other.topics
                ]
                needed = {q for q in rows.owned if any(q in wanted for wanted in others)}
                found = self.positions.of(GROUP, said.generation_id, topic)
                assert answer.get(topic, []) == [
                    ToldPosition(q, q in needed, found.get(q, UNKNOWN)) for q in sorted(needed | set(rows.wanted))
                ]

    @invariant()
    def nothing_is_left_of_nobody(self) -> None:
        """What is kept is what the members said last."""
        assert set(self.positions.members(GROUP)) == set(self.last)
        assert self.positions.bytes == sum(said.size for said in self.last.values())


TestAnyOrder = AnyOrder.TestCase


@given(reports, st.text(), st.text())
def test_records_read_as_they_were_written(said: MemberReport, group: str, member: str) -> None:
    """Key and value come back, whatever groups and members are called."""
    place = MemberKey(group, member)
    assert place_of(key_of(place)) == place
    read = load(dump(said))
    assert read == said
    assert read is not None
    assert read.said_ms == said.said_ms


def test_records_of_later_versions_are_passed_over() -> None:
    """A kind or a version that is not known is no error; what claims to be known and is not, is."""
    assert place_of("ranges/whatever") is None
    assert load(b'{"version": 2, "something": "else"}') is None
    for value in (b"", b"[]", b'{"version": 1}', b'{"version": 1, "generation_id": 1, "topics": {"o": 3}}'):
        with pytest.raises(ValueError, match=r"."):
            load(value)
    with pytest.raises(ValueError, match=r"."):
        place_of("positions/nothing")


@pytest.mark.parametrize(("partition", "is_one"), [(-1, False), (0, True), (2**31 - 1, True), (2**31, False)])
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "wanted"])
def test_a_record_names_partitions_by_numbers_that_kafka_has(partition: int, *, owned: bool, is_one: bool) -> None:
    """What has another number in it cannot be read, and concerns nobody else."""
    rows = {"owned": {str(partition): 7} if owned else {}, "wanted": [] if owned else [partition]}
    value = {"version": 1, "generation_id": 1, "sequence": 1, "said_ms": 0, "topics": {TOPIC: rows}}
    with nullcontext() if is_one else pytest.raises(ValueError, match=str(partition)):
        read = load(json.dumps(value).encode())
        assert read == report(1, {partition: 7} if owned else {}, () if owned else (partition,), sequence=1)


def records_of(members: int, owned: int, wanted: int) -> list[bytes]:
    """What the log has of members with so many partitions each, that ask for so many."""
    each_owned = (range(number * owned, (number + 1) * owned) for number in range(members))
    return [dump(report(7, dict.fromkeys(mine, 1 << 40), wanted=tuple(range(wanted)))) for mine in each_owned]


def a_group(positions: Positions, records: Sequence[bytes]) -> None:
    """A member for each of these, as they are read from the log."""
    for number, record in enumerate(records):
        positions.apply(GROUP, f"consumer-{number}-8f0e4a7c-4d1c-4e0a-9b62-2f8c1b7b{number:04}", load(record))


@pytest.mark.parametrize(
    ("members", "owned", "wanted", "bound_bytes"),
    [
        pytest.param(1_000, 1, 10, 2 * MEGABYTE, id="each asks for ten"),
        pytest.param(1_000, 1, 1_000, 8 * MEGABYTE, id="each asks for all"),
        pytest.param(10, 1_000, 10, 3 * MEGABYTE, id="each owns a thousand"),
    ],
)
def test_what_groups_take_in_memory(members: int, owned: int, wanted: int, bound_bytes: int) -> None:
    """1,000 members of 1,000 partitions take 2 MiB, and 8 if each asks for all; what is reckoned is rather too much."""
    positions, records = Positions(), records_of(members, owned, wanted)
    a_group(positions, records[:1])
    gc.collect()
    tracemalloc.start()
    a_group(positions, records)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= positions.bytes <= bound_bytes, taken


def test_an_answer_costs_no_pass_over_all_members() -> None:
    """A report and its answer look at the member's own rows: as many steps among 1,000 members as among ten."""
    steps = []
    for members in (10, 1_000):
        positions = Positions()
        a_group(positions, records_of(members, owned=1, wanted=10))
        said = report(7, {0: 1 << 41}, wanted=tuple(range(10)))
        (member,) = (name for name in positions.members(GROUP) if name.startswith("consumer-0-"))
        steps.append(steps_of(partial(report_and_hear, positions, member, said)))
    assert steps[0] == steps[1]


def report_and_hear(positions: Positions, member: str, said: MemberReport) -> None:
    """What a heartbeat of a member asks of the group's state."""
    positions.apply(GROUP, member, said)
    positions.answer(GROUP, member)


def steps_of(work: Callable[[], object]) -> int:
    """Counts the lines of Python that something takes."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()  # what others have called at a collection would be counted
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines
