"""KEY-ORDER: readers go on where they stood; only a logged rewind has them go back."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.judging.rules import key_order
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_plays import Played, decided

Step = tuple[str, int, int, int]
"""Kind, move, first and last offset."""


def reader(connection: int, *steps: Step, worker: str, stream: int = 3, numbers: list[int] | None = None) -> list[Any]:
    """What a reader is given and asks for; each case has a worker of its own."""
    return [
        decided(
            kind,
            numbers[place] if numbers else place,
            worker=worker,
            connection=connection,
            topic="orders",
            stream=stream,
            partition=0,
            move=move,
            first_offset=first,
            last_offset=last,
        )
        for place, (kind, move, first, last) in enumerate(steps)
    ]


CLEAN = [
    *reader(1, ("deliver", 0, 0, 9), ("deliver", 0, 10, 19), ("deliver", 1, 4, 8), worker="goes-on"),
    *reader(1, ("deliver", 0, 5, 9), ("rewind", 0, 5, 9), ("deliver", 0, 5, 9), worker="rewinds"),
    *reader(1, ("deliver", 2, 50, 59), ("rewind", 1, 7, 59), ("deliver", 1, 7, 9), worker="rewinds-a-move"),
    *reader(1, ("deliver", 4, 50, 59), ("deliver", 9, 60, 69), worker="segments", stream=-3),
    *reader(1, ("deliver", 0, 0, 9), worker="again") + reader(2, ("deliver", 0, 0, 9), worker="again", numbers=[1]),
]
FAULTY = [
    *reader(1, ("deliver", 0, 10, 19), ("deliver", 0, 0, 9), worker="back"),
    *reader(1, ("deliver", 0, 10, 19), ("deliver", 0, 19, 29), worker="overlaps"),
    *reader(1, ("deliver", 1, 10, 19), ("deliver", 0, 20, 29), worker="earlier-stay"),
    *reader(1, ("rewind", 0, 5, 9), ("deliver", 0, 3, 9), worker="below-the-rewind"),
    *reader(1, ("deliver", 7, 50, 59), ("deliver", 4, 20, 49), worker="segments-back", stream=-1),
]
OVER_GAP = reader(1, ("deliver", 0, 10, 19), ("deliver", 0, 0, 9), worker="over-gap", numbers=[0, 2])
GAP_IN_ORDER = reader(1, ("deliver", 0, 0, 9), ("deliver", 0, 10, 19), worker="gap", numbers=[0, 2])


HISTORY = [*CLEAN, *FAULTY, *OVER_GAP, *GAP_IN_ORDER]


@pytest.fixture(scope="module")
def at_once() -> Played:
    """What comes of all readers in one micro-batch."""
    return play(key_order.RULE, [HISTORY])


def test_each_way_back_without_a_rewind_is_found_and_nothing_else(at_once: Played) -> None:
    """Offsets, stays and segments; what a gap may explain is unknown, as is what it may hide."""
    assert {(each["decisions"][1], each["verdict"]) for each in at_once.findings} == {
        ("back:1", "fail"),
        ("overlaps:1", "fail"),
        ("earlier-stay:1", "fail"),
        ("below-the-rewind:1", "fail"),
        ("segments-back:1", "fail"),
        ("over-gap:2", "unknown"),
    }
    assert {each["kind"] for each in at_once.findings} == {"went-back"}
    assert (at_once.count("pass"), at_once.count("unknown")) == (17, 2)


def test_any_split_into_micro_batches_finds_the_same(at_once: Played) -> None:
    """Where readers stand is carried over; decisions of one worker stay in order."""
    chance = random.Random(7)
    places = sorted(chance.choices(range(2), k=len(HISTORY)))
    halves = [[row for row, place in zip(HISTORY, places, strict=True) if place == half] for half in range(2)]

    assert play(key_order.RULE, halves).found("finding_id") == at_once.found("finding_id")


def test_readers_that_ended_are_forgotten() -> None:
    """By the end of the connection, or after a day without a word; others stay a row each."""
    closed = [*reader(1, ("deliver", 0, 0, 9), worker="closed"), decided("close", 1, worker="closed", connection=1)]
    silent = reader(1, ("deliver", 0, 0, 9), worker="silent")
    open_one = reader(1, ("deliver", 0, 0, 9), ("deliver", 0, 10, 19), worker="open")
    a_day_later = reader(1, ("deliver", 0, 20, 29), worker="open", numbers=[2])
    a_day_later = [{**row, "at_ms": row["at_ms"] + 90_000_000} for row in a_day_later]

    played = play(key_order.RULE, [[*closed, *silent, *open_one], a_day_later])

    assert [(row["worker"], row["next_offset"]) for row in played.state] == [("open", 30)]
    assert played.findings == []
