"""Whose a batch is: by the newest stay of its stream that begins at or below it, and ends behind it."""

from __future__ import annotations

from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.judging.rule import Rule, RuleOutcome
from kordon.spark_jobs.judging.rules.belonging import JANITOR, NO_V
from kordon.spark_jobs.judging.schema import CHECKED, FINDINGS
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_batches import TOPIC, batch, tagged
from kordon.testing.audits.rule_plays import MicroBatch, decided

TYPES: Final = ("kind", "stream", "home_move", "given_as")


def stay(stream: int, move: int, start: int, end: int | None, **more: Any) -> dict[str, Any]:
    """A stay on partition 0."""
    kept = {"kept_end": end, "tagged": True, "floor": start, "compacted": False, "shortened": False}
    return {"topic": TOPIC, "stream": stream, "move": move, "partition": 0, "start": start, "end": end, **kept, **more}


def owners(*micro_batches: MicroBatch) -> dict[int, tuple[Any, ...]]:
    """What batches are, by their offsets, once that is certain."""
    found: dict[int, tuple[Any, ...]] = {}

    def look(facts: Any, _: Any) -> RuleOutcome:
        rows = facts.placed.rows(named=True)
        found.update({row["base_offset"]: tuple(row[name] for name in TYPES) for row in rows})
        return RuleOutcome(findings=FINDINGS.to_frame(), state={}, checked=CHECKED.to_frame())

    play(Rule(number=1, name="LOOK", proves="", state={}, check=look), micro_batches)
    return found


def test_moves_are_counted_modulo_256_and_an_empty_stay_holds_nothing() -> None:
    """Move 256 writes as move 0 did; a stay that ended where it began does not hide the one that goes on there."""
    stays = [
        stay(3, 0, 0, 10),
        stay(3, 1, 10, 10),
        stay(3, 256, 20, 30),
        stay(3, 257, 30, 30),
        stay(3, 512, 40, None),
    ]
    batches = [tagged(3, 0, 0, offset) for offset in (9, 10, 20, 29, 30, 40)]

    found = owners(MicroBatch(stays=stays, batches=batches, is_last=True))

    assert {offset: its[0] for offset, its in found.items()} == {
        **dict.fromkeys((9, 20, 29, 40), "own"),
        **dict.fromkeys((10, 30), "stray"),
    }
    assert [found[offset][2] for offset in (9, 20, 40)] == [0, 256, 512]


def test_what_is_nobodys_and_what_readers_of_others_get() -> None:
    """Control batches, markers, untagged ones; and while old partitions are shared, the host's readers get all."""
    stays = [stay(0, 0, 0, 50, tagged=False), stay(0, 0, 50, None), stay(~0, 4, 50, None)]
    stays.append(stay(7, 0, 50, None, shared_from=50, shared_to=60))
    batches = [
        batch(0, 10),
        batch(0, 50, is_control=True),
        tagged(JANITOR, 0, 0, 51),
        batch(0, 52),
        tagged(NO_V, 4, 0, 53),
        tagged(7, 0, 0, 54),
        tagged(7, 0, 0, 60),
    ]

    found = owners(MicroBatch(stays=stays, batches=batches, is_last=True))

    assert found == {
        10: ("before", 0, 0, 0),
        50: ("control", None, None, None),
        51: ("marker", None, None, None),
        52: ("bypass", None, None, None),
        53: ("opened", -1, 4, -1),
        54: ("own", 7, 0, 0),
        60: ("own", 7, 0, 7),
    }


def test_a_batch_waits_until_a_cut_or_an_acknowledgement_behind_it_is_known_or_it_is_late() -> None:
    """An acknowledgement proves all below it; a topic of which no layout is known waits as well."""
    stays = [stay(0, 0, 0, None)]
    batches = [tagged(0, 0, 0, offset) for offset in (5, 6)]
    unknown = [{**tagged(0, 0, 0, 5), "topic": "unknown"}]
    told = decided("admit", 1, topic=TOPIC, partition=0, last_offset=5, seconds=1)
    first = MicroBatch(stays=stays, batches=batches, decisions=[decided("lease", 0)])

    assert owners(first) == {}
    assert owners(first, MicroBatch(decisions=[told])) == {5: ("own", 0, 0, 0)}
    late = decided("lease", 2, seconds=700)
    assert owners(first, MicroBatch(decisions=[told]), MicroBatch(decisions=[late])).keys() == {5, 6}
    assert owners(MicroBatch(batches=unknown, is_last=True)) == {5: ("unmanaged", 0, None, 0)}
