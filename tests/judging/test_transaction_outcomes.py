"""What becomes of batches of transactions, as the auditor has it: by plays, and held against what readers are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.absences import Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.outcome import Outcome, outcome_of
from kordon.spark_jobs.judging.facts import nothing
from kordon.spark_jobs.judging.rule import State
from kordon.spark_jobs.judging.rules import transaction_outcomes
from kordon.spark_jobs.judging.rules.belonging import owned
from kordon.spark_jobs.judging.rules.transaction_outcomes import with_outcomes
from kordon.spark_jobs.judging.schema import BATCHES, PLACED, STAYS
from kordon.spark_jobs.judging.tables import QUIET_MS, shaped
from kordon.testing.audits.judged import empty, table
from kordon.testing.audits.rule_batches import TOPIC, layout_rows, transaction_log
from kordon.testing.audits.rule_plays import START_MS, Row

pytestmark = pytest.mark.slow

P: Final = 7
ONE: Final = Layout.created(TOPIC, UUID(int=7), 1, 4)
NOBODY: Final = None
"""Can say what became of a batch."""


class Came(NamedTuple):
    """What came of the micro-batches."""

    decided: dict[int, bool | None]
    """By offset, whether it is committed; only of what is decided."""
    undecided: set[int]
    """Offsets, behind the last micro-batch."""
    state: State


def came_of(*parts: Sequence[Row], layout: Layout = ONE, is_placed: bool = True, later_ms: int = 0) -> Came:
    """Plays micro-batches.

    Args:
        is_placed: Whether it is certain at once whose batches are; else it is behind all micro-batches.
        later_ms: How much later the last one is than the others.
    """
    stays = table(layout_rows(layout)["stays"], STAYS)
    state, decided, undecided = empty(transaction_outcomes.STATE), dict[int, bool | None](), set[int]()
    read = [table(rows, BATCHES) for rows in (*parts, ())]
    every = table([row for rows in parts for row in rows], BATCHES)
    for number, new in enumerate(read):
        is_last = number == len(parts)
        placed = new if is_placed else every if is_last else new.clear()
        facts = replace(nothing(), batches=new, placed=shaped(owned(placed, stays), PLACED), newest_ms=START_MS)
        facts, state = with_outcomes(replace(facts, newest_ms=START_MS + later_ms * is_last), state)
        assert not set(decided) & set(facts.decided.get_column("first_offset"))
        decided |= dict(facts.decided.select("first_offset", "is_committed").iter_rows())
        undecided = set(facts.undecided.get_column("first_offset"))
    return Came(decided, undecided, state)


PLAYS = {
    "W5 d5 d5 C5": {1: True, 2: True},
    "W5 d5 A5 W5 d5 C5": {1: False, 4: True},
    "W5 d5 A6": {1: False},
    "W5 d5": {},
    # late, or hidden by another witness: whatever comes then
    "W5 C5 d5 W5 C5": {2: False},
    "W5 d5 C6": {1: False},
    "d5 C5": {0: True},
    "W5 e5 C6 W6 e6 C7": {1: True, 4: True},
    "W5 e5 A6": {1: False},
    # on the second protocol a repetition says nothing
    "W5 e5 W5 e5 C6": {1: True, 3: True},
    "W6 C6 e6 C6 C7": {2: True},
    "W5 e5 W6 C7": {1: False},
    "W5 e5 C6 e5 C6": {1: True, 3: True},
    "W5 e5 C7": {1: False},
}


@pytest.mark.parametrize("log", PLAYS)
def test_what_became_of_batches(log: str) -> None:
    """Whatever stands before a batch; and so for any micro-batches, and whenever it is certain whose batches are."""
    rows = transaction_log(log)
    data = {each["base_offset"] for each in rows if each.get("protocol")}
    for parts in ([rows], [[each] for each in rows]):
        for is_placed in (True, False):
            came = came_of(*parts, is_placed=is_placed)
            assert (came.decided, came.undecided) == (PLAYS[log], data - PLAYS[log].keys())


def logs(protocol: Protocol) -> st.SearchStrategy[list[str]]:
    """Logs of one producer, with epochs that no broker lets fall, but of what comes late."""
    data = "d" if protocol is Protocol.V1 else "e"
    kinds, rises, late = (
        st.sampled_from(["W", data, data, "C", "A"]),
        st.sampled_from([0, 0, 1]),
        st.sampled_from([0, 0, 0, 1]),
    )

    def made(drawn: Iterable[tuple[str, int, int]]) -> list[str]:
        epoch, found = 5, list[str]()
        for kind, rise, back in drawn:
            epoch += rise
            found.append(f"{kind}{epoch - back}")
        return found

    return st.lists(st.tuples(kinds, rises, late), max_size=12).map(made)


def readers_say(rows: Iterable[Row], protocol: Protocol) -> dict[int, bool]:
    """By offset of each batch that is decided for readers, whether they get it, as the proxy has it."""
    index, batches = EventIndex(0), list[Batch]()
    for row in rows:
        at, epoch, event = row["base_offset"], row["producer_epoch"], row.get("event")
        if event is None:
            batches.append(Batch(at, P, epoch, protocol))
            continue
        seen: Event = Witness(at, P, epoch) if event == "witness" else Marker(at, P, epoch, is_commit=event == "commit")
        index.take(seen)
    told = {each.offset: outcome_of(each, index, Absences()) for each in batches}
    return {at: outcome is Outcome.COMMITTED for at, outcome in told.items() if outcome is not Outcome.UNDECIDED}


@pytest.mark.parametrize("protocol", list(Protocol))
def test_it_is_what_readers_are_given(protocol: Protocol) -> None:
    """Two statements of the same that share no code."""

    @settings(max_examples=60, deadline=None)
    @given(logs(protocol), st.integers(0, 12))
    def holds(words: list[str], cut: int) -> None:
        rows = transaction_log(" ".join(words))
        assert came_of(rows[:cut], rows[cut:]).decided == readers_say(rows, protocol)

    holds()


def test_producers_and_partitions_are_told_apart() -> None:
    """One commits, another one aborts, a third one is open; and the same producer elsewhere."""
    first = [transaction_log(log, producer=n)[0:3] for n, log in enumerate(("W5 d5 C5", "W5 d5 A5", "W5 e5"), 1)]
    rows = [
        {**row, "base_offset": 10 * n + at, "last_offset": 10 * n + at}
        for n, each in enumerate(first)
        for at, row in enumerate(each)
    ]
    elsewhere = transaction_log("W5 d5", start=40, producer=1, partition=1)
    layout = Layout.created(TOPIC, UUID(int=7), 2, 4)
    came = came_of([*rows, *elsewhere], layout=layout)
    assert came.decided == {1: True, 11: False}
    assert 21 in came.undecided


def test_what_is_nobodys_is_kept_for_nobody() -> None:
    """Strays are given to nobody, whatever became of their transaction."""
    rows = transaction_log("W5 d5", v=3)
    strays = [{**row, "move": 9} if row.get("protocol") else row for row in rows]
    came = came_of(strays)
    assert (came.decided, came.undecided, came.state["undecided"].height) == ({}, set(), 0)


def test_nobody_waits_for_ever_nor_for_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the oldest beyond the bound nobody can say what became of them; nor of what is a quiet day old."""
    rows = transaction_log("W5 d5 d5 d5")
    assert came_of(rows, later_ms=QUIET_MS).decided == {1: NOBODY, 2: NOBODY, 3: NOBODY}
    assert came_of(rows, later_ms=QUIET_MS - 1).decided == {}
    monkeypatch.setattr(transaction_outcomes, "MOST_UNDECIDED", 1)
    came = came_of(rows, transaction_log("C5", start=4))
    assert came.decided == {1: NOBODY, 2: NOBODY, 3: True}


def test_what_was_read_by_a_version_that_kept_no_outcomes_is_known_to_nobody() -> None:
    """It is placed now, and was read before."""
    rows = table(transaction_log("W5 d5 C5"), BATCHES)
    placed = shaped(owned(rows, table(layout_rows(ONE)["stays"], STAYS)), PLACED)
    facts, state = with_outcomes(replace(nothing(), placed=placed), empty(transaction_outcomes.STATE))
    assert facts.decided.select("first_offset", "records", "stream", "is_committed").rows() == [(1, 1, 0, NOBODY)]
    assert (facts.undecided.height, state["undecided"].height) == (0, 0)


def test_a_log_full_of_repetitions_is_given_up() -> None:
    """Somebody who writes round Kordon makes nobody look through them without end."""
    rows = transaction_log(" ".join(["W5", "e5", *["W5"] * 50, "C6"]))
    assert came_of(rows).decided == {1: NOBODY}
    assert came_of(rows[:10], rows[10:20], rows[20:30], rows[30:40], rows[40:]).decided == {1: True}


def test_without_transactions_nothing_is_kept_and_what_others_keep_is_left_to_them() -> None:
    """What waits for its place once was replaced by what had waited before, and lost."""
    told, state = with_outcomes(nothing(), {**empty(transaction_outcomes.STATE), "waiting": PLACED.to_frame()})
    assert told.decided.is_empty()
    assert told.undecided.is_empty()
    assert set(state) == {*transaction_outcomes.STATE}
