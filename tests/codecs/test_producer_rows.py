"""Answers to DescribeProducers are read where they lie, as the table reads them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.messages.describe_producers import RESPONSE
from kordon.codecs.producers import ROWS_OF_A_RUN, VERSION, ProducerRow, parse_producers
from kordon.testing.messages.values import Values

PRODUCER = {
    "producer_id": 7 << 48 | 3,
    "producer_epoch": 1,
    "last_sequence": 41,
    "last_timestamp": 1_700_000_000_000,
    "coordinator_epoch": -1,
    "current_txn_start_offset": -1,
}
PARTITION = {
    "partition_index": 3,
    "error_code": 0,
    "error_message": None,
    "active_producers": [PRODUCER, {**PRODUCER, "producer_id": 8}],
}
ANSWER = {"throttle_time_ms": 0, "topics": [{"name": "orders", "partitions": [PARTITION]}]}


@given(st.randoms(use_true_random=False))
def test_walk_equals_the_table(random: Random) -> None:
    """Partition by partition what construct reads, with tagged fields and without."""
    data = RESPONSE.build(VERSION, Values(random).message(RESPONSE, VERSION))
    found = parse_producers(memoryview(data))
    table = RESPONSE.parse(VERSION, data)
    told = {(topic.name, row.partition_index): row for topic in table.topics for row in topic.partitions}
    assert found.keys() == told.keys()
    for place, described in found.items():
        row = told[place]
        assert (described.error_code, described.error_message) == (row.error_code, row.error_message)
        expected = [
            ProducerRow(*(getattr(each, name) for name in ProducerRow._fields)) for each in row.active_producers
        ]
        assert list(described.producers) == expected
        assert list(described.producers.ids()) == [each.producer_id for each in expected]


def test_runs_are_the_rows_in_their_order() -> None:
    """So that whoever walks over many can let others have their turn."""
    many = [{**PRODUCER, "producer_id": number} for number in range(ROWS_OF_A_RUN + 1)]
    data = RESPONSE.build(VERSION, {"topics": [{"name": "a", "partitions": [{**PARTITION, "active_producers": many}]}]})
    rows = parse_producers(memoryview(data))["a", 3].producers
    assert [len(run) for run in rows.runs()] == [ROWS_OF_A_RUN, 1]
    assert [row.producer_id for run in rows.runs() for row in run] == list(range(ROWS_OF_A_RUN + 1))


def test_answer_cut_at_every_byte_is_refused() -> None:
    """And one that goes on behind its end."""
    data = RESPONSE.build(VERSION, ANSWER)
    assert len(parse_producers(memoryview(data))["orders", 3].producers) == 2
    for length in range(len(data)):
        with pytest.raises(WireError):
            parse_producers(memoryview(data[:length]))
    with pytest.raises(WireError):
        parse_producers(memoryview(data + b"\0"))


@given(st.integers(0, 10_000), st.binary(min_size=4, max_size=4))
def test_changed_bytes_are_read_as_the_table_reads_them(place: int, noise: bytes) -> None:
    """No count or length is believed that the bytes do not bear out."""
    data = bytearray(RESPONSE.build(VERSION, ANSWER))
    place %= len(data) - len(noise)
    data[place : place + len(noise)] = noise
    try:
        table = RESPONSE.parse(VERSION, bytes(data))
    except WireError:
        with pytest.raises(WireError):
            parse_producers(memoryview(data))
        return
    told = {(topic.name, row.partition_index): row for topic in table.topics for row in topic.partitions}
    found = parse_producers(memoryview(data))
    assert {at: len(each.producers) for at, each in found.items()} == {
        at: len(row.active_producers) for at, row in told.items()
    }
