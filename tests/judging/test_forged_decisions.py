"""Decisions that nobody has taken: whatever stands in the log, it is judged or left out, and stops no audit."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.job import BatchResult
from kordon.spark_jobs.judging.intake import of_decisions, of_partition
from kordon.spark_jobs.judging.judge import SETTINGS, Judge
from kordon.spark_jobs.judging.rules.all_rules import ALL
from kordon.spark_jobs.judging.schema import BATCHES, DECISIONS
from kordon.spark_jobs.judging.shipments import Shipment, What, packed
from kordon.spark_jobs.judging.summaries import SUMMARIES
from kordon.testing.audits.judged import table
from kordon.testing.audits.rule_histories import History, lines_of

JUDGE: Final = Judge(rules=ALL, summaries=SUMMARIES)
WILD: Final = (None, 0, -1, 1, 7, 1 << 15, (1 << 31) - 1, -(1 << 31), (1 << 62), -(1 << 63), (1 << 63) - 1)
JUNK: Final[tuple[Any, ...]] = (
    *WILD, True, "", "x", "-1", "9" * 40, 1.5, 1e300, [], {}, [[]], [[1, 2], "x"], {"a": {"b": []}}, "\x00", "\u202e",
)  # fmt: skip
_NAMES: Final = [name for name in DECISIONS if not name.startswith("log_")]
_NUMBERS: Final = [name for name, kind in DECISIONS.items() if kind != pl.String and not name.startswith("log_")]


def forged(decision: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A decision of which some fields, and some of what its evidence has, are others."""
    told = {**decision, "evidence": dict(decision.get("evidence") or {})}
    for _ in range(chance.randint(1, 4)):
        name = chance.choice(
            [*_NUMBERS, "kind", "topic", "worker", "group_id", "fence", "reason", "evidence", "inside"]
        )
        if name == "inside" and told["evidence"] and isinstance(told["evidence"], dict):
            _change(told["evidence"], chance)
        elif name == "kind":
            told["kind"] = chance.choice([*(each.value for each in Kind), "later"])
        elif name == "evidence":
            told["evidence"] = chance.choice(JUNK)
        elif name in _NUMBERS:
            told[name] = chance.choice(WILD)
        else:
            told[name] = chance.choice([None, "", "x", told.get(name)])
    return told


def _change(inside: Any, chance: random.Random) -> None:
    """Changes something in an object or a list, however deep."""
    places: list[Any] = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
    if not places:
        return
    place = chance.choice(places)
    if isinstance(inside[place], dict | list) and inside[place] and chance.random() < 0.8:
        _change(inside[place], chance)
    else:
        inside[place] = chance.choice(JUNK)


def judged(lines: list[bytes], history: History) -> BatchResult:
    """What comes of some records of the log, and then of nothing more."""
    kept: list[Shipment] = []
    told: list[Shipment] = []
    batches = [
        each
        for q in {row["partition"] for row in history.batches}
        for each in of_partition(
            What.BATCHES,
            table([row for row in history.batches if row["partition"] == q], BATCHES),
            history.layout.topic, q, 1,
        )
    ]  # fmt: skip
    read = of_decisions(lines, [0] * len(lines), list(range(len(lines))), name="0", first=0, parts=1)
    for new, is_last in (([*read, *batches], False), ([], True)):
        row = pl.DataFrame([(600_000, is_last)], schema=SETTINGS, orient="row")
        made = list(JUDGE.judge(0, [Shipment(0, What.SETTINGS, "", 0, packed(row)), *kept, *new]))
        kept = [each for each in made if each.what in {What.STATE, What.SUMMARY}]
        told += [each for each in made if each.what != What.STATE]
    return BatchResult.of(told)


SOME: Final = range(12)
MANY: Final = pytest.param(range(1000, 1600), marks=[pytest.mark.deep, pytest.mark.timeout(3600)])


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [SOME, MANY], ids=["some", "many"])
def test_forged_decisions_stop_no_audit(seeds: range) -> None:
    """A fifth of what is on record is not as a Kordon writes it; all of it is read, one way or the other."""
    for seed in seeds:
        chance, history = random.Random(seed), History("orders", seed)
        decisions = [json.loads(line) for line in lines_of(history)]
        lines = [json.dumps(forged(each, chance) if chance.random() < 0.2 else each).encode() for each in decisions]
        told = judged(lines, history)
        totals = told.totals.sum().row(0, named=True)
        assert totals["decisions"] + totals["unreadable"] <= len(lines)
        assert totals["decisions"] > 0


@pytest.mark.parametrize("kind", [Kind.OFFSET_COMMIT, Kind.OFFSET_FETCH])
def test_commits_that_nobody_made_stop_no_audit(kind: Kind) -> None:
    """Whatever their lists have, and however long these are."""
    history = History("orders", 1)
    lists = [*JUNK, [[1]], [["a", 1, 2]], [[1, 2, 3, 4, 5, 6, 7]], [[1, 1 << 70, 3]], [[None] * 3], [None]]
    evidence = [{"offsets": each, "told": each, "asked_after": each} for each in lists]
    about = {
        "schema": 1,
        "at_ms": 1,
        "host": "h",
        "worker": "w",
        "kind": kind.value,
        "topic": "orders",
        "group_id": "g",
    }
    lines = [json.dumps({**about, "number": n, "evidence": each}).encode() for n, each in enumerate(evidence)]
    told = judged([*lines_of(history), *lines], history)
    assert told.totals.get_column("decisions").sum() == len(history.decisions) + len(lines)


def test_layouts_that_nobody_can_have_are_counted_and_left_out() -> None:
    """So many virtual partitions that nobody could work them out, and none of what a layout has."""
    history = History("orders", 1)
    lines = [json.loads(line) for line in lines_of(history)]
    layout = next(each["evidence"]["layout"] for each in lines if each["kind"] == "commit")
    wrong = [
        {},
        {**layout, "v_count": 1 << 40},
        {**layout, "n": -3},
        {**layout, "n": 0},
        {**layout, "segments": [7]},
        [1],
    ]
    forged = [{**lines[0], "worker": "w", "number": n, "evidence": {"layout": each}} for n, each in enumerate(wrong)]
    told = judged([json.dumps(each).encode() for each in [*lines, *forged]], history)
    assert told.totals.get_column("unreadable").sum() == len(wrong)
    assert told.managed == {"orders"}
