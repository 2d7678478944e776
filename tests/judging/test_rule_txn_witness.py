"""TXN-WITNESS: what is committed without a witness, or hidden, is found; nothing that may be honest is called wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.identity import NO_V
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.absences import Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.outcome import Outcome, is_witnessed, outcome_of
from kordon.spark_jobs.judging.rules import (
    belonging,
    count_fence,
    no_skip,
    parent_first,
    transaction_producers,
    txn_witness,
)
from kordon.spark_jobs.judging.schema import BATCHES, STAYS
from kordon.spark_jobs.judging.tables import QUIET_MS
from kordon.testing.audits.judged import play, table
from kordon.testing.audits.rule_batches import TOPIC, batch, cut_up, layout_rows, of, tagged
from kordon.testing.audits.rule_batches import transaction_log as log
from kordon.testing.audits.rule_plays import MicroBatch, Row, decided

P: Final = 7
ONE: Final = Layout.created(TOPIC, UUID(int=7), 1, 4)
GROWN: Final = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
OTHER: Final = Layout.created("other", UUID(int=8), 1, 4)
COLUMNS: Final = ("kind", "verdict", "topic", "partition", "stream", "first_offset", "last_offset")


def whole(*rows: Row, layouts: Iterable[Layout] = (ONE,)) -> MicroBatch:
    return MicroBatch(**layout_rows(*layouts), batches=rows, is_last=True)


def found(*micro_batches: MicroBatch) -> list[Any]:
    return play(txn_witness.RULE, micro_batches).found(*COLUMNS)


def told(kind: str, first: int, last: int | None = None, verdict: str = "fail", stream: int = 0) -> Any:
    return kind, verdict, TOPIC, 0, stream, first, first if last is None else last


def test_what_is_committed_without_a_witness_is_a_finding() -> None:
    """Of the first protocol and of the second; the text names producer, stream and place."""
    played = play(txn_witness.RULE, [whole(*log("W5 d5 C5 d5 d5 C5 W6 e6 C7 e7 C8"))])
    assert played.found(*COLUMNS) == [told("unwitnessed", 3, 4), told("unwitnessed", 9)]
    assert "Producer 7, epoch 5, has committed 2 records of stream 0 at orders-0 offsets 3 to 4" in str(played.findings)
    assert played.count("pass") == 2


def test_what_a_later_witness_hides_is_a_finding() -> None:
    """It is committed with its transaction, and no reader gets it."""
    assert found(whole(*log("W5 d5 C5 d5 W5 d5 C5"))) == [told("hidden-write", 3)]


@pytest.mark.parametrize(
    "history",
    ["W5 d5 C5 d5 A5", "W5 d5 C5 d5", "W5 d5 C5 d5 A6", "W5 C5 d5 W5 A5", "W5 e5 C6 e5 W6 C7", "W5 W5 e5 W5 e5 C6"],
)
def test_what_is_aborted_open_late_or_witnessed_twice_is_none(history: str) -> None:
    """Nothing was promised of the former, and the last is right."""
    assert found(whole(*log(history))) == []


def test_a_repeated_marker_makes_it_unknown() -> None:
    """Brokers before KIP-1228 take a marker twice: the transaction may have gone on behind it."""
    assert found(whole(*log("W5 d5 C5 W5 d5 C5 d5 C5"))) == [told("unwitnessed", 6, verdict="unknown")]
    assert found(whole(*log("W6 C6 e6 C7"))) == []
    assert found(whole(*log("W5 d5 A5 d5 C5"))) == [told("unwitnessed", 3, verdict="unknown")]


def test_neighbours_partitions_and_topics_do_not_count_for_each_other() -> None:
    """A witness is one of a producer in one log."""
    rows = [*log("W5 d5 C5 d5 C5"), *of("other", *log("W5 d5 C5 W5 d5 C5"))]
    rows += log("W5 C5 d5 C5", 5, producer=8, v=1)
    assert found(whole(*rows, layouts=(ONE, OTHER))) == [
        told("unwitnessed", 3),
        told("unwitnessed", 7, stream=1),
    ]


def test_what_a_dialect_client_wrote_is_found_as_its_partition() -> None:
    """Its batches name no virtual partition."""
    rows = log("W5 d5 C5 d5 C5", v=NO_V)
    assert found(whole(*rows)) == [told("unwitnessed", 3, stream=-1)]


def test_a_stray_is_none() -> None:
    """Readers do not see it, and its producer has not been told that it was written."""
    rows = [*log("W5 d5 C5"), *log("d5 C5", 100, v=3)]
    padding = [batch(0, 3, 97)]
    assert found(whole(*rows[:3], *padding, *rows[3:], layouts=(GROWN,))) == []
    assert found(whole(*rows[:3], *padding, *rows[3:])) == [told("unwitnessed", 100, stream=3)]


@settings(max_examples=12)
@given(st.lists(st.floats(0, 1), max_size=4))
def test_borders_of_micro_batches_change_nothing(places: Sequence[float]) -> None:
    """A witness, its data and their marker may come in three of them."""
    rows = [
        *log("W5 d5 d5 C5 W5 d5 A5 W5 d5 C5 d5 W5 d5 C5"),
        *log("W3 e3 C4 e4 C5 W5 e5 e5 C6 W6 C6 e6 C7", 14, producer=8),
        *log("W5 d5 W5 d5 C5", 27, producer=9),
    ]
    played = play(txn_witness.RULE, cut_up(whole(*rows), places))
    assert played.found(*COLUMNS) == [
        told("hidden-write", 28),
        told("hidden-write", 10, verdict="unknown"),
        told("unwitnessed", 17),
    ]
    assert played.count("pass") == 11  # one of these is hidden by a witness that came later
    assert played.count("unknown") == 0


@settings(max_examples=15)
@given(st.randoms(use_true_random=False), st.lists(st.floats(0, 1), max_size=3))
def test_what_readers_get_without_a_witness_is_found_among_neighbours(draw: Random, places: Sequence[float]) -> None:
    """Three producers in one log, and micro-batches that end anywhere: held against the proxy's own statement."""
    rows, entries = _drawn_log(draw)
    index = EventIndex(0)
    for each in entries:
        if not isinstance(each, Batch):
            index.take(each)
    wanted = {
        each.offset
        for each in entries
        if isinstance(each, Batch)
        and outcome_of(each, index, Absences()) is Outcome.COMMITTED
        and not is_witnessed(each, index)
    }
    played = play(txn_witness.RULE, cut_up(whole(*rows), places))
    found = {
        row["base_offset"]
        for each in played.findings
        if each["kind"] == "unwitnessed"
        for row in rows[each["first_offset"] : each["last_offset"] + 1]
        if row.get("v") == each["stream"] and f"Producer {row['client_producer_id']}, " in each["text"]
    }
    assert found == wanted


def _drawn_log(draw: Random) -> tuple[list[Row], list[Event | Batch]]:
    """A log that three producers have written, each of a protocol of its own; the same as rows and as entries."""
    epochs, protocols = [5] * 3, [draw.choice(list(Protocol)) for _ in range(3)]
    rows: list[Row] = []
    entries: list[Event | Batch] = []
    for offset in range(draw.randrange(5, 40)):
        who, kind = draw.randrange(3), draw.choice("WdddCA")
        protocol = protocols[who]
        if kind in "CA":
            epochs[who] += draw.random() < (0.8 if protocol is Protocol.V2 else 0.1)
            entries.append(Marker(offset, who, epochs[who], kind == "C"))
        elif kind == "W":
            entries.append(Witness(offset, who, epochs[who]))
        else:
            entries.append(Batch(offset, who, epochs[who], protocol))
            kind = "e" if protocol is Protocol.V2 else "d"
        rows += log(f"{kind}{epochs[who]}", offset, v=draw.randrange(4), producer=who)
    return rows, entries


def test_where_a_log_was_not_read_nothing_is_said() -> None:
    """Retention, DeleteRecords, an audit that begins in the middle: counted, and no finding; later ones are."""
    for start in (50, 1):
        played = play(txn_witness.RULE, [whole(*log("d5 C5 W6 e6 C7 e7 C8", start))])
        assert played.found(*COLUMNS) == [told("unwitnessed", start + 5)]
        assert (played.count("unknown"), played.count("pass")) == (1, 1)
    hole = [*log("W5 d5 C5 d5"), *log("C5 d5 C5", 10)]
    played = play(txn_witness.RULE, [whole(*hole)])
    assert played.found(*COLUMNS) == [told("unwitnessed", 11, verdict="unknown")]
    assert played.count("unknown") == 1


@pytest.mark.parametrize("leader_epoch", [0, 1])
def test_a_leader_that_changes_between_two_micro_batches_may_have_taken_what_was_read(leader_epoch: int) -> None:
    """An unclean election may have put a witness where the audit had already been. Within a micro-batch it is seen."""
    first, then = log("W5 d5 C5"), log("d5 C5", 3, leader_epoch=leader_epoch)
    apart = [MicroBatch(**layout_rows(ONE), batches=first), whole(*then)]
    assert found(*apart) == ([] if leader_epoch else [told("unwitnessed", 3)])
    assert found(whole(*first, *then)) == [told("unwitnessed", 3)]


def test_a_finding_waits_for_a_cut_that_comes_late() -> None:
    """Decisions may be behind the topics. An audit that stays tells it when it has waited."""
    rows = [*log("W5 d5 C5"), batch(0, 3, 97), *log("d5 C5", 100, v=3)]
    early = MicroBatch(**layout_rows(ONE), batches=rows, decisions=[decided("lease", 0)])
    waits = MicroBatch(decisions=[decided("lease", 1, seconds=599)])
    over = MicroBatch(decisions=[decided("lease", 1, seconds=600)])
    assert found(early, waits) == []
    assert found(early, over) == [told("unwitnessed", 100, stream=3)]
    assert found(early, waits, MicroBatch(**layout_rows(GROWN), is_last=True)) == []


def test_of_a_compacted_topic_nothing_is_proven() -> None:
    """Compaction takes witnesses, which all have one key."""
    played = play(txn_witness.RULE, [whole(*log("d5 C5"), layouts=(Layout.created(TOPIC, UUID(int=7), 1, 4),))])
    assert played.found("kind") == ["unwitnessed"]
    rows = layout_rows(ONE)
    rows["stays"] = [{**each, "compacted": True} for each in rows["stays"]]
    played = play(txn_witness.RULE, [MicroBatch(**rows, batches=log("d5 C5"), is_last=True)])
    assert (played.findings, played.count("unknown")) == ([], 1)


def test_what_is_kept_is_bounded_and_what_is_forgotten_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers whose transaction is over go first; of those nothing more is proven, but of open ones all is."""
    monkeypatch.setattr(transaction_producers, "MOST_PRODUCERS", 2)
    one = [row for n in range(4) for row in log("W5 d5 C5", 3 * n, producer=n)]
    opened = [*one, *log("W5 d5", 12, producer=9)]
    played = play(txn_witness.RULE, [MicroBatch(**layout_rows(ONE), batches=opened)])
    kept = {row["producer_id"] for row in played.state if row["what"] == "producer"}
    assert len(kept) == 2
    assert 9 in kept
    gone = min(set(range(4)) - kept)
    then = [*log("d5 C5", 14, producer=9), *log("d5 C5", 16, producer=9), *log("d5 C5", 18, producer=gone)]
    played = play(txn_witness.RULE, [MicroBatch(**layout_rows(ONE), batches=opened), whole(*then)])
    assert played.found(*COLUMNS) == [
        told("unwitnessed", 16),
        told("unwitnessed", 18, verdict="unknown"),
    ]


def test_open_producers_beyond_the_bound_make_their_log_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is not known there may be one of them."""
    monkeypatch.setattr(transaction_producers, "MOST_PRODUCERS", 1)
    rows = [*log("W5 d5", producer=1), *log("W5 d5", 2, producer=2)]
    then = [*log("d5 C5", 4, producer=1), *log("d5 C5", 6, producer=2)]
    played = play(txn_witness.RULE, [MicroBatch(**layout_rows(ONE), batches=rows), whole(*then)])
    assert played.findings == []
    assert (played.count("pass"), played.count("unknown")) == (3, 1)


def test_writes_that_wait_beyond_the_bound_are_counted_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are none of these in a Kordon that works."""
    monkeypatch.setattr(transaction_producers, "MOST_WAITING", 1)
    rows = [*log("d5", producer=1), *log("d5", 1, producer=2), *log("d5", 2, producer=3)]
    then = [row for n in (1, 2, 3) for row in log("C5", 2 + n, producer=n)]
    played = play(txn_witness.RULE, [MicroBatch(**layout_rows(ONE), batches=rows), whole(*then)])
    assert (len(played.findings), played.count("unknown")) == (1, 2)


def test_findings_that_wait_beyond_the_bound_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit of a Kordon that does everything wrong keeps no more."""
    monkeypatch.setattr(txn_witness, "MOST_WRONG", 1)
    played = play(txn_witness.RULE, [MicroBatch(**layout_rows(ONE), batches=log("e5 C6 e6 C7 e7 C8"))])
    assert played.found("first_offset") == [0, 2]
    assert [row["first_offset"] for row in played.state if row["what"] == "wrong"] == [4]


def test_a_day_later_no_transaction_is_open_any_more() -> None:
    """What was missed then says nothing now; who is quiet for so long is forgotten."""
    day = QUIET_MS / 1000
    first = MicroBatch(**layout_rows(ONE), batches=log("d5 C5", 50), decisions=[decided("lease", 0)])
    later = MicroBatch(decisions=[decided("lease", 1, seconds=day)])
    then = whole(*log("d6 C6", 52, producer=8), *log("d5 C5", 54))
    played = play(txn_witness.RULE, [first, then])
    assert (played.found("verdict"), played.count("unknown")) == (["unknown"], 2)
    played = play(txn_witness.RULE, [first, later, then])
    assert (played.found("verdict"), played.count("unknown")) == (["unknown", "unknown"], 1)
    assert [row["what"] for row in play(txn_witness.RULE, [first, later]).state] == ["place"]


def test_that_day_begins_with_the_first_decision() -> None:
    """Topics may be read before any decision is, and there is no time until then."""
    rows = [*log("d5 C5 W6 d6 C6", 50), *log("W6 d6", 55, producer=8)]
    early = MicroBatch(**layout_rows(ONE), batches=rows)
    clock = MicroBatch(decisions=[decided("lease", 0)])
    played = play(txn_witness.RULE, [early, clock, whole(*log("d5 C5", 57, producer=9))])
    assert (played.findings, played.count("unknown")) == ([], 2)
    assert {row["producer_id"] for row in played.state if row["what"] == "producer"} == {P, 8, 9}


def test_a_topic_without_transactions_has_nothing_to_judge() -> None:
    """All that is kept of it is how far it was read."""
    played = play(txn_witness.RULE, [whole(*(tagged(0, 0, 0, n, sequence=n) for n in range(3)))])
    assert (played.findings, played.checked) == ([], [])
    assert [(row["what"], row["next_offset"]) for row in played.state] == [("place", 3)]


def test_other_rules_take_a_witness_for_nobodys() -> None:
    """It is no bypass, and no reader is owed it; data of a transaction are their stream's."""
    rows = whole(*log("W5 d5 C5"))
    assert play(count_fence.RULE, [rows]).findings == []
    placed = belonging.owned(table(rows.batches, BATCHES), table(rows.stays or (), STAYS))
    assert placed.get_column("kind").to_list() == [belonging.WITNESS, belonging.OWN, belonging.CONTROL]
    reader: dict[str, Any] = {
        "connection": 1,
        "topic": TOPIC,
        "stream": 0,
        "partition": 0,
        "move": 0,
        "layout_epoch": 0,
    }
    given = decided("deliver", 0, first_offset=0, last_offset=2, records=1, **reader)
    read_to = [{"topic": TOPIC, "partition": 0, "log_start": 0, "next_offset": 3}]
    micro_batch = MicroBatch(**layout_rows(ONE), batches=rows.batches, decisions=[given], read_to=read_to, is_last=True)
    played = play(no_skip.RULE, [micro_batch])
    assert (played.findings, played.count("pass")) == ([], 1)
    skipped = replace(micro_batch, decisions=[{**given, "records": 0}])
    assert play(no_skip.RULE, [skipped]).found("kind") == ["skipped-range"]
    doubled = replace(micro_batch, decisions=[{**given, "records": 2}])
    assert play(no_skip.RULE, [doubled]).found("kind") == ["doubled-range"]
    kept = play(parent_first.RULE, [micro_batch]).state
    assert [row["last_offset"] for row in kept if row["what"] == "tail"] == [1]
