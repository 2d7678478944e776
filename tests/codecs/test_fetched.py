"""Kordon's own Fetch answers are read where they lie, as the table reads them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.fetched import VERSION, Fetched, build_fetch, parse_fetched
from kordon.codecs.messages.fetch import REQUEST, RESPONSE
from kordon.codecs.primitives import Pieces
from kordon.testing.messages.values import Values

PARTITION = {
    "partition_index": 3,
    "error_code": 0,
    "high_watermark": 9,
    "last_stable_offset": 9,
    "log_start_offset": 1,
    "aborted_transactions": [{"producer_id": 1, "first_offset": 2}],
    "records": b"some records",
}
ANSWER = {"throttle_time_ms": 4, "responses": [{"topic": "orders", "partitions": [PARTITION]}]}


@given(st.randoms(use_true_random=False))
def test_walk_equals_the_table(random: Random) -> None:
    """Partition by partition what construct reads; of a partition that is named twice, the last."""
    data = RESPONSE.build(VERSION, Values(random).message(RESPONSE, VERSION))
    table = RESPONSE.parse(VERSION, data)
    answer = parse_fetched(memoryview(data))
    assert (answer.throttle_time_ms, answer.error_code) == (table.throttle_time_ms, table.error_code)
    assert answer.partitions == {
        (topic.topic, row.partition_index): Fetched(
            row.error_code,
            row.high_watermark,
            row.log_start_offset,
            memoryview(row.records or b""),
            row.last_stable_offset,
        )
        for topic in table.responses
        for row in topic.partitions
    }


@given(
    st.dictionaries(
        st.text(alphabet="ab-é", max_size=9),
        st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9), st.integers(0, 2**62)), max_size=4),
        max_size=3,
    ),
    st.sampled_from([0, 1, 5_000]),
)
def test_requests_are_those_of_the_table(topics: dict[str, list[tuple[int, int, int]]], max_wait_ms: int) -> None:
    """Byte for byte; whoever waits waits for a byte, and who does not gets what there is."""
    rows = [
        {
            "topic": name,
            "partitions": [
                {
                    "partition": partition,
                    "current_leader_epoch": epoch,
                    "fetch_offset": offset,
                    "partition_max_bytes": 7,
                }
                for partition, epoch, offset in partitions
            ],
        }
        for name, partitions in topics.items()
    ]
    fields = {"max_wait_ms": max_wait_ms, "min_bytes": min(max_wait_ms, 1), "max_bytes": 9, "topics": rows}
    built = build_fetch(topics, max_wait_ms=max_wait_ms, max_bytes=9, partition_bytes=7)
    assert built == REQUEST.build(VERSION, fields)


def test_records_are_a_part_of_the_answer() -> None:
    """Nothing is copied: what is changed in the records is changed in the answer's memory."""
    data = bytearray(RESPONSE.build(VERSION, ANSWER))
    records = parse_fetched(memoryview(data)).partitions["orders", 3].records
    records[0:4] = b"SOME"
    assert data.endswith(b"SOME records")


def test_answer_cut_at_every_byte_is_refused() -> None:
    """And one that goes on behind its end."""
    data = RESPONSE.build(VERSION, ANSWER)
    for length in range(len(data)):
        with pytest.raises(WireError):
            parse_fetched(memoryview(data[:length]))
    with pytest.raises(WireError, match="1 bytes too many"):
        parse_fetched(memoryview(data + b"\0"))


@given(st.integers(0, 10_000), st.binary(min_size=4, max_size=4))
def test_changed_bytes_are_read_or_refused(place: int, noise: bytes) -> None:
    """No count or length is believed that the bytes do not bear out."""
    data = bytearray(RESPONSE.build(VERSION, ANSWER))
    place %= len(data) - len(noise)
    data[place : place + len(noise)] = noise
    try:
        answer = parse_fetched(memoryview(data))
    except WireError:
        return
    assert all(len(each.records) <= len(data) for each in answer.partitions.values())


def test_bytes_in_pieces_are_built_as_one() -> None:
    """A field whose bytes lie in several places is the same on the wire."""
    pieces = Pieces([b"some ", memoryview(b"records")])
    topics = [{"topic": "orders", "partitions": [PARTITION | {"records": pieces}]}]
    assert RESPONSE.build(VERSION, ANSWER | {"responses": topics}) == RESPONSE.build(VERSION, ANSWER)
