"""SEQ-IMAGE: what was acknowledged and is not there, or is there twice, is found over all homes of a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.identity import writer_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.spark_jobs.judging.rules import seq_image
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_batches import TOPIC, batch, cut_up, layout_rows, of, read, tagged
from kordon.testing.audits.rule_plays import MicroBatch, Row, decided

ID = UUID(int=7)
LAST = (1 << 31) - 1
ONE = Layout.created(TOPIC, ID, 1, 4)
GROWN = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
"""Virtual partitions 0 and 1 stay on 0, which begins a segment at 100; 2 and 3 move to 1."""
SHRUNK = GROWN.changed(GROWN.next_epoch(1), {0: 200, 1: 50})
SHORTENED = replace(ONE, topic="shortened").changed(ONE.next_epoch(1, shortened={0: 20}), {0: 20}, told={0: 30})
UNMANAGED = Layout.unmanaged("taken", ID, 1, 2)
TAKEN = UNMANAGED.changed(UNMANAGED.next_epoch(1), {0: 50})


def admit(
    number: int,
    place: tuple[int, int, int],
    sequences: tuple[int, int],
    offset: int,
    *,
    producer: int = 7,
    **fields: Any,
) -> Row:
    """An acknowledgement of (stream, move, partition)."""
    records = (sequences[1] - sequences[0]) % (1 << 31)
    told: dict[str, Any] = {
        "topic": TOPIC,
        "layout_epoch": 1,
        "producer_epoch": 0,
        "last_offset": offset + records,
        **fields,
    }
    stream, move, partition = place
    return decided(
        "admit", number, stream=stream, move=move, partition=partition, producer_id=producer,
        first_sequence=sequences[0], last_sequence=sequences[1], first_offset=offset, **told,
    )  # fmt: skip


WHOLE = MicroBatch(
    **layout_rows(SHRUNK, SHORTENED, TAKEN),
    batches=[
        # producer 7 writes 0..9 to v2 at home, 10..14 in the second, 15..17 back in the first
        tagged(2, 0, 0, 10, 5, sequence=0),
        tagged(3, 0, 0, 15, 7, sequence=0, producer=8),
        tagged(2, 0, 0, 22, 5, sequence=5),
        tagged(2, 0, 0, 100, 3, sequence=10),  # a stray: its client wrote it again
        tagged(2, 1, 1, 0, 5, sequence=0),
        tagged(2, 2, 0, 200, 3, sequence=0),
        # producer 8 in v3: what it wrote last was written again behind the move; before the image is 0..6
        tagged(3, 1, 1, 5, 2, sequence=LAST - 1, producer=8),
        tagged(3, 1, 1, 7, 2, sequence=0, producer=8),
        # producer 9 in v3: 0..4, then 7..8; and in v0 once more what it had acknowledged in v0 before
        tagged(3, 1, 1, 9, 5, sequence=0, producer=9),
        tagged(3, 1, 1, 14, 2, sequence=7, producer=9),
        tagged(0, 0, 0, 30, 5, sequence=0, producer=9),
        tagged(0, 0, 0, 35, 5, sequence=0, producer=9, epoch=1),
        # a producer without idempotence writes under identities of Kordon's own
        tagged(1, 0, 0, 40, 5, sequence=0, producer=1000),
        # producer 7 in v1 wraps around
        *(tagged(1, 0, 0, 45, 1, sequence=0), tagged(1, 0, 0, 110, 2, sequence=1)),
        *of("shortened", tagged(0, 0, 0, 0, 20, sequence=0), tagged(0, 1, 0, 30, 2, sequence=0, epoch=1)),
        # producer 7 had written up to 99 before the takeover, and goes on; 6 had been silent for long
        *of("taken", batch(0, 40, 3, producer_id=7, producer_epoch=0, base_sequence=97, last_sequence=99)),
        *of("taken", tagged(0, 0, 0, 50, 3, sequence=0)),
        *of("taken", tagged(0, 0, 0, 53, 3, sequence=0, producer=6)),
    ],
    decisions=[
        admit(0, (2, 0, 0), (0, 9), 10),
        admit(1, (2, 1, 1), (10, 14), 0),
        admit(2, (2, 2, 0), (15, 17), 200),
        admit(3, (2, 2, 0), (16, 17), 201),  # the same once more, answered from what is there
        admit(4, (3, 0, 0), (0, 6), 15, producer=8),
        admit(5, (3, 1, 1), (7, 8), 7, producer=8),
        admit(6, (3, 1, 1), (5, 6), 5, producer=9),  # never written
        admit(7, (0, 0, 0), (0, 4), 30, producer=9),
        admit(8, (0, 0, 0), (0, 4), 35, producer=9, producer_epoch=1),
        admit(9, (1, 0, 0), (0, 4), 40, producer=-1),
        admit(10, (0, 0, 0), (0, 19), 0, topic="shortened"),
        admit(11, (0, 0, 0), (20, 24), 20, topic="shortened"),  # the log lost it
        admit(12, (0, 1, 0), (0, 1), 30, topic="shortened", producer_epoch=1),
        admit(13, (0, 0, 0), (100, 102), 50, topic="taken"),
        admit(14, (0, 0, 0), (500, 502), 53, topic="taken", producer=6),
        admit(15, (2, 1, 1), (8, 9), 8),  # of the home before: acknowledged once more, as if written here
    ],
    read_to=[
        *(read(0, 203), read(1, 50), read(0, 32, topic="shortened")),
        read(0, 56, log_start=10, topic="taken"),
    ],
    is_last=True,
)
COLUMNS = ("kind", "verdict", "topic", "stream", "partition", "first_offset", "decisions")
FOUND = [
    ("doubled-sequence", "fail", TOPIC, 2, 1, 8, ["w1:15"]),
    ("doubled-sequence", "fail", TOPIC, 3, 1, 5, None),
    ("lost-write", "fail", "shortened", 0, 0, 20, ["w1:11"]),
    ("sequence-gap", "fail", TOPIC, 3, 1, 14, None),
]


def test_what_is_lost_or_doubled_over_all_homes_is_found_and_nothing_else() -> None:
    """Moves, images, strays, retries, epochs, a takeover, a log that got shorter; and so for any micro-batches."""
    played = play(seq_image.RULE, [WHOLE])
    assert played.found(*COLUMNS) == FOUND
    texts = " ".join(each["text"] for each in played.findings)
    assert "sequences 8 to 9 in stream 2 were acknowledged at orders-1 offsets 8 to 9" in texts
    assert "the stream's earlier home has them, at orders-0 offsets 10 to 26: readers get them twice" in texts
    unknown = [each for each in played.checked if each["verdict"] == "unknown"]
    assert {(each["topic"], each["stream"], each["count"]) for each in unknown} == {(TOPIC, 1, 1), ("taken", 0, 1)}
    split = play(seq_image.RULE, cut_up(WHOLE, (0.4,)))
    assert sorted(set(map(repr, split.found(*COLUMNS)))) == sorted(map(repr, FOUND))


def test_sequences_wrap_around_and_what_is_not_read_yet_is_waited_for() -> None:
    """Behind 2^31 - 1 comes 0, in one home and over a move; an acknowledgement ahead of the topic waits for it."""
    first = MicroBatch(
        **layout_rows(GROWN),
        batches=[tagged(2, 0, 0, 0, 10, sequence=LAST - 9)],
        decisions=[admit(0, (2, 1, 1), (0, 4), 0), admit(1, (2, 1, 1), (5, 9), 5)],
        read_to=[read(0, 20, log_start=0)],
    )
    second = MicroBatch(
        batches=[tagged(2, 1, 1, 0, 5, sequence=0)],
        decisions=[decided("lease", 2, seconds=10)],
        read_to=[read(0, 100), read(1, 5)],
    )
    third = MicroBatch(decisions=[decided("lease", 3, seconds=700)], read_to=[read(0, 100), read(1, 5)])
    played = play(seq_image.RULE, [first, second, third])
    assert played.found("kind", "first_offset") == [("doubled-sequence", 0)]  # it began before 0: made so to wrap
    assert (played.count("pass"), played.count("late")) == (1, 1)
    assert {row["what"] for row in played.state} == {"home", "read"}
    assert {row["what"] for row in played.waiting} == {"certain"}


def test_what_is_told_long_after_its_producer_went_on_is_no_lost_write() -> None:
    """What an earlier epoch has written is kept in mind for a while; who tells of it later is too late."""
    batches = [tagged(0, 0, 0, 0, 5, sequence=0), tagged(0, 0, 0, 5, 5, sequence=0, epoch=1)]
    first = MicroBatch(**layout_rows(ONE), batches=batches, read_to=[read(0, 10)])
    others = MicroBatch(decisions=[decided("lease", 0, worker="w2", seconds=700)], read_to=[read(0, 10)])
    slow = [admit(0, (0, 0, 0), (0, 4), 0), admit(1, (0, 0, 0), (0, 4), 5, producer_epoch=1)]
    played = play(seq_image.RULE, [first, others, MicroBatch(decisions=slow, read_to=[read(0, 10)])])
    assert played.findings == []
    assert (played.count("pass"), played.count("late")) == (1, 1)


def test_what_was_written_again_is_told_once_and_nothing_behind_it_is_missing() -> None:
    """A batch stands there twice, also over the wrap: sequences go on behind the furthest that they had got to."""
    begins = [LAST - 4, 0, LAST - 4, 5]
    offsets = [0, 5, 10, 15]
    whole = MicroBatch(
        **layout_rows(ONE),
        batches=[tagged(0, 0, 0, at, 5, sequence=first) for at, first in zip(offsets, begins, strict=True)],
        decisions=[
            admit(place, (0, 0, 0), (begins[each], begins[each] + 4), offsets[each])
            for place, each in enumerate([0, 1, 3])
        ],
        read_to=[read(0, 20)],
    )
    for micro_batches in ([whole], cut_up(whole, (0.3, 0.6, 0.8))):
        played = play(seq_image.RULE, micro_batches)
        assert played.found("kind", "first_offset") == [
            ("doubled-sequence", 0),  # it began before 0: made so to wrap
            ("doubled-sequence", 10),
        ]
        assert played.count("pass") == 3


def test_sequences_are_counted_apart_in_transactions_of_each_protocol() -> None:
    """A producer has a row for each, as brokers do; an acknowledgement says which it is of."""
    kinds = [(None, 2, 0), (Protocol.V1, 4, 2), (Protocol.V2, 6, 6)]
    batches = [
        {**tagged(0, 0, 0, offset, records, producer=writer_id(7, protocol)), "client_producer_id": 7}
        for protocol, records, offset in kinds
    ]
    admits = [
        admit(n, (0, 0, 0), (0, records - 1), offset, evidence={"transaction": protocol.value} if protocol else None)
        for n, (protocol, records, offset) in enumerate(kinds)
    ]
    lost = [
        admit(3, (0, 0, 0), (2, 3), 2),
        admit(4, (0, 0, 0), (4, 5), 6, evidence={"transaction": "v1"}),
        admit(5, (0, 0, 0), (4, 5), 10, evidence={"transaction": "v2"}),
    ]
    read_to = [read(0, 12)]
    whole = MicroBatch(**layout_rows(ONE), batches=batches, decisions=[*admits, *lost], read_to=read_to, is_last=True)
    played = play(seq_image.RULE, [whole])
    assert played.found("kind", "decisions") == [("lost-write", ["w1:3"]), ("lost-write", ["w1:4"])]
    assert all("Of producer 7, epoch 0," in each["text"] for each in played.findings)
    assert played.count("pass") == 4
