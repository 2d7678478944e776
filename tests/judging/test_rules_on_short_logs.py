"""What retention, DeleteRecords and compaction have taken is unknown to the rules: no fault, and nothing that held."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.layout import Layout
from kordon.spark_jobs.judging.rule import Rule
from kordon.spark_jobs.judging.rules import count_fence, no_skip, parent_first, seq_image
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_batches import layout_rows, of, read, tagged
from kordon.testing.audits.rule_plays import MicroBatch, Row, decided

ONE = Layout.created("", UUID(int=7), 1, 4)
GROWN = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
"""Virtual partitions 2 and 3 have moved from partition 0, of which the first segment ends at 100, to 1."""
TAKEN, PASSED, COMPACTED, DELETED = "taken", "passed", "compacted", "deleted"
"""Its log began at 40 when it was first read; was overtaken by retention at 30 while it was read up to 10; has lost
records in between; was deleted up to 40 for virtual partition 0, as others have theirs there still."""
LAYOUTS = [
    replace(GROWN, topic=TAKEN),
    replace(GROWN, topic=PASSED),
    replace(GROWN, topic=COMPACTED, janitor=True),
    replace(GROWN, topic=DELETED, floors={0: 40}),
]


class Worker:
    """Decides about one topic."""

    def __init__(self, topic: str) -> None:
        self.rows: list[Row] = []
        self._topic = topic

    def _decide(self, kind: str, **fields: Any) -> Worker:
        told: dict[str, Any] = {"topic": self._topic, "worker": self._topic, "layout_epoch": 1, **fields}
        self.rows.append(decided(kind, len(self.rows), **told))
        return self

    def admit(self, first: int, last: int) -> Worker:
        """Records of virtual partition 0, whose sequences and offsets are the same."""
        place = {"stream": 0, "move": 0, "partition": 0, "producer_id": 7, "producer_epoch": 0}
        sequences = {"first_sequence": first, "last_sequence": last}
        return self._decide("admit", first_offset=first, last_offset=last, **place, **sequences)

    def deliver(self, stream: int, move: int, offsets: tuple[int, int], records: int, **fields: Any) -> Worker:
        """To one connection per stream."""
        place = {"stream": stream, "move": move, "partition": 1 if stream < 0 else move, "connection": stream}
        return self._decide(
            "deliver", first_offset=offsets[0], last_offset=offsets[1], records=records, **place, **fields
        )


def batches(topic: str, *places: tuple[int, int]) -> list[Row]:
    """Of virtual partition 0, with as many records, sequences and offsets, from the first to the last."""
    return of(topic, *(tagged(0, 0, 0, first, last - first + 1, sequence=first) for first, last in places))


BEFORE = MicroBatch(
    **layout_rows(*LAYOUTS),
    decisions=Worker(PASSED).admit(0, 9).rows,
    batches=batches(PASSED, (0, 9)),
    read_to=[read(0, 10, topic=PASSED)],
)
AFTER = MicroBatch(
    decisions=[
        *Worker(TAKEN)
        .admit(0, 39)
        .admit(40, 49)
        .deliver(0, 0, (0, 39), 40)
        .deliver(0, 0, (40, 99), 10)
        .deliver(3, 0, (0, 30), 31)
        .deliver(3, 1, (0, 9), 0)
        .rows,
        *Worker(PASSED)
        .admit(0, 9)
        .admit(10, 29)
        .admit(30, 39)
        .deliver(0, 0, (0, 9), 10)
        .deliver(0, 0, (10, 29), 20)
        .deliver(0, 0, (30, 99), 10)
        .rows[1:],
        *Worker(COMPACTED)
        .admit(0, 9)
        .admit(10, 19)
        .admit(20, 29)
        .deliver(0, 0, (0, 99), 30)
        .deliver(~1, 1, (0, 9), 0, group_id="group", evidence={"positions": {"0": 29}})
        .rows,
        *Worker(DELETED).admit(0, 49).deliver(0, 0, (0, 9), 10).deliver(0, 0, (40, 99), 10).rows,
    ],
    batches=[
        *batches(TAKEN, (40, 49)),
        *batches(PASSED, (30, 39)),
        *({**row, "records": 3} for row in batches(COMPACTED, (0, 9))),
        *batches(COMPACTED, (20, 29)),
        *batches(DELETED, (0, 9), (10, 49)),
    ],
    read_to=[
        read(0, 100, 40, TAKEN),
        read(0, 100, 30, PASSED),
        *(read(0, 100, topic=topic) for topic in (COMPACTED, DELETED)),
        *(read(1, 10, topic=each.topic) for each in LAYOUTS),
    ],
    is_last=True,
)


@pytest.mark.parametrize(
    ("rule", "unknown", "held"),
    [
        (count_fence.RULE, {}, {TAKEN: 1, PASSED: 2, COMPACTED: 2, DELETED: 2}),
        # of each break in the sequences, too, it is unknown what it hides
        (seq_image.RULE, {TAKEN: 2, PASSED: 2, COMPACTED: 3}, {TAKEN: 1, PASSED: 2, COMPACTED: 1, DELETED: 1}),
        # with what lies between the two places of stream 3
        (no_skip.RULE, {TAKEN: 3, PASSED: 2, COMPACTED: 2}, {TAKEN: 2, PASSED: 1, DELETED: 2}),
        (parent_first.RULE, {TAKEN: 1, COMPACTED: 1}, {TAKEN: 3, PASSED: 3, COMPACTED: 1, DELETED: 2}),
    ],
    ids=lambda value: str(getattr(value, "name", "")),
)
def test_what_a_log_has_lost_is_neither_wrong_nor_right(
    rule: Rule, unknown: dict[str, int], held: dict[str, int]
) -> None:
    """Before it was read, between two readings, here and there, or for one virtual partition: all else is judged."""
    played = play(rule, [BEFORE, AFTER])
    said = Counter[tuple[str, str]]()
    for each in played.checked:
        said[each["verdict"], each["topic"]] += each["count"]
    assert played.findings == []
    assert {topic: count for (verdict, topic), count in said.items() if verdict == "unknown"} == unknown
    assert {topic: count for (verdict, topic), count in said.items() if verdict == "pass"} == held
