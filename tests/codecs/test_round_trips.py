"""What is built comes back, in every version, with tagged fields that no table knows kept."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.codecs.messages import REQUESTS, RESPONSES, request, response
from kordon.codecs.row import Row
from kordon.codecs.schema import Message
from kordon.testing.messages.values import Values

MESSAGES = [*REQUESTS.values(), *RESPONSES.values()]
EXAMPLES = settings().max_examples // 6
"""Per message: there are 120 of them."""
SEEDS = st.integers(0, 2**32)
"""Of values. If Hypothesis drew each part of a value, that would take ten times as long, and leave large ones out."""


def assert_equal(built: Any, parsed: Any, path: str = "") -> None:
    """Compares strictly, types of values included."""
    if isinstance(built, dict):
        assert built.keys() == parsed.keys(), path
        for key, value in built.items():
            assert_equal(value, parsed[key], f"{path}.{key}")
    elif isinstance(built, list):
        assert len(built) == len(parsed), path
        for index, value in enumerate(built):
            assert_equal(value, parsed[index], f"{path}[{index}]")
    else:
        assert built == parsed, path
        assert type(built) is type(parsed), path


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_value_comes_back(message: Message[Row], data: st.DataObject) -> None:
    """parse(build(value)) is value, and build(parse(bytes)) the same bytes."""
    version = data.draw(st.sampled_from(message.versions))
    value = Values(Random(data.draw(SEEDS)), unknown_tags=True, longest=2).message(message, version)
    built = message.build(version, value)
    parsed = message.parse(version, built)
    assert_equal(value, parsed)
    assert message.build(version, parsed) == built
    assert_equal(message.parse(version, memoryview(built)), message.parse(version, bytearray(built)))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_message_of_defaults_comes_back(message: Message[Row]) -> None:
    """Nothing has to be given: each field has the default of its schema, and a tagged default is not written."""
    for version in message.versions:
        built = message.build(version, {})
        assert message.build(version, message.parse(version, built)) == built


def test_parts_of_a_message_make_the_whole() -> None:
    """The bytes of a prefix and of the suffix behind it, one after the other, are the message."""
    fields = {
        "brokers": [{"node_id": 1, "host": "a", "port": 9092}],
        "cluster_id": "c",
        "topics": [{"name": "t", "_tagged": {9: b"x"}}],
        "_tagged": {7: b"y"},
    }
    for version in response(3).versions:
        prefix = response(3).prefix(version, until="cluster_id")
        suffix = response(3).suffix(version, after="brokers")
        whole = response(3).build(version, fields)
        assert prefix.build(fields) + suffix.build(fields) == whole
        value, consumed = prefix.parse(whole)
        assert value.brokers[0].host == "a"
        rest, size = suffix.parse(whole[consumed:])
        assert consumed + size == len(whole)
        assert rest.get("_tagged", {}) == ({7: b"y"} if version >= 9 else {})


def test_suffix_knows_tagged_fields_that_the_table_names_before_it() -> None:
    """A tagged field stands behind all others on the wire, wherever its row is."""
    suffix = request(1).suffix(17, after="topics")
    data = suffix.build({"rack_id": "r", "cluster_id": "c", "replica_state": {"replica_id": 4}})
    value, _ = suffix.parse(data)
    assert (value.rack_id, value.cluster_id, value.replica_state.replica_id) == ("r", "c", 4)


def test_absent_tagged_struct_shows_its_defaults() -> None:
    """No code needs to ask whether a tagged field was there."""
    fetched = response(1).parse(17, response(1).build(17, {"responses": [{"partitions": [{}]}]}))
    assert fetched.responses[0].partitions[0].current_leader.leader_id == -1
    assert fetched.node_endpoints == []


def test_defaults_are_not_shared() -> None:
    """Changing the list in one parsed message does not change the next one's."""
    data = response(1).build(17, {})
    response(1).parse(17, data).node_endpoints.append({"node_id": 1, "host": "a", "port": 1})
    assert response(1).parse(17, data).node_endpoints == []
