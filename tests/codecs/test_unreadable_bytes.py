"""Bytes that are cut, changed or made to harm raise one kind of error that says where, and cost little."""

import contextlib
import time
import tracemalloc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from kordon.codecs.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, parse_versioned
from kordon.codecs.errors import BuildError, WireError
from kordon.codecs.headers import parse_request_header, parse_response_header
from kordon.codecs.messages import REQUESTS, RESPONSES, request, response
from kordon.codecs.records import BATCH_HEADER, batches, parse_control_batch
from kordon.codecs.row import Row
from kordon.codecs.schema import Message
from kordon.codecs.skim import Skim
from kordon.testing.messages.values import Values

pytestmark = pytest.mark.slow
MESSAGES = [*REQUESTS.values(), *RESPONSES.values()]
PAIRS = [(message, version) for message in MESSAGES for version in message.versions]
EXTREMES = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff",
    b"\x80\x80",
)
"""Lengths, counts and varints as large, as negative or as long as they can be."""


def mutated(random: Random, data: bytes) -> bytes:
    """Changes bytes as line noise, a bug or an attacker would."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(changed) + 1)
        match random.randrange(5):
            case 0:
                changed[at : at + 1] = random.randbytes(1)
            case 1:
                changed[at : at + 4] = random.choice(EXTREMES)
            case 2:
                del changed[at : at + random.randint(1, 8)]
            case 3:
                changed[at:at] = random.randbytes(random.randint(1, 8))
            case _:
                changed = changed[:at] + changed[random.randrange(len(changed) + 1) :]
    return bytes(changed)


def readable(random: Random) -> Iterator[tuple[Message[Row], int, bytes]]:
    """Yields messages without end, each version of each in turn."""
    while True:
        for message, version in PAIRS:
            value = Values(random, unknown_tags=True, longest=random.choice((1, 3, 8))).message(message, version)
            yield message, version, message.build(version, value)


def read_mutated(count: int, seed: int) -> dict[str, int]:
    """Parses and skims `count` mutated messages; returns how many could be read and how many not."""
    random = Random(seed)
    outcomes = {"readable": 0, "unreadable": 0}
    source = readable(random)
    done = 0
    while done < count:
        message, version, data = next(source)
        for _ in range(min(10, count - done)):
            outcomes[read(message, version, mutated(random, data))] += 1
            done += 1
    return outcomes


def read(message: Message[Row], version: int, data: bytes) -> str:
    """Parses and skims; what construct can read, the skim must pass as well."""
    skim = Skim(message, version, after=message.fields[-1].name)
    try:
        message.parse(version, data)
    except WireError as error:
        refusal = error
    else:
        end = skim.advance(data, 0, len(data))
        assert skim.done
        assert end <= len(data)
        return "readable"
    assert (refusal.message, refusal.version) == (message.name, version)
    assert refusal.offset is not None
    assert 0 <= refusal.offset <= len(data)
    with contextlib.suppress(WireError):
        skim.advance(data, 0, len(data))
    return "unreadable"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_message_cut_at_every_byte_is_refused(message: Message[Row]) -> None:
    """No part of a message is taken for a message; the error names message, version and place."""
    for version in message.versions:
        data = message.build(version, Values(Random(7), unknown_tags=True, longest=1).message(message, version))
        for length in range(len(data)):
            with pytest.raises(WireError, match=f"{message.name} v{version}: ") as caught:
                message.parse(version, data[:length])
            assert caught.value.offset is not None
            assert caught.value.offset <= length


def test_mutated_messages_raise_only_wire_errors() -> None:
    """20,000 mutated messages over all tables and versions."""
    outcomes = read_mutated(20_000, seed=1)
    assert outcomes["unreadable"] > 5_000
    assert outcomes["readable"] > 1_000


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(20))
def test_a_million_mutated_messages_raise_only_wire_errors(seed: int) -> None:
    """50,000 with each of 20 seeds."""
    assert read_mutated(50_000, seed=100 + seed)["unreadable"] > 10_000


@pytest.mark.parametrize(
    "parse",
    [
        parse_request_header,
        lambda data: parse_response_header(3, 12, data),
        lambda data: parse_versioned(SUBSCRIPTION, data),
        lambda data: parse_versioned(ASSIGNMENT, data),
        lambda data: list(batches(data)),
        parse_control_batch,
        lambda data: response(3).prefix(12, until="cluster_id").parse(data),
        lambda data: response(1).suffix(17, after="responses").parse(data),
    ],
    ids=["request header", "response header", "subscription", "assignment", "batches", "control", "prefix", "suffix"],
)
def test_noise_raises_only_wire_errors(parse: Callable[[bytes], Any]) -> None:
    """The other ways in: 3,000 random inputs each, most of them full of small numbers, as real ones are."""
    random = Random(3)
    refused = 0
    for _ in range(3_000):
        size = random.randint(0, 90)
        data = bytes(random.choice((0, 0, 1, 2, random.randrange(256))) for _ in range(size))
        try:
            parse(data)
        except WireError:
            refused += 1
    assert refused > 0


BOMBS = {
    "count without elements": (response(3), 1, b"\x7f\xff\xff\xff"),
    "compact count without elements": (response(3), 12, b"\0\0\0\0" + b"\xff\xff\xff\xff\x07"),
    "string without text": (request(10), 0, b"\x7f\xff"),
    "bytes without bytes": (request(36), 0, b"\x7f\xff\xff\xff"),
    "compact bytes without bytes": (request(36), 2, b"\xff\xff\xff\xff\x07"),
    "tags without fields": (request(36), 2, b"\x01" + b"\xff\xff\xff\xff\x07"),
    "nested counts": (request(1), 0, b"\0" * 12 + b"\0\0\0\x01" + b"\0\x01a" + b"\x7f\xff\xff\xff"),
}


@pytest.mark.parametrize(("message", "version", "data"), BOMBS.values(), ids=BOMBS)
def test_claimed_length_allocates_nothing(message: Message[Row], version: int, data: bytes) -> None:
    """Two gigabytes that are only claimed cost less than 100 KB: lengths are held against what is there."""
    message.at(version)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            message.parse(version, data + bytes(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


DENSE = [
    (response(3), 12, {"topics": [{"partitions": [{}] * 3_000}]}),
    (response(1), 17, {"responses": [{"partitions": [{}] * 3_000}]}),
    (request(1), 17, {"topics": [{"partitions": [{}] * 3_000}]}),
    (request(3), 12, {"topics": [{"name": ""}] * 3_000}),
    (request(19), 7, {"topics": [{"name": ""}] * 3_000}),
    (request(32), 4, {"resources": [{}] * 3_000}),
    (response(18), 3, {"supported_features": [{}] * 3_000}),
    (request(9), 7, {"topics": [{"partition_indexes": [0] * 30_000}]}),
]


@pytest.mark.parametrize(("message", "version", "value"), DENSE, ids=lambda value: getattr(value, "name", ""))
def test_memory_is_a_small_multiple_of_the_input(message: Message[Row], version: int, value: dict[str, Any]) -> None:
    """Also where the input is all empty elements, the densest there can be."""
    data = message.build(version, value)
    tracemalloc.start()
    try:
        started = time.process_time()
        message.parse(version, data)
        taken = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(data)
    assert taken < 5


def test_error_says_where() -> None:
    """The path leads through arrays and structs to the field, the offset to the byte."""
    data = bytearray(response(3).build(1, {"brokers": [{"host": "a"}, {"host": "bcd"}]}))
    at = data.index(b"bcd")
    data[at - 2 : at] = b"\xff\xf0"
    with pytest.raises(WireError) as caught:
        response(3).parse(1, data)
    assert str(caught.value) == f"MetadataResponse v1: brokers[1].host: string has the length -16 (at byte {at})"
    assert (caught.value.path, caught.value.offset) == ("brokers[1].host", at)


def test_bytes_behind_a_message_are_refused() -> None:
    """A body that is longer than its message is not what the table says."""
    with pytest.raises(WireError, match="1 bytes too many"):
        request(12).parse(0, request(12).build(0, {}) + b"\0")


def test_unknown_version_is_refused() -> None:
    """Nothing is guessed about a version that the table has not."""
    with pytest.raises(WireError, match="MetadataRequest v14: no such version, known are 0 to 13"):
        request(3).parse(14, b"")


def test_tag_that_comes_twice_is_refused() -> None:
    """Which of the two would count?"""
    with pytest.raises(WireError, match="tag 5 comes twice"):
        request(36).parse(2, b"\x01" + b"\x02" + b"\x05\x00" + b"\x05\x00")


def test_tagged_field_that_is_longer_than_its_value_is_refused() -> None:
    """A known tagged field has to end where its size says."""
    data = request(1).suffix(17, after="topics").build({"cluster_id": "c"})
    assert data.endswith(b"\x01\x00\x02\x02c")
    longer = data.removesuffix(b"\x00\x02\x02c") + b"\x00\x03\x02cc"
    with pytest.raises(WireError, match="cluster_id: 1 bytes too many in a tagged field"):
        request(1).suffix(17, after="topics").parse(longer)


def test_string_that_is_no_utf_8_is_refused() -> None:
    """A name is never mended into another one."""
    with pytest.raises(WireError, match=r"FindCoordinatorRequest v0: key: string is not UTF-8"):
        request(10).parse(0, b"\0\x02\xc3\x28")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"group_id": None}, "group_id"),
        ({"generation_id": 2**31}, "generation_id"),
        ({"generation_id": "1"}, "generation_id"),
        ({"member_id": 5}, "member_id"),
    ],
)
def test_value_that_does_not_fit_is_a_build_error(value: dict[str, Any], path: str) -> None:
    """Mistakes of the one who builds say which field, and are no WireError: no peer is to blame."""
    with pytest.raises(BuildError, match=f"HeartbeatRequest v4: {path}: ") as caught:
        request(12).build(4, value)
    assert not isinstance(caught.value, WireError)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (
            {"responses": [{}, {"partitions": [{"high_watermark": 2**63}]}]},
            r"responses\[1\].partitions\[0\].high_watermark",
        ),
        ({"node_endpoints": None}, "node_endpoints"),
        ({"node_endpoints": [{"host": None}]}, r"node_endpoints\[0\].host"),
        ({"responses": [None]}, r"responses\[0\]"),
        ({"_tagged": {5: "text"}}, "_tagged"),
        ({"_tagged": {-5: b""}}, "_tagged"),
    ],
)
def test_value_that_does_not_fit_is_named_deep_inside(value: dict[str, Any], path: str) -> None:
    """Through arrays, structs and tagged fields, known and unknown."""
    with pytest.raises(BuildError, match=f"FetchResponse v17: {path}"):
        response(1).build(17, value)


def test_batch_header_shorter_than_it_is_refused() -> None:
    """The table of the batch header refuses what the walk would leave out."""
    with pytest.raises(WireError, match="RecordBatch v2"):
        BATCH_HEADER.parse(2, bytes(60))
