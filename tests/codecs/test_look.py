"""The look at a frame's head reads what the headers' construct definition says, and Produce's acks."""

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs import look
from kordon.codecs.errors import WireError
from kordon.codecs.headers import (
    build_request_header,
    build_response_header,
    parse_request_header,
    parse_response_header,
    request_header_version,
)
from kordon.codecs.messages import request
from kordon.testing.messages.values import UNKNOWN_TAGS, Values

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
Tagged = dict[int, bytes]
CLIENT_IDS = st.none() | st.text(alphabet="ab-é🙂", max_size=20)
TAGGED = st.dictionaries(st.sampled_from(UNKNOWN_TAGS), st.binary(max_size=40), max_size=3)
MARGIN = b"\xaa\xaa\xaa"


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(INT16, INT16, INT32, CLIENT_IDS, TAGGED)
def test_request_look_equals_the_header(
    key: int, version: int, correlation: int, client_id: str | None, tagged: Tagged
) -> None:
    """Same key, version, correlation id and length of the client id, at any place of a buffer."""
    frame = framed(build_request_header(key, version, correlation, client_id, tagged) + b"body")
    header, consumed = parse_request_header(frame[4:])
    assert frame[4 + consumed :] == b"body"
    seen = look.look_request(MARGIN + frame, len(MARGIN))
    length = -1 if header.client_id is None else len(header.client_id.encode())
    assert seen == (len(frame) - 4, header.api_key, header.api_version, header.correlation_id, length)
    assert header.tagged == (tagged if request_header_version(key, version) == 2 else {})


@given(st.sampled_from([(3, 1), (3, 12), (18, 3), (17, 1), (68, 0)]), INT32, TAGGED)
def test_response_look_equals_the_header(api: tuple[int, int], correlation_id: int, tagged: Tagged) -> None:
    """Same size and correlation id; with tagged fields behind them or without."""
    frame = framed(build_response_header(*api, correlation_id, tagged) + b"body")
    header, consumed = parse_response_header(*api, frame[4:])
    assert frame[4 + consumed :] == b"body"
    assert look.look_response(MARGIN + frame, len(MARGIN)) == (len(frame) - 4, header.correlation_id)
    assert look.look_size(MARGIN + frame, len(MARGIN)) == len(frame) - 4


@given(st.integers(0, 13), CLIENT_IDS, TAGGED, st.randoms(use_true_random=False))
def test_acks_are_found_as_soon_as_they_are_there(
    version: int, client_id: str | None, tagged: Tagged, random: Random
) -> None:
    """Cut at every byte: None while acks lie behind the end, then their value."""
    value = Values(random).message(request(0), version)
    head = build_request_header(0, version, 7, client_id, tagged)
    frame = framed(head + request(0).build(version, value))
    known_from = 4 + len(head) + len(request(0).prefix(version, until="timeout_ms").build(value))
    for end in range(look.REQUEST_LOOK_BYTES, len(frame) + 1):
        found = look.look_acks(MARGIN + frame, len(MARGIN), len(MARGIN) + end, version)
        assert found == (value["acks"] if end >= known_from else None)


@given(st.integers(0, 13), st.binary(min_size=look.REQUEST_LOOK_BYTES, max_size=80))
def test_acks_of_noise_raise_only_wire_errors(version: int, noise: bytes) -> None:
    """Whatever the bytes are, the look stays inside of them."""
    try:
        found = look.look_acks(noise, 0, len(noise), version)
    except WireError:
        return
    assert found is None or -(2**15) <= found < 2**15


def produce(version: int, topics: bytes) -> tuple[bytes, int]:
    """Returns a Produce request of a flexible version, and where its topics begin."""
    head = build_request_header(0, version, 1, "c") + b"\0\xff\xff\0\0\3\xe8"
    return framed(head + topics), 4 + len(head)


@given(
    st.integers(0, 13), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.binary(max_size=200), st.integers(0, 1)
)
def test_names_around_records_are_found(version: int, partitions: list[int], records: bytes, is_cut: int) -> None:
    """Each topic that is written to, and nothing of its records; of a request that is not all here nothing."""
    names = [f"topic-{at}" for at in range(len(partitions))]
    ids = [UUID(int=at + 1) for at in range(len(partitions))]
    topics = [
        {"name": name, "topic_id": topic_id, "partition_data": [{"index": 0, "records": records}] * count}
        for name, topic_id, count in zip(names, ids, partitions, strict=True)
    ]
    body = request(0).build(version, {"acks": 1, "timeout_ms": 1000, "topic_data": topics})
    frame = framed(build_request_header(0, version, 1, "c") + body)
    end = len(frame) - (len(frame) // 3 if is_cut else 0)
    acks, topics_at = look.look_produce(frame, 0, end, version)
    found = None if acks is None else look.look_names(frame, 0, topics_at, end, version)
    assert is_cut or found is not None
    if found is not None:
        told = [each.bytes for each in ids] if version == 13 else [each.encode() for each in names]
        assert all(each in found for each in told)
        assert len(found) <= topics_at + 20 * len(topics) + 20
    if not is_cut:
        assert look.look_names_of_body(body, version) == (found or b"")[len(frame) - len(body) :]


@given(st.integers(0, 13), st.text(alphabet="ab-é🙂", min_size=1, max_size=140), st.integers(1, 2), CLIENT_IDS)
def test_the_only_topic_is_found(version: int, name: str, count: int, client_id: str | None) -> None:
    """By name or id, where there is one, as the table reads it; and nowhere else."""
    rows = [{"index": 0, "records": b"records"}]
    topics = [{"name": name, "topic_id": UUID(int=5), "partition_data": rows}] * count
    body = request(0).build(version, {"acks": 1, "timeout_ms": 1000, "topic_data": topics})
    frame = framed(build_request_header(0, version, 1, client_id) + body)
    _, topics_at = look.look_produce(frame, 0, len(frame), version)
    names_end = look.look_only_name(frame, topics_at, len(frame), version)
    found = look.only_topic(frame, topics_at, names_end, version)
    assert found == (None if count > 1 else name if version < 13 else UUID(int=5))


@given(st.integers(0, 13), st.binary(max_size=80))
def test_the_only_topic_of_noise_raises_nothing(version: int, noise: bytes) -> None:
    """Nor does it read behind the end."""
    frame, topics_at = produce(version, noise)
    names_end = look.look_only_name(frame, topics_at, len(frame), version)
    look.only_topic(frame, topics_at, names_end, version)


@given(st.integers(0, 13), st.binary(max_size=80))
def test_names_of_noise_raise_nothing(version: int, noise: bytes) -> None:
    """What cannot be walked is to be looked at as a whole, and read by the tables."""
    frame, topics_at = produce(version, noise)
    look.look_names(frame, 0, topics_at, len(frame), version)
    look.look_names_of_body(noise, version)


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("topics", [2, 100_000])
def test_no_count_of_names_is_believed(version: int, topics: int) -> None:
    """A topic of four billion partitions in 60 bytes, and very many topics of none, are stepped over no further."""
    billions, name = b"\xff\xff\xff\xff\x0f", bytes(16) if version == 13 else b"\2t"
    few = b"\3" + (name + billions) * topics
    frame, topics_at = produce(version, few if topics == 2 else billions + (name + b"\1\0") * topics)
    assert look.look_names(frame, 0, topics_at, len(frame), version) is None


@pytest.mark.parametrize("topics", [b"\2", b"\3"])
def test_a_name_of_endless_length_is_no_name(topics: bytes) -> None:
    """The length of a name that does not end within five bytes is not found, and nothing fails."""
    frame, topics_at = produce(12, topics + b"\xff" * 8)
    assert look.look_names(frame, 0, topics_at, len(frame), 12) is None
