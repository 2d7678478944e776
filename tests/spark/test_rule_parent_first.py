"""PARENT-FIRST: gates of the dialect and stays of other clients, with all that a topic's batches can say about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.layout import Layout
from kordon.spark_jobs.rules import parent_data, parent_first
from kordon.testing.rule_batches import layout_rows
from kordon.testing.rule_plays import MicroBatch, Played, decided, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = Layout.created("orders", UUID(int=7), 1, 4)
TWO = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
FOUR = TWO.changed(TWO.next_epoch(4), {0: 150, 1: 0, 2: 0, 3: 0})
"""Partition 1 was empty when it split again: what 3 waits for stands in partition 0, also for virtual partition 3."""


def layout(*topics: str) -> dict[str, Any]:
    """Segments and stays, the same of each topic."""
    return layout_rows(*(replace(FOUR, topic=topic) for topic in topics))


def batch(topic: str, first: int, last: int, **fields: Any) -> dict[str, Any]:
    """A batch of virtual partition 2 in partition 0, unless told otherwise."""
    there = {"topic": topic, "partition": 0, "base_offset": first, "last_offset": last, "v": 2, "move": 0}
    return {**there, "is_control": False, **fields}


def read(topic: str, next_offset: int, *, log_start: int = 0) -> list[dict[str, Any]]:
    """That all partitions of a topic were read up to an offset."""
    return [{"topic": topic, "partition": q, "log_start": log_start, "next_offset": next_offset} for q in range(4)]


def gated(name: str, *steps: tuple[str, int, Any], topic: str = "orders", q: int = 3, **more: Any) -> list[Any]:
    """A reader of a physical partition: kind, first offset, positions that are shown (None: no evidence)."""
    return [
        decided(
            kind,
            place,
            worker=name,
            connection=1,
            topic=topic,
            stream=~q,
            partition=q,
            move=2,
            group_id="g",
            first_offset=first,
            last_offset=first + 9,
            evidence=None if shown is None else {"positions": shown},
            **more,
        )
        for place, (kind, first, shown) in enumerate(steps)
    ]


def stayed(name: str, *steps: tuple[str, int, int, int], v: int = 2, topic: str = "orders") -> list[Any]:
    """A reader of a virtual partition: kind, move, first and last offset."""
    return [
        decided(
            kind,
            place,
            worker=name,
            connection=1,
            topic=topic,
            stream=v,
            partition=0 if move == 0 else {2: 1, 3: 3}[v],
            move=move,
            first_offset=first,
            last_offset=last,
        )
        for place, (kind, move, first, last) in enumerate(steps)
    ]


CLEAN = [
    *gated("shown", ("deliver", 0, {0: 100}), ("deliver", 10, None)),
    *gated("more-than-needed", ("deliver", 0, {0: 170, 7: 1})),
    *gated("of-its-parent", ("deliver", 0, {0: 150}), q=2),
    *gated("released", ("release", 0, {0: 120}), ("deliver", 0, None)),
    *gated("rewound-and-shown", ("deliver", 0, {0: 100}), ("rewind", 0, None), ("deliver", 0, {0: 100})),
    *gated("control-records-are-left", ("deliver", 0, {0: 98}), topic="control"),
    *gated("its-own-partition", ("deliver", 150, {}), q=0),
    *stayed("to-its-end", ("deliver", 0, 90, 99), ("deliver", 1, 0, 9)),
    *stayed("nothing-is-left", ("deliver", 0, 40, 90), ("deliver", 1, 0, 9)),
    *stayed("begins-there", ("deliver", 1, 0, 9)),
    *stayed("over-an-empty-stay", ("deliver", 0, 90, 99), ("deliver", 2, 0, 9), v=3),
    *stayed("rewound", ("deliver", 1, 0, 9), ("rewind", 0, 60, 9), ("deliver", 0, 60, 99), ("deliver", 1, 0, 9)),
]
EARLY = [
    *gated("too-early", ("deliver", 0, {0: 99})),
    *gated("behind-an-empty-one", ("deliver", 0, {1: 0}), q=1),
    *gated("parent-too-early", ("deliver", 0, {0: 149}), q=2),
    *gated("nothing-shown", ("deliver", 0, None)),
    *gated("released-too-early", ("release", 0, {0: 20}), ("deliver", 0, None)),
    *gated("rewound-without", ("deliver", 0, {0: 100}), ("rewind", 0, None), ("deliver", 0, None)),
    *stayed("left-early", ("deliver", 0, 40, 49), ("deliver", 1, 0, 9)),
    *stayed("rewound-past", ("deliver", 1, 0, 9), ("rewind", 0, 60, 9), ("deliver", 1, 0, 9)),
    *stayed("skips-a-stay", ("deliver", 0, 0, 9), ("deliver", 2, 0, 9), v=3),
]
UNTOLD = [
    *gated("data-is-gone", ("deliver", 0, {0: 99}), topic="gone"),
    *stayed("bypass-may-be-left", ("deliver", 0, 40, 90), ("deliver", 1, 0, 9), topic="bypassed"),
]
TOPICS = ("orders", "control", "gone", "bypassed")
DATA: dict[str, Any] = {
    "batches": [
        batch("orders", 0, 80),
        batch("orders", 81, 99, v=3),
        batch("orders", 100, 200, v=1),
        batch("control", 0, 97),
        batch("control", 98, 98, is_control=True, v=None),
        batch("control", 99, 99, v=32765),
        batch("bypassed", 0, 80),
        batch("bypassed", 95, 95, v=None, move=None),
    ],
    "read_to": [*read("orders", 201), *read("control", 160), *read("gone", 300, log_start=120), *read("bypassed", 160)],
}


HISTORY = [*CLEAN, *EARLY, *UNTOLD]
ENDS = [decided("close", 9, worker=name, connection=1) for name in {row["worker"] for row in HISTORY}]


@pytest.fixture(scope="module")
def at_once(spark: SparkSession) -> Played:
    """What comes of all readers, to the ends of their connections, in one micro-batch."""
    return play(spark, parent_first.RULE, [MicroBatch(decisions=[*HISTORY, *ENDS], **DATA, **layout(*TOPICS))])


def test_deliveries_before_their_parents_were_done_are_found_and_nothing_else(at_once: Played) -> None:
    """Positions, empty segments in between, rewinds, what stays of a log; what is gone or ambiguous is unknown."""
    early = {row["worker"] for row in EARLY}
    assert {each["decisions"][-1].split(":")[0] for each in at_once.findings} == early
    assert set(at_once.found("kind", "verdict")) == {("early-child", "fail")}
    assert at_once.count("unknown") == 2
    delivered = [row for row in HISTORY if row["kind"] == "deliver"]
    assert at_once.count("pass") == len(delivered) - len(early) - 2
    assert [row for row in at_once.state if row["what"] == "step"] == []


def test_what_is_not_read_yet_is_waited_for(spark: SparkSession) -> None:
    """Deliveries, then batches, then the layout; of a topic whose batches never come it is unknown after a while."""
    decisions = [
        *gated("early", ("deliver", 0, {0: 99})),
        *gated("fine", ("deliver", 0, {0: 100})),
        *gated("never-known", ("deliver", 0, {0: 99}), topic="never"),
        *gated("needs-nothing", ("deliver", 0, {0: 100}), topic="never"),
    ]
    data: dict[str, Any] = {"batches": [batch("orders", 0, 99)], "read_to": read("orders", 100)}
    later = [decided("admit", 0, worker="later", seconds=1000)]

    played = play(
        spark,
        parent_first.RULE,
        [
            MicroBatch(decisions=decisions, **layout("never")),
            MicroBatch(**data),
            MicroBatch(decisions=later, **layout("orders", "never")),
        ],
    )

    assert [each["decisions"] for each in played.findings] == [["early:0"]]
    told = sorted((each["topic"], each["verdict"], each["count"]) for each in played.checked)
    assert told == [("never", "late", 1), ("never", "pass", 1), ("orders", "pass", 1)]


def test_of_runs_that_are_forgotten_nothing_is_told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log with more holes than are kept in mind: what lies below the runs that are is unknown."""
    monkeypatch.setattr(parent_data, "MOST_RUNS", 1)
    batches = [batch("orders", first, first + 9) for first in (0, 120, 140)]
    readers = [*gated("below", ("deliver", 0, {0: 5})), *gated("at-its-end", ("deliver", 0, {0: 100}))]
    data: dict[str, Any] = {"read_to": read("orders", 100), **layout("orders")}

    played = play(
        spark,
        parent_first.RULE,
        [MicroBatch(batches=batches[:2]), MicroBatch(decisions=readers, batches=batches[2:], **data)],
    )

    assert played.findings == []
    assert (played.count("pass"), played.count("unknown")) == (1, 1)
    assert [row["first_offset"] for row in played.state if row["what"] == "forgotten"] == [120]


def test_any_split_into_micro_batches_finds_the_same(spark: SparkSession, at_once: Played) -> None:
    """Readers, evidence, batches and runs are carried over; readers that ended are not."""
    first, rest = ([row for row in HISTORY if (row["number"] == 0) is is_first] for is_first in (True, False))

    split = play(
        spark,
        parent_first.RULE,
        [MicroBatch(decisions=first, **layout(*TOPICS)), MicroBatch(decisions=rest, **DATA)],
    )

    assert split.found("finding_id") == at_once.found("finding_id")
    assert {row["what"] for row in split.state} == {"reader", "tail", "run", "read"}
    assert {row["what"] for row in at_once.state} == {"tail", "run", "read"}
