"""GAPS: numbers that are missing are told once, whatever micro-batches they are missing between."""

from __future__ import annotations

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.spark_jobs.judging.rules import gaps
from kordon.spark_jobs.judging.schema import GAPS
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_plays import Played, decided

FIRST = [
    *(decided("admit", number, worker="whole") for number in range(4)),
    *(decided("admit", number, worker="lost") for number in (0, 1, 4)),
    decided("admit", 0, worker="dropped"),
    decided("gap", 5, worker="dropped", reason="queue full", first_number=1, last_number=4),
    decided("admit", 7, worker="old"),
    decided("admit", 0, worker="between"),
]
SECOND = [
    *(decided("admit", number, worker="whole") for number in (4, 5)),
    decided("admit", 5, worker="lost"),
    decided("admit", 9, worker="between"),
]


@pytest.fixture(scope="module")
def played() -> Played:
    """What comes of them in two micro-batches."""
    return play(gaps.RULE, [FIRST, SECOND])


def test_each_gap_is_one_unknown_finding_that_says_why(played: Played) -> None:
    """Dropped, never written, taken by retention, or between two micro-batches; a worker without one has none."""
    told = {each["decisions"][0]: each for each in played.findings}
    assert sorted(told) == ["between:9", "dropped:5", "lost:4", "old:7"]
    assert {each["verdict"] for each in played.findings} == {"unknown"}
    assert {each["kind"] for each in played.findings} == {"gap"}
    assert (
        "Decisions 1 to 4 of worker dropped on host are missing: the worker dropped them (queue full)"
        in (told["dropped:5"]["text"])
    )
    assert "2 to 3 of worker lost on host are missing: they were never written" in told["lost:4"]["text"]
    assert "0 to 6 of worker old on host are missing: they are older than" in told["old:7"]["text"]
    assert "1 to 8 of worker between" in told["between:9"]["text"]


def test_the_state_is_a_row_per_worker_and_per_gap(played: Played) -> None:
    """By it the other rules know what is missing; the same findings come of one micro-batch as of two."""
    at_once = play(gaps.RULE, [[*FIRST, *SECOND]])

    missing = {(row["worker"], row["first_number"], row["last_number"]) for row in played.state if row["what"] == "gap"}
    last = {row["worker"]: row["last_number"] for row in played.state if row["what"] == "worker"}
    assert missing == {("lost", 2, 3), ("dropped", 1, 4), ("old", 0, 6), ("between", 1, 8)}
    assert last == {"whole": 5, "lost": 5, "dropped": 5, "old": 7, "between": 9}
    assert at_once.found("finding_id") == played.found("finding_id")


def test_rows_know_whether_a_decision_is_missing_between_two() -> None:
    """The gap of 2 to 3 lies between 1 and 4, and nowhere else."""
    pairs = [("lost", 1, 4), ("lost", 0, 1), ("lost", 4, 5), ("lost", None, 4), ("lost", 1, None), ("whole", 0, 9)]
    rows = pl.DataFrame(pairs, schema=["worker", "earlier", "later"], orient="row")
    missing = pl.DataFrame([("lost", 2, 3)], schema=GAPS, orient="row")

    told = gaps.with_gaps(rows, missing, after="earlier", until="later").rows(named=True)

    assert {(row["worker"], row["earlier"], row["later"]): row["across_gap"] for row in told} == {
        ("lost", 1, 4): True,
        ("lost", 0, 1): False,
        ("lost", 4, 5): False,
        ("lost", None, 4): True,
        ("lost", 1, None): True,
        ("whole", 0, 9): False,
    }
