"""EPOCH-LADDER: every case of KIP-360, each with a transactional.id of its own in one frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.rules import epoch_ladder
from kordon.testing.rule_plays import Played, decided, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING = (-1, -1)
FENCED = 90
NO_ANSWER = (-1, -1, FENCED)
Answer = tuple[tuple[int, int], tuple[int, ...]]
"""What was given, and what was answered: producer id, epoch, and an error if it was one."""

RIGHT: dict[str, list[Answer]] = {
    "1a: the first": [(NOTHING, (7, 0))],
    "1b i: a new instance": [(NOTHING, (7, 0)), (NOTHING, (7, 1))],
    "1b ii: a new instance, no epoch left": [(NOTHING, (7, 32766)), (NOTHING, (8, 0))],
    "1b ii: by a broker whose ids are smaller": [(NOTHING, (7, 32766)), (NOTHING, (5, 0))],
    "2a i: goes on after a failure": [(NOTHING, (7, 0)), ((7, 0), (7, 1)), ((7, 1), (7, 2))],
    "2a ii: goes on, no epoch left": [(NOTHING, (7, 32766)), ((7, 32766), (8, 0))],
    "2b: asks again": [(NOTHING, (7, 0)), ((7, 0), (7, 1)), ((7, 0), (7, 1)), ((7, 0), (7, 1))],
    "2b: asks again for a new id": [(NOTHING, (7, 32766)), ((7, 32766), (8, 0)), ((7, 32766), (8, 0))],
    "2b: goes on behind it": [(NOTHING, (7, 0)), ((7, 0), (7, 1)), ((7, 0), (7, 1)), ((7, 1), (7, 2))],
    "2c: a fenced one": [(NOTHING, (7, 0)), (NOTHING, (7, 1)), ((7, 0), NO_ANSWER), (NOTHING, (7, 2))],
    "2c: another id": [(NOTHING, (7, 0)), ((3, 0), NO_ANSWER)],
    "2c: half of it": [(NOTHING, (7, 0)), ((7, -1), (-1, -1, 42))],
}
UNTOLD: dict[str, list[Answer]] = {
    "an epoch that rose elsewhere": [(NOTHING, (7, 0)), ((7, 4), (7, 5))],
    "an id that was given elsewhere": [(NOTHING, (7, 0)), ((9, 0), (9, 1))],
    "an id that expired": [(NOTHING, (7, 0)), ((4, 3), (9, 0))],
    "refused though it held it": [(NOTHING, (7, 0)), ((7, 0), NO_ANSWER)],
}
WRONG: dict[str, list[Answer]] = {
    "epoch-fell": [(NOTHING, (7, 3)), (NOTHING, (7, 2))],
    "epoch-fell to an earlier id": [(NOTHING, (7, 3)), (NOTHING, (6, 2))],
    "not-bumped for a new instance": [(NOTHING, (7, 0)), (NOTHING, (7, 0))],
    "epoch-fell for one that another worker has served": [((7, 3), (7, 2))],
    "not-bumped for one that another worker has served": [((7, 3), (7, 3))],
    "not-bumped after a failure": [(NOTHING, (7, 0)), ((7, 0), (7, 0))],
    "repeat-changed": [(NOTHING, (7, 0)), ((7, 0), (7, 1)), ((7, 0), (7, 2))],
    "not-fenced": [(NOTHING, (7, 0)), (NOTHING, (7, 1)), ((7, 0), (7, 2))],
    "not-fenced with another id": [(NOTHING, (7, 0)), ((3, 0), (7, 1))],
    "half-given": [(NOTHING, (7, 0)), ((7, -1), (7, 1))],
}


def ladder(name: str, answers: list[Answer], *, worker: str | None = None, step: int = 1) -> list[dict[str, Any]]:
    """The decisions of one case, on a worker of its own."""
    return [
        decided(
            "admit",
            place * step,
            worker=worker or name,
            api_key=22,
            evidence={
                "transactional_id": name,
                "given": given,
                "answered": answered[:2],
                "error": answered[2] if len(answered) > 2 else 0,
            },
        )
        for place, (given, answered) in enumerate(answers)
    ]


def history(cases: dict[str, list[Answer]]) -> list[dict[str, Any]]:
    """All cases of a table."""
    return [row for name, answers in cases.items() for row in ladder(name, answers)]


@pytest.fixture(scope="module")
def at_once(spark: SparkSession) -> Played:
    """What comes of all cases in one micro-batch."""
    return play(spark, epoch_ladder.RULE, [history(RIGHT | UNTOLD | WRONG)])


def test_what_kip_360_says_is_right_and_what_it_forbids_is_found(at_once: Played) -> None:
    """Each case is found by its kind, at its last answer; what a log cannot tell is neither right nor wrong."""
    found = {
        (each["text"].split(" was answered")[0].split("transactional.id ")[1], each["kind"])
        for each in at_once.findings
    }
    assert found == {(name, name.split(" ")[0]) for name in WRONG}
    assert {each["verdict"] for each in at_once.findings} == {"fail"}
    assert all(":" in name for each in at_once.findings for name in each["decisions"])
    assert at_once.count("unknown") == len(UNTOLD)
    answers = sum(map(len, (RIGHT | UNTOLD | WRONG).values()))
    assert at_once.count("pass") == answers - len(UNTOLD) - len(WRONG)


def test_the_newest_answer_is_carried_from_one_micro_batch_to_the_next(spark: SparkSession, at_once: Played) -> None:
    """Two micro-batches find what one finds; errors change nothing of what is in force."""
    told = history(RIGHT | UNTOLD | WRONG)
    halves = [[row for row in told if (row["number"] < 2) is is_first] for is_first in (True, False)]
    in_two = play(spark, epoch_ladder.RULE, halves)

    assert in_two.found("finding_id") == at_once.found("finding_id")
    assert sorted(map(repr, in_two.state)) == sorted(map(repr, at_once.state))


def test_gaps_other_workers_and_time(spark: SparkSession) -> None:
    """Over a gap only what fell is proven; two workers do not give one epoch twice; an id expires after a week."""
    over_gap = ladder("repeat-changed", WRONG["repeat-changed"], step=2) + ladder("fell", WRONG["epoch-fell"], step=2)
    here = ladder("both", [(NOTHING, (7, 0))], worker="here")
    there = ladder("both", [(NOTHING, (7, 0))], worker="there")
    again = ladder("repeat", [((7, 0), (7, 1))], worker="r1") + ladder("repeat", [((7, 0), (7, 1))], worker="r2")
    later = [{**row, "at_ms": row["at_ms"] + epoch_ladder.EXPIRES_MS} for row in ladder("later", [(NOTHING, (7, 0))])]

    played = play(spark, epoch_ladder.RULE, [[*over_gap, *here, *again], there, later])

    assert played.found("kind", "verdict") == [
        ("doubled-epoch", "fail"),
        ("epoch-fell", "fail"),
        ("repeat-changed", "unknown"),
    ]
    assert [row["transactional_id"] for row in played.state] == ["later"]
