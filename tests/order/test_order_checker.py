"""The checker finds nothing in a correct history, and in one with a single fault exactly that fault."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kordon.testing.order.checker import check
from kordon.testing.order.findings import Anomaly, Verdict
from kordon.testing.order.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    Assigned,
    Committed,
    Ended,
    Failed,
    Processed,
    Read,
    Revoked,
    Sought,
    Write,
)

PRODUCERS = ("one", "two")
GROUPS = ("red", "blue")
FEW = settings(max_examples=settings().max_examples // 3)
"""Each example is a whole history, and a test has one fault."""


@dataclass
class Imagined:
    """A history that no cluster wrote, open for changes."""

    written: list[tuple[str, Write]] = field(default_factory=list)
    read: dict[str, list[tuple[str, Read]]] = field(default_factory=dict)

    def check(self) -> Verdict:
        return check(self.written, self.read)

    def acknowledged(self) -> list[Acknowledged]:
        return [event for _, event in self.written if isinstance(event, Acknowledged)]

    def places(self, group: str, record: Acknowledged) -> list[int]:
        """Where in a group's events the record is processed."""
        wanted = (record.key, record.sequence)
        return [
            place
            for place, (_, event) in enumerate(self.read[group])
            if isinstance(event, Processed) and (event.key, event.sequence) == wanted
        ]

    def replace(self, old: Acknowledged, new: Write) -> None:
        """Lets something else have come of a record."""
        place = next(place for place, (_, event) in enumerate(self.written) if event == old)
        self.written[place] = (self.written[place][0], new)


def imagine(seed: int, *, rewinds: bool = True) -> Imagined:
    """Makes a correct history: gaps between offsets, lost answers, rebalances, and rewinds to the last commit."""
    chance = Random(seed)
    made = Imagined()
    logs = write(made, chance)
    for group in GROUPS:
        made.read[group] = list(read(chance, logs, rewinds=rewinds))
    return made


def write(made: Imagined, chance: Random) -> dict[int, list[Processed]]:
    """Lets producers send; returns what stands in each partition."""
    logs: dict[int, list[Processed]] = {partition: [] for partition in range(3)}
    ends: dict[int, int] = dict.fromkeys(logs, 0)
    sequences: dict[str, int] = defaultdict(int)
    numbers: dict[str, int] = defaultdict(int)
    for time_us in range(150):
        producer = chance.choice(PRODUCERS)
        name = chance.randrange(6)
        key, partition = f"{producer}-{name}", name % 3
        sequence, number = sequences[key], numbers[producer]
        sequences[key] += 1
        numbers[producer] += 1
        ends[partition] += chance.choice((1, 1, 1, 4))
        fate, offset = chance.random(), ends[partition]
        if fate > 0.05:  # it was written
            logs[partition].append(Processed(0, partition, offset, key, sequence))
        if fate < 0.1:  # no answer
            made.written.append((producer, Failed(time_us, number, key, sequence, time_us, "TIMED_OUT", refused=False)))
            continue
        told = UNKNOWN_OFFSET if fate < 0.15 else offset
        made.written.append((producer, Acknowledged(time_us, number, key, sequence, time_us, partition, told)))
    made.written += [(producer, Ended(150)) for producer in PRODUCERS]
    return logs


def read(chance: Random, logs: dict[int, list[Processed]], *, rewinds: bool) -> Iterable[tuple[str, Read]]:
    """Lets a group's members process the partitions, in stints, to their ends."""
    committed = dict.fromkeys(logs, 0)
    unfinished = sorted(logs)
    time_us = 200
    while unfinished:
        owned = {partition: f"member-{chance.randrange(2)}" for partition in unfinished}
        for partition, member in owned.items():
            yield member, Assigned(time_us, (partition,))
        at = dict(committed)
        for _ in range(chance.randrange(60)):
            time_us += 1
            partition = chance.choice(unfinished)
            rest = [record for record in logs[partition] if record.offset >= at[partition]]
            if rest:
                at[partition] = rest[0].offset + 1
                yield owned[partition], rest[0]._replace(time_us=time_us)
            if chance.random() < 0.1:
                committed[partition] = at[partition]
                yield owned[partition], Committed(time_us, ((partition, at[partition]),))
        for partition, member in owned.items():
            if not rewinds:
                committed[partition] = at[partition]
                yield member, Committed(time_us, ((partition, at[partition]),))
            yield member, Revoked(time_us, (partition,), lost=chance.random() < 0.2)
        unfinished = [p for p in unfinished if committed[p] <= max((r.offset for r in logs[p]), default=-1)]


seeds = st.integers(min_value=0, max_value=2**32)


def a_record(made: Imagined, chance: Random, at_end: bool = False, once: bool = True) -> Acknowledged:
    """Chooses a record whose offset is known: the last of its partition, or one with later ones of its key."""
    records = [record for record in made.acknowledged() if record.offset != UNKNOWN_OFFSET]
    processed = [event for _, event in made.read["red"] if isinstance(event, Processed)]
    highest_offset, highest_sequence = dict[int, int](), dict[str, int]()
    for event in processed:
        highest_offset[event.partition] = max(event.offset, highest_offset.get(event.partition, 0))
        highest_sequence[event.key] = max(event.sequence, highest_sequence.get(event.key, 0))
    fitting = [
        record
        for record in records
        if (record.offset == highest_offset.get(record.partition)) == at_end
        and (at_end or record.sequence < highest_sequence.get(record.key, -1))
        and (not once or len(made.places("red", record)) == 1)
    ]
    assume(fitting)
    return chance.choice(fitting)


@FEW
@given(seed=seeds)
def test_correct_history_passes(seed: int) -> None:
    """Rebalances, rewinds to the last commit, lost answers and gaps in offsets are no anomaly."""
    made = imagine(seed)
    verdict = made.check()
    assert verdict.findings.examples == {}
    assert verdict.passed
    assert verdict.accounts["writes"].records == len(made.acknowledged())
    assert verdict.accounts["red"].records == len({
        (event.key, event.sequence) for _, event in made.read["red"] if isinstance(event, Processed)
    })  # fmt: skip


@pytest.mark.parametrize(("at_end", "anomaly"), [(False, Anomaly.LOST_WRITE), (True, Anomaly.UNSEEN)])
@FEW
@given(seed=seeds)
def test_record_that_nobody_processes_is_lost_or_may_not_have_come_yet(
    seed: int, *, at_end: bool, anomaly: Anomaly
) -> None:
    """All deliveries of one record are taken out of one group, which got later ones of its partition, or none."""
    made, chance = imagine(seed), Random(seed)
    record = a_record(made, chance, at_end=at_end, once=False)
    gone = set(made.places("red", record))
    made.read["red"] = [told for place, told in enumerate(made.read["red"]) if place not in gone]
    assert_only(made, anomaly, "red", record)


@FEW
@given(seed=seeds)
def test_record_at_two_offsets_is_a_duplicate(seed: int) -> None:
    """A copy of a record stands at the end of its partition, where a retry has put it."""
    made, chance = imagine(seed), Random(seed)
    record = a_record(made, chance, once=False)
    made.read["red"].append(("member-9", Processed(10**6, record.partition, 10**6, record.key, record.sequence)))
    assert_only(made, Anomaly.DUPLICATE, "red", record)


@FEW
@given(seed=seeds)
def test_record_elsewhere_than_acknowledged_is_inconsistent(seed: int) -> None:
    """The producer was told of another offset than the one at which consumers find the record."""
    made, chance = imagine(seed), Random(seed)
    record = a_record(made, chance, at_end=True, once=False)
    later = [each for each in made.acknowledged() if each.time_us > record.time_us]
    assume(all(each.partition != record.partition for each in later))
    made.replace(record, record._replace(offset=record.offset + 10))
    assert_only(made, Anomaly.INCONSISTENT_OFFSETS, "red", record)


@FEW
@given(seed=seeds)
def test_two_records_acknowledged_at_one_offset_are_inconsistent(seed: int) -> None:
    """Two producers were told of the same offset for two records of the same partition."""
    made, chance = imagine(seed), Random(seed)
    record = a_record(made, chance)
    twin = record._replace(key="three-0", sequence=0, number=0)
    made.written += [("three", twin), ("three", Ended(150))]
    assert made.check().count(Anomaly.INCONSISTENT_OFFSETS, "writes") == 1


@FEW
@given(seed=seeds)
def test_record_left_out_in_one_stint_and_processed_in_another_is_a_poll_skip(seed: int) -> None:
    """A member passed over a record; only because it lost its partition without a commit, the record came."""
    made, chance = imagine(seed), Random(seed)
    twice = [each for each in made.acknowledged() if len(made.places("red", each)) > 1 and each.offset >= 0]
    inside = [record for record in twice if stands_inside_a_stint(made, made.places("red", record)[0])]
    assume(inside)
    record = chance.choice(inside)
    del made.read["red"][made.places("red", record)[0]]
    assert_only(made, Anomaly.POLL_SKIP, "red", record)


@FEW
@given(seed=seeds)
def test_record_that_comes_after_a_later_one_is_a_nonmonotonic_poll(seed: int) -> None:
    """Two neighbours of one partition come the other way round within a stint."""
    made, chance = imagine(seed, rewinds=False), Random(seed)
    pairs = list(neighbours(made.read["red"]))
    assume(pairs)
    first, second = chance.choice(pairs)
    events = made.read["red"]
    late = events[first][1]
    events[first], events[second] = events[second], events[first]
    verdict = made.check()
    assert verdict.findings.found() == {Anomaly.NONMONOTONIC_POLL}
    (example,) = verdict.findings.examples[Anomaly.NONMONOTONIC_POLL, "red"]
    assert str(verdict.findings).splitlines() == ["nonmonotonic-poll red: 1", f"  {example}"]
    assert isinstance(late, Processed)
    assert (example.key, example.sequence) == (late.key, late.sequence)


@FEW
@given(seed=seeds)
def test_delivery_again_of_what_was_committed_is_a_nonmonotonic_poll(seed: int) -> None:
    """A rebalance allows records again from the last commit on, and none below it."""
    made, chance = imagine(seed), Random(seed)
    record = a_record(made, chance, once=False)
    commits = [offsets for _, event in made.read["red"] if isinstance(event, Committed) for offsets in event.offsets]
    assume(any(partition == record.partition and offset > record.offset for partition, offset in commits))
    again = Processed(10**6, record.partition, record.offset, record.key, record.sequence)
    made.read["red"] += [("member-9", Assigned(10**6, (record.partition,))), ("member-9", again)]
    assert_only(made, Anomaly.NONMONOTONIC_POLL, "red", record)


@pytest.mark.parametrize(("same_key", "anomaly"), [(True, Anomaly.NONMONOTONIC_SEND), (False, Anomaly.INVERSION)])
@FEW
@given(seed=seeds)
def test_log_that_turns_two_records_of_a_producer_round_is_at_fault(
    seed: int, *, same_key: bool, anomaly: Anomaly
) -> None:
    """An idempotent producer's records stand as it sent them, whatever their keys; consumers get what stands there."""
    made, chance = imagine(seed), Random(seed)
    pairs = same_partition_pairs(made, same_key=same_key)
    assume(pairs)
    one, other = chance.choice(pairs)
    turn_round(made, one, other)
    assert_only(made, anomaly, "writes", other)


@FEW
@given(seed=seeds)
def test_refused_record_that_is_processed_is_g1a(seed: int) -> None:
    """What a producer was refused for good must not be there."""
    made, chance = imagine(seed), Random(seed)
    record = a_record(made, chance)
    made.replace(record, Failed(1, record.number, record.key, record.sequence, 1, "RECORD_TOO_LARGE", refused=True))
    verdict = made.check()
    assert verdict.findings.found() == {Anomaly.G1A}
    assert verdict.count(Anomaly.G1A, "blue") >= 1


@pytest.mark.parametrize("ended", [True, False])
def test_record_that_nobody_sent_is_g1a_if_all_sends_are_known(*, ended: bool) -> None:
    """A producer that was killed may have sent more than it could write down."""
    made = imagine(1)
    if not ended:
        made.written.pop()
    made.read["red"].append(("member-9", Processed(10**6, 0, 10**6, "one-0", 10**6)))
    assert made.check().findings.found() == ({Anomaly.G1A} if ended else set())


def test_key_read_in_its_new_partition_before_its_old_one_is_a_nonmonotonic_poll() -> None:
    """What Kafka does today when a topic grows: two members, one behind in the old partition, one in the new."""
    sent = [Acknowledged(n, n, "k", n, n, n // 3, n % 3) for n in range(6)]
    made = Imagined([("one", each) for each in sent] + [("one", Ended(9))])
    got = [
        Processed(10 + place, sent[n].partition, sent[n].offset, "k", n) for place, n in enumerate([0, 3, 1, 4, 2, 5])
    ]
    made.read["red"] = [(f"member-{event.partition}", event) for event in got]
    verdict = made.check()
    assert verdict.findings.found() == {Anomaly.NONMONOTONIC_POLL}
    assert [example.sequence for example in verdict.findings.examples[Anomaly.NONMONOTONIC_POLL, "red"]] == [1, 2]


def test_rewind_does_not_hide_a_new_record_that_comes_late() -> None:
    """Beyond what the group had processed, a rewound partition is judged as ever."""
    sent = [Acknowledged(n, n, "k", n, n, 0 if n < 4 else 1, n % 4) for n in range(6)]
    made = Imagined([("one", each) for each in sent] + [("one", Ended(9))])
    plan = [0, 1, 4, None, 0, 1, 2, 3, 5]
    events: list[tuple[str, Read]] = []
    for time_us, n in enumerate(plan, 10):
        if n is None:
            events.append(("a", Revoked(time_us, (0,), lost=True)))
            continue
        member = "b" if sent[n].partition else "a"
        events.append((member, Processed(time_us, sent[n].partition, sent[n].offset, "k", n)))
    made.read["red"] = events
    verdict = made.check()
    assert [example.sequence for example in verdict.findings.examples[Anomaly.NONMONOTONIC_POLL, "red"]] == [2, 3]
    assert verdict.accounts["red"].again == 2


def assert_only(made: Imagined, anomaly: Anomaly, place: str, record: Acknowledged) -> None:
    """Asserts that nothing else was found, and that the example names the record."""
    verdict = made.check()
    assert verdict.findings.found() == {anomaly}
    examples = verdict.findings.examples[anomaly, place]
    assert {(each.key, each.sequence) for each in examples} == {(record.key, record.sequence)}


def stands_inside_a_stint(made: Imagined, place: int) -> bool:
    """Whether the same stint has records of the same partition before and behind."""
    member, event = made.read["red"][place]
    assert isinstance(event, Processed)
    return all(
        next(
            isinstance(other, Processed)
            for who, other in way
            if who == member
            and (
                (isinstance(other, Processed) and other.partition == event.partition)
                or (isinstance(other, Assigned | Revoked) and other.partitions == (event.partition,))
            )
        )
        for way in (made.read["red"][place + 1 :], reversed(made.read["red"][:place]))
    )


def neighbours(events: list[tuple[str, Read]]) -> Iterable[tuple[int, int]]:
    """Yields two deliveries of a partition within one stint, with no commit in between."""
    last: dict[int, int] = {}
    for place, (_, event) in enumerate(events):
        match event:
            case Processed():
                if event.partition in last:
                    yield last[event.partition], place
                last[event.partition] = place
            case Committed():
                last.pop(event.offsets[0][0], None)
            case Assigned() | Revoked():
                last.pop(event.partitions[0], None)
            case _:
                pass


def same_partition_pairs(made: Imagined, *, same_key: bool) -> list[tuple[Acknowledged, Acknowledged]]:
    """Returns neighbours in a partition's log that one producer sent."""
    pairs: list[tuple[Acknowledged, Acknowledged]] = []
    for partition in range(3):
        stand = sorted(
            {
                (e.offset, e.key, e.sequence)
                for _, e in made.read["red"]
                if isinstance(e, Processed) and e.partition == partition
            }
        )
        known = {(e.offset, e.key, e.sequence): e for e in made.acknowledged() if e.partition == partition}
        for one, other in pairwise(stand):
            same_producer = one[1].split("-")[0] == other[1].split("-")[0]
            if one in known and other in known and same_producer and (one[1] == other[1]) == same_key:
                pairs.append((known[one], known[other]))
    return pairs


def turn_round(made: Imagined, one: Acknowledged, other: Acknowledged) -> None:
    """Lets two records stand at each other's offsets, for everybody."""
    made.replace(one, one._replace(offset=other.offset))
    made.replace(other, other._replace(offset=one.offset))
    names = {one.offset: other, other.offset: one}
    for group, events in made.read.items():
        made.read[group] = [
            (member, event._replace(key=names[event.offset].key, sequence=names[event.offset].sequence))
            if isinstance(event, Processed) and event.partition == one.partition and event.offset in names
            else (member, event)
            for member, event in events
        ]


@FEW
@given(seed=seeds)
def test_producer_that_orders_each_key_by_itself_may_turn_two_keys_round(seed: int) -> None:
    """One that moves what it holds to other partitions promises no more; the order of each key it does promise."""
    made, chance = imagine(seed), Random(seed)
    same_key = chance.random() < 0.5
    pairs = same_partition_pairs(made, same_key=same_key)
    assume(pairs)
    turn_round(made, *chance.choice(pairs))
    verdict = check(made.written, made.read, ordering_keys=PRODUCERS)
    assert verdict.findings.found() == ({Anomaly.NONMONOTONIC_SEND} if same_key else set())


def test_member_that_goes_back_by_itself_is_allowed_what_it_asks_for() -> None:
    """From the offset that it goes to, in order; a record below that comes without leave."""
    sent = [Acknowledged(n, n, "k", n, n, 0, n) for n in range(4)]
    for offset, found in ((1, set[Anomaly]()), (2, {Anomaly.NONMONOTONIC_POLL})):
        made = Imagined([("one", each) for each in sent] + [("one", Ended(9))])
        events: list[tuple[str, Read]] = [("a", Assigned(10, (0,)))]
        events += [("a", Processed(11 + n, 0, n, "k", n)) for n in range(3)]
        events += [("a", Sought(20, 0, offset))]
        events += [("a", Processed(21 + n, 0, n, "k", n)) for n in range(1, 4)]
        made.read["red"] = events
        assert made.check().findings.found() == found


def test_member_that_went_back_may_have_committed_there_without_saying_so() -> None:
    """It was killed between its commit and the line about it: the next owner begins below what was told before."""
    sent = [Acknowledged(n, n, "k", n, n, 0, n) for n in range(4)]
    made = Imagined([("one", each) for each in sent] + [("one", Ended(9))])
    made.read["red"] = [
        ("a", Assigned(10, (0,))), *(("a", Processed(11 + n, 0, n, "k", n)) for n in range(3)),
        ("a", Committed(20, ((0, 3),))), ("a", Sought(21, 0, 0)), ("a", Processed(22, 0, 0, "k", 0)),
        ("b", Assigned(30, (0,))), *(("b", Processed(31 + n, 0, n, "k", n)) for n in range(1, 4)),
    ]  # fmt: skip
    assert made.check().passed


@pytest.mark.parametrize("missing", [0, 20_000])
def test_record_that_is_missing_of_one_of_many_lives_is_noticed(missing: int) -> None:
    """Each life numbers its records from far behind the one before, and what lies between was never sent."""
    records = [Acknowledged(0, n, "one-0", sequence, 0, 0, n) for n, sequence in enumerate((0, 20_000, 40_000))]
    read: list[tuple[str, Read]] = [("a", Assigned(1, (0,)))]
    read += [("a", Processed(2, 0, r.offset, r.key, r.sequence)) for r in records if r.sequence != missing]
    verdict = check([("one", record) for record in records], {"red": read})
    assert verdict.findings.counts == {(Anomaly.LOST_WRITE, "red"): 1}
