"""What logs prove about the writes of transactions: by plays, and held against the proxy's own statement of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.transactions.absences import Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.outcome import Outcome, is_witnessed, outcome_of
from kordon.spark_jobs.judging.rules.transaction_log import V1, V2, Judgement, LoggedProducer, Standing, Writes

P = 7
GOOD, WRONG, DOUBT, UNREAD = Standing.WITNESSED, Standing.UNWITNESSED, Standing.DOUBTED, Standing.UNREAD


class Told(NamedTuple):
    """What is said of a write that is committed."""

    standing: Standing
    is_hidden: bool = False


SHOWN, HIDDEN = Told(WRONG), Told(WRONG, is_hidden=True)
MAYBE_SHOWN, MAYBE_HIDDEN = Told(DOUBT), Told(DOUBT, is_hidden=True)


class Step(NamedTuple):
    """One batch: W a witness, d data, C a COMMIT, A an ABORT; with its epoch."""

    kind: str
    epoch: int
    leader_epoch: int = 0


def steps(text: str) -> list[Step]:
    """`W5 d5 C5`: what it says of one producer's log. `|` is an election."""
    found, leader_epoch = list[Step](), 0
    for word in text.split():
        if word == "|":
            leader_epoch += 1
        else:
            found.append(Step(word[0], int(word[1:]), leader_epoch))
    return found


def played(log: Iterable[Step], protocol: int, producer: LoggedProducer | None = None) -> dict[int, Told | None]:
    """By the place of each data that its own transaction is proven to have committed, what is said of it.

    Witnessed data say nothing more, and have None.
    """
    one = producer or LoggedProducer(is_whole=True)
    told: dict[int, Told | None] = {}

    def judge(judgements: Iterable[Judgement]) -> None:
        for writes, is_committed in judgements:
            told.pop(writes.last_offset, None)
            if is_committed:
                told[writes.last_offset] = Told(writes.standing, writes.is_hidden)

    for at, (kind, epoch, leader_epoch) in enumerate(log):
        match kind:
            case "d":
                if one.write(Writes(epoch, protocol, 0, 0, at, at, 1, leader_epoch)) is GOOD:
                    told[at] = None
            case "W":
                judge(one.see_witness(epoch, leader_epoch))
            case _:
                judge(one.see_marker(epoch, is_commit=kind == "C"))
    return told


PLAYS_V1 = {
    "W5 d5 C5": {1: None},
    "W5 d5 A5 W5 d5 d5 C5": {1: None, 4: None, 5: None},
    "d5 C5": {0: SHOWN},
    "W5 d5 C5 d5 C5": {1: None, 3: SHOWN},
    "W5 C5 d5 A5": {},
    "W5 C5 d5": {},
    "W5 C5 d5 A6": {},
    # somebody added another partition with the same home later in the transaction
    "W5 C5 d5 W5 d5 C5": {2: HIDDEN, 4: None},
    "W5 C5 d5 W5 d5 A5": {4: None},
    "W5 C5 d5 W5": {},
    "W5 C5 d5 W6 d6 C6": {4: None},
    "W5 d5 W5 d5 C5": {1: HIDDEN, 3: None},
    "W5 d5 W5 d5 A5": {3: None},
    # an election may have taken the marker in between
    "W5 d5 | W5 d5 C5": {1: Told(UNREAD, is_hidden=True), 3: None},
    # another epoch's witness
    "W4 d5 C5": {1: SHOWN},
    # a marker that may be a repetition of the one before
    "W5 d5 C5 W5 d5 C5 d5 C5": {1: None, 4: None, 6: MAYBE_SHOWN},
    "W5 d5 A5 W5 d5 C5 d5 C5": {1: None, 4: None, 6: SHOWN},
    "W5 d5 C5 C5 W5 d5 C5": {1: None, 5: None},
    "W5 d5 C5 W5 d5 C5 d5 W5 d5 C5": {1: None, 4: None, 6: MAYBE_HIDDEN, 8: None},
    # written late, after the abort of its transaction
    "W5 d5 A5 d5 C5": {1: None, 3: MAYBE_SHOWN},
    "W5 d5 A5 d5 W5 d5 C5": {1: None, 3: Told(UNREAD, is_hidden=True), 5: None},
    "W5 d5 A5 d5 A5": {1: None},
}
PLAYS_V2 = {
    "W5 d5 C6 W6 d6 C7": {1: None, 4: None},
    "W5 W5 d5 C6": {2: None},
    "W5 d5 W5 d5 C6": {1: None, 3: None},
    "d5 C6": {0: SHOWN},
    "W5 d5 C6 d6 C7": {1: None, 3: SHOWN},
    "W5 d5 C6 d6 A7": {1: None},
    "W5 d5 C6 d6": {1: None},
    "d5 W5 C6": {0: SHOWN},
    # a marker of the transaction before, once more
    "W5 C6 W6 C6 d6 C7": {4: None},
    "W6 C6 d6 C7": {2: None},
    # late, with its own transaction's marker once more behind it
    "W5 d5 C6 d5 C6": {1: None, 3: MAYBE_SHOWN},
    "W5 d5 C6 W6 d5 C6 C7": {1: None, 4: MAYBE_SHOWN},
    "W5 d5 C6 d5 W6 C7": {1: None},
    "W5 d5 A6 d5 C6": {1: None, 3: SHOWN},
}


@pytest.mark.parametrize("log", PLAYS_V1)
def test_what_a_log_proves_of_the_first_protocol(log: str) -> None:
    """Its event before a write is the witness, and the one behind it the commit."""
    assert played(steps(log), V1) == PLAYS_V1[log]


@pytest.mark.parametrize("log", PLAYS_V2)
def test_what_a_log_proves_of_the_second_protocol(log: str) -> None:
    """Each transaction has an epoch, so that what is repeated is known as such."""
    assert played(steps(log), V2) == PLAYS_V2[log]


@pytest.mark.parametrize(("protocol", "own"), [(V1, "C5"), (V2, "C6")])
def test_of_a_log_whose_beginning_is_not_known_nothing_is_proven_before_its_first_witness(
    protocol: int, own: str
) -> None:
    """The witness may have been there, or a marker may be a repetition; the first witness ends that."""
    read_later, forgotten = LoggedProducer(is_whole=False), LoggedProducer(is_whole=False, is_ended=True)
    assert played(steps(f"d5 {own}"), protocol, read_later) == {0: Told(UNREAD)}
    assert played(steps(f"d5 {own}"), protocol, forgotten) == {0: MAYBE_SHOWN}
    assert played(steps(f"C5 d5 {own}"), protocol, LoggedProducer(is_whole=False)) == {1: MAYBE_SHOWN}
    assert played(steps(f"W4 C5 d5 {own}"), protocol, LoggedProducer(is_whole=False)) == {2: SHOWN}


def logs(protocol: int) -> st.SearchStrategy[list[Step]]:
    """Logs of one producer: what an epoch that falls would say, no broker lets happen."""
    kinds = st.sampled_from("WdCA")
    rises = st.sampled_from([0, 0, 0, 1]) if protocol == V1 else st.sampled_from([0, 0, 1])

    def made(drawn: Sequence[tuple[str, int, int]]) -> list[Step]:
        epoch, found = 5, list[Step]()
        for kind, rise, back in drawn:
            epoch += rise
            found.append(Step(kind, epoch - back if kind == "d" else epoch))
        return found

    late = st.sampled_from([0, 0, 0, 1])
    return st.lists(st.tuples(kinds, rises, late), max_size=12).map(made)


@pytest.mark.parametrize(("protocol", "name"), [(V1, Protocol.V1), (V2, Protocol.V2)])
def test_it_agrees_with_what_readers_are_given(protocol: int, name: Protocol) -> None:
    """Two statements of the same: what readers get is found if it has no witness, and what they do not get is not."""

    @given(logs(protocol))
    def holds(log: list[Step]) -> None:
        index, batches = EventIndex(0), dict[int, Batch]()
        for at, (kind, epoch, _) in enumerate(log):
            event: Event | None = None
            match kind:
                case "W":
                    event = Witness(at, P, epoch)
                case "d":
                    batches[at] = Batch(at, P, epoch, name)
                case _:
                    event = Marker(at, P, epoch, is_commit=kind == "C")
            if event is not None:
                index.take(event)
        told = played(log, protocol)
        for at, batch in batches.items():
            is_shown = outcome_of(batch, index, Absences()) is Outcome.COMMITTED
            found = told.get(at)
            if is_shown:
                assert (at in told, found is None) == (True, is_witnessed(batch, index))
            assert found is None or found.is_hidden is not is_shown

    holds()
