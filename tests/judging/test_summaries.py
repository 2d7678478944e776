"""What the report draws is folded from micro-batches: the same whatever their sizes, and bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")


from kordon.spark_jobs.judging.facts import nothing, of_all
from kordon.spark_jobs.judging.schema import BATCHES, DECISIONS, FINDINGS, READ_TO
from kordon.spark_jobs.judging.summaries import SUMMARIES, pauses, proofs
from kordon.spark_jobs.judging.summaries.traffic import MOST_BUCKETS, MOST_PIECES
from kordon.spark_jobs.report.words import why_held
from kordon.testing.audits.judged import table

Row = Mapping[str, Any]
BY_NAME = {summary.name: summary for summary in SUMMARIES}
START = 1_760_000_000_000


def decided(number: int, kind: str, seconds: float = 0, **fields: Any) -> dict[str, Any]:
    """A decision of worker w1, some seconds after the start."""
    evidence = fields.pop("evidence", None)
    row: dict[str, Any] = {
        "worker": "w1",
        "host": "a",
        "topic": "orders",
        "log_partition": 0,
        "log_offset": number,
        "evidence": None if evidence is None else json.dumps(evidence),
        **fields,
    }
    return row | {"number": number, "kind": kind, "at_ms": START + round(seconds * 1000)}


def folded(
    name: str,
    *micro_batches: Iterable[Row],
    batches: Iterable[Row] = (),
    findings: Iterable[Row] = (),
    read_to: Iterable[Row] = (),
) -> list[dict[str, Any]]:
    """What a summary holds after some micro-batches of decisions; topic data and findings come with the last."""
    summary = BY_NAME[name]
    state = summary.state.to_frame()
    for place, rows in enumerate(micro_batches):
        is_last = place == len(micro_batches) - 1
        decisions = table(rows, DECISIONS)
        facts = replace(
            nothing(),
            decisions=decisions,
            of_all=of_all(decisions),
            batches=table(batches if is_last else (), BATCHES),
            read_to=table(read_to if is_last else (), READ_TO),
        )
        state = summary.fold(facts, table(findings if is_last else (), FINDINGS), state)
        assert state.schema == summary.state
    return state.to_dicts()


ADMIT = {"stream": 3, "move": 1, "partition": 0, "records": 10, "bytes": 1000, "batches": 2}


def test_traffic_is_summed_per_stream_home_and_second() -> None:
    """Two micro-batches of a second are one row; a retry counts as repeated, not as written again."""
    first = [decided(0, "admit", 0.1, **ADMIT, last_offset=9)]
    second = [
        decided(1, "admit", 0.4, **ADMIT, last_offset=19),
        decided(2, "admit", 0.5, **ADMIT, last_offset=19, evidence={"repeated": True}),
        decided(3, "deliver", 0.6, stream=3, move=1, partition=0, records=7, bytes=700, last_offset=16),
    ]

    (row,) = folded("traffic", first, second)

    assert row["admitted_records"] == 20
    assert (row["admitted_batches"], row["repeated"]) == (4, 2)
    assert (row["admitted_to"], row["delivered_to"], row["delivered_records"]) == (19, 16, 7)
    assert row["bucket_ms"] == START


def test_even_traffic_is_even_in_every_second() -> None:
    """Runs of about a second end at moments of their own. Each counts where it lasted, so no second seems empty."""
    runs = [
        decided(each, "admit", 1.01 * (each + 1), **(ADMIT | {"records": 101}), began_ms=START + 1010 * each,
                first_offset=101 * each, last_offset=101 * each + 100)
        for each in range(100)
    ]  # fmt: skip

    rows = sorted(folded("traffic", runs[:50], runs[50:]), key=lambda row: row["bucket_ms"])

    assert [row["bucket_ms"] - START for row in rows] == [1000 * second for second in range(101)]
    assert {row["admitted_records"] for row in rows} <= {99, 100, 101}
    assert sum(row["admitted_records"] for row in rows) == 10_100
    assert sum(row["admitted_batches"] for row in rows) == 200
    assert all(100 * (second + 1) - 3 <= row["admitted_to"] <= 100 * (second + 1) for second, row in enumerate(rows))
    assert rows[-1]["admitted_to"] == 10_099


def test_a_run_of_an_hour_is_some_pieces_with_the_same_sums() -> None:
    """However long somebody lets runs be, the table stays bounded."""
    run = {**ADMIT, "records": 1_000, "began_ms": START, "first_offset": 0, "last_offset": 999}
    rows = folded("traffic", [decided(0, "admit", 3600, **run)])
    assert 32 <= len(rows) <= MOST_PIECES + 1
    assert sum(row["admitted_records"] for row in rows) == 1_000
    assert max(row["admitted_to"] for row in rows) == 999


def test_traffic_of_a_day_has_wider_buckets_and_the_same_sums() -> None:
    """Time is drawn as finely as a page can show; what was counted stays exact."""
    day = [decided(each, "admit", each * 40, **ADMIT, last_offset=each) for each in range(2160)]

    rows = folded("traffic", day[:100], day[100:])

    assert len(rows) <= MOST_BUCKETS + 1
    assert sum(row["admitted_records"] for row in rows) == 21_600
    assert {row["width_ms"] for row in rows} == {512_000}


def test_buckets_are_as_wide_as_all_traffic_needs_however_it_comes() -> None:
    """Where a bucket begins that was widened before is no time at which anything was written."""
    told = [decided(each, "admit", at, **ADMIT) for each, at in enumerate((1.9, 300, 481.8))]

    at_once = folded("traffic", told)

    assert {row["width_ms"] for row in at_once} == {2_000}
    assert sorted(map(repr, folded("traffic", told[:2], told[2:]))) == sorted(map(repr, at_once))


def test_a_run_of_which_the_times_cannot_be_is_left_out() -> None:
    """It breaks nothing, and neither do counts that no topic can hold."""
    absurd = [
        decided(0, "admit", **ADMIT, began_ms=-(2**63)) | {"at_ms": 2**63 - 1},
        decided(1, "admit", 9, **(ADMIT | {"bytes": 2**63 - 1}), began_ms=START),
        decided(2, "admit", 1, **(ADMIT | {"partition": 7})),
    ]

    rows = folded("traffic", absurd)

    assert sum(row["admitted_bytes"] for row in rows if row["partition"] == 0) == 2**63 - 1
    assert [row["admitted_records"] for row in rows if row["partition"] == 7] == [10]


def test_a_fence_is_one_row_with_the_times_of_its_steps() -> None:
    """Its steps come from several workers, in several micro-batches."""
    members = {"members": ["w1", "w2"], "sealed": [0], "kind": "change"}
    first = [
        decided(0, "fence", 1.0, fence="f1", layout_epoch=2, evidence=members, layouts_offset=70),
        decided(1, "acknowledge", 1.2, fence="f1", layout_epoch=1),
    ]
    second = [
        {**decided(0, "acknowledge", 1.3, fence="f1", layout_epoch=1), "worker": "w2"},
        decided(2, "cut", 1.4, fence="f1", layout_epoch=2, partition=0, last_offset=120),
        decided(3, "commit", 1.5, fence="f1", layout_epoch=2),
    ]

    (row,) = folded("fences", first, second)

    assert (row["members"], row["acknowledged"], row["layout_epoch"], row["sealed"]) == (2, 2, 2, "[0]")
    times = [row[each] - START for each in ("fenced_ms", "acknowledged_ms", "cut_ms", "committed_ms")]
    assert times == [1000, 1300, 1400, 1500]


def test_what_nobody_has_told_is_null_and_not_nought() -> None:
    """A fence that no worker has acknowledged yet, and one of which the beginning is not on record."""
    told = [decided(0, "fence", 1, fence="f1", evidence={"members": ["w1"]}), decided(1, "commit", 2, fence="f2")]

    begun, ended = sorted(folded("fences", told), key=lambda row: row["fence"])

    assert (begun["members"], begun["acknowledged"], begun["committed_ms"]) == (1, None, None)
    assert (ended["members"], ended["sealed"], ended["fenced_ms"]) == (None, None, None)


def test_a_layout_is_in_force_since_the_first_that_says_so() -> None:
    """Workers adopt it later, and again whenever they start."""
    layout = {"layout": {"n": 3, "v_count": 24, "epochs": [{"number": 0, "u": 3}, {"number": 1, "u": 4}]}}
    told = [
        decided(9, "commit", 4, layout_epoch=1, reason="unknown", evidence={"of_fence": "f1"}),
        decided(0, "commit", 5, layout_epoch=1, evidence=layout, layouts_offset=80),
        decided(1, "adopt", 5.2, layout_epoch=1, evidence=layout, layouts_offset=80),
        decided(2, "adopt", 900, layout_epoch=1, evidence=layout, layouts_offset=80),
    ]

    (row,) = folded("layouts", told[:3], told[3:])

    assert (row["n"], row["v_count"], row["u"], row["layouts_offset"]) == (3, 24, 4, 80)
    assert row["since_ms"] == START + 5000
    assert row["adopted"] == 2


def test_a_topic_that_is_let_go_is_told_beside_its_layouts() -> None:
    """It has no epoch, and a layout that was never written down no offset."""
    told = [decided(0, "adopt", 1, layout_epoch=0, layouts_offset=-1), decided(1, "forget", 2)]

    gone, adopted = sorted(folded("layouts", told), key=lambda row: row["layout_epoch"])

    assert (gone["layout_epoch"], gone["since_ms"], gone["forgotten_ms"]) == (-1, None, START + 2000)
    assert (adopted["layout_epoch"], adopted["layouts_offset"], adopted["adopted"]) == (0, None, 1)


def test_holds_that_overlap_are_one_pause() -> None:
    """A hold in one micro-batch is released in the next; another one has no end yet."""
    held = {"connection": None, "reason": "fence"}
    first = [decided(0, "hold", 1.0, stream=1, **held), decided(1, "hold", 1.1, stream=2, **held)]
    second = [
        decided(2, "release", 1.4, stream=1, **held),
        decided(3, "release", 1.6, stream=2, **held),
        decided(4, "hold", 9.0, stream=1, **held),
    ]

    rows = sorted(folded("pauses", first, second), key=lambda row: row["began_ms"])

    assert [(row["began_ms"] - START, row["ended_ms"] and row["ended_ms"] - START) for row in rows] == [
        (1000, 1600),
        (9000, None),
    ]
    assert (rows[0]["holds"], rows[0]["longest_ms"]) == (2, 500)


def test_a_pause_does_not_end_before_it_began() -> None:
    """A worker's clock may be set back; the order of its decisions is that of their numbers."""
    held = {"stream": 1, "connection": None, "reason": "fence"}

    (row,) = folded("pauses", [decided(0, "hold", 5.0, **held), decided(1, "release", 4.0, **held)])

    assert (row["began_ms"], row["ended_ms"], row["longest_ms"]) == (START + 5000, START + 5000, 0)


def test_a_hold_that_begins_where_another_ends_is_the_same_pause() -> None:
    """Nobody could write in between."""
    one, other = ({"stream": stream, "connection": None, "reason": "fence"} for stream in (1, 2))
    told = [decided(0, "hold", 1, **one), decided(1, "release", 2, **one), decided(2, "hold", 2, **other)]

    (row,) = folded("pauses", told, [decided(3, "release", 3, **other)])

    assert (row["began_ms"], row["ended_ms"], row["holds"]) == (START + 1000, START + 3000, 2)


@pytest.mark.parametrize("rule", ["PARENT-FIRST", "KIP-253 8"], ids=["named", "of an older log"])
def test_a_reader_that_the_gate_holds_is_no_held_write(rule: str) -> None:
    """Logs from before rules had names say it otherwise; the reason is the same."""
    held = {"connection": 1, "stream": -2, "rule": rule, "reason": "gate"}

    (row,) = folded("pauses", [decided(0, "hold", 1.0, **held), decided(1, "release", 1.4, **held)])

    assert (row["what"], row["reason"], row["longest_ms"]) == ("readers", "gate", 400)
    assert why_held(row["reason"]) == "order of keys: what came before had still to be read elsewhere"


def test_a_worker_that_holds_a_fence_goes_on_by_the_layout_that_it_adopts() -> None:
    """There is no release then, and the next fence is another pause."""
    whole = {"connection": None, "stream": None, "partition": None, "reason": "fence"}
    told = [
        decided(0, "hold", 1.0, **whole),
        decided(1, "adopt", 1.2, **whole),
        decided(2, "hold", 9.0, **whole),
        decided(3, "release", 9.5, **whole),
    ]

    rows = sorted(folded("pauses", told), key=lambda row: row["began_ms"])

    assert [(row["began_ms"] - START, row["ended_ms"] - START) for row in rows] == [(1000, 1200), (9000, 9500)]


def test_pauses_stay_bounded_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are kept."""
    monkeypatch.setattr(pauses, "MOST_PAUSES", 3)
    held = {"stream": 1, "connection": None, "reason": "fence"}
    many = [decided(each, ("hold", "release")[each % 2], each, **held) for each in range(20)]

    rows = folded("pauses", many)

    assert sorted(row["began_ms"] - START for row in rows) == [14_000, 16_000, 18_000]


def test_a_worker_is_one_row_with_what_it_dropped() -> None:
    """A gap names the numbers that are not on record."""
    told = [decided(0, "admit"), decided(4, "gap", first_number=1, last_number=3, reason="queue")]

    (row,) = folded("workers", told[:1], [*told[1:], decided(5, "lease", 3, reason="lost")])

    assert (row["decisions"], row["first_number"], row["last_number"]) == (3, 0, 5)
    assert (row["dropped"], row["leases_lost"]) == (3, 1)


def test_refusals_are_counted_by_reason_and_by_what_a_record_stands_for() -> None:
    """One record may stand for many refusals."""
    told = [
        decided(0, "refuse", api_key=0, reason="NOT_LEADER_OR_FOLLOWER", batches=5),
        decided(1, "refuse", api_key=0, reason="NOT_LEADER_OR_FOLLOWER"),
    ]

    (row,) = folded("reasons", told[:1], told[1:])

    assert row["times"] == 6


def test_what_was_read_is_told_by_partition() -> None:
    """Of the decision log by kind, of topics with where their logs began."""
    batch = {"topic": "orders", "partition": 2, "records": 5, "bytes": 500, "is_control": False}
    batches = [
        {**batch, "base_offset": 10, "last_offset": 14, "v": 3, "max_timestamp_ms": START},
        {**batch, "base_offset": 15, "last_offset": 19, "v": None, "max_timestamp_ms": -1},
        {**batch, "base_offset": 20, "last_offset": 20, "v": None, "max_timestamp_ms": -1, "is_control": True},
    ]
    reached = [{"topic": "orders", "partition": 2, "log_start": 10, "next_offset": 21}]

    (read,) = folded("read_batches", [], batches=batches, read_to=reached)
    (told,) = folded("read_decisions", [decided(7, "admit", 1)], [decided(9, "admit", 2)])

    assert (read["batches"], read["records"], read["untagged"], read["control"]) == (3, 15, 1, 1)
    assert (read["log_start"], read["next_offset"], read["last_offset"]) == (10, 21, 20)
    assert read["first_ms"] == START
    assert (told["decisions"], told["first_offset"], told["last_offset"]) == (2, 7, 9)


def test_the_decisions_that_a_finding_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of earlier micro-batches: steps of layouts for long, others while they are among the newest."""
    monkeypatch.setattr(proofs, "MOST_RECENT", 2)
    first = [decided(0, "fence", 1, fence="f1"), *(decided(each, "admit", each + 1, **ADMIT) for each in (1, 2, 3))]
    second = [decided(4, "admit", 5, **ADMIT), decided(5, "admit", 6, **ADMIT), decided(6, "admit", 7, **ADMIT)]
    finding = {"finding_id": "x", "rule": 2, "decisions": ["w1:0", "w1:1", "w1:2", "w1:4", "gone:7"]}

    rows = folded("proofs", first, second, findings=[finding])

    held = {row["number"]: row["held"] for row in rows}
    assert held == {0: "named", 2: "named", 4: "named", 5: "recent", 6: "recent"}
    named = {row["number"]: json.loads(row["decision"]) for row in rows}
    assert named[2]["records"] == 10
    assert "group_id" not in named[2]


def test_a_proof_has_what_the_decision_says_whatever_stands_in_its_texts() -> None:
    """Fields without a value are left out, as they are in the log; evidence is cut where it is long."""
    texts = {"client_id": 'a "client":null, ü\n', "reason": '"x":null', "evidence": {"rule": None, "holes": 3}}

    rows = folded("proofs", [decided(0, "refuse", 1, **texts), decided(1, "admit", 2, evidence={"text": "ü" * 9_000})])

    told, long = (json.loads(row["decision"]) for row in sorted(rows, key=lambda row: row["number"]))
    its_own = {"client_id": texts["client_id"], "reason": '"x":null', "evidence": '{"rule": null, "holes": 3}'}
    assert told == {
        "worker": "w1", "host": "a", "number": 0, "kind": "refuse", "at_ms": START + 1000, "topic": "orders", **its_own
    }  # fmt: skip
    assert len(long["evidence"]) == proofs.MOST_EVIDENCE
