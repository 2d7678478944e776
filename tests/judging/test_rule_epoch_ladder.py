"""EPOCH-LADDER: every case of KIP-360, each with a transactional.id of its own in one frame."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.judging.rules import epoch_ladder
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_plays import MicroBatch, Played, decided

NOTHING: tuple[int, int] = (-1, -1)
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


Step = tuple[str, tuple[int, int], tuple[int, ...]]
"""A worker, what it was given, and what was answered."""
ACROSS: dict[str, list[Step]] = {
    "doubled-epoch": [("a", NOTHING, (7, 0)), ("b", NOTHING, (7, 0))],
    "doubled-epoch behind newer ones": [
        ("a", NOTHING, (7, 0)),
        ("a", NOTHING, (7, 1)),
        ("a", (7, 1), (7, 2)),
        ("b", NOTHING, (7, 0)),
    ],
    "doubled-epoch by one that goes on": [("a", NOTHING, (7, 1)), ("b", (7, 0), (7, 1))],
    "repeat-changed": [("a", (7, 0), (7, 1)), ("b", (7, 0), (7, 2))],
    "not-fenced": [("a", NOTHING, (7, 1)), ("b", (7, 0), (7, 2))],
    "not-fenced though both got one epoch": [("a", (7, 0), (7, 2)), ("b", (7, 1), (7, 2))],
}
"""What is wrong whichever of two workers was first."""
EXPLAINED: dict[str, list[Step]] = {
    "it held what another worker had answered": [
        ("a", NOTHING, (7, 0)),
        ("b", NOTHING, (7, 1)),
        ("a", (7, 1), (7, 2)),
    ],
    "another worker had answered a newer epoch": [
        ("a", NOTHING, (7, 0)),
        ("b", NOTHING, (7, 1)),
        ("a", (7, 0), NO_ANSWER),
    ],
    "its request came again by another worker": [
        ("b", NOTHING, (7, 0)),
        ("a", (7, 0), (7, 1)),
        ("b", (7, 0), (7, 1)),
    ],
}
"""What a alone cannot tell."""


def across(name: str, steps: list[Step]) -> list[dict[str, Any]]:
    """The decisions of a case, on workers of its own."""
    by_worker = {worker: [step[1:] for step in steps if step[0] == worker] for worker, *_ in steps}
    return [row for each, answers in by_worker.items() for row in ladder(name, answers, worker=f"{name}-{each}")]


def in_order(rows: list[dict[str, Any]], first: str) -> list[MicroBatch]:
    """What a worker of each case has decided comes first, and then the other's."""
    halves = [[row for row in rows if row["worker"].endswith(first) is is_first] for is_first in (True, False)]
    return [MicroBatch(decisions=half, is_last=place == 1) for place, half in enumerate(halves)]


class Brokers:
    """Answers to a few clients that ask by several workers, as KIP-360 says; or not, one in `wrong`."""

    def __init__(self, seed: int, *, wrong: int = 0) -> None:
        self.rows: list[dict[str, Any]] = []
        self._chance = random.Random(seed)
        self._names = [f"{seed}-{place}" for place in range(3)]
        self._in_force = dict.fromkeys(self._names, NOTHING)
        self._last = dict.fromkeys(self._names, NOTHING)
        self._held = {name: [NOTHING] for name in self._names}
        for _ in range(40):
            self._ask(f"{seed}-{self._chance.choice('abc')}", self._chance.choice(self._names), wrong)

    def _ask(self, worker: str, name: str, wrong: int) -> None:
        given = self._chance.choice([NOTHING, *self._held[name][-4:]])
        answered = self._broken(name) if wrong and not self._chance.randrange(wrong) else self._right(name, given)
        if answered != NO_ANSWER:
            self._held[name].append((answered[0], answered[1]))
        number = sum(row["worker"] == worker for row in self.rows)
        [row] = ladder(name, [(given, answered)], worker=worker)
        self.rows.append({**row, "number": number})

    def _right(self, name: str, given: tuple[int, int]) -> tuple[int, ...]:
        in_force = self._in_force[name]
        if given == self._last[name] != NOTHING:
            return in_force
        if given not in {NOTHING, in_force}:
            return NO_ANSWER
        self._in_force[name], self._last[name] = (7, in_force[1] + 1), given
        return self._in_force[name]

    def _broken(self, name: str) -> tuple[int, ...]:
        epoch = self._chance.randint(0, self._in_force[name][1] + 3)
        self._in_force[name] = 7, max(epoch, self._in_force[name][1])
        return 7, epoch


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
def at_once() -> Played:
    """What comes of all cases in one micro-batch."""
    return play(epoch_ladder.RULE, [MicroBatch(decisions=history(RIGHT | UNTOLD | WRONG), is_last=True)])


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


def crossed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last answer came when another one had come since its request."""
    return [*rows[:-1], {**rows[-1], "evidence": json.dumps({**json.loads(rows[-1]["evidence"]), "crossed": True})}]


@pytest.mark.parametrize("parts", [1, 2])
def test_answers_that_have_crossed_are_not_taken_for_epochs_that_fell(parts: int) -> None:
    """Heirs of one dead producer fence it at once. What an answer says of its own request is wrong all the same."""
    heirs: list[Answer] = [(NOTHING, (7, 3)), (NOTHING, (7, 5)), (NOTHING, (7, 4))]
    rows = crossed(ladder("heirs", heirs))
    itself = crossed(ladder("itself", [(NOTHING, (7, 3)), ((7, 3), (7, 2))]))
    went_on = ladder("heirs", [*heirs, (NOTHING, (7, 6)), (NOTHING, (7, 6))])[3:]
    told = [*rows, *itself, *went_on]
    half = len(rows) - 1
    micro_batches = [told] if parts == 1 else [told[:half], told[half:]]
    played = play(epoch_ladder.RULE, [MicroBatch(decisions=each, is_last=True) for each in micro_batches])
    assert played.found("kind", "verdict") == [("epoch-fell", "fail"), ("not-bumped", "fail")]
    assert (played.count("pass"), played.count("unknown")) == (5, 0)


def test_the_newest_answer_is_carried_from_one_micro_batch_to_the_next(at_once: Played) -> None:
    """Two micro-batches find what one finds; errors change nothing of what is in force."""
    told = history(RIGHT | UNTOLD | WRONG)
    halves = [[row for row in told if (row["number"] < 2) is is_first] for is_first in (True, False)]
    in_two = play(epoch_ladder.RULE, [halves[0], MicroBatch(decisions=halves[1], is_last=True)])

    assert in_two.found("finding_id") == at_once.found("finding_id")
    assert sorted(map(repr, in_two.state)) == sorted(map(repr, at_once.state))


def test_gaps_other_workers_and_time() -> None:
    """Over a gap only what fell is proven; two workers do not give one epoch twice; an id expires after a week."""
    over_gap = ladder("repeat-changed", WRONG["repeat-changed"], step=2) + ladder("fell", WRONG["epoch-fell"], step=2)
    here = ladder("both", [(NOTHING, (7, 0))], worker="here")
    there = ladder("both", [(NOTHING, (7, 0))], worker="there")
    again = ladder("repeat", [((7, 0), (7, 1))], worker="r1") + ladder("repeat", [((7, 0), (7, 1))], worker="r2")
    later = [{**row, "at_ms": row["at_ms"] + epoch_ladder.EXPIRES_MS} for row in ladder("later", [(NOTHING, (7, 0))])]

    played = play(epoch_ladder.RULE, [[*over_gap, *here, *again], there, later])

    assert played.found("kind", "verdict") == [
        ("doubled-epoch", "fail"),
        ("epoch-fell", "fail"),
        ("repeat-changed", "unknown"),
    ]
    assert [row["transactional_id"] for row in played.state] == ["later"]


@pytest.mark.parametrize("first", ["a", "b"])
def test_answers_of_two_workers_that_are_wrong_in_any_order_are_found_whichever_is_read_first(first: str) -> None:
    """Of one producer id the smaller epoch came first: what cannot follow on it is wrong."""
    rows = [row for name, steps in ACROSS.items() for row in across(name, steps)]

    found = play(epoch_ladder.RULE, in_order(rows, first)).found("text", "kind", "verdict", "decisions")
    named = sorted((text.split(" was answered")[0].split("transactional.id ")[1], *rest) for text, *rest in found)

    assert [each[:3] for each in named] == sorted((name, name.split(" ")[0], "fail") for name in ACROSS)
    assert all({decision.rpartition("-")[2][0] for decision in each[3]} == {"a", "b"} for each in named)


@pytest.mark.parametrize("first", ["a", "b"])
def test_what_one_worker_cannot_tell_another_ones_answers_explain(first: str) -> None:
    """It waits for them; what they do not explain in time is unknown."""
    rows = [row for name, steps in EXPLAINED.items() for row in across(name, steps)]

    whole = play(epoch_ladder.RULE, in_order(rows, first))
    alone = play(epoch_ladder.RULE, [in_order(rows, "a")[0], [decided("join", 0, worker="anybody", seconds=3600)]])

    assert (whole.count("pass"), whole.count("unknown")) == (len(rows), 0)
    assert alone.count("unknown") == len(EXPLAINED)
    assert whole.findings == alone.findings == []


def test_what_brokers_answer_by_the_book_is_right_by_however_many_workers() -> None:
    """Nothing of it is unknown, and nothing is found."""
    rows = [row for seed in range(20) for row in Brokers(seed).rows]

    played = play(epoch_ladder.RULE, [MicroBatch(decisions=rows, is_last=True)])

    assert played.findings == []
    assert (played.count("pass"), played.count("unknown")) == (len(rows), 0)


def test_any_cut_into_micro_batches_says_the_same() -> None:
    """Whichever worker's log is read first, and however far."""
    rows, chance = [row for seed in range(50) for row in Brokers(seed, wrong=5).rows], random.Random(7)
    ends = {worker: chance.randint(0, 20) for worker in sorted({row["worker"] for row in rows})}
    parts: list[list[dict[str, Any]]] = [[], []]
    for row in rows:
        parts[row["number"] >= ends[row["worker"]]].append(row)

    whole = play(epoch_ladder.RULE, [MicroBatch(decisions=rows, is_last=True)])
    in_two = play(epoch_ladder.RULE, [parts[0], MicroBatch(decisions=parts[1], is_last=True)])

    assert {each["kind"] for each in whole.findings} >= {"doubled-epoch", "repeat-changed", "not-fenced"}
    columns = "finding_id", "text", "verdict", "decisions"
    assert in_two.found(*columns) == whole.found(*columns)
    for verdict in ("pass", "unknown"):
        assert in_two.count(verdict) == whole.count(verdict) > 0


def test_of_each_id_the_state_keeps_the_newest_answers_and_one_of_each_worker() -> None:
    """However often its producers begin anew."""
    epochs = range(3 * epoch_ladder.MOST_ANSWERS)
    often = ladder("often", [(NOTHING, (7, epoch)) for epoch in epochs], worker="often")
    once = ladder("often", [(NOTHING, (6, 0))], worker="once")

    played = play(epoch_ladder.RULE, [once, [{**row, "at_ms": row["at_ms"] + 1} for row in often]])

    kept = {(row["worker"], row["producer_epoch"]) for row in played.state}
    assert kept == {("once", 0), *(("often", epoch) for epoch in epochs[-epoch_ladder.MOST_ANSWERS :])}
