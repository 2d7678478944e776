"""What walks over Produce by hand reads and writes what the tables do."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.messages import request, response
from kordon.codecs.produce import (
    ProduceRequest,
    WriteOutcome,
    build_outcomes,
    build_produce,
    look_outcomes,
    look_produce,
)
from kordon.testing.messages.values import Values

PRODUCE = 0
RANDOMS = st.randoms(use_true_random=False)
REQUEST_VERSIONS = st.integers(0, 13)
UPSTREAM_VERSIONS = st.integers(3, 12)


def by_table(value: Any) -> dict[str, Any]:
    """What the table reads, of fields that matter here."""
    return {
        "transactional_id": value.get("transactional_id"),
        "acks": value.acks,
        "timeout_ms": value.timeout_ms,
        "topics": [
            (
                row.get("name", ""),
                row.get("topic_id"),
                [(part.index, part.records) for part in row.partition_data],
                row.get("undeleted_partition_count", -1),
                row.get("layout_epoch", -1),
            )
            for row in value.topic_data
        ],
    }


def by_hand(value: ProduceRequest) -> dict[str, Any]:
    """The same of what was walked over."""
    return {
        "transactional_id": value.transactional_id,
        "acks": value.acks,
        "timeout_ms": value.timeout_ms,
        "topics": [
            (
                row.name,
                row.topic_id,
                [(p.partition, None if p.records is None else bytes(p.records)) for p in parts],
                row.undeleted_partition_count,
                row.layout_epoch,
            )
            for row in value.topic_data
            for parts in [row.partition_data]
        ],
    }


@given(REQUEST_VERSIONS, RANDOMS)
def test_requests_are_read_as_the_table_reads_them(version: int, random: Random) -> None:
    """Every version, with tagged fields to come."""
    table = request(PRODUCE)
    body = table.build(version, Values(random, unknown_tags=True).message(table, version))
    assert by_hand(look_produce(version, body)) == by_table(table.parse(version, body))


@given(REQUEST_VERSIONS, RANDOMS)
def test_records_of_a_request_are_not_copied(version: int, random: Random) -> None:
    """They are parts of what came."""
    table = request(PRODUCE)
    body = table.build(version, Values(random).message(table, version))
    for topic in look_produce(version, body).topic_data:
        assert all(part.records is None or part.records.obj is body for part in topic.partition_data)


@given(REQUEST_VERSIONS, RANDOMS, st.data())
def test_damaged_requests_are_refused_as_the_table_refuses_them(
    version: int, random: Random, data: st.DataObject
) -> None:
    """Cut off or with a changed byte: both read the same, or both refuse."""
    table = request(PRODUCE)
    body = bytearray(table.build(version, Values(random).message(table, version)))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    else:
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = by_table(table.at(version).parse(bytes(body))[0])
    except WireError:
        with pytest.raises(WireError, match="ProduceRequest"):
            look_produce(version, bytes(body))
    else:
        assert by_hand(look_produce(version, bytes(body))) == read


TEXTS = st.text(max_size=200)
PARTITIONS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=200)), max_size=3)


@given(UPSTREAM_VERSIONS, st.sampled_from([1, -1]), st.lists(st.tuples(TEXTS, PARTITIONS), max_size=3))
def test_requests_are_built_as_the_table_builds_them(
    version: int, acks: int, topics: list[tuple[str, list[tuple[int, bytes]]]]
) -> None:
    """In pieces, which together are the table's bytes."""
    rows = [
        {"name": name, "partition_data": [{"index": index, "records": records} for index, records in partitions]}
        for name, partitions in topics
    ]
    fields = {"transactional_id": None, "acks": acks, "timeout_ms": 1_500, "topic_data": rows}
    built = build_produce(version, acks, 1_500, topics)
    assert b"".join(built) == request(PRODUCE).build(version, fields)


@given(UPSTREAM_VERSIONS, RANDOMS)
def test_answers_are_read_as_the_table_reads_them(version: int, random: Random) -> None:
    """All but leaders and addresses, which are not for clients."""
    table = response(PRODUCE)
    body = table.build(version, Values(random, unknown_tags=True).message(table, version))
    expected = [
        (
            row.name,
            [
                WriteOutcome(
                    part.index,
                    part.error_code,
                    part.base_offset,
                    part.get("log_append_time_ms", -1),
                    part.get("log_start_offset", -1),
                    tuple((e.batch_index, e.batch_index_error_message) for e in part.get("record_errors", ())),
                    part.get("error_message"),
                )
                for part in row.partition_responses
            ],
        )
        for row in table.parse(version, body).responses
    ]
    assert look_outcomes(version, body) == expected


@given(UPSTREAM_VERSIONS, RANDOMS, st.data())
def test_cut_answers_are_refused(version: int, random: Random, data: st.DataObject) -> None:
    """An answer that ends too early in what is read raises, and nothing else."""
    table = response(PRODUCE)
    body = table.build(version, Values(random).message(table, version))
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    try:
        read = look_outcomes(version, cut)
    except WireError:
        return
    assert read == look_outcomes(version, body), "only what is not read was cut off"


INT64 = st.integers(-(2**63), 2**63 - 1)
MESSAGES = st.none() | st.text(max_size=150)
OUTCOMES = st.builds(
    WriteOutcome,
    partition=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 120),
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.lists(st.tuples(st.integers(0, 2**31 - 1), MESSAGES), max_size=2).map(tuple),
    error_message=MESSAGES,
)


@given(REQUEST_VERSIONS, st.lists(st.tuples(TEXTS, st.uuids(), st.lists(OUTCOMES, max_size=3)), max_size=3))
def test_answers_are_built_as_the_table_builds_them(
    version: int, topics: list[tuple[str, UUID, list[WriteOutcome]]]
) -> None:
    """For all versions that clients have."""
    rows = [
        {
            "name": name,
            "topic_id": topic_id,
            "partition_responses": [
                {
                    "index": outcome.partition,
                    "record_errors": [
                        {"batch_index": index, "batch_index_error_message": what}
                        for index, what in outcome.record_errors
                    ],
                }
                | {name: value for name, value in outcome._asdict().items() if name != "record_errors"}
                for outcome in outcomes
            ],
        }
        for name, topic_id, outcomes in topics
    ]
    expected = response(PRODUCE).build(version, {"responses": rows, "throttle_time_ms": 0})
    assert build_outcomes(version, topics) == expected
