"""NO-SKIP where transactions are: readers of committed records get what is committed, all others get everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.proxy.ordering.identity import NO_V, tag, writer_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.spark_jobs.judging.facts import nothing
from kordon.spark_jobs.judging.rules import no_skip
from kordon.spark_jobs.judging.rules.batch_runs import BATCHES, runs_of
from kordon.spark_jobs.judging.schema import DECISIONS, READ_TO, STAYS
from kordon.spark_jobs.judging.shipments import What, shipped, unpacked
from kordon.testing.audits.judged import empty, play, table
from kordon.testing.audits.rule_batches import TOPIC, cut_up, layout_rows, read, transaction_log
from kordon.testing.audits.rule_plays import START_MS, MicroBatch, Row, decided

ONE: Final = Layout.created(TOPIC, UUID(int=7), 1, 4)
UNCOMMITTED, COMMITTED, UNTOLD = 0, 1, None
LOG: Final = "W5 d5 d5 C5 W5 d5 A5 W5 d5 C5 d5"
"""Committed are 1, 2 and 8; 5 is aborted, and nothing is behind 10."""
ALL_READ: Final = [read(0, 11)]


def given(connection: int, isolation: int | None, offsets: tuple[int, int], records: int, **more: Any) -> Row:
    """What a connection was given of virtual partition 0."""
    told: dict[str, Any] = {"number": connection, **more}
    return decided(
        "deliver", told.pop("number"), connection=connection, topic=TOPIC, stream=0, move=0, partition=0,
        layout_epoch=0, first_offset=offsets[0], last_offset=offsets[1], records=records, isolation_level=isolation,
        **told,
    )  # fmt: skip


def judged(*decisions: Row, log: str = LOG, is_last: bool = True) -> tuple[list[Any], int, int]:
    """The findings of one micro-batch, by connection; and how much passed, and is unknown."""
    batches = transaction_log(log)
    whole = MicroBatch(
        **layout_rows(ONE), batches=batches, decisions=decisions, read_to=[read(0, len(batches))], is_last=is_last
    )
    played = play(no_skip.RULE, [whole])
    split = play(no_skip.RULE, cut_up(whole, (0.3, 0.7)))
    assert split.found("kind", "connection") == played.found("kind", "connection")
    return played.found("kind", "connection"), played.count("pass"), played.count("unknown") + played.count("late")


EXACT: Final[Sequence[tuple[int | None, tuple[int, int], int, str]]] = [
    # all that is decided
    (COMMITTED, (0, 9), 3, "pass"),
    (COMMITTED, (0, 9), 2, "skipped-range"),
    (COMMITTED, (0, 9), 4, "uncommitted-range"),
    (COMMITTED, (0, 9), 5, "doubled-range"),
    (UNCOMMITTED, (0, 9), 4, "pass"),
    (UNCOMMITTED, (0, 9), 3, "skipped-range"),
    (UNCOMMITTED, (0, 9), 5, "doubled-range"),
    # nothing but an aborted one
    (COMMITTED, (4, 6), 0, "pass"),
    (COMMITTED, (4, 6), 1, "uncommitted-range"),
    (UNCOMMITTED, (4, 6), 0, "skipped-range"),
    (UNCOMMITTED, (4, 6), 1, "pass"),
    # with one behind which nothing is: coordinators may have said that it is late
    (UNCOMMITTED, (7, 10), 2, "pass"),
    (UNCOMMITTED, (7, 10), 1, "skipped-range"),
    (COMMITTED, (7, 10), 1, "unknown"),
    (COMMITTED, (7, 10), 2, "unknown"),
    (COMMITTED, (7, 10), 0, "skipped-range"),
    (COMMITTED, (7, 10), 3, "doubled-range"),
    # older decisions do not say who reads
    (UNTOLD, (0, 9), 4, "pass"),
    (UNTOLD, (0, 9), 3, "unknown"),
    (UNTOLD, (0, 9), 2, "skipped-range"),
    (UNTOLD, (0, 3), 2, "pass"),
    (UNTOLD, (7, 10), 2, "pass"),
    (UNTOLD, (7, 10), 1, "unknown"),
]


def test_a_count_is_held_against_what_the_reader_was_to_get() -> None:
    """Too few and too many are told apart from records that nobody has committed."""
    whole = [
        given(number, isolation, offsets, records) for number, (isolation, offsets, records, _) in enumerate(EXACT)
    ]
    verdicts = [verdict for *_, verdict in EXACT]
    found = sorted((verdict, number) for number, verdict in enumerate(verdicts) if verdict not in {"pass", "unknown"})
    assert judged(*whole) == (sorted(found, key=repr), verdicts.count("pass"), verdicts.count("unknown"))


def test_the_finding_says_what_the_reader_got() -> None:
    """And that it reads committed records only."""
    whole = MicroBatch(
        **layout_rows(ONE), batches=transaction_log(LOG), decisions=[given(0, COMMITTED, (4, 6), 1)], read_to=ALL_READ
    )
    (finding,) = play(no_skip.RULE, [whole]).findings
    assert "reads committed records only, was given 1 record for offsets 4 to 6 of stream 0" in finding["text"]
    assert "no more than 0 are committed" in finding["text"]


def test_readers_of_the_physical_partition_are_judged_in_the_same_way() -> None:
    """They are given all streams of it."""
    batches = [*transaction_log("W5 d5 C5"), *transaction_log("W5 d5 A5", start=3, v=2)]
    of_all = {"stream": ~0}
    whole = MicroBatch(**layout_rows(ONE), batches=batches, read_to=[read(0, 6)], decisions=[
        {**given(0, COMMITTED, (0, 5), 1), **of_all},
        {**given(1, COMMITTED, (0, 5), 2), **of_all},
        {**given(2, UNCOMMITTED, (0, 5), 2), **of_all},
        {**given(3, UNCOMMITTED, (0, 5), 1), **of_all},
    ])  # fmt: skip
    assert play(no_skip.RULE, [whole]).found("kind", "connection") == [("skipped-range", 3), ("uncommitted-range", 1)]


def test_a_reader_that_was_led_past_what_is_committed_is_found_and_past_what_is_aborted_is_not() -> None:
    """Between two deliveries of one connection."""
    assert judged(
        given(7, COMMITTED, (0, 3), 2, number=0),
        given(7, COMMITTED, (7, 9), 1, number=1),
        given(8, UNCOMMITTED, (0, 3), 2, number=2),
        given(8, UNCOMMITTED, (7, 9), 1, number=3),
        given(9, COMMITTED, (4, 6), 0, number=4),
        given(9, COMMITTED, (9, 9), 0, number=5),
    ) == ([("skipped-range", 8), ("skipped-range", 9)], 7, 0)


def test_what_is_open_holds_the_verdict_until_it_is_decided() -> None:
    """Who was led past it, or was given it, is found once its marker is there, and not before."""
    reads = [given(0, COMMITTED, (0, 1), 0), given(1, COMMITTED, (0, 1), 1), given(2, UNCOMMITTED, (0, 1), 1)]
    opened = MicroBatch(**layout_rows(ONE), batches=transaction_log("W5 d5"), decisions=reads, read_to=[read(0, 2)])
    waiting = play(no_skip.RULE, [opened])
    assert (waiting.findings, waiting.count("pass")) == ([], 1)
    for marker, found in (("C5", [("skipped-range", 0)]), ("A5", [("uncommitted-range", 1)])):
        ended = MicroBatch(batches=transaction_log(marker, start=2), read_to=[read(0, 3)])
        played = play(no_skip.RULE, [opened, ended])
        assert (played.found("kind", "connection"), played.count("pass")) == (found, 2)
    late = MicroBatch(decisions=[decided("lease", 3, seconds=601)])
    given_up = play(no_skip.RULE, [opened, late])
    assert (given_up.findings, given_up.count("pass"), given_up.count("unknown")) == ([], 1, 2)


def test_what_a_client_of_the_dialect_wrote_in_a_transaction_is_anybodys_if_it_is_committed() -> None:
    """Records of its batches are given by key; of what was aborted nobody gets any, and what is open holds all."""
    v = {"v": NO_V, "move": 0, "producer_id": tag(-1, 0, writer_id(9, Protocol.V2))}
    dialect = [
        each if each.get("event") else {**each, **v, "records": 5, "last_offset": each["base_offset"] + 4}
        for each in transaction_log("W5 e5", start=3, producer=9)
    ]
    batches = [*transaction_log("W5 d5 C5"), *dialect]
    reads = [given(number, COMMITTED, (0, 8), records) for number, records in enumerate((1, 3, 6, 7))]
    opened = MicroBatch(**layout_rows(ONE), batches=batches, decisions=reads, read_to=[read(0, 9)])
    waiting = play(no_skip.RULE, [opened])
    assert (waiting.findings, waiting.checked) == ([], [])
    for marker, found, unknown in (
        ("A6", [("doubled-range", 3), ("uncommitted-range", 1), ("uncommitted-range", 2)], 0),
        ("C6", [("doubled-range", 3)], 3),
    ):
        ended = MicroBatch(batches=transaction_log(marker, start=9, producer=9), read_to=[read(0, 10)])
        played = play(no_skip.RULE, [opened, ended])
        assert (played.found("kind", "connection"), played.count("unknown")) == (found, unknown)


def test_an_open_transaction_of_another_virtual_partition_holds_nobody() -> None:
    """It lives in the same log."""
    batches = [*transaction_log("W5 d5 C5"), *transaction_log("W5 d5", start=3, v=2, producer=9)]
    whole = MicroBatch(
        **layout_rows(ONE), batches=batches, read_to=[read(0, 5)], decisions=[given(0, COMMITTED, (0, 4), 1)]
    )
    assert play(no_skip.RULE, [whole]).count("pass") == 1


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_what_was_joined_still_tells_what_cannot_be(isolation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget: committed and aborted batches are joined apart."""
    monkeypatch.setattr(no_skip, "MOST_BYTES", 0)
    first = MicroBatch(**layout_rows(ONE), batches=transaction_log(LOG), read_to=ALL_READ, decisions=[
        given(0, COMMITTED, (0, 9), 3),
    ])  # fmt: skip
    right = 3 if isolation == COMMITTED else 4
    reads = MicroBatch(
        decisions=[
            given(number, isolation, (0, 9), records) for number, records in enumerate(range(right - 1, right + 2), 1)
        ],
        read_to=ALL_READ,
    )
    half = MicroBatch(decisions=[given(4, isolation, (0, 5), right - 1)], read_to=ALL_READ)
    played = play(no_skip.RULE, [first, reads, half])
    more = "uncommitted-range" if isolation == COMMITTED else "doubled-range"
    assert played.found("kind", "connection") == sorted([("skipped-range", 1), (more, 3)], key=repr)
    assert (played.count("pass"), played.count("unknown")) == (2, 1)


def test_states_of_before_are_read_and_say_as_much_as_they_did() -> None:
    """They have null where others say whether a batch is a control batch, for all that is of a transaction."""
    written = [(TOPIC, 0, at, at, 1, 0, None, None) for at in (1, 2)]
    runs = runs_of(pl.DataFrame(written, schema=BATCHES, orient="row"), START_MS).drop("is_aborted")
    kept = unpacked(no_skip.RULE.state["run"], shipped(0, What.STATE, runs, "NO-SKIP/run"))
    decisions = [
        given(number, isolation, (0, 3), 1) for number, isolation in enumerate((COMMITTED, UNCOMMITTED, UNTOLD))
    ]
    facts = replace(
        nothing(),
        decisions=table(decisions, DECISIONS),
        read_to=table([read(0, 4)], READ_TO),
        stays=table(layout_rows(ONE)["stays"], STAYS),
        newest_ms=START_MS,
    )
    outcome = no_skip.RULE.check(facts, {**empty(no_skip.RULE.state), "run": kept})
    assert outcome.findings.get_column("connection").to_list() == [1]
    assert outcome.checked.select("verdict", "count").rows() == [("unknown", 2)]
