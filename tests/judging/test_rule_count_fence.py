"""COUNT-FENCE: what stands where no layout puts it is found, and what may stand there is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.identity import JANITOR, NO_V
from kordon.proxy.ordering.layout import Layout
from kordon.spark_jobs.judging.rules import count_fence
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_batches import TOPIC, batch, cut_up, layout_rows, of, tagged
from kordon.testing.audits.rule_plays import MicroBatch, Row, decided

ID = UUID(int=7)
ONE = Layout.created(TOPIC, ID, 1, 4)
GROWN = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
"""Virtual partitions 0 and 1 stay on 0, which begins a segment at 100; 2 and 3 move to 1."""
SHORTENED = replace(GROWN, topic="shortened").changed(GROWN.next_epoch(2, shortened={0: 120}), {0: 120}, told={0: 140})
"""BEYOND-LOSS: the log of 0 fell from 150 back to 120, and readers had been told of 140."""
SHRUNK = replace(GROWN, topic="shrunk").changed(GROWN.next_epoch(1), {0: 200, 1: 50})
UNMANAGED = Layout.unmanaged("taken", ID, 1, 2)
TAKEN = UNMANAGED.changed(UNMANAGED.next_epoch(1), {0: 50})
RENEWED = TAKEN.changed(TAKEN.next_epoch(1, renewed=[0]), {0: 70})


def admit(number: int, stream: int, move: int, partition: int, offsets: tuple[int, int], **fields: Any) -> Row:
    """An acknowledgement."""
    place = {"topic": TOPIC, "stream": stream, "move": move, "partition": partition, "layout_epoch": 1, **fields}
    return decided("admit", number, first_offset=offsets[0], last_offset=offsets[1], **place)


WHOLE = MicroBatch(
    **layout_rows(GROWN, SHORTENED, SHRUNK, RENEWED),
    batches=[
        tagged(0, 0, 0, 10, 5),
        tagged(2, 0, 0, 95, 5),
        tagged(2, 0, 0, 100, 2, sequence=5),  # behind the cut: a stray
        tagged(0, 0, 0, 102, 3, sequence=5),
        batch(0, 105, 4),  # a writer round Kordon
        tagged(JANITOR, 1, 0, 109),
        batch(0, 110, is_control=True),
        tagged(NO_V, 1, 0, 111, 2),
        tagged(NO_V, 0, 0, 113, 2, producer=8),  # chosen under epoch 0: a stray
        batch(0, 115, 2),
        tagged(3, 1, 0, 117, 2),  # moved to 1, and written here
        tagged(3, 9, 0, 119, 2),  # of a layout that nobody knows
        tagged(2, 1, 1, 0, 3),
        batch(1, 3, 1, producer_id=12),
        batch(1, 4, 1, producer_id=12),
        *of("taken", batch(0, 0, 40), batch(0, 40, is_control=True), batch(0, 49)),  # PAST-STAYS: untagged is right
        *of("taken", batch(0, 50), tagged(0, 0, 0, 51, 19), tagged(0, 1, 0, 70, 5)),
        *of("taken", tagged(1, 1, 0, 75, 5), tagged(1, 0, 0, 80, 5)),  # the last one behind the cut of a renewal
    ],
    decisions=[
        admit(0, 0, 0, 0, (102, 104)),
        admit(1, 2, 1, 1, (0, 2)),
        admit(2, 0, 0, 0, (110, 149), topic="shortened"),  # lost, and no stray: SEQ-IMAGE says so
        admit(3, ~0, 1, 0, (150, 150), topic="shortened"),
        admit(4, ~0, 1, 0, (100, 101), topic="shrunk", evidence={"undeleted_partition_count": 1, "sent_epoch": 1}),
        admit(5, ~0, 1, 0, (102, 103), topic="shrunk", evidence={"undeleted_partition_count": 2, "sent_epoch": 1}),
        admit(6, ~0, 0, 0, (10, 11), topic="shrunk", evidence={"undeleted_partition_count": 1, "sent_epoch": 0}),
        admit(7, ~0, 1, 0, (104, 105), topic="shrunk"),
        admit(8, 3, 1, 0, (117, 118)),  # where it never lived
    ],
    is_last=True,
)
FOUND = [
    ("bypass", "fail", "orders", 0, 105, 116),
    ("bypass", "fail", "orders", 1, 3, 4),
    ("bypass", "fail", "taken", 0, 50, 50),
    ("stale-count", "fail", "orders", 0, 117, 118),
    ("stale-count", "fail", "orders", 0, 117, 118),
    ("stale-count", "fail", "shrunk", 0, 100, 101),
    ("stale-count", "unknown", "orders", 0, 119, 120),
]
COLUMNS = ("kind", "verdict", "topic", "partition", "first_offset", "last_offset")


def test_what_no_layout_puts_there_is_found_and_nothing_else() -> None:
    """Strays that nobody acknowledged, markers, control and dialect batches, old data are right where they are."""
    played = play(count_fence.RULE, [WHOLE])
    assert played.found(*COLUMNS) == FOUND
    assert played.count("pass") == 16
    texts = " ".join(played.found("text"))
    assert "wrote 6 records to orders-0 round Kordon, at offsets 105 to 116" in texts
    assert "believed in 1 partitions was admitted to shrunk-0" in texts
    played = play(count_fence.RULE, cut_up(WHOLE, (0.5,)))  # what goes on has the same id, and more offsets
    last = {each["finding_id"]: each for each in played.findings}
    assert sorted((tuple(each[name] for name in COLUMNS) for each in last.values()), key=repr) == FOUND


def test_cuts_that_become_known_later_are_held_against_what_was_before() -> None:
    """Acknowledgements behind the cut, read before and after it; a batch of the layout to come waits for it."""
    before = MicroBatch(
        **layout_rows(ONE),
        batches=[tagged(2, 0, 0, 95, 5), tagged(2, 0, 0, 100, 2, sequence=5), tagged(2, 1, 1, 0, 3)],
        decisions=[admit(0, 2, 0, 0, (95, 101)), admit(1, 0, 0, 0, (90, 99), layout_epoch=0)],
    )
    later = [admit(2, 3, 0, 0, (101, 103)), admit(3, 3, 0, 0, (90, 99)), admit(4, 2, 1, 1, (0, 2))]
    played = play(count_fence.RULE, [before, MicroBatch(**layout_rows(GROWN), decisions=later)])
    assert played.found("kind", "stream", "first_offset", "last_offset", "decisions") == [
        ("acknowledged-stray", 2, 100, 101, ["w1:0"]),
        ("acknowledged-stray", 3, 101, 103, ["w1:2"]),
    ]
    assert played.count("pass") == 3
    assert [row for row in played.waiting if row["what"] == "batch"] == []
