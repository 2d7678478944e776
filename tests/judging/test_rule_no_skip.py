"""NO-SKIP: what a reader was led past, or was not given, is found; what is not its own is no gap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.identity import JANITOR, NO_V
from kordon.proxy.ordering.layout import Layout
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rules import batch_runs, key_order, no_skip
from kordon.spark_jobs.judging.schema import BATCHES, DECISIONS, GAPS, NUMBERS, PLACED, READ_TO, SEGMENTS, STAYS
from kordon.testing.audits.judged import empty, play, table
from kordon.testing.audits.rule_batches import TOPIC, batch, cut_up, layout_rows, of, read, tagged
from kordon.testing.audits.rule_plays import START_MS, MicroBatch, Played, Row, decided

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


def test_what_readers_did_not_get_is_found_and_nothing_else() -> None:
    """Strays, markers, other streams, rewinds, moves and old data are no gap; and so for any micro-batches."""
    played = play(no_skip.RULE, [WHOLE])
    assert played.found(*COLUMNS) == FOUND
    unknown = [(each["topic"], each["stream"]) for each in played.checked if each["verdict"] == "unknown"]
    assert sorted(unknown) == [(TOPIC, 0), (TOPIC, 2), ("taken", 0)]
    assert {row["connection"] for row in played.state if row["what"] == "reader"} == set(range(2, 16))
    split = play(no_skip.RULE, cut_up(WHOLE, (0.45,)))
    assert split.found(*COLUMNS) == FOUND


def held(played: Played, table: str) -> list[tuple[int, int]]:
    """The ranges of offsets that a table of the state has."""
    return sorted((row["first_offset"], row["last_offset"]) for row in played.state if row["what"] == table)


def own(*places: int, records: int = 10, v: int = 0) -> list[Row]:
    """Batches of a virtual partition, each at ten times its place."""
    return [tagged(v, 0, 0, 10 * place, records, sequence=10 * place) for place in places]


def test_batches_beyond_the_budget_are_joined_and_still_tell_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that cannot be is found, and what may be is not; retention frees the state."""
    monkeypatch.setattr(no_skip, "MOST_BYTES", 0)
    first = MicroBatch(
        **layout_rows(ONE),
        batches=own(*range(10)),
        read_to=[read(0, 100)],
        decisions=[deliver(0, 1, (0, 0, 0), (0, 99), records=100)],
    )
    second = MicroBatch(
        decisions=[
            deliver(1, 2, (0, 0, 0), (0, 99), records=99),
            deliver(2, 3, (0, 0, 0), (0, 49), records=50),
            deliver(3, 4, (0, 0, 0), (0, 49), records=101),
            deliver(4, 5, (0, 0, 0), (100, 105), records=1),
        ],
        read_to=[read(0, 100)],
    )
    played = play(no_skip.RULE, [first, second])
    assert played.found("kind", "connection") == [("doubled-range", 4), ("skipped-range", 2)]
    assert (played.count("pass"), played.count("unknown")) == (1, 1)
    assert (held(played, "run"), held(played, "joined")) == ([], [(0, 99)])
    assert [row["connection"] for row in played.state if row["what"] == "range"] == [5]
    third = MicroBatch(read_to=[read(0, 100, log_start=100)])
    assert held(play(no_skip.RULE, [first, second, third]), "joined") == []


def test_a_reader_that_is_minutes_behind_is_judged_as_one_that_is_not() -> None:
    """It was given 40 of 50 records, and was led past 100: both are found, whenever it gets there."""
    first = MicroBatch(
        **layout_rows(ONE),
        batches=own(*range(100)),
        read_to=[read(0, 1000)],
        decisions=[decided("lease", 0)],
    )
    a_day_later = MicroBatch(decisions=[decided("lease", 1, seconds=86_400)], read_to=[read(0, 1000)])
    reads = MicroBatch(
        decisions=[
            deliver(2, 2, (0, 0, 0), (0, 49), seconds=86_401, records=50),
            deliver(3, 2, (0, 0, 0), (50, 99), seconds=86_402, records=40),
            deliver(4, 2, (0, 0, 0), (200, 249), seconds=86_403, records=50),
        ],
        read_to=[read(0, 1000)],
    )
    played = play(no_skip.RULE, [first, a_day_later, reads])
    assert played.found(*COLUMNS) == [("skipped-range", 2, 0, 100, 199), ("skipped-range", 2, 0, 50, 99)]
    assert (played.count("pass"), played.count("unknown")) == (2, 0)


@pytest.mark.parametrize(("beyond", "unknown"), [(0, 0), (1, 1)])
def test_only_the_oldest_batches_are_joined_and_only_beyond_the_budget(
    beyond: int, unknown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the half of what was joined is unknown; who reads what came last is judged still."""
    old = MicroBatch(**layout_rows(ONE), batches=own(*range(10)), read_to=[read(0, 100)])
    new = MicroBatch(batches=own(*range(10, 20)), read_to=[read(0, 200)], decisions=[decided("lease", 0, seconds=60)])
    size = sum(2 * [batch_runs.RUN_BYTES + 10 * batch_runs.BATCH_BYTES])
    monkeypatch.setattr(no_skip, "MOST_BYTES", size - beyond)
    reads = MicroBatch(
        decisions=[
            deliver(1, 2, (0, 0, 0), (0, 49), records=50),
            deliver(2, 3, (0, 0, 0), (0, 89), records=110),
            deliver(3, 4, (0, 0, 0), (110, 149), records=39),
        ],
        read_to=[read(0, 200)],
    )
    proof = MicroBatch(decisions=[deliver(0, 1, (0, 0, 0), (0, 199), worker="w2", records=200)])  # all is in its place
    played = play(no_skip.RULE, [replace(old, decisions=proof.decisions), new, reads])
    assert played.found("kind", "connection") == [("doubled-range", 3), ("skipped-range", 4)]
    assert (played.count("pass"), played.count("unknown")) == (2 - unknown, unknown)
    joined = [(0, 99)] if beyond else []
    assert held(played, "joined") == joined
    assert held(played, "run") == [run for run in [(0, 99), (100, 199)] if run not in joined]


def test_what_was_joined_of_several_streams_proves_nothing_against_a_client_of_the_dialect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is given all streams side by side, where rows of what was joined overlap; what is whole is judged still."""
    monkeypatch.setattr(no_skip, "MOST_BYTES", 0)
    batches = [*own(0, 2, 9), *own(1, 3, 8, v=1), *own(4, v=2)]
    first = MicroBatch(**layout_rows(ONE), batches=batches, read_to=[read(0, 100)], decisions=[
        deliver(0, 1, (~0, 0, 0), (0, 99), records=70),
    ])  # fmt: skip
    reads = MicroBatch(
        decisions=[
            deliver(1, 2, (~0, 0, 0), (0, 99), records=69),
            deliver(2, 3, (~0, 0, 0), (20, 49), records=30),
            deliver(3, 4, (~0, 0, 0), (20, 49), records=71),
            deliver(4, 5, (0, 0, 0), (0, 99), records=30),
        ],
        read_to=[read(0, 100)],
    )
    played = play(no_skip.RULE, [first, reads])
    assert played.found("kind", "connection") == [("doubled-range", 4), ("skipped-range", 2)]
    assert (played.count("pass"), played.count("unknown")) == (2, 1)


def test_runs_go_when_retention_has_taken_all_of_them() -> None:
    """What is below the start of the log is unknown whoever reads it."""
    first = MicroBatch(**layout_rows(ONE), batches=own(*range(10)), read_to=[read(0, 100)], decisions=[
        deliver(0, 1, (0, 0, 0), (0, 99), records=100),
    ])  # fmt: skip
    reads = MicroBatch(decisions=[deliver(1, 2, (0, 0, 0), (0, 99), records=1)], read_to=[read(0, 100, log_start=95)])
    played = play(no_skip.RULE, [first, reads])
    assert (played.findings, played.count("unknown"), held(played, "run")) == ([], 1, [(0, 99)])
    gone = MicroBatch(read_to=[read(0, 100, log_start=100)])
    assert held(play(no_skip.RULE, [first, reads, gone]), "run") == []


def test_a_reader_goes_with_a_close_that_another_part_of_the_cluster_was_given() -> None:
    """The end of a connection names no topic; all parts are told of it."""
    given = table([deliver(0, 1, (0, 0, 0), (0, 9)), deliver(1, 2, (0, 0, 0), (0, 9))], DECISIONS)
    closes = table([decided("close", 2, connection=1)], DECISIONS)
    facts = Facts(
        decisions=given,
        of_all=closes,
        numbers=NUMBERS.to_frame(),
        batches=BATCHES.to_frame(),
        placed=PLACED.to_frame(),
        segments=SEGMENTS.to_frame(),
        stays=STAYS.to_frame(),
        read_to=READ_TO.to_frame(),
        gaps=GAPS.to_frame(),
        newest_ms=START_MS,
    )
    for rule in (no_skip.RULE, key_order.RULE):
        assert rule.check(facts, empty(rule.state)).state["reader"].get_column("connection").to_list() == [2]
