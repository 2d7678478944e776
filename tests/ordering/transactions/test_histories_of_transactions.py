"""Histories that lose committed records where something is believed that should be asked: one play each."""

from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest

from kordon.client.homes import Homes, NextSend, Stamp
from kordon.client.layouts import TopicLayout
from kordon.proxy.ordering.streams import Stream, physical_stream
from kordon.proxy.ordering.transactions.absences import Absence, Absences
from kordon.proxy.ordering.transactions.beliefs import ProducerClaim
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.outcome import Outcome, is_witnessed, outcome_of
from kordon.testing.transactions.cluster import TOPIC, Cluster
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.logs import Record, Txn
from kordon.testing.transactions.rules import without
from kordon.testing.transactions.workers import FORGER, LEASE_STEPS, Sent, Worker
from kordon.testing.transactions.world import Activity, Slot, World

V1, V2 = Protocol.V1, Protocol.V2
T = "a"
V = 2
"""A virtual partition that lives on the physical partition `Q`, and on `NEXT` when there are two."""
Q, NEXT = 0, 1
V_OF_THREE = 1
"""One that lives on `Q` unless there are three."""
MANY_STEPS = 3000


class Stage:
    """Two workers, and all that is durable; nothing goes wrong by itself."""

    def __init__(self) -> None:
        self.world = World(0)
        self.cluster = Cluster(self.world)
        self.a, self.b = (Worker(self.cluster, name) for name in "ab")
        self.log, self.coordinator = self.cluster.logs[Q], self.cluster.coordinators[T]
        self.replicates = True
        assert self.coordinator.init(0)

    def pass_by(self, steps: int, is_done: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass: leases are renewed, and followers follow."""
        for _ in range(steps):
            if is_done():
                return
            for worker in (self.a, self.b):
                if not worker.is_stopped:
                    worker.renew()
            for log in self.cluster.logs.values():
                log.high_watermark = log.end if self.replicates else log.high_watermark
            self.world.step()

    def begin(self, protocol: Protocol) -> Txn:
        return self.cluster.begin(T, self.coordinator.epoch, protocol)

    def ask(self, worker: Worker, serve: Callable[[Slot[Code]], Activity[None]]) -> Slot[Code]:
        """Sends a request, which is under way then."""
        slot = Slot[Code]()
        self.world.spawn(serve(slot), worker)
        return slot

    def answer(self, slot: Slot[Code]) -> Code:
        self.pass_by(MANY_STEPS, lambda: slot.is_filled)
        assert slot.value is not None, "no answer"
        return slot.value

    def adding(self, worker: Worker, txn: Txn) -> Slot[Code]:
        return self.ask(worker, lambda slot: worker.add(claim(txn), txn, frozenset({V}), slot))

    def add(self, worker: Worker, txn: Txn) -> Code:
        return self.answer(self.adding(worker, txn))

    def write(self, worker: Worker, txn: Txn, principal: str = T) -> tuple[Code, Record]:
        record = self.cluster.make_record(V, 0, txn)
        of = claim(txn)._replace(principal=principal)
        slot = self.ask(worker, lambda slot: worker.produce(of, txn.protocol, Sent(record, V), slot))
        return self.answer(slot), record

    def dialect(self, worker: Worker, txn: Txn, stream: Stream, stamp: Stamp, v: int = V) -> Code:
        """Writes a record as a client of the dialect: on v1 it adds the physical partition first."""
        if txn.is_v1:
            added = self.ask(worker, lambda slot: worker.add(claim(txn), txn, frozenset({stream}), slot))
            assert self.answer(added) is Code.OK
        sent = Sent(self.cluster.make_record(v, 0, txn, stream), stream, stamp)
        return self.answer(self.ask(worker, lambda slot: worker.produce(claim(txn), txn.protocol, sent, slot)))

    def grow(self, partitions: int = 2) -> None:
        """Has the controller write the next layout, which all workers read."""
        layout, ends = self.cluster.layout, {q: log.end for q, log in self.cluster.logs.items()}
        self.cluster.layout = layout.changed(layout.next_epoch(partitions), ends)
        for worker in (self.a, self.b):
            if not worker.is_stopped:
                worker.follow()

    def commit(self, worker: Worker, txn: Txn) -> None:
        slot = self.ask(worker, lambda slot: worker.end(claim(txn), txn, slot, is_commit=True))
        assert self.answer(slot) is Code.OK
        self.pass_by(MANY_STEPS, lambda: not self.coordinator.partitions)

    def outcomes(self, q: int = Q) -> list[Outcome]:
        """Those of all batches of a log; each committed one stands behind its witness."""
        index, batches = EventIndex(0), list[Batch]()
        for entry in self.cluster.logs[q].entries:
            if isinstance(entry.what, Batch):
                batches.append(entry.what)
            else:
                index.take(entry.what)
        found = [outcome_of(each, index, Absences()) for each in batches]
        assert all(
            is_witnessed(each, index) for each, is_ in zip(batches, found, strict=True) if is_ is Outcome.COMMITTED
        )
        return found

    def kinds(self, q: int = Q) -> str:
        """The log in short: W for a witness, d for data, M for a marker."""
        names = {Witness: "W", Batch: "d", Marker: "M"}
        return "".join(names[type(entry.what)] for entry in self.cluster.logs[q].entries)


def claim(txn: Txn) -> ProducerClaim:
    return ProducerClaim(T, T, txn.producer_id, txn.epoch)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_worker_that_has_missed_a_transaction_writes_another_witness(stage: Stage) -> None:
    """The second one, and the end of the first, went through another worker. What it remembers is of the first."""
    for worker in (stage.a, stage.b, stage.a):
        txn = stage.begin(V1)
        assert stage.add(worker, txn) is Code.OK
        assert stage.write(worker, txn)[0] is Code.OK
        stage.commit(stage.b, txn)
    assert stage.kinds() == "WdMWdMWdM"
    assert stage.outcomes() == [Outcome.COMMITTED] * 3


def test_a_witness_that_is_not_replicated_is_waited_for(stage: Stage) -> None:
    """Another worker finds the producer open; then an orderly election takes the witness."""
    txn = stage.begin(V1)
    stage.replicates = False
    stage.adding(stage.a, txn)
    stage.pass_by(MANY_STEPS, lambda: stage.kinds() == "W")
    slot = stage.adding(stage.b, txn)
    stage.pass_by(MANY_STEPS // 10)
    assert slot.value in {None, Code.CONCURRENT}
    stage.log.elect(0, stage.world.now)
    stage.replicates = True
    assert stage.add(stage.b, txn) is Code.OK
    assert stage.write(stage.b, txn)[0] is Code.OK
    stage.commit(stage.b, txn)
    assert (stage.kinds(), stage.outcomes()) == ("WdM", [Outcome.COMMITTED])


def test_a_deposed_leader_is_not_believed(stage: Stage) -> None:
    """It has not seen the marker of the transaction before, and tells the producer open."""
    first = stage.begin(V1)
    assert stage.add(stage.a, first) is Code.OK
    stage.log.elect(stage.log.end, stage.world.now)
    stage.commit(stage.b, first)
    second = stage.begin(V1)
    assert stage.log.ask(second.producer_id, 0).start_offset == 0
    assert stage.add(stage.a, second) is Code.OK
    assert stage.write(stage.a, second)[0] is Code.OK
    stage.commit(stage.a, second)
    assert (stage.kinds(), stage.outcomes()) == ("WMWdM", [Outcome.COMMITTED])


def test_an_add_that_was_under_way_when_a_change_was_announced_means_both_homes(stage: Stage) -> None:
    """Its worker has acknowledged the announcement since, so the fence does not wait for this transaction."""
    txn = stage.begin(V1)
    slot = stage.adding(stage.a, txn)
    stage.pass_by(MANY_STEPS, lambda: stage.coordinator.names(Q))
    stage.cluster.announce({V: NEXT})
    stage.a.follow()
    assert (len(stage.cluster.acknowledged), slot.value) == (1, None)
    assert stage.answer(slot) is Code.OK
    assert (stage.kinds(Q), stage.kinds(NEXT)) == ("W", "W")


def slept_through_a_change(stage: Stage) -> tuple[Txn, Slot[Code]]:
    """An Add of a worker that was stopped behind its witness. The controller has waited for its lease, and moved on."""
    txn = stage.begin(V1)
    slot = stage.adding(stage.a, txn)
    stage.pass_by(MANY_STEPS, lambda: stage.kinds() == "W")
    stage.a.is_stopped = True
    stage.pass_by(LEASE_STEPS + 1)
    stage.grow()
    stage.a.is_stopped = False
    return txn, slot


def test_a_worker_without_a_lease_answers_no_add(stage: Stage) -> None:
    """It cannot know where the virtual partition lives by now."""
    _, slot = slept_through_a_change(stage)
    while not slot.is_filled:
        stage.world.step()
    assert slot.value is Code.CONCURRENT


def test_an_add_of_a_worker_that_slept_means_the_new_home(stage: Stage) -> None:
    """It has read the layouts before its next lease."""
    txn, slot = slept_through_a_change(stage)
    assert stage.answer(slot) is Code.OK
    assert (stage.kinds(NEXT), stage.write(stage.b, txn)[0]) == ("W", Code.OK)
    stage.commit(stage.b, txn)
    assert stage.outcomes(NEXT) == [Outcome.COMMITTED]


def test_a_transaction_whose_partitions_were_added_round_kordon_is_refused(stage: Stage) -> None:
    """Before the topic was managed, or by a client that reaches the brokers. Nobody has written a witness."""
    txn = stage.begin(V1)
    txn.is_native = True
    assert stage.coordinator.add(txn, [Q]) is Code.OK
    assert stage.write(stage.a, txn)[0] is Code.INVALID_TXN_STATE
    assert stage.kinds() == ""


def test_what_was_asked_before_the_end_of_a_transaction_says_nothing_of_the_next(stage: Stage) -> None:
    """The leader told the producer open. EndTxn passed before that answer came, and the next one is added elsewhere."""
    first = stage.begin(V1)
    assert stage.add(stage.b, first) is Code.OK
    slot, record = Slot[Code](), stage.cluster.make_record(V, 0, first)
    writing = stage.a.produce(claim(first), V1, Sent(record, V), slot)
    for _ in range(3):  # the right, the producers, the leader epoch
        next(writing)
    stage.commit(stage.a, first)
    stage.world.spawn(writing, stage.a)
    assert stage.answer(slot) is Code.INVALID_TXN_STATE
    second = stage.begin(V1)
    second.is_native = True
    assert stage.coordinator.add(second, [Q]) is Code.OK
    assert stage.write(stage.a, second)[0] is Code.INVALID_TXN_STATE


@pytest.mark.parametrize("protocol", [V1, V2])
def test_an_unclean_election_ends_what_a_worker_believes(stage: Stage, protocol: Protocol) -> None:
    """What is written after it is acknowledged and committed, or refused, and never hidden."""
    txn = stage.begin(protocol)
    if protocol is V1:
        assert stage.add(stage.a, txn) is Code.OK
    assert stage.write(stage.a, txn)[0] is Code.OK
    stage.log.elect(0, stage.world.now)
    code, _ = stage.write(stage.a, txn)
    assert code is (Code.INVALID_TXN_STATE if protocol is V1 else Code.OK)
    if protocol is V2:
        stage.commit(stage.a, txn)
        assert (stage.kinds(), stage.outcomes()) == ("WdM", [Outcome.COMMITTED])


def test_a_replica_that_never_saw_the_witness_hides_nothing(stage: Stage) -> None:
    """Retention took the witness of an open transaction; the next leader does not know the producer."""
    txn = stage.begin(V2)
    assert stage.write(stage.a, txn)[0] is Code.OK
    stage.log.log_start = 1
    stage.log.renew_replicas(stage.world.now)
    assert stage.log.producers == {}
    assert (Q, txn.producer_id) in stage.cluster.known()
    assert stage.outcomes() == [Outcome.UNDECIDED]
    stage.commit(stage.a, txn)
    assert stage.outcomes() == [Outcome.COMMITTED]


@pytest.mark.parametrize("protocol", [V1, V2])
def test_another_principal_adds_nothing_to_a_transaction(stage: Stage, protocol: Protocol) -> None:
    """Though the worker knows it open, by its owner's own batches."""
    txn = stage.begin(protocol)
    if protocol is V1:
        assert stage.add(stage.a, txn) is Code.OK
    assert stage.write(stage.a, txn)[0] is Code.OK
    before = stage.kinds()
    assert stage.write(stage.a, txn, principal=FORGER)[0] is Code.DENIED
    assert stage.kinds() == before


@pytest.mark.parametrize("protocol", [V1, V2])
def test_a_client_of_the_dialect_goes_on_in_its_transaction_behind_a_growth(stage: Stage, protocol: Protocol) -> None:
    """It is told that its layout is over. On v1 it adds the new home then; readers get both records."""
    old_home, new_home, txn = physical_stream(Q), physical_stream(NEXT), stage.begin(protocol)
    assert stage.dialect(stage.a, txn, old_home, Stamp(1, 0)) is Code.OK
    stage.grow()
    assert stage.dialect(stage.b, txn, old_home, Stamp(1, 0)) is Code.OUTDATED
    assert stage.dialect(stage.b, txn, new_home, Stamp(2, 1)) is Code.OK
    stage.commit(stage.a, txn)
    assert (stage.kinds(Q), stage.kinds(NEXT)) == ("WdM", "WdM")
    assert stage.outcomes(Q) == stage.outcomes(NEXT) == [Outcome.COMMITTED]


def test_a_layout_with_the_same_count_is_told_from_the_one_before(stage: Stage) -> None:
    """From two partitions to three, and back: what the client was told under three would not be true."""
    txn = stage.begin(V2)
    for partitions in (2, 3, 2):
        stage.grow(partitions)
    assert stage.dialect(stage.a, txn, physical_stream(Q), Stamp(2, 1), V_OF_THREE) is Code.OUTDATED


def test_what_one_refusal_does_not_prove_is_asked_about(stage: Stage) -> None:
    """It comes from a layout with another count, in which the record may still land where it was sent first."""
    homes = Homes(TopicLayout(TOPIC, UUID(int=0), 1, 2, 4, 1))
    assert homes.course(NEXT, [V], Stamp(2, 1)) == NextSend(Stamp(2, 1), question=False)
    homes.change(TopicLayout(TOPIC, UUID(int=0), 1, 3, 4, 2), {})
    assert homes.course(NEXT, [V], Stamp(2, 1)) == NextSend(Stamp(3, 2), question=False), "it belongs there still"
    homes.change(TopicLayout(TOPIC, UUID(int=0), 1, 1, 4, 3), {})
    assert homes.course(NEXT, [V], Stamp(3, 2)) == NextSend(Stamp(3, 2), question=True)
    del stage


def test_a_proof_of_the_next_leader_says_nothing_of_what_was_read_from_the_one_before(stage: Stage) -> None:
    """That had a longer log. So its reader has not read up to the end that the next one told, where a marker stands."""
    index, absences = EventIndex(0, 0), Absences()
    index.take(Witness(0, 100, 3))
    index.read_to(5)
    absences.prove(100, Absence(2, 4, 1))
    assert outcome_of(Batch(1, 100, 3, V1), index, absences) is Outcome.UNDECIDED
    del stage


@pytest.mark.parametrize(
    ("rule", "play"),
    [
        (
            "PROVEN-ABSENCE: under one leader",
            test_a_proof_of_the_next_leader_says_nothing_of_what_was_read_from_the_one_before,
        ),
        ("ASKED-LEADER: each time", test_a_worker_that_has_missed_a_transaction_writes_another_witness),
        ("ASKED-LEADER: the sequence that follows", test_a_worker_that_has_missed_a_transaction_writes_another_witness),
        ("ASKED-LEADER: replicated", test_a_witness_that_is_not_replicated_is_waited_for),
        ("ASKED-LEADER: of the leader", test_a_deposed_leader_is_not_believed),
        ("DOUBLE-ADD", test_an_add_that_was_under_way_when_a_change_was_announced_means_both_homes),
        ("DOUBLE-ADD: under one plan", test_an_add_that_was_under_way_when_a_change_was_announced_means_both_homes),
        (
            "DOUBLE-ADD: under one plan, told by more than its number",
            test_an_add_that_was_under_way_when_a_change_was_announced_means_both_homes,
        ),
        ("DOUBLE-ADD: under one plan", test_an_add_of_a_worker_that_slept_means_the_new_home),
        ("DOUBLE-ADD: under a lease", test_a_worker_without_a_lease_answers_no_add),
        ("TXN-WITNESS", test_a_transaction_whose_partitions_were_added_round_kordon_is_refused),
        (
            "TXN-WITNESS: answers from before the end",
            test_what_was_asked_before_the_end_of_a_transaction_says_nothing_of_the_next,
        ),
        ("TXN-WITNESS: one leader", partial(test_an_unclean_election_ends_what_a_worker_believes, protocol=V1)),
        ("TXN-WITNESS: one leader", partial(test_an_unclean_election_ends_what_a_worker_believes, protocol=V2)),
        (
            "COUNT-FENCE",
            partial(test_a_client_of_the_dialect_goes_on_in_its_transaction_behind_a_growth, protocol=V1),
        ),
        (
            "COUNT-FENCE: the count alone does not say it",
            test_a_layout_with_the_same_count_is_told_from_the_one_before,
        ),
        ("OUTCOME-FIRST", test_what_one_refusal_does_not_prove_is_asked_about),
        ("OWN-TRANSACTION", partial(test_another_principal_adds_nothing_to_a_transaction, protocol=V1)),
    ],
)
def test_without_its_rule_a_history_ends_badly(rule: str, play: Callable[[Stage], None]) -> None:
    """With it, the same play ends well (above)."""
    with without(rule), pytest.raises(AssertionError):
        play(Stage())
