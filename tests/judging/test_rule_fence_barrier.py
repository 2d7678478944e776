"""FENCE-BARRIER: each way in which a fence can leak, on a topic of its own in one frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.judging import schema
from kordon.spark_jobs.judging.facts import Facts, numbers_of, of_all
from kordon.spark_jobs.judging.rule import RuleOutcome
from kordon.spark_jobs.judging.rules import fence_barrier
from kordon.testing.audits.judged import empty, play, table
from kordon.testing.audits.rule_plays import MicroBatch, Played, decided

Rows = list[dict[str, Any]]
FENCE_OFFSET, COMMIT_OFFSET, CUT = 100, 110, 50


class Change:
    """Decisions of one change of a topic, from epoch 1 to 2: `control` leads, `other` is the second proxy.

    Each topic has workers of its own, so that what is missing of one concerns no other.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.rows: Rows = []
        self._numbers = {"control": 0, "other": 0}

    def note(self, worker: str, kind: str, epoch: int = 2, offset: int = COMMIT_OFFSET, **fields: Any) -> Change:
        """Adds a decision of a worker."""
        number = self._numbers[worker]
        self._numbers[worker] += 1
        named: dict[str, Any] = {"topic": self.topic, "layout_epoch": epoch, "layouts_offset": offset} | fields
        self.rows.append(decided(kind, number, worker=f"{self.topic}-{worker}", **named))
        return self

    def skip(self, worker: str) -> Change:
        """Leaves a number out."""
        self._numbers[worker] += 1
        return self

    def fence(self, fence: str = "f", offset: int = FENCE_OFFSET) -> Change:
        """The controller makes a fence durable that seals partition 0."""
        return self.note(
            "control", "fence", offset=offset, fence=fence, evidence={"members": self.members, "sealed": [0]}
        )

    @property
    def members(self) -> list[str]:
        """Incarnations of both."""
        return [f"{self.topic}-control", f"{self.topic}-other"]

    def acknowledge(self, worker: str, fence: str = "f", offset: int = FENCE_OFFSET) -> Change:
        """A worker holds."""
        return self.note(worker, "acknowledge", epoch=1, offset=offset, fence=fence)

    def acknowledged(self) -> Change:
        """Both hold."""
        return self.acknowledge("other").acknowledge("control")

    def cut(
        self, fence: str = "f", offset: int = 105, heard: dict[str, int | None] | None = None, **fields: Any
    ) -> Change:
        """The controller reads where partition 0 ends."""
        told = {f"{self.topic}-other": 103, f"{self.topic}-control": None} if heard is None else heard
        at = {worker: offset for worker, offset in told.items() if offset is not None}
        evidence = {"members": self.members, "acknowledged": sorted(told), "acknowledged_at": at}
        return self.note(
            "control", "cut", offset=offset, fence=fence, partition=0, last_offset=CUT, evidence=evidence, **fields
        )

    def commit(self, fence: str = "f", offset: int = COMMIT_OFFSET) -> Change:
        """The controller writes the layout."""
        return self.note("control", "commit", offset=offset, fence=fence)

    def admit(self, worker: str, epoch: int, first: int, *, partition: int = 0, offset: int | None = None) -> Change:
        """A worker acknowledges ten records."""
        rests_on = offset if offset is not None else (COMMIT_OFFSET if epoch == 2 else 90)
        place = {"partition": partition, "stream": 3, "first_offset": first, "last_offset": first + 9}
        return self.note(worker, "admit", epoch=epoch, offset=rests_on, **place)


def whole(topic: str) -> Change:
    """What every change has in front of its COMMIT."""
    return Change(topic).admit("other", 1, 30).fence().acknowledged().cut()


CLEAN = [
    whole("plain").admit("other", 1, 70, partition=1).commit().admit("other", 2, 50).admit("control", 2, 60),
    Change("cancelled")
    .fence("f1", 80)
    .acknowledge("other", "f1", 80)
    .note("control", "cancel", fence="f1", offset=85)
    .admit("other", 1, 30)
    .fence()
    .acknowledged()
    .cut()
    .commit()
    .admit("other", 2, 50),
    Change("cancelled-unheard")
    .fence("f1", 80)
    .acknowledge("other", "f1", 80)
    .admit("other", 1, 30)
    .fence()
    .acknowledged()
    .cut()
    .commit(),
    Change("left-in-order")
    .fence()
    .note("other", "lease", reason="lost", offset=102)
    .acknowledge("control")
    .cut(heard={"left-in-order-other": 103, "left-in-order-control": None})
    .commit(),
    Change("asked")
    .note("control", "fence", fence="q", evidence={"members": ["x"], "sealed": [], "kind": "question"})
    .note("control", "cancel", fence="q"),
    Change("let-go").admit("other", 2, 500, offset=20).note("control", "forget", offset=30),
    Change("first").note("control", "commit", epoch=0, offset=5).admit("control", 0, 0, offset=5),
]
LEAKS = {
    "write-after-fence": whole("wrote-on").admit("other", 1, 40).commit(),
    "behind-cut": Change("behind").admit("other", 1, 45).fence().acknowledged().cut().commit(),
    "early-admit": whole("early").admit("control", 2, 60, offset=104).commit(),
    "cut-too-early": Change("unasked").fence().acknowledged().cut(heard={"unasked-control": None}).commit(),
    "cut-out-of-order": Change("uncut").fence().acknowledged().commit(),
    "unacknowledged": Change("silent").fence().acknowledge("control").cut().commit().admit("other", 2, 50),
}
LEASE_CAME_BACK = (
    Change("lease-came-back")
    .note("other", "lease", reason="lost", offset=80)
    .note("other", "lease", reason="alive", offset=90)
    .fence()
    .acknowledged()
    .admit("other", 1, 40)
    .cut()
    .commit()
)
LEASE_LOST_LATER = (
    Change("lease-lost-later")
    .fence()
    .acknowledge("control")
    .cut()
    .commit()
    .admit("other", 2, 50)
    .note("other", "lease", reason="lost", offset=120)
)
LATER_ACK = Change("acknowledged-late").fence().acknowledged().cut(heard={"acknowledged-late-other": 107}).commit()
NO_EXCUSE = [LEASE_CAME_BACK, LEASE_LOST_LATER]
"""What a lease did before the fence, or behind the layout, excuses nothing."""
UNTOLD = [
    Change("killed").fence().acknowledge("control").cut().commit(),
    Change("dropped").fence().acknowledge("control").cut().commit().skip("other").admit("other", 2, 50),
    Change("cut-dropped").fence().acknowledged().skip("control").commit(),
    Change("raised-by-nobody").admit("other", 1, 40).commit(),
]
KEPT_ANSWER = (
    Change("kept-an-answer")
    .fence()
    .acknowledged()
    .note("other", "lease", reason="lost")
    .note("other", "lease", reason="alive")
    .admit("other", 1, 40)
    .cut()
    .commit()
)
"""LATE-ANSWER: an answer that came while there was no lease is passed on when there is one again."""
SHORTENED = Change("shortened").admit("other", 1, 45).fence().acknowledged().cut().commit()
LOST = [{"topic": "shortened", "partition": 0, "layout_epoch": 1, "start": 0, "end": 55, "kept_end": 50}]
LONG_AFTER = [decided("join", 0, worker="anybody", seconds=3600)]


GAPS = ("front", "behind")


def silent(topic: str, *, gap: str) -> Change:
    """A member that does not acknowledge and goes on: a decision of it is missing in `front` of that, or `behind`."""
    change = Change(topic).admit("other", 1, 30).fence().acknowledge("control").cut().commit()
    if gap == "front":
        return change.skip("other").admit("other", 2, 50).admit("other", 2, 60)
    return change.admit("other", 2, 50).skip("other").admit("other", 2, 60)


def silent_in_two() -> Iterator[tuple[str, Rows, Rows]]:
    """Yields such histories, with either worker's log first, cut at every place: topic, in front of it, behind it."""
    for gap in GAPS:
        for first in ("control", "other"):
            for place in range(len(silent("", gap=gap).rows) + 1):
                topic = f"gap-{gap}-{first}-{place}"
                history = sorted(silent(topic, gap=gap).rows, key=lambda row: not row["worker"].endswith(first))
                yield topic, history[:place], history[place:]


SILENT = list(silent_in_two())
WAYS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "~whole": lambda _: False,
    "~by-worker": lambda row: row["worker"].endswith("-other"),
    "~by-number": lambda row: row["number"] < 2,
}
"""Ways to cut a history into two micro-batches: what comes with the first."""


def unknown(played: Played) -> set[str]:
    """Topics of which something was looked at and is not known."""
    return {each["topic"] for each in played.checked if each["verdict"] == "unknown"}


def rows(*changes: Change) -> Rows:
    """All their decisions."""
    return [row for change in changes for row in change.rows]


def test_each_leak_is_found_by_its_kind_and_nothing_else() -> None:
    """Cancelled attempts, questions, members that left and partitions that are not sealed are right."""
    history = MicroBatch(
        decisions=rows(*CLEAN, *LEAKS.values(), LATER_ACK, SHORTENED, KEPT_ANSWER, *NO_EXCUSE, *UNTOLD), segments=LOST
    )

    played = play(fence_barrier.RULE, [history, LONG_AFTER])

    expected = [(leak.topic, kind, "fail") for kind, leak in LEAKS.items()]
    expected += [("acknowledged-late", "cut-too-early", "fail"), ("unasked", "cut-too-early", "fail")]
    expected += [("killed", "unacknowledged", "unknown")]
    expected += [("kept-an-answer", "write-after-fence", "unknown"), ("raised-by-nobody", "unacknowledged", "unknown")]
    expected += [("lease-came-back", "write-after-fence", "fail"), ("lease-lost-later", "unacknowledged", "fail")]
    assert set(played.found("topic", "kind", "verdict")) == set(expected)
    assert {"dropped", "cut-dropped"} <= unknown(played), "there the gap is the finding"
    assert len(set(played.found("finding_id"))) == len(played.findings)
    assert all(each["decisions"] and each["text"] for each in played.findings)


@pytest.fixture(scope="module")
def in_two() -> Played:
    """What comes of histories that are cut into two micro-batches, all side by side."""
    parts: list[Rows] = [[], []]
    for way, is_in_front in WAYS.items():
        for row in rows(*CLEAN, *LEAKS.values(), LATER_ACK, *UNTOLD):
            parts[not is_in_front(row)].append(under(way, row))
    for _, in_front, behind in SILENT:
        parts[0].extend(in_front)
        parts[1].extend(behind)
    return play(fence_barrier.RULE, [parts[0], MicroBatch(decisions=parts[1], is_last=True)])


def under(way: str, row: dict[str, Any]) -> dict[str, Any]:
    """The same decision, of a topic and of workers that are this way's own."""
    topic, evidence = row["topic"], row["evidence"]
    named = {"topic": f"{topic}{way}", "worker": row["worker"].replace(topic, f"{topic}{way}")}
    return {**row, **named, "evidence": evidence and evidence.replace(f'"{topic}-', f'"{topic}{way}-')}


def test_any_order_of_workers_and_micro_batches_finds_the_same(in_two: Played) -> None:
    """The logs of two workers may be read far apart; each finding is told once."""
    told = [{name: each[name] for name in each if name not in {"finding_id", "found_ms"}} for each in in_two.findings]
    whole, *others = (sorted(str(each).replace(way, "") for each in told if way in each["topic"]) for way in WAYS)
    assert len(whole) > len(LEAKS)
    for other in others:
        assert other == whole


def test_a_gap_makes_unknown_what_it_may_hide_wherever_the_history_is_cut(in_two: Played) -> None:
    """A missing decision may be the acknowledgement, unless the worker rested on the new layout before it."""
    topics = {gap: {topic for topic, *_ in SILENT if topic.startswith(f"gap-{gap}")} for gap in GAPS}
    found = [each for each in in_two.found("topic", "kind", "verdict") if each[0].startswith("gap-")]
    assert found == sorted((each, "unacknowledged", "fail") for each in topics["behind"])
    assert {each for each in unknown(in_two) if each.startswith("gap-")} == topics["front"]


def test_the_state_keeps_two_changes_per_topic() -> None:
    """Of older ones, of cancelled attempts and of workers that are gone nothing is left; late writes are unknown."""
    changes: list[Rows] = []
    for step in range(4):
        moved: Rows = []
        for row in whole("orders").commit().admit("other", 2, 50).rows:
            later = {"layout_epoch": row["layout_epoch"] + step, "layouts_offset": row["layouts_offset"] + 1000 * step}
            ids = {"worker": f"{row['worker']}-{step}", "fence": f"f{step}" if row.get("fence") else None}
            moved.append({**row, **later, **ids, "at_ms": row["at_ms"] + 43_200_000 * step})
        changes.append(moved)
    late = [
        decided(
            "admit",
            9,
            worker="w",
            topic="orders",
            partition=0,
            layout_epoch=1,
            layouts_offset=90,
            first_offset=0,
            last_offset=9,
            seconds=3 * 43_200,
        )
    ]

    played = play(fence_barrier.RULE, [changes[0], [*changes[1], *changes[2]], changes[3], late])

    kept = {row["fence"] for row in played.state if row["what"] == "step"}
    assert kept == {"f2", "f3"}
    assert {row["worker"] for row in played.state if row["what"] == "heard"} <= {
        *(f"orders-{name}-{step}" for name in ("control", "other") for step in (2, 3)),
        "w",
    }
    assert played.count("late") >= 1


def judged_by_a_part(decisions: Rows, of_others: Rows) -> RuleOutcome:
    """What comes of decisions on a part that is told of others only which there are, and of leases."""
    every = table([*decisions, *of_others], schema.DECISIONS)
    facts = Facts(
        decisions=table(decisions, schema.DECISIONS),
        of_all=of_all(every),
        numbers=numbers_of(every),
        batches=schema.BATCHES.to_frame(),
        placed=schema.PLACED.to_frame(),
        segments=schema.SEGMENTS.to_frame(),
        stays=schema.STAYS.to_frame(),
        read_to=schema.READ_TO.to_frame(),
        gaps=schema.GAPS.to_frame(),
        newest_ms=max(row["at_ms"] for row in decisions),
    )
    return fence_barrier.RULE.check(facts, empty(fence_barrier.RULE.state))


def test_what_a_member_did_on_topics_of_other_parts_tells_that_it_went_on() -> None:
    """It rests on the new layout by a decision on another topic; its lease is told without a topic."""
    silent = Change("silent").fence().acknowledge("control").cut().commit().rows
    no_lease: dict[str, Any] = {"topic": None, "layout_epoch": None, "reason": "lost", "layouts_offset": 105}
    left = decided("lease", 0, worker="silent-other", **no_lease)
    elsewhere = decided("admit", 1, worker="silent-other", topic="elsewhere", layouts_offset=COMMIT_OFFSET)

    killed = judged_by_a_part(silent, [])
    went_on = judged_by_a_part(silent, [{**left, "reason": "alive"}, elsewhere])
    lost = judged_by_a_part(silent, [left, elsewhere])
    other_part = judged_by_a_part([elsewhere], [*silent, left])

    assert killed.findings.is_empty(), "it is waited for"
    assert went_on.findings.select("kind", "verdict").rows() == [("unacknowledged", "fail")]
    assert lost.findings.is_empty()
    for name in ("heard", "lease"):
        rows = (sorted(each.state[name].rows(), key=repr) for each in (lost, other_part))
        assert next(rows) == next(rows), "parts come to the same"


def test_evidence_that_kordon_does_not_write_stops_nothing() -> None:
    """Somebody else's record in the log names neither members nor partitions."""
    forged = Change("forged").fence().acknowledged().cut().commit().rows
    for row, text in zip(
        forged, ('{"members": 5}', "[]", '{"sealed": ["x"]}', '{"members": [7], "sealed": [-1]}'), strict=False
    ):
        row["evidence"] = text

    played = play(fence_barrier.RULE, [MicroBatch(decisions=forged, is_last=True)])

    assert played.found("topic", "kind") == []
