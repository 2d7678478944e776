"""NO-SKIP: what a reader was led past, or was not given, is found; what is not its own is no gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.identity import JANITOR, NO_V
from kordon.proxy.ordering.layout import Layout
from kordon.spark_jobs.rules import no_skip
from kordon.testing.rule_batches import TOPIC, batch, cut_up, layout_rows, of, read, tagged
from kordon.testing.rule_plays import MicroBatch, Row, decided, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = UUID(int=7)
ONE = Layout.created(TOPIC, ID, 1, 4)
GROWN = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
SHRUNK = GROWN.changed(GROWN.next_epoch(1), {0: 200, 1: 50})
UNMANAGED = Layout.unmanaged("taken", ID, 1, 2)
TAKEN = UNMANAGED.changed(UNMANAGED.next_epoch(1), {0: 50})


def deliver(number: int, connection: int, place: tuple[int, int, int], offsets: tuple[int, int], **more: Any) -> Row:
    """A delivery of (stream, move, partition)."""
    stream, move, partition = place
    told: dict[str, Any] = {"topic": TOPIC, "kind": "deliver", "records": 0, **more}
    return decided(
        told.pop("kind"), number, connection=connection, stream=stream, move=move, partition=partition,
        first_offset=offsets[0], last_offset=offsets[1], **told,
    )  # fmt: skip


WHOLE = MicroBatch(
    **layout_rows(SHRUNK, TAKEN),
    batches=[
        tagged(2, 0, 0, 10, 5),
        tagged(0, 0, 0, 15, 7),
        tagged(2, 0, 0, 22, 5, sequence=5),
        tagged(2, 0, 0, 100, 3, sequence=10),  # a stray
        tagged(JANITOR, 1, 0, 103),
        batch(0, 104, is_control=True),
        tagged(0, 0, 0, 105, 2, sequence=7),
        batch(0, 107, 4),  # a writer round Kordon
        tagged(1, 0, 0, 111, 5),
        tagged(NO_V, 1, 0, 116, 3),
        tagged(2, 1, 1, 0, 5),
        tagged(3, 1, 1, 5, 2),
        tagged(2, 1, 1, 7, 2, sequence=5),
        tagged(2, 2, 0, 200, 3),
        *of("taken", batch(0, 0, 30), batch(0, 30, is_control=True), batch(0, 31, 19), tagged(0, 0, 0, 50, 4)),
    ],
    decisions=[
        # connection 1 reads v2 through all of its homes; behind its cut it is led over what is not its own
        deliver(0, 1, (2, 0, 0), (0, 99), records=10),
        deliver(1, 1, (2, 1, 1), (0, 49), records=7),
        deliver(2, 1, (2, 2, 0), (200, 202), records=3),
        # connection 2 is led past 5 records at the end of a stay, 3 past 7 within one, 4 past a whole stay
        deliver(3, 2, (2, 0, 0), (0, 20), records=5),
        deliver(4, 2, (2, 1, 1), (0, 49), records=7),
        deliver(5, 3, (0, 0, 0), (0, 14), records=0),
        deliver(6, 3, (0, 0, 0), (22, 99), records=0),
        deliver(7, 4, (2, 0, 0), (27, 99), records=0),
        deliver(8, 4, (2, 2, 0), (200, 200), records=3),
        # connection 5 got one record too few, and then it went back itself, and to another place
        deliver(9, 5, (2, 1, 1), (0, 8), records=6),
        deliver(10, 5, (2, 1, 1), (0, 8), kind="rewind"),
        deliver(11, 5, (2, 1, 1), (7, 49), records=2),
        deliver(12, 5, (2, 1, 1), (3, 49), kind="rewind"),
        deliver(13, 5, (2, 1, 1), (3, 8), records=7),  # from within a batch, which is given whole
        # connection 6 got records of others
        deliver(14, 6, (3, 1, 1), (0, 49), records=4),
        # connection 7 reads v0 where it cannot be told how many are its own; 8 reads the partition as such
        deliver(15, 7, (0, 0, 0), (100, 120), records=3),
        deliver(16, 8, (~0, 1, 0), (100, 120), records=14),
        deliver(17, 8, (~0, 2, 0), (200, 202), records=2),
        # what was there before the takeover is given as it is, markers included or not
        deliver(18, 9, (0, 0, 0), (5, 49), topic="taken", records=49),
        deliver(19, 10, (0, 0, 0), (31, 49), topic="taken", records=19),
        deliver(20, 10, (0, 0, 0), (50, 53), topic="taken", records=4),
        deliver(21, 11, (0, 0, 0), (3, 49), topic="taken", records=49),
        decided("close", 22, connection=1),
        deliver(23, 12, (2, 1, 1), (0, 49), records=2, evidence={"holes": [[0, 4]]}),  # what retention had taken
        # connection 13 was led past 2 records, or 25 would have told of them
        deliver(24, 13, (2, 1, 1), (0, 6), records=5),
        deliver(26, 13, (2, 1, 1), (9, 49), records=0),
        # however records of others' batches fall to v0, it has 2 of its own, and 9 in all at most
        deliver(27, 14, (0, 0, 0), (100, 120), records=1),
        deliver(28, 15, (0, 0, 0), (100, 120), records=10),
    ],
    read_to=[read(0, 203), read(1, 50), read(0, 54, log_start=5, topic="taken")],
    is_last=True,
)
COLUMNS = ("kind", "connection", "partition", "first_offset", "last_offset")
FOUND = [
    ("doubled-range", 15, 0, 100, 120),
    ("doubled-range", 6, 1, 0, 49),
    ("skipped-range", 14, 0, 100, 120),
    ("skipped-range", 2, 0, 21, 99),
    ("skipped-range", 3, 0, 15, 21),
    ("skipped-range", 4, 1, 0, 49),
    ("skipped-range", 5, 1, 0, 8),
    ("skipped-range", 8, 0, 200, 202),
]


def test_what_readers_did_not_get_is_found_and_nothing_else(spark: SparkSession) -> None:
    """Strays, markers, other streams, rewinds, moves and old data are no gap; and so for any micro-batches."""
    played = play(spark, no_skip.RULE, [WHOLE])
    assert played.found(*COLUMNS) == FOUND
    unknown = [(each["topic"], each["stream"]) for each in played.checked if each["verdict"] == "unknown"]
    assert sorted(unknown) == [(TOPIC, 0), (TOPIC, 2), ("taken", 0)]
    assert {row["connection"] for row in played.state if row["what"] == "reader"} == set(range(2, 16))
    split = play(spark, no_skip.RULE, cut_up(WHOLE, (0.45,)))
    assert split.found(*COLUMNS) == FOUND


def test_old_batches_are_joined_and_still_tell_what_is_missing(spark: SparkSession) -> None:
    """Behind a minute a count that cannot be is found, and what may be is not; retention frees the state."""
    batches = [tagged(0, 0, 0, 10 * place, 10, sequence=10 * place) for place in range(10)]
    first = MicroBatch(**layout_rows(ONE), batches=batches, read_to=[read(0, 100)], decisions=[
        deliver(0, 1, (0, 0, 0), (0, 99), records=100),
    ])  # fmt: skip
    later = MicroBatch(decisions=[decided("lease", 1, seconds=61)], read_to=[read(0, 100)])
    third = MicroBatch(
        decisions=[
            deliver(2, 2, (0, 0, 0), (0, 99), records=99),
            deliver(3, 3, (0, 0, 0), (0, 49), records=50),
            deliver(4, 4, (0, 0, 0), (0, 49), records=101),
            deliver(5, 5, (0, 0, 0), (100, 105), records=1),
        ],
        read_to=[read(0, 100)],
    )
    played = play(spark, no_skip.RULE, [first, later, third])
    assert played.found("kind", "connection") == [("doubled-range", 4), ("skipped-range", 2)]
    assert (played.count("pass"), played.count("unknown")) == (1, 1)
    assert [(row["base_offset"], row["last_offset"]) for row in played.state if row["what"] == "has"] == [(0, 99)]
    assert [row["connection"] for row in played.state if row["what"] == "range"] == [5]
