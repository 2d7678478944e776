"""PARENT-FIRST: gates of the dialect and stays of other clients, with all that a topic's batches can say about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.spark_jobs.judging.facts import nothing
from kordon.spark_jobs.judging.layouts import segments_table
from kordon.spark_jobs.judging.lives import Lives
from kordon.spark_jobs.judging.rules import parent_data, parent_first
from kordon.spark_jobs.judging.schema import BATCHES, DECISIONS, READ_TO, STAYS
from kordon.testing.audits.judged import empty, play, table
from kordon.testing.audits.rule_batches import layout_rows
from kordon.testing.audits.rule_plays import MicroBatch, Played, decided

ONE = Layout.created("orders", UUID(int=7), 1, 4)
TWO = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
FOUR = TWO.changed(TWO.next_epoch(4), {0: 150, 1: 0, 2: 0, 3: 0})
"""Partition 1 was empty when it split again: what 3 waits for stands in partition 0, also for virtual partition 3."""


DELETED = "deleted"
"""Its records of virtual partition 2 were deleted on request, as far as they stood below 95."""


def layout(*topics: str) -> dict[str, Any]:
    """Segments and stays, the same of each topic but for one."""
    floors = {DELETED: {2: 95}}
    return layout_rows(*(replace(FOUR, topic=topic, floors=floors.get(topic, {})) for topic in topics))


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


LOG_STARTS = '{"positions":{"0":5},"log_starts":{"0":100}}'
CLEAN = [
    *gated("shown", ("deliver", 0, {0: 100}), ("deliver", 10, None)),
    *gated("more-than-needed", ("deliver", 0, {0: 170, 7: 1})),
    *gated("of-its-parent", ("deliver", 0, {0: 150}), q=2),
    *gated("released", ("release", 0, {0: 120}), ("deliver", 0, None)),
    *gated("rewound-and-shown", ("deliver", 0, {0: 100}), ("rewind", 0, None), ("deliver", 0, {0: 100})),
    *gated("control-records-are-left", ("deliver", 0, {0: 98}), topic="control"),
    *gated("its-own-partition", ("deliver", 150, {}), q=0),
    *({**row, "evidence": '{"ordered_delivery":false}'} for row in gated("nothing-promised", ("deliver", 0, None))),
    *({**row, "evidence": LOG_STARTS} for row in gated("of-a-log-that-begins-there", ("deliver", 0, None))),
    *stayed("to-its-end", ("deliver", 0, 90, 99), ("deliver", 1, 0, 9)),
    *stayed("nothing-is-left", ("deliver", 0, 40, 90), ("deliver", 1, 0, 9)),
    *stayed("deleted", ("deliver", 0, 40, 49), ("deliver", 1, 0, 9), topic=DELETED),
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
    *gated("released-before-a-rewind", ("release", 0, {0: 100}), ("rewind", 0, None), ("deliver", 0, None)),
    *gated("waits-again", ("deliver", 0, {0: 100}), ("rewind", 0, None), ("release", 0, {0: 20}), ("deliver", 0, None)),
    *stayed("left-early", ("deliver", 0, 40, 49), ("deliver", 1, 0, 9)),
    *stayed("rewound-past", ("deliver", 1, 0, 9), ("rewind", 0, 60, 9), ("deliver", 1, 0, 9)),
    *stayed("skips-a-stay", ("deliver", 0, 0, 9), ("deliver", 2, 0, 9), v=3),
]
UNTOLD = [
    *gated("data-is-gone", ("deliver", 0, {0: 99}), topic="gone"),
    *stayed("strays-behind-the-end", ("deliver", 0, 40, 90), ("deliver", 1, 0, 9), topic="strayed"),
    *stayed("bypass-may-be-left", ("deliver", 0, 40, 90), ("deliver", 1, 0, 9), topic="bypassed"),
]
TOPICS = ("orders", "control", "gone", "bypassed", "strayed", DELETED)
DATA: dict[str, Any] = {
    "batches": [
        batch("orders", 0, 80),
        batch("orders", 81, 99, v=3),
        batch("orders", 100, 200, v=1),
        batch("control", 0, 97),
        batch("control", 98, 98, is_control=True, v=None),
        batch("control", 99, 99, v=32765),
        batch("strayed", 0, 80),
        batch("strayed", 120, 130),
        batch(DELETED, 0, 94),
        batch("bypassed", 0, 80),
        batch("bypassed", 95, 95, v=None, move=None),
    ],
    "read_to": [
        *read("orders", 201),
        *read("gone", 300, log_start=120),
        *(row for topic in ("control", "bypassed", "strayed", DELETED) for row in read(topic, 160)),
    ],
}


HISTORY = [*CLEAN, *EARLY, *UNTOLD]
ENDS = [decided("close", 9, worker=name, connection=1) for name in {row["worker"] for row in HISTORY}]


@pytest.fixture(scope="module")
def at_once() -> Played:
    """What comes of all readers, to the ends of their connections, in one micro-batch."""
    return play(parent_first.RULE, [MicroBatch(decisions=[*HISTORY, *ENDS], **DATA, **layout(*TOPICS))])


def test_deliveries_before_their_parents_were_done_are_found_and_nothing_else(at_once: Played) -> None:
    """Positions, empty segments in between, rewinds, what stays of a log; what is gone or ambiguous is unknown."""
    early = {row["worker"] for row in EARLY}
    assert {each["decisions"][-1].split(":")[0] for each in at_once.findings} == early
    assert set(at_once.found("kind", "verdict")) == {("early-child", "fail")}
    unknown = {row["worker"] for row in UNTOLD}
    assert at_once.count("unknown") == len(unknown)
    delivered = [row for row in HISTORY if row["kind"] == "deliver"]
    assert at_once.count("pass") == len(delivered) - len(early) - len(unknown)
    assert [row for row in at_once.state if row["what"] == "step"] == []


def test_what_is_not_read_yet_is_waited_for() -> None:
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


def test_of_runs_that_are_forgotten_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log with more holes than are kept in mind: what lies below the runs that are is unknown."""
    monkeypatch.setattr(parent_data, "MOST_RUNS", 1)
    batches = [batch("orders", first, first + 9) for first in (0, 120, 140)]
    readers = [*gated("below", ("deliver", 0, {0: 5})), *gated("at-its-end", ("deliver", 0, {0: 100}))]
    data: dict[str, Any] = {"read_to": read("orders", 100), **layout("orders")}

    played = play(
        parent_first.RULE,
        [MicroBatch(batches=batches[:2]), MicroBatch(decisions=readers, batches=batches[2:], **data)],
    )

    assert played.findings == []
    assert (played.count("pass"), played.count("unknown")) == (1, 1)
    assert [row["first_offset"] for row in played.state if row["what"] == "forgotten"] == [120]


def test_what_was_gone_before_it_was_read_is_unknown() -> None:
    """Retention was faster than the audit: of what stood there, something may have been left to the reader."""
    reader = stayed("left", ("deliver", 0, 40, 49), ("deliver", 1, 0, 9))
    taken = MicroBatch(batches=[batch("orders", 80, 120, v=3)], read_to=read("orders", 121, log_start=80))

    played = play(
        parent_first.RULE,
        [
            MicroBatch(batches=[batch("orders", 0, 29)], read_to=read("orders", 30)),
            replace(taken, decisions=reader, **layout("orders")),
        ],
    )

    assert played.findings == []
    assert (played.count("pass"), played.count("unknown")) == (1, 1)


def test_a_topic_that_has_the_name_of_another_is_judged_by_its_own_batches() -> None:
    """Of the former topic, which was let go at 20 of the layouts topic, nothing is left in the state."""
    rule, layouts = parent_first.RULE, layout("orders")
    known = replace(nothing(), segments=segments_table(layouts["segments"]), stays=table(layouts["stays"], STAYS))
    reached = table(read("orders", 160), READ_TO)
    former = replace(known, batches=table([batch("orders", 0, 99)], BATCHES), read_to=reached)
    readers = gated("former", ("deliver", 0, {0: 5}), layouts_offset=20)
    readers += gated("now", ("deliver", 0, {0: 5}), layouts_offset=21)
    again = replace(known, decisions=table(readers, DECISIONS), read_to=reached)
    lives = Lives(let_go=pl.DataFrame({"topic": ["orders"], "_since": [20]}), now=frozenset({"orders"}))

    outcome = lives.judged(rule, again, rule.check(former, empty(rule.state)).state)

    assert outcome.findings.is_empty()
    assert sorted(outcome.checked.select("verdict", "count").rows()) == [("pass", 1), ("unknown", 1)]


def test_over_missing_decisions_it_is_unknown_unless_positions_were_shown() -> None:
    """What is missing may have been a step of the reader, or its RELEASE."""
    readers = [
        stayed("early", ("deliver", 0, 40, 49), ("deliver", 1, 0, 9)),
        stayed("fine", ("deliver", 0, 90, 99), ("deliver", 1, 0, 9)),
        gated("nothing-shown", ("rewind", 0, None), ("deliver", 0, None)),
        gated("shown", ("rewind", 0, None), ("deliver", 0, {0: 99})),
    ]
    decisions = [row if row["number"] == 0 else {**row, "number": 2} for rows in readers for row in rows]

    played = play(parent_first.RULE, [MicroBatch(decisions=decisions, **DATA, **layout("orders"))])

    assert played.found("verdict", "decisions") == [
        ("fail", ["shown:0", "shown:2"]),
        ("unknown", ["early:0", "early:2"]),
        ("unknown", ["nothing-shown:0", "nothing-shown:2"]),
    ]
    assert ["decisions are missing" in each["text"] for each in played.findings].count(True) == 2
    assert played.count("unknown") == 3


def test_in_a_shared_partition_its_host_needs_what_others_wrote_there() -> None:
    """TAKEOVER-SHARES: virtual partition 1 is given what 3 writes to partition 1, up to the end of sharing."""
    unmanaged = Layout.unmanaged("shared", UUID(int=7), 2, 4)
    shared = unmanaged.changed(unmanaged.next_epoch(2, Placement.SHARED), {0: 50, 1: 50})
    grown = shared.changed(shared.next_epoch(4), {0: 100, 1: 100, 2: 0, 3: 0})
    steps: list[dict[str, Any]] = [
        {"move": 0, "first_offset": 50, "last_offset": 89},
        {"move": 1, "first_offset": 0, "last_offset": 9},
    ]
    reader: dict[str, Any] = {"worker": "w", "topic": "shared", "connection": 1, "stream": 1, "partition": 1}
    there = [batch("shared", 50, 89, partition=1, v=1), batch("shared", 90, 99, partition=1, v=3)]

    played = play(
        parent_first.RULE,
        [
            MicroBatch(
                decisions=[decided("deliver", place, **reader, **step) for place, step in enumerate(steps)],
                batches=there,
                read_to=read("shared", 100),
                **layout_rows(grown),
            )
        ],
    )

    assert played.found("verdict", "decisions") == [("fail", ["w:0", "w:1"])]


def test_a_reader_that_is_silent_for_days_keeps_what_it_has_shown() -> None:
    """After a week it is forgotten, as a worker that was killed closes nothing."""
    days = 24 * 60 * 60.0
    release = gated("slow", ("release", 0, {0: 100}))
    delivery = [{**row, "number": 1} for row in gated("slow", ("deliver", 0, None), seconds=6 * days)]
    played = play(
        parent_first.RULE,
        [MicroBatch(decisions=release, **DATA, **layout("orders")), [decided("admit", 0, seconds=6 * days)], delivery],
    )
    assert played.findings == []
    assert played.count("pass") == 1
    assert [row["number"] for row in played.state if row["what"] == "reader"] == [1]

    forgotten = play(parent_first.RULE, [release, [decided("admit", 0, seconds=7 * days)]])
    assert [row for row in forgotten.state if row["what"] == "reader"] == []


def test_any_split_into_micro_batches_finds_the_same(at_once: Played) -> None:
    """Readers, evidence, batches and runs are carried over; readers that ended are not."""
    steps = [[row for row in HISTORY if row["number"] == number] for number in range(4)]

    split = play(
        parent_first.RULE,
        [MicroBatch(decisions=steps[0], **layout(*TOPICS)), *steps[1:-1], MicroBatch(decisions=steps[-1], **DATA)],
    )

    told = ("finding_id", "text", "decisions")
    assert split.found(*told) == at_once.found(*told)
    assert {row["what"] for row in split.state} == {"reader", "tail", "run", "read"}
    assert {row["what"] for row in at_once.state} == {"tail", "run", "read"}
