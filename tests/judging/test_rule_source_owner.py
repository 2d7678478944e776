"""SOURCE-OWNER: each source partition has one owner at a time, and its restart points only rise."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.codecs import apis
from kordon.spark_jobs.judging.rules import source_owner
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_plays import MicroBatch, Played, Row, decided

ID = "00000000-0000-0000-0000-000000000007"
FAR = 24 * 3_600 + 700


def point(number: int, count: int, member: str = "a", generation: int = 1, **more: Any) -> Row:
    """An accepted restart point with a number; its client has asked after the decision before, unless told."""
    said: dict[str, Any] = {"topic_id": ID, "number": count, "asked_after": more.pop("after", number - 1)}
    if (held := more.pop("held", None)) is not None:
        said["held"] = held
    told: dict[str, Any] = {"topic": "db1", "group_id": "db1", "partition": 0, "connection": 1, **more}
    return decided("point", number, member_id=member, generation_id=generation, evidence=said, **told)


def owners(number: int, generation: int, owned: object, **more: Any) -> Row:
    """What a leader has shared out."""
    said = {"topic_id": ID, "owners": owned}
    told: dict[str, Any] = {"topic": "db1", "group_id": "db1", "api_key": apis.SYNC_GROUP, "connection": 1, **more}
    return decided("assign", number, member_id="lead", generation_id=generation, evidence=said, **told)


def once(*rows: Row) -> Played:
    return play(source_owner.RULE, [MicroBatch(decisions=rows, is_last=True)])


def verdicts(played: Played) -> dict[str, int]:
    return {each: played.count(each) for each in ("pass", "unknown", "late") if played.count(each)}


HONEST = [
    owners(0, 1, [["a", [0]], ["b", []]]),
    point(1, 0, held=0),
    point(2, 1),
    point(3, 2),
    owners(4, 2, [["b", [0]]]),
    point(5, 1, "b", 2, held=1),  # what a had committed in its last transaction was aborted
    point(6, 2, "b", 2),
    point(7, 3, "b", 2),
    point(8, 3, "b", 2),  # gives its id back
]


def test_a_source_that_changes_hands_is_right() -> None:
    played = once(*HONEST)
    assert (played.findings, verdicts(played)) == ([], {"pass": 9})


def test_a_partition_with_two_owners_in_one_generation_is_found() -> None:
    played = once(owners(0, 3, [["a", [2, 0]], ["b", [1, 2]]]))
    assert played.found("kind", "verdict", "partition", "decisions") == [("two-owners", "fail", 2, ["w1:0"])]
    assert "The members a and b were both given source partition 2 of db1" in played.findings[0]["text"]


def test_partitions_that_one_member_is_given_twice_have_one_owner() -> None:
    assert once(owners(0, 3, [["a", [0, 0]], ["a", [0]]])).findings == []


@pytest.mark.parametrize("junk", [None, 7, "x", [["a"]], [["a", ["x"]]], [["a", [-1]]], [["a", [2**40]]], {"a": 1}])
def test_owners_that_cannot_be_read_are_unknown(junk: object) -> None:
    assert verdicts(once(owners(0, 3, junk))) == {"unknown": 1}


def test_a_number_that_falls_without_a_question_is_found() -> None:
    """Whatever has come between: what the worker has seen accepted was accepted."""
    played = once(*HONEST, point(9, 2, "b", 2))
    assert played.found("kind", "verdict", "decisions") == [("point-fell", "fail", ["w1:8", "w1:9"])]
    assert (
        "Restart point 2 of source partition 0 of db1 in group db1 was taken, though the group had 3"
        in (played.findings[0]["text"])
    )


def test_a_number_below_what_the_coordinator_had_is_found() -> None:
    played = once(point(0, 4, held=9))
    assert played.found("kind", "verdict", "decisions") == [("point-fell", "fail", ["w1:0"])]


def test_a_number_may_fall_where_the_group_was_deleted() -> None:
    assert once(*HONEST, point(9, 0, "c", 1, held=0), point(10, 1, "c")).findings == []


def test_a_number_may_fall_where_the_client_asked_before() -> None:
    """Its commit may have been taken first."""
    assert once(*HONEST, point(9, 2, "b", 2, after=5)).findings == []


def test_a_number_that_falls_at_another_worker_tells_nothing() -> None:
    assert once(*HONEST, point(0, 2, "b", 2, worker="w2", after=-1)).findings == []


@pytest.mark.parametrize("row", [point(10, 2, "b", 2), point(9, 2, "b", 2, held=-1)], ids=["gap", "untold"])
def test_a_number_that_falls_is_unknown_where_something_is_missing(row: Row) -> None:
    played = once(*HONEST, row)
    assert (played.findings, verdicts(played)) == ([], {"pass": 9, "unknown": 1})


def test_a_member_that_commits_behind_its_heir_is_found() -> None:
    """Its generation is over; the number says nothing of that."""
    played = once(*HONEST, point(9, 4, "a", 1))
    assert played.found("kind", "verdict", "decisions") == [("former-owner", "fail", ["w1:8", "w1:9"])]
    text = played.findings[0]["text"]
    assert "a committed restart point 4 of source partition 0 of db1 in group db1, in generation 1, after b" in text


def test_a_member_that_asked_before_its_heir_had_committed_is_right() -> None:
    assert once(*HONEST, point(9, 4, "a", 1, after=4)).findings == []


def test_a_member_of_the_next_life_of_a_group_is_right() -> None:
    """It was not known before, or the coordinator has forgotten what the other one had."""
    played = once(*HONEST, point(9, 6, "c", 1), point(10, 7, "c", 1))
    assert (played.findings, played.count("unknown")) == ([], 2)
    anew = once(*HONEST, point(9, 2, "a", 1, held=1), point(10, 3, "c", 2))
    assert (anew.findings, verdicts(anew)) == ([], {"pass": 11})
    at_once = once(*HONEST, point(9, 0, "c", 2, held=0), point(10, 1, "c", 2))
    assert (at_once.findings, verdicts(at_once)) == ([], {"pass": 11})


def test_members_of_one_generation_are_judged_by_who_owns_the_partition() -> None:
    both = [point(1, 1, "a", 2), point(2, 2, "b", 2)]
    assert once(owners(0, 2, [["a", []], ["b", [0]]]), *both).findings == []
    played = once(owners(0, 2, [["a", [0]], ["b", []]]), *both)
    assert played.found("kind", "verdict", "decisions") == [("former-owner", "fail", ["w1:1", "w1:2"])]


def test_who_owns_a_partition_may_be_told_later() -> None:
    """By another worker; and what nobody tells is unknown."""
    both = [point(0, 1, "a", 2), point(1, 2, "b", 2)]
    told = owners(0, 2, [["a", [0]], ["b", []]], worker="w2")
    waits = play(source_owner.RULE, [both, [told]])
    assert waits.found("kind") == ["former-owner"]
    untold = play(source_owner.RULE, [both, [point(2, 3, "b", 2, partition=1, seconds=700)]])
    assert (untold.findings, verdicts(untold)) == ([], {"pass": 2, "late": 1})


def test_owners_of_another_life_tell_nothing() -> None:
    """They name other members."""
    both = [point(1, 1, "a", 2), point(2, 2, "b", 2)]
    assert once(owners(0, 2, [["a", [0]], ["c", []]]), *both).findings == []


def test_the_same_is_found_however_it_is_cut() -> None:
    rows = [*HONEST, point(9, 4, "a", 1), point(10, 2, "b", 2), owners(11, 3, [["a", [1]], ["b", [1]]])]
    whole = once(*rows).found("finding_id")
    assert len(whole) == 3
    assert play(source_owner.RULE, [rows[:8], rows[8:10], rows[10:]]).found("finding_id") == whole


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_SEEN", 3), ("MOST_WAITING", 2), ("MOST_BYTES", 100)):
        monkeypatch.setattr(source_owner, name, most)
    rows = [point(each, 1, f"m{each}", 2, partition=each % 5) for each in range(100)]
    told = [owners(100 + each, each, [[f"m{each}", [0]]]) for each in range(20)]
    played = play(source_owner.RULE, [rows, told])
    kept = [each["what"] for each in played.state]
    assert (kept.count("seen"), kept.count("waiting")) == (3, 2)
    assert 0 < sum(len(each["owners"]) for each in played.state if each["what"] == "owners") <= 100
    assert play(source_owner.RULE, [rows, told, [point(120, 1, seconds=FAR)]]).state[0]["number"] == 120


def test_of_one_place_a_few_members_are_kept() -> None:
    played = play(source_owner.RULE, [[point(each, 1, f"m{each}", each) for each in range(9)]])
    kept = [each["member_id"] for each in played.state if each["what"] == "seen"]
    assert kept == [f"m{each}" for each in range(9 - source_owner.MOST_MEMBERS, 9)]
