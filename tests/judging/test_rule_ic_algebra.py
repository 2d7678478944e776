"""IC-ALGEBRA: what coordinators got of groups that commit offset by offset follows from what their members said."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.codecs.ranges import Range, Ranges
from kordon.proxy.ordering.claims import NO_OFFSET, NOTHING, Done
from kordon.spark_jobs.judging.rules import ic_algebra
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_plays import MicroBatch, Played, Row, decided

ID = "00000000-0000-0000-0000-000000000007"
FAR = 24 * 3_600 + 700


def claim(number: int, pushed: int, stable: int = -1, *ranges: Range, incarnation: int = 11, **more: Any) -> Row:
    """A commit: the stable offset that the coordinator got, and what was new."""
    said: dict[str, Any] = {"topic_id": ID, "incarnation": incarnation, "stable": stable}
    said["known_ranges"] = more.pop("known", 0)
    told: dict[str, Any] = {"topic": "t", "group_id": "g", "partition": 0, "connection": 1, **more}
    said["ranges"] = told.pop("bytes", b64encode(Ranges(ranges).dump()).decode())
    return decided("individual-commit", number, last_offset=pushed, evidence=said, **told)


def once(*rows: Row) -> Played:
    return play(ic_algebra.RULE, [MicroBatch(decisions=rows, is_last=True)])


def verdicts(played: Played) -> dict[str, int]:
    return {each: played.count(each) for each in ("pass", "unknown") if played.count(each)}


RIGHT = [
    claim(0, 0, 0),
    claim(1, 0, -1, (3, 5), (9, 10)),
    claim(2, 0, -1, (1, 2)),
    claim(3, 2, 2),
    claim(4, 5, 3),
    claim(5, 10, -1, (5, 9)),
]


def test_what_follows_from_commits_is_right() -> None:
    """The coordinator trails by what a commit itself closes, or has that too."""
    played = once(*RIGHT)
    assert (played.findings, verdicts(played)) == ([], {"pass": 6})


def test_an_offset_with_something_undone_before_it_is_found() -> None:
    """NEVER-AHEAD: stock members would skip records."""
    played = once(*RIGHT[:4], claim(4, 10))
    assert played.found("kind", "verdict", "first_offset", "last_offset") == [("pushed-ahead", "fail", 2, 10)]
    assert "given offset 10, and all was done only before 2" in played.findings[0]["text"]
    assert verdicts(played) == {"pass": 4}


def test_a_stable_offset_of_one_worker_does_not_fall() -> None:
    """Of two workers the slower one may push what it knew."""
    assert once(*RIGHT, claim(6, 5)).found("kind", "first_offset", "last_offset") == [("pushed-back", 10, 5)]
    assert once(*RIGHT, claim(0, 5, worker="w2")).findings == []


def test_a_claim_of_an_incarnation_that_has_ended_is_found() -> None:
    """The same worker has taken one of the next; another one may not have heard of it."""
    reset = claim(6, 4, 4, incarnation=12)
    assert once(*RIGHT, reset, claim(7, 4, -1, (6, 8), incarnation=12)).findings == []
    played = once(*RIGHT, reset, claim(7, 10, -1, (12, 20)), claim(8, 4, 4, incarnation=12))
    assert played.found("kind", "verdict", "decisions") == [("claimed-after-end", "fail", ["w1:7"])]
    assert once(*RIGHT, reset, claim(0, 10, -1, (12, 20), worker="w2")).findings == []


def test_after_a_reset_only_what_was_done_since_counts() -> None:
    """Though the ranges of before would reach."""
    played = once(*RIGHT, claim(6, 4, incarnation=12), claim(7, 10, 5, incarnation=12))
    assert played.found("kind", "first_offset", "last_offset") == [("pushed-ahead", 5, 10)]


def test_what_rests_on_another_workers_claim_waits_for_it() -> None:
    """It may be told later, but for a minute at most."""
    others = claim(0, 0, -1, (2, 5), worker="w2", seconds=20)
    first = [claim(0, 0, 0), claim(1, 5, 2, seconds=10)]
    late = [decided("lease", 2, seconds=FAR, reason="alive")]
    assert play(ic_algebra.RULE, [first]).checked == []
    assert play(ic_algebra.RULE, [first, [others], late]).findings == []
    assert play(ic_algebra.RULE, [first, late]).found("kind") == ["pushed-ahead"]
    later = claim(0, 0, -1, (2, 5), worker="w2", seconds=80)
    assert play(ic_algebra.RULE, [first, [later], late]).found("kind") == ["pushed-ahead"]


@pytest.mark.parametrize(
    "rows",
    [
        [claim(0, 5, -1, (9, 12), known=1), claim(1, 12, 7)],
        [claim(0, 5, -1, (9, 12), known=None), claim(1, 12, 7)],
        [claim(0, 0, 0), claim(1, 0, -1, bytes="no base64"), claim(2, 7)],
        [claim(0, 0, 0), claim(1, 0, -1, bytes=b64encode(b"\xff\xff\xff\xff").decode()), claim(2, 7)],
        [claim(0, 0, 0), claim(2, 7)],
    ],
)
def test_what_was_not_seen_is_unknown(rows: list[Row]) -> None:
    """The beginning of an incarnation, ranges that cannot be read, decisions that are missing."""
    played = once(*rows)
    assert played.findings == []
    assert verdicts(played)["unknown"] >= 1


def test_decisions_without_what_places_them_are_passed_over() -> None:
    """Of another version, or forged."""
    rows = [claim(0, 7, 7, group_id=None), {**claim(1, 7, 7), "evidence": None}, claim(2, 7, 7, partition=None)]
    assert once(*rows).checked == []


def test_the_state_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, by bytes of ranges, and by claims that wait; what was forgotten is unknown."""
    late = [decided("lease", 6, seconds=2 * FAR, reason="alive")]
    assert play(ic_algebra.RULE, [RIGHT, late]).state == []
    monkeypatch.setattr(ic_algebra, "MOST_CLAIMS", 2)
    assert len([row for row in play(ic_algebra.RULE, [RIGHT]).state if "seen_ms" in row]) == 2
    monkeypatch.setattr(ic_algebra, "MOST_BYTES", 2)
    played = play(ic_algebra.RULE, [RIGHT[:5], [claim(5, 9)], late])
    assert (played.findings, verdicts(played)) == ([], {"pass": 3, "unknown": 3})


@pytest.mark.parametrize("seed", range(20))
def test_the_claims_of_a_right_proxy_are_right_however_they_are_read(seed: int) -> None:
    """Some workers, commits in any order, micro-batches anywhere."""
    chance = Random(seed)
    known, rows, numbers = NOTHING, list[Row](), {"w1": -1, "w2": -1}
    pushed = dict.fromkeys(numbers, 0)
    for second in range(40):
        worker = chance.choice([*numbers])
        begin = chance.randrange(60)
        said = Done(0 if second == 0 else NO_OFFSET, Ranges([] if second == 0 else [(begin, begin + 5)]))
        new = known.missing(Done(said.stable, said.ranges))
        known = known.joined(said)
        pushed[worker] = known.stable
        numbers[worker] += 1
        rows.append(claim(numbers[worker], known.stable, new.stable, *new.ranges, worker=worker, seconds=second))
    batches: list[MicroBatch] = []
    while rows:
        count = chance.randrange(1, 12)
        batches.append(MicroBatch(decisions=rows[:count], is_last=len(rows) <= count))
        rows = rows[count:]
    played = play(ic_algebra.RULE, batches)
    assert (played.findings, verdicts(played)) == ([], {"pass": 40})
