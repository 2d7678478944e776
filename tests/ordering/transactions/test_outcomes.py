"""The outcome of a batch: it is what stands behind it in its log, and no absence counts without a proof."""

import pytest

from kordon.proxy.ordering.transactions.absences import Absence, Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.outcome import Outcome, is_witnessed, outcome_of

P = 1000
LOG = 10
"""Offsets of a play's events and batches are ten times their place in it."""
C, A, L, U = Outcome.COMMITTED, Outcome.ABORTED, Outcome.LATE, Outcome.UNDECIDED


def witness(epoch: int, producer_id: int = P) -> Witness:
    return Witness(-1, producer_id, epoch)


def commit(epoch: int, producer_id: int = P) -> Marker:
    return Marker(-1, producer_id, epoch, True)


def abort(epoch: int) -> Marker:
    return Marker(-1, P, epoch, False)


def v1(epoch: int, producer_id: int = P) -> Batch:
    return Batch(-1, producer_id, epoch, Protocol.V1)


def v2(epoch: int) -> Batch:
    return Batch(-1, P, epoch, Protocol.V2)


def laid(*entries: Event | Batch) -> tuple[EventIndex, list[Batch]]:
    """Lays entries into a log: the index of its events, and its batches with their offsets."""
    index, batches = EventIndex(0), list[Batch]()
    for place, entry in enumerate(entries):
        if isinstance(entry, Batch):
            batches.append(entry._replace(offset=place * LOG))
        else:
            index.take(entry._replace(offset=place * LOG))
    index.read_to(len(entries) * LOG)
    return index, batches


def outcomes(*entries: Event | Batch, absences: Absences | None = None) -> list[Outcome]:
    index, batches = laid(*entries)
    return [outcome_of(each, index, absences or Absences()) for each in batches]


PLAYS: dict[str, tuple[list[Event | Batch], list[Outcome]]] = {
    "v1 commits": ([witness(5), v1(5), v1(5), commit(5)], [C, C]),
    "v1 aborts": ([witness(5), v1(5), abort(5)], [A]),
    "v1 is fenced or times out: the marker has a later epoch": ([witness(5), v1(5), abort(6)], [A]),
    "v2 commits with the next epoch": ([witness(5), v2(5), commit(6)], [C]),
    "v2 aborts": ([witness(5), v2(5), abort(6)], [A]),
    "one transaction after the other of one epoch": (
        [witness(5), v1(5), commit(5), witness(5), v1(5), abort(5)],
        [C, A],
    ),
    "neighbours do not matter": ([witness(5), v1(5), commit(5, P + 1), witness(5, P + 1), commit(5)], [C]),
    "open": ([witness(5), v1(5), witness(5, P + 1), commit(5, P + 1)], [U]),
    "late on v1, and the next transaction commits": ([witness(5), abort(5), v1(5), witness(5), commit(5)], [L]),
    "late on v2, and the next transaction commits": ([witness(5), abort(6), v2(5), witness(6), commit(7)], [L]),
    "a zombie of v1 in its successor's transaction": ([witness(7), v1(5), v1(7), commit(7)], [L, C]),
    "a zombie of v2 in its successor's transaction": ([witness(7), v2(5), v2(7), commit(8)], [L, C]),
    "an unclean election took the marker of v2": ([witness(5), v2(5), witness(7), v2(7), commit(8)], [L, C]),
    "a marker is repeated in the next transaction of v2": (
        [witness(6), v2(6), commit(6), v2(6), abort(7)],
        [A, A],
    ),
    "a marker is repeated, and the transaction commits": ([witness(6), v2(6), abort(6), v2(6), commit(7)], [C, C]),
    "a witness of v2 is written again, as the leader forgot it": (
        [witness(5), v2(5), witness(5), v2(5), commit(6)],
        [C, C],
    ),
    "the last epoch of a producer id": ([witness(32766), v2(32766), commit(32767)], [C]),
    "an operator aborted in the middle": ([witness(5), v1(5), abort(5), v1(5), commit(5)], [A, C]),
}


@pytest.mark.parametrize("play", PLAYS)
def test_an_outcome_is_what_stands_behind_a_batch(play: str) -> None:
    """Whatever has stood before: readers that begin in the middle agree with those from the start."""
    entries, wanted = PLAYS[play]
    assert outcomes(*entries) == wanted
    for begun in range(1, len(entries)):
        some = [*filter(lambda each: isinstance(each, Batch), entries[begun:])]
        assert outcomes(*entries[begun:]) == (wanted[-len(some) :] if some else [])


@pytest.mark.parametrize(
    ("absence", "wanted"),
    [
        (Absence(asked_at=21, read_to=30, leader_epoch=3), L),
        (Absence(asked_at=10, read_to=30, leader_epoch=3), U),
        (Absence(asked_at=21, read_to=31, leader_epoch=3), U),
        (Absence(asked_at=21, read_to=30, leader_epoch=2), U),
    ],
    ids=["proven", "asked before the batch stood there", "not read up to the end of afterwards", "of another leader"],
)
def test_no_marker_is_to_come_only_if_that_is_proven(absence: Absence, wanted: Outcome) -> None:
    """A repeated marker, or a replica that never saw the witness, lets the last stable offset pass an open batch."""
    index, (batch,) = laid(witness(5), v1(5), witness(5, P + 1))
    index.adopt(3, index.end)
    absences = Absences()
    absences.prove(P, absence)
    assert outcome_of(batch, index, absences) is wanted
    assert outcome_of(batch._replace(producer_id=P + 2), index, absences) is U


def test_an_event_counts_more_than_a_proof() -> None:
    """The proof says that none is to come; one that has come stands in the log."""
    absences = Absences()
    absences.prove(P, Absence(100, 100, 0))
    assert outcomes(witness(5), v1(5), commit(5), absences=absences) == [C]


def test_the_oldest_proof_is_forgotten_at_the_bound() -> None:
    """It can be asked for again."""
    absences = Absences(most=2)
    index, (batch,) = laid(v1(5))
    for producer_id in (P, P + 1, P + 2):
        absences.prove(producer_id, Absence(9, 9, 0))
    assert [absences.cover(batch._replace(producer_id=P + n), index) for n in range(3)] == [False, True, True]


WITNESSED: dict[str, tuple[list[Event | Batch], list[bool]]] = {
    "of its own transaction": ([witness(5), v1(5), commit(5)], [True]),
    "none at all": ([v1(5), commit(5)], [False]),
    "of the transaction before": ([witness(5), commit(5), v1(5), commit(5)], [False]),
    "of an earlier epoch": ([witness(4), v1(5), commit(5)], [False]),
    "of a neighbour": ([witness(5, P + 1), v1(5), commit(5)], [False]),
    "behind it": ([v2(5), witness(5), v2(5), commit(6)], [False, True]),
    "before a repeated marker": ([witness(6), v2(6), commit(6), v2(6), commit(7)], [True, True]),
    "lost by an election, which kept what was written later": ([abort(5), v2(6), commit(7)], [False]),
}


@pytest.mark.parametrize("play", WITNESSED)
def test_committed_data_stand_behind_a_witness_of_their_own(play: str) -> None:
    """Where they do not, somebody wrote on a wrong belief, and a reader may miss a record of that transaction."""
    entries, wanted = WITNESSED[play]
    index, batches = laid(*entries)
    assert [is_witnessed(each, index) for each in batches] == wanted


def test_what_the_index_has_forgotten_is_not_guessed() -> None:
    """A batch before its start is decided when the log has been read again."""
    index, (batch,) = laid(witness(5), v1(5), commit(5))
    index.trim_front(25)
    with pytest.raises(LookupError, match="known from 25 on, not behind 10"):
        outcome_of(batch, index, Absences())
