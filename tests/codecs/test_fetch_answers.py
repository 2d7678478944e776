"""A topic of a Fetch response is written as the table writes it."""

from typing import cast
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from kordon.codecs.bodies import FetchResponse, FetchResponseTopic
from kordon.codecs.fetch_answers import build_topic
from kordon.codecs.messages.fetch import PARTITION_DATA, RESPONSE
from kordon.codecs.primitives import Built, Pieces
from kordon.proxy.reads.fetch_rows import told_row

ROWS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=300)


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
