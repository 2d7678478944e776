"""Fetch responses are written as the table writes them."""

from typing import cast
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from kordon.codecs.bodies import FetchResponse, FetchResponseTopic
from kordon.codecs.fetch_answers import PartitionBounds, build_answer, build_partition, build_topic
from kordon.codecs.messages.fetch import PARTITION_DATA, RESPONSE
from kordon.codecs.primitives import Built, Pieces
from kordon.proxy.reads.fetch_rows import told_row

ROWS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=300)
OFFSETS = st.integers(-(2**63), 2**63 - 1)
BOUNDS = st.builds(
    PartitionBounds, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**15), 2**15 - 1), OFFSETS, OFFSETS, OFFSETS
)


@example(12, "é", UUID(int=1), [(0, 5)])
@given(st.integers(0, 18), st.text(max_size=150).filter(lambda name: len(name.encode()) < 250), st.uuids(), ROWS)
def test_a_topic_is_written_as_the_table_writes_it(
    version: int, name: str, topic_id: UUID, told: list[tuple[int, int]]
) -> None:
    """In every version, by name or id, with few rows and with many, alone and between others."""
    rows = [told_row(partition, end, 0, Pieces()) for partition, end in told]
    topic = FetchResponseTopic(topic=name, topic_id=topic_id, partitions=rows)
    data = build_topic(version, name, topic_id, [PARTITION_DATA.build(version, row) for row in rows])
    written = cast("FetchResponseTopic", Built(topic, data))
    for others in ([], [topic]):
        by_table = RESPONSE.build(version, FetchResponse(responses=[*others, topic, *others]))
        assert RESPONSE.build(version, FetchResponse(responses=[*others, written, *others])) == by_table


@example(3, PartitionBounds(1, 2, 3, 4, 5), [b"a", b"b" * 130], True)
@example(4, PartitionBounds(1, 2, 3, 4, 5), [], False)
@example(5, PartitionBounds(1, 2, 3, 4, 5), [], False)
@example(12, PartitionBounds(1, 2, 3, 4, 5), [b"b" * 127], False)
@given(st.integers(0, 18), BOUNDS, st.lists(st.binary(max_size=200), max_size=3), st.booleans())
def test_a_row_is_written_as_the_table_writes_it(
    version: int, told: PartitionBounds, records: list[bytes], is_null: bool
) -> None:
    """In every version, with records and without, with no list of aborted transactions and with an empty one."""
    row = told_row(told.partition, told.high_watermark, told.log_start_offset, Pieces(records))
    row.error_code, row.last_stable_offset = told.error_code, told.last_stable_offset
    row.aborted_transactions = None if is_null else []
    assert build_partition(version, told, records, is_null=is_null) == PARTITION_DATA.build(version, row)


@given(st.integers(0, 18), st.integers(0, 2**31 - 1), st.lists(ROWS, max_size=3), st.uuids())
def test_an_answer_is_written_as_the_table_writes_it(
    version: int, session_id: int, told: list[list[tuple[int, int]]], topic_id: UUID
) -> None:
    """In every version, with a session and without."""
    topics = [
        FetchResponseTopic(
            topic="t", topic_id=topic_id, partitions=[told_row(partition, end, 0, Pieces()) for partition, end in rows]
        )
        for rows in told
    ]
    written = [
        build_topic(version, "t", topic_id, [PARTITION_DATA.build(version, row) for row in each.partitions])
        for each in topics
    ]
    by_table = RESPONSE.build(version, FetchResponse(session_id=session_id, responses=topics))
    assert build_answer(version, session_id, written) == by_table
