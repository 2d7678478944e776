"""A Fetch request is read where it lies, as the table reads it."""

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.errors import TooManyRows
from kordon.codecs.fetch_requests import FetchLook, FetchPartition, look_fetch, look_fetch_frame
from kordon.codecs.headers import build_request_header
from kordon.codecs.messages.fetch import REQUEST
from kordon.codecs.primitives import RowBudget
from kordon.testing.messages.values import Values

VERSIONS = st.integers(0, 18)
MARGIN = b"\xaa\xaa\xaa"


def framed(version: int, body: bytes, tagged: dict[int, bytes] | None = None) -> bytes:
    header = build_request_header(apis.FETCH, version, 7, "c", tagged or {})
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


Read = tuple[int, int, int, int, int, int, list[tuple[str | UUID, list[FetchPartition]]]]


def read(found: FetchLook | None) -> Read | None:
    """All that was read."""
    return None if found is None else (*found[:-1], [(each.topic, each.partitions()) for each in found.topics])


def by_the_table(version: int, body: bytes) -> Read:
    value = REQUEST.parse(version, body)
    topics = [
        (
            row.topic if version < 13 else row.topic_id,
            [
                (
                    each.partition,
                    each.get("current_leader_epoch", -1),
                    each.fetch_offset,
                    each.partition_max_bytes,
                )
                for each in row.partitions
            ],
        )
        for row in value.topics
    ]
    sizes = value.max_wait_ms, value.min_bytes, value.get("max_bytes", 2**31 - 1)
    session = value.get("session_id", 0), value.get("session_epoch", -1)
    return (*sizes, value.get("isolation_level", 0) & 0xFF, *session, topics)


@given(VERSIONS, st.lists(st.integers(0, 300), max_size=4), st.integers(-1, 2))
def test_what_clients_send_is_found(version: int, partitions: list[int], session_epoch: int) -> None:
    """Every version, with any number of topics and partitions; at any place of a buffer, and nothing behind its end."""
    topics = [
        {
            "topic": "é" * (number % 3 * 60) + str(number),
            "topic_id": UUID(int=number + 1),
            "partitions": [{"partition": each, "fetch_offset": 9, "partition_max_bytes": 9}] * count,
        }
        for number, (each, count) in enumerate(enumerate(partitions))
    ]
    fields = {"max_wait_ms": 1, "min_bytes": 1, "topics": topics, "forgotten_topics_data": [], "rack_id": ""}
    sessions = {"session_id": 5, "session_epoch": session_epoch} if version >= 7 else {}
    body = REQUEST.build(version, fields | sessions)
    frame = framed(version, body)
    found = look_fetch_frame(MARGIN + frame + MARGIN, len(MARGIN), len(MARGIN) + len(frame), version)
    assert read(found) == by_the_table(version, body)
    assert read(look_fetch(version, body + MARGIN)) == by_the_table(version, body)  # librdkafka sends more
    for end in range(len(frame) - len(body), len(frame)):
        assert look_fetch_frame(memoryview(frame), 0, end, version) is None


@given(VERSIONS, st.randoms(use_true_random=False))
def test_what_is_found_is_what_the_table_finds(version: int, random: Random) -> None:
    """Of any message, tagged fields included: either nothing, or the same."""
    body = REQUEST.build(version, Values(random).message(REQUEST, version))
    frame = framed(version, body)
    expected = by_the_table(version, body)
    assert read(look_fetch_frame(frame, 0, len(frame), version)) in (None, expected)
    assert read(look_fetch(version, body)) in (None, expected)


@given(VERSIONS, st.binary(max_size=120))
def test_noise_raises_nothing(version: int, noise: bytes) -> None:
    """It is left to the table, or is what the table reads."""
    found = look_fetch(version, noise)
    if found is not None:
        assert read(found) == by_the_table(version, noise)


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_no_count_is_believed(version: int) -> None:
    """Topics and partitions by the billion, in a few bytes."""
    billions = b"\xff\xff\xff\xff\x07" if version >= 12 else b"\x7f\xff\xff\xff"
    before = REQUEST.prefix(version, until="isolation_level").build({"max_wait_ms": 1, "min_bytes": 1})
    for count in (billions, b"\2\2t" + billions if version >= 12 else b"\0\0\0\1\0\1t" + billions):
        body = before + bytes(1 + 8 * (version >= 7)) + count + bytes(60)
        frame = framed(version, body)
        assert look_fetch_frame(frame, 0, len(frame), version) is None


def test_a_header_with_tagged_fields_is_left_to_the_table() -> None:
    """No client sends one."""
    body = REQUEST.build(12, {"max_wait_ms": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": []})
    frame = framed(12, body, {5: b"tag"})
    assert look_fetch_frame(frame, 0, len(frame), 12) is None


@pytest.mark.parametrize("count", [1, 2, 33])
def test_tagged_fields_of_rows_are_left_to_the_table(count: int) -> None:
    """Of replicas, which name their folders. Those bytes would do as a topic without rows, and B as a request's end."""
    row = {"partition": 0, "fetch_offset": 9, "partition_max_bytes": 9, "replica_directory_id": UUID(int=1)}
    a, b = ({"topic_id": each, "partitions": [row] * count} for each in (UUID(int=1), UUID(bytes=b"\1\1" + bytes(14))))
    body = REQUEST.build(17, {"max_wait_ms": 1, "min_bytes": 1, "topics": [a, b], "forgotten_topics_data": []})
    frame = framed(17, body)
    assert look_fetch_frame(frame, 0, len(frame), 17) is None


@pytest.mark.parametrize("version", [4, 12, 13])
def test_rows_have_a_bound(version: int) -> None:
    """Topics and partitions count, as they do for the table (`limits.request_rows`)."""
    row = {"partition": 0, "fetch_offset": 9, "partition_max_bytes": 9}
    topics = [{"topic": "t", "topic_id": UUID(int=1), "partitions": [row] * 4}] * 2
    body = REQUEST.build(version, {"max_wait_ms": 1, "min_bytes": 1, "topics": topics, "forgotten_topics_data": []})
    assert look_fetch(version, body, RowBudget(10)) is not None
    with pytest.raises(TooManyRows):
        look_fetch(version, body, RowBudget(9))


@pytest.mark.parametrize("fields", [{"group_id": "g"}, {"cluster_id": "c"}])
def test_who_says_more_is_left_to_the_table(fields: dict[str, str]) -> None:
    """Clients of the dialect, and replicas, say who they are in tagged fields."""
    asked = {"max_wait_ms": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
    assert look_fetch(12, REQUEST.build(12, asked)) is not None
    assert look_fetch(12, REQUEST.build(12, asked | fields)) is None


def test_what_forgets_partitions_is_left_to_the_table() -> None:
    """Only a session has something to forget."""
    fields = {"max_wait_ms": 1, "min_bytes": 1, "topics": []}
    forgotten = [{"topic": "t", "partitions": [1]}]
    body = REQUEST.build(11, fields | {"forgotten_topics_data": forgotten, "rack_id": ""})
    assert look_fetch(11, body) is None
