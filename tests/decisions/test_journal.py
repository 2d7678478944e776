"""The journal: what becomes one record, what ends it, in which order records stand, what is told of what is missing."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.decisions import commits
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.events import Given, OwnError
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.decisions.runs import Client, last_sequence
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.write_sequencer import Binding, Write
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.decision_log import missing

STREAM: dict[str, Any] = {
    "topic": "orders",
    "stream": 5,
    "partition": 1,
    "move": 0,
    "layout_epoch": 3,
    "layouts_offset": 40,
    "records": 10,
    "size": 700,
}
WRITE: dict[str, Any] = STREAM | {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "base_offset": 100}
NEXT: dict[str, Any] = WRITE | {"base_sequence": 10, "base_offset": 130}
"""What goes on with `WRITE`; other streams' batches lie between."""
READ: dict[str, Any] = STREAM | {"asked": 20, "told": 30, "first_offset": 100}
FURTHER: dict[str, Any] = READ | {"asked": 30, "told": 35, "first_offset": 110, "records": 5}


def but(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The same with other values."""
    return {**fields, **changes}


def topic_of(fields: dict[str, Any]) -> ManagedTopic:
    """A topic of some name under some layout."""
    layout = SimpleNamespace(epoch=fields["layout_epoch"])
    topic = SimpleNamespace(name=fields["topic"], layout=layout, layouts_offset=fields["layouts_offset"])
    return cast("ManagedTopic", topic)


def admit(journal: Journal, client: Client, fields: dict[str, Any]) -> None:
    """Tells of a batch that was written."""
    producer_id, epoch, sequence = (fields[name] for name in ("producer_id", "producer_epoch", "base_sequence"))
    write = Write(producer_id, epoch, sequence, fields["records"], fields["size"], acks=-1, since=0.0)
    write.bound = Binding(fields["partition"], fields["move"], producer_id, producer_id, epoch, sequence, opens=False)
    journal.admitted(client, topic_of(fields), fields["stream"], write, fields["base_offset"])


def deliver(journal: Journal, client: Client, fields: dict[str, Any], **evidence: Any) -> None:
    """Tells of an answer; stream offsets stand `delta` above those of the physical partition."""
    delta = fields["asked"] - fields["first_offset"]
    stay = Stay(fields["partition"], fields["move"], 0, None, delta)
    what = (fields[name] for name in ("asked", "told", "records", "size"))
    given = Given(stay, fields["layout_epoch"], *what)._replace(is_committed=fields.get("is_committed", False))
    journal.delivered(client, topic_of(fields), fields["stream"], given, evidence=evidence)


def commit(journal: Journal, client: Client, offsets: dict[int, int], **changes: Any) -> None:
    """Tells of a commit that a coordinator has accepted."""
    committer = Committer(changes.get("group_id", "g"), 1, "m", 8)
    journal.commits.accepted(client, topic_of(STREAM | changes), committer, offsets)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class Kept:
    """A journal whose records are looked at."""

    def __init__(self, most_bytes: int = 1 << 20) -> None:
        self.clock = Clock()
        self.seen: list[Entry] = []
        self.backlog = Backlog("host", "worker", most_bytes, self.clock)
        self.journal = Journal(self.backlog, 1000, self.clock)
        self.client: Client = self.journal.connected("User:ann")
        self.journal.named(self.client, "app", "User:ann")

    def entries(self) -> list[Entry]:
        """All that wait, oldest first; they are written by that."""
        values = self.backlog.next(1_000_000, 1 << 40)
        self.backlog.written(values)
        return [Entry.load(value) for value in values]

    def decisions(self) -> list[Decision]:
        """The same, without their places."""
        return [entry.decision for entry in self.entries()]

    def kinds(self) -> list[Kind]:
        return [decision.kind for decision in self.decisions()]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_where_very_many_runs_are_under_way_they_last_longer(kept: Kept) -> None:
    """So many end at a time, the oldest first; the others go on growing, and none is lost."""
    for stream in range(10):
        admit(kept.journal, kept.client, but(WRITE, {"stream": stream}))
    kept.clock.ms += 1000
    kept.journal.end_old_runs(4)
    assert [decision.stream for decision in kept.decisions()] == [0, 1, 2, 3]
    admit(kept.journal, kept.client, but(NEXT, {"stream": 9}))
    kept.journal.end_old_runs(4)
    kept.journal.end_old_runs(4)
    later = [(each.stream, each.batches) for each in kept.decisions()]
    assert later == [(4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 2)]


def test_batches_that_follow_on_each_other_are_one_record(kept: Kept) -> None:
    """Sequences without a hole, offsets that rise, one place: one ADMIT with their sum, and who it was."""
    admit(kept.journal, kept.client, WRITE)
    admit(kept.journal, kept.client, NEXT)
    assert not kept.backlog
    kept.clock.ms += 1000
    kept.journal.end_old_runs(100)
    (entry,) = kept.entries()
    assert (entry.began_ms, entry.at_ms, entry.number) == (1_000_000, 1_001_000, 0)
    assert entry.decision == Decision(
        kind=Kind.ADMIT,
        connection=1,
        client_id="app",
        principal="User:ann",
        topic="orders",
        stream=5,
        partition=1,
        move=0,
        layout_epoch=3,
        layouts_offset=40,
        producer_id=9,
        producer_epoch=0,
        first_sequence=0,
        last_sequence=19,
        first_offset=100,
        last_offset=139,
        batches=2,
        records=20,
        bytes=1400,
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"base_sequence": 11},
        {"base_sequence": 0},
        {"base_offset": 100},
        {"partition": 2},
        {"move": 1},
        {"layout_epoch": 4},
        {"layouts_offset": 41},
        {"producer_epoch": 1},
    ],
    ids=str,
)
def test_what_does_not_go_on_begins_another_record(kept: Kept, changed: dict[str, Any]) -> None:
    """A run never stands for what differs in anything that is checked."""
    admit(kept.journal, kept.client, WRITE)
    admit(kept.journal, kept.client, but(NEXT, changed))
    kept.journal.end_runs()
    first, second = kept.decisions()
    assert (first.first_sequence, first.last_sequence, first.batches) == (0, 9, 1)
    assert (second.first_sequence, second.batches) == ((NEXT | changed)["base_sequence"], 1)


@pytest.mark.parametrize("other", [{"stream": 6}, {"topic": "bills"}, {"producer_id": 10}], ids=str)
def test_runs_of_others_do_not_end_each_other(kept: Kept, other: dict[str, Any]) -> None:
    """Producers, streams and topics that take turns have a run each."""
    for step in (WRITE, WRITE | other, NEXT, NEXT | other):
        admit(kept.journal, kept.client, step)
    kept.journal.end_runs()
    assert [decision.batches for decision in kept.decisions()] == [2, 2]


def test_without_idempotence_rising_offsets_are_a_run(kept: Kept) -> None:
    """Such batches have no sequence; when offsets fall, the log is another one."""
    plain = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    for offset in (100, 200, 300, 150):
        admit(kept.journal, kept.client, but(WRITE, plain | {"base_offset": offset}))
    kept.journal.end_runs()
    first, second = kept.decisions()
    assert (first.first_sequence, first.last_sequence, first.last_offset, first.batches) == (-1, -1, 309, 3)
    assert (second.first_offset, second.batches) == (150, 1)


def test_sequences_begin_anew_in_a_record_of_their_own(kept: Kept) -> None:
    """Behind 2^31 - 1 comes 0; only a batch across that has a last sequence below its first."""
    admit(kept.journal, kept.client, but(WRITE, {"base_sequence": 2**31 - 10}))
    admit(kept.journal, kept.client, but(NEXT, {"base_sequence": 0}))
    kept.journal.end_runs()
    assert [(each.first_sequence, each.last_sequence) for each in kept.decisions()] == [(2**31 - 10, 2**31 - 1), (0, 9)]
    assert last_sequence(2**31 + 3) == 2


@pytest.mark.parametrize("kind", [Kind.ACKNOWLEDGE, Kind.ADOPT, Kind.FORGET])
def test_what_was_admitted_stands_before_the_change_of_rules(kept: Kept, kind: Kind) -> None:
    """Runs of the topic end first; those of other topics go on."""
    admit(kept.journal, kept.client, WRITE)
    admit(kept.journal, kept.client, but(WRITE, {"topic": "bills"}))
    deliver(kept.journal, kept.client, READ)
    kept.journal.note(Decision(kind=kind, topic="orders"))
    assert kept.kinds() == [Kind.ADMIT, Kind.DELIVER, kind]
    kept.journal.end_runs()
    assert [decision.topic for decision in kept.decisions()] == ["bills"]


def test_answers_that_go_on_are_one_record(kept: Kept) -> None:
    """What a connection was given without a hole is one DELIVER."""
    deliver(kept.journal, kept.client, READ)
    deliver(kept.journal, kept.client, FURTHER)
    kept.journal.end_runs()
    (found,) = kept.decisions()
    assert (found.first_offset, found.last_offset, found.records, found.batches) == (100, 114, 15, 2)
    deliver(kept.journal, kept.client, but(FURTHER, {"asked": 35, "told": 40, "first_offset": 115}))
    kept.journal.end_runs()
    assert [(each.kind, each.first_offset) for each in kept.decisions()] == [(Kind.DELIVER, 115)]


def test_what_a_reader_of_committed_records_is_given_is_a_record_of_its_own(kept: Kept) -> None:
    """A connection may read by both isolation levels, and each is owed something else."""
    deliver(kept.journal, kept.client, READ)
    deliver(kept.journal, kept.client, but(FURTHER, {"is_committed": True}))
    kept.journal.end_runs()
    told = [(each.kind, each.first_offset, each.isolation_level) for each in kept.decisions()]
    assert told == [(Kind.DELIVER, READ["first_offset"], 0), (Kind.DELIVER, FURTHER["first_offset"], 1)]


@pytest.mark.parametrize(("asked", "reason"), [(22, "back"), (90, "forward")])
def test_reader_that_goes_elsewhere_is_noted(kept: Kept, asked: int, reason: str) -> None:
    """Where it goes on and where it stood, in front of what it is given there; also long after its last record."""
    deliver(kept.journal, kept.client, READ)
    kept.clock.ms += 60_000
    kept.journal.end_old_runs(100)
    elsewhere = {"asked": asked, "told": asked + 5, "first_offset": 400, "last_offset": 420}
    deliver(kept.journal, kept.client, but(READ, elsewhere))
    kept.journal.end_runs()
    _, rewind, after = kept.decisions()
    assert (rewind.kind, rewind.reason) == (Kind.REWIND, reason)
    assert (rewind.first_offset, rewind.last_offset) == (400, 109)
    assert (rewind.layout_epoch, rewind.layouts_offset) == (3, 40)
    assert rewind.evidence == {"asked": asked, "stood": 30, "stood_partition": 1, "stood_move": 0}
    assert (after.kind, after.first_offset) == (Kind.DELIVER, 400)


def test_skip_of_the_proxys_own_is_no_rewind(kept: Kept) -> None:
    """The reader asked for what came next and was given something else: two records with a hole between them."""
    deliver(kept.journal, kept.client, READ)
    deliver(kept.journal, kept.client, but(FURTHER, {"first_offset": 145}))
    kept.journal.end_runs()
    assert [(each.kind, each.first_offset, each.last_offset) for each in kept.decisions()] == [
        (Kind.DELIVER, 100, 109),
        (Kind.DELIVER, 145, 149),
    ]


def test_next_stay_is_a_record_of_its_own_without_a_rewind(kept: Kept) -> None:
    """The reader goes on as it counts, be it in another physical partition."""
    deliver(kept.journal, kept.client, READ)
    stay = {"partition": 3, "move": 1, "first_offset": 0, "last_offset": 7}
    deliver(kept.journal, kept.client, but(FURTHER, stay), positions={"1": 140})
    kept.journal.end_runs()
    first, second = kept.decisions()
    assert (first.partition, second.partition, second.kind) == (1, 3, Kind.DELIVER)
    assert second.evidence == {"positions": {"1": 140}}


def test_same_refusal_again_is_counted(kept: Kept) -> None:
    """One record says how often; another error, or another stream, is another one."""
    for stream in (1, 1, 2, 1):
        kept.journal.refused(kept.client, OwnError(0, "NOT_LEADER_OR_FOLLOWER", "orders", stream, "SHORT-FENCE"))
    kept.journal.end_runs()
    assert [(each.stream, each.batches, each.reason, each.rule) for each in kept.decisions()] == [
        (1, 3, "NOT_LEADER_OR_FOLLOWER", "SHORT-FENCE"),
        (2, 1, "NOT_LEADER_OR_FOLLOWER", "SHORT-FENCE"),
    ]


def test_end_of_a_connection_ends_its_runs(kept: Kept) -> None:
    """CLOSE stands behind all that it did; others' runs go on."""
    other = kept.journal.connected()
    admit(kept.journal, kept.client, WRITE)
    admit(kept.journal, other, WRITE)
    deliver(kept.journal, kept.client, READ)
    kept.journal.refused(kept.client, OwnError(1, "OFFSET_OUT_OF_RANGE"))
    kept.journal.closed(kept.client, "client_closed")
    assert kept.kinds() == [Kind.ADMIT, Kind.DELIVER, Kind.REFUSE, Kind.CLOSE]
    kept.journal.end_runs()
    assert [decision.connection for decision in kept.decisions()] == [2]


def test_connection_of_which_nothing_is_on_record_ends_unnoted(kept: Kept) -> None:
    """Else every health check would be a record."""
    kept.journal.closed(kept.client, "client_closed")
    assert kept.kinds() == []


def test_another_client_id_is_another_record(kept: Kept) -> None:
    """A connection that calls itself otherwise from now on does not change what was before."""
    admit(kept.journal, kept.client, WRITE)
    kept.journal.named(kept.client, "other", "User:ann")
    admit(kept.journal, kept.client, NEXT)
    kept.journal.end_runs()
    assert [decision.client_id for decision in kept.decisions()] == ["app", "other"]


def test_late_acknowledgement_of_a_closed_connection_is_on_record(kept: Kept) -> None:
    """A write that was under way when its client left lands all the same."""
    kept.journal.closed(kept.client, "client_closed")
    admit(kept.journal, kept.client, WRITE)
    kept.clock.ms += 1000
    kept.journal.end_old_runs(100)
    assert kept.kinds() == [Kind.ADMIT]


def test_runs_are_bounded(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many the oldest ends, so that no client takes memory by being many."""
    monkeypatch.setattr("kordon.proxy.decisions.journal.MOST_RUNS", 10)
    for stream in range(25):
        admit(kept.journal, kept.client, but(WRITE, {"stream": stream}))
    assert [decision.stream for decision in kept.decisions()] == list(range(15))


def test_numbers_have_no_gap_while_all_fits(kept: Kept) -> None:
    """From 0 on, in the order in which records were taken."""
    for _ in range(5):
        kept.journal.note(Decision(kind=Kind.LIMIT))
    assert [entry.number for entry in kept.entries()] == [0, 1, 2, 3, 4]


def test_what_does_not_fit_is_one_gap() -> None:
    """Dropped decisions keep their numbers; one GAP names them, in front of the next decision that fits."""
    kept = Kept(most_bytes=2_000)
    for _ in range(50):
        kept.journal.note(Decision(kind=Kind.LIMIT, rule="limits.connections"))
    first = kept.entries()
    dropped = kept.backlog.dropped
    assert [entry.number for entry in first] == list(range(50 - dropped))
    kept.journal.note(Decision(kind=Kind.LIMIT))
    gap, following = kept.entries()
    assert (gap.decision.kind, gap.number, following.number) == (Kind.GAP, 50, 51)
    assert (gap.decision.first_number, gap.decision.last_number) == (50 - dropped, 49)
    assert gap.decision.batches == dropped


def test_gap_is_told_as_soon_as_there_is_room() -> None:
    """It does not wait for another decision."""
    kept = Kept(most_bytes=2_000)
    for _ in range(50):
        kept.journal.note(Decision(kind=Kind.LIMIT))
    kept.entries()
    assert kept.kinds() == [Kind.GAP]


def test_record_that_nobody_takes_becomes_a_gap(kept: Kept) -> None:
    """The others go on."""
    kept.journal.note(Decision(kind=Kind.COMMIT, topic="huge"))
    kept.journal.note(Decision(kind=Kind.LIMIT))
    value = kept.backlog.next(1, 1)
    kept.backlog.refuse_oldest("too large")
    kept.backlog.written(value)
    limit, gap = kept.decisions()
    assert (limit.kind, gap.kind, gap.first_number, gap.last_number) == (Kind.LIMIT, Kind.GAP, 0, 0)


def test_evidence_that_json_cannot_hold_stops_nothing(kept: Kept) -> None:
    """A mistake of ours is a gap, and not the end of a client's connection."""
    kept.journal.note(Decision(kind=Kind.HOLD, evidence={"what": object()}))
    kept.journal.note(Decision(kind=Kind.RELEASE))
    assert kept.kinds() == [Kind.GAP, Kind.RELEASE]


def test_run_that_json_cannot_hold_is_a_gap_under_its_own_number(kept: Kept) -> None:
    """A client may call itself anything."""
    kept.journal.named(kept.client, "\ud800", None)
    admit(kept.journal, kept.client, WRITE)
    kept.journal.end_runs()
    kept.journal.note(Decision(kind=Kind.LIMIT))
    assert kept.kinds() == [Kind.GAP, Kind.LIMIT]
    assert kept.backlog.bytes == 0


def test_batches_to_write_are_bounded(kept: Kept) -> None:
    """By number and by bytes, but never nothing."""
    for _ in range(10):
        kept.journal.note(Decision(kind=Kind.LIMIT))
    size = len(kept.backlog.next(1, 1)[0])
    assert len(kept.backlog.next(3, 1 << 20)) == 3
    assert len(kept.backlog.next(100, 4 * size)) == 4
    assert len(kept.backlog.next(100, 1)) == 1


def offsets_of(decision: Decision) -> list[list[int]]:
    """By stream, what was committed first and last."""
    return [list(each) for each in decision.evidence["offsets"]]


def test_commits_of_half_a_minute_are_one_record_however_short_runs_are(kept: Kept) -> None:
    """Most consumers commit once in five seconds: that is six commits, and one record with the last offset."""
    for second in range(0, 30, 5):
        commit(kept.journal, kept.client, {0: second, 1: 7})
        kept.clock.ms += 5000
        kept.journal.end_old_runs(100)
    (entry,) = kept.entries()
    found = entry.decision
    assert (entry.began_ms, entry.at_ms, found.kind) == (1_000_000, 1_030_000, Kind.OFFSET_COMMIT)
    assert (found.batches, offsets_of(found)) == (6, [[0, 0, 25], [1, 7, 7]])
    assert (found.connection, found.client_id, found.principal) == (1, "app", "User:ann")
    assert (found.group_id, found.member_id, found.generation_id, found.api_key) == ("g", "m", 1, 8)
    assert (found.topic, found.layout_epoch, found.layouts_offset) == ("orders", 3, 40)


@pytest.mark.parametrize("changed", [{"layouts_offset": 41}, {"topic": "bills"}, {"group_id": "h"}], ids=str)
def test_another_layout_topic_or_group_is_another_record_of_commits(kept: Kept, changed: dict[str, Any]) -> None:
    """A record rests on one record of the layouts topic."""
    commit(kept.journal, kept.client, {0: 1})
    commit(kept.journal, kept.client, {0: 2}, **changed)
    kept.journal.end_runs()
    assert [offsets_of(each) for each in kept.decisions()] == [[[0, 1, 1]], [[0, 2, 2]]]


def test_a_client_that_calls_itself_otherwise_has_another_record_of_commits(kept: Kept) -> None:
    """What was committed before stays in the name of before."""
    commit(kept.journal, kept.client, {0: 1})
    kept.journal.named(kept.client, "other", "User:ann")
    commit(kept.journal, kept.client, {0: 2})
    kept.journal.end_runs()
    assert [each.client_id for each in kept.decisions()] == ["app", "other"]


def test_commits_end_with_neither_a_connection_nor_a_layout(kept: Kept) -> None:
    """A fence must not wait for what all groups have committed."""
    commit(kept.journal, kept.client, {0: 1})
    kept.journal.note(Decision(kind=Kind.ACKNOWLEDGE, topic="orders"))
    kept.journal.closed(kept.client, "client_closed")
    assert kept.kinds() == [Kind.ACKNOWLEDGE, Kind.CLOSE]
    kept.journal.end_runs()
    assert kept.kinds() == [Kind.OFFSET_COMMIT]


def test_commits_of_a_group_end_without_those_of_others(kept: Kept) -> None:
    """All members' on this worker, and once."""
    other = kept.journal.connected()
    for client, group in ((kept.client, "g"), (other, "g"), (other, "h")):
        commit(kept.journal, client, {0: 1}, group_id=group)
    for _ in range(2):
        kept.journal.commits.end_group("g")
        kept.journal.commits.end_group("nobody's")
    assert [(each.group_id, each.connection) for each in kept.decisions()] == [("g", 1), ("g", 2)]
    commit(kept.journal, kept.client, {0: 2})
    kept.journal.end_runs()
    assert [(each.group_id, each.batches) for each in kept.decisions()] == [("h", 1), ("g", 1)]


def test_rows_of_open_commits_are_bounded(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many the oldest run ends, so that nobody takes memory by groups without number."""
    monkeypatch.setattr(commits, "MOST_ROWS", 10)
    for number in range(5):
        commit(kept.journal, kept.client, {0: 1, 1: 1, 2: 1}, group_id=f"g{number}")
    assert [each.group_id for each in kept.decisions()] == ["g0", "g1"]
    for number in range(2, 5):
        commit(kept.journal, kept.client, {0: 2, 1: 2, 2: 2}, group_id=f"g{number}")
    assert kept.kinds() == []  # they have no more rows than before
    commit(kept.journal, kept.client, dict.fromkeys(range(40), 1), group_id="large")
    assert [each.group_id for each in kept.decisions()] == ["g2", "g3", "g4", "large"]


def test_commits_that_have_grown_old_end_by_and_by(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traffic waits for no more than so many rows, but a run is written down whole."""
    monkeypatch.setattr(commits, "_ROWS_AT_ONCE", 4)
    for number in range(4):
        commit(kept.journal, kept.client, dict.fromkeys(range(3), 1), group_id=f"g{number}")
    kept.clock.ms += commits.RUN_MS - 1
    kept.journal.end_old_runs(100)
    assert kept.kinds() == []
    kept.clock.ms += 1
    for expected in (["g0", "g1"], ["g2", "g3"], []):
        kept.journal.end_old_runs(100)
        assert [each.group_id for each in kept.decisions()] == expected


def write(kept: Kept, client: Client, offset: int) -> None:
    """A batch that goes on with nothing."""
    admit(kept.journal, client, but(WRITE, {"base_offset": offset, "base_sequence": offset}))


def read(kept: Kept, client: Client, offset: int) -> None:
    """An answer with ten records, which goes on with the call before, if that was one."""
    told = {"asked": offset, "told": offset + 10, "first_offset": offset, "last_offset": offset + 9}
    deliver(kept.journal, client, but(READ, told))


def refuse(kept: Kept, client: Client, offset: int) -> None:
    kept.journal.refused(client, OwnError(1, "OFFSET_OUT_OF_RANGE", stream=offset % 3))


def take(kept: Kept, client: Client, offset: int) -> None:
    """A commit; offsets rise but where nobody looks."""
    commit(kept.journal, client, {offset % 3: offset}, group_id=f"g{offset % 2}")


def ask(kept: Kept, client: Client, offset: int) -> None:
    """Somebody asks for what a group has committed."""
    kept.journal.commits.end_group(f"g{offset % 2}")


def note(kept: Kept, client: Client, _: int) -> None:
    kept.journal.note(Decision(kind=Kind.HOLD, **client.fields(), reason="fence"))


def adopt(kept: Kept, _: Client, __: int) -> None:
    kept.journal.note(Decision(kind=Kind.ADOPT, topic="orders"))


def close(kept: Kept, client: Client, _: int) -> None:
    """The end of a connection, of which something may come still."""
    kept.journal.closed(client, "client_closed")


def wait(kept: Kept, _: Client, __: int) -> None:
    """A little more than half of a run's time."""
    kept.clock.ms += 600
    kept.journal.end_old_runs(100)


def drain(kept: Kept, _: Client, __: int) -> None:
    kept.seen += kept.entries()


CALLS = st.lists(
    st.tuples(st.sampled_from([write, read, refuse, take, ask, note, adopt, close, wait, drain]), st.integers(0, 3)),
    max_size=120,
)


@given(calls=CALLS, most_bytes=st.sampled_from([1_500, 4_000, 1 << 20]))
def test_whatever_happens_every_number_is_there_or_in_a_gap(
    calls: list[tuple[Callable[[Kept, Client, int], None], int]], most_bytes: int
) -> None:
    """And what is there is whole: with room for all, as many verdicts were recorded as there were."""
    kept = Kept(most_bytes)
    clients = [kept.journal.connected() for _ in range(4)]
    for place, (call, which) in enumerate(calls):
        call(kept, clients[which], 10 * place)
    kept.journal.end_runs()
    while kept.backlog:
        kept.seen += kept.entries()
    numbers = [entry.number for entry in kept.seen]
    assert numbers == sorted(set(numbers))
    assert not numbers or missing(kept.seen) == set()
    kinds = ((write, Kind.ADMIT), (read, Kind.DELIVER), (refuse, Kind.REFUSE), (take, Kind.OFFSET_COMMIT))
    for what, kind in kinds:
        told = sum(entry.decision.batches or 0 for entry in kept.seen if entry.decision.kind is kind)
        happened = sum(call is what for call, _ in calls)
        assert told == happened if not kept.backlog.dropped else told <= happened


def test_no_journal_takes_all_the_same_calls() -> None:
    """Who calls it need not ask whether decisions are recorded."""
    journal = NoJournal()
    client = journal.connected()
    journal.named(client, "app")
    admit(journal, client, WRITE)
    deliver(journal, client, READ)
    journal.refused(client, OwnError(1, "OFFSET_OUT_OF_RANGE"))
    journal.note(Decision(kind=Kind.LIMIT))
    journal.closed(client, "client_closed")
    assert not journal.is_on
