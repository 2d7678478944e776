"""Message bodies have types: `codecs/bodies.pyi` follows the tables, and type checkers know fields by it.

mypy is strict about this file as about all others: it reports a line that it need not ignore.
"""

from __future__ import annotations

from typing import assert_type

import pytest

from kordon.codecs.bodies import ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic
from kordon.codecs.messages import list_offsets
from kordon.testing.messages.make_bodies import PATH, text

REQUEST = list_offsets.REQUEST


def read(version: int) -> ListOffsetsRequest:
    """Returns a request that has been written and read."""
    row = ListOffsetsRequestPartition(partition_index=3, timestamp=-1)
    topic = ListOffsetsRequestTopic(name="orders", partitions=[row])
    return REQUEST.parse(version, REQUEST.build(version, ListOffsetsRequest(topics=[topic])))


def test_the_types_are_those_of_the_tables() -> None:
    assert PATH.read_text() == text(), "`python -m kordon.testing.messages.make_bodies` writes them anew"


def test_a_field_has_the_type_of_its_row_in_the_table() -> None:
    topic = read(4).topics[0]

    assert assert_type(topic.name, str) == "orders"
    assert assert_type(topic.partitions[0].timestamp, int) == -1


def test_a_field_that_a_version_lacks_has_the_default_that_is_asked_for() -> None:
    row = read(1).topics[0].partitions[0]

    assert assert_type(row.get("current_leader_epoch", -1), int) == -1
    with pytest.raises(AttributeError, match="current_leader_epoch"):
        assert row.current_leader_epoch


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(AttributeError, match="topic"):
        assert read(4).topic  # type: ignore[attr-defined]
    with pytest.raises(KeyError):
        assert read(4)["topic"]
    assert ListOffsetsRequestTopic(title="orders")  # type: ignore[call-arg]


def test_a_field_can_be_changed() -> None:
    request = read(4)
    request.isolation_level = 1
    request.topics[0].partitions[0].timestamp = "now"  # type: ignore[assignment]

    assert request["isolation_level"] == 1


def test_a_copy_has_its_fields_as_attributes_too() -> None:
    request = read(4)
    other = request.copy()
    other.topics = []

    assert_type(other, ListOffsetsRequest)
    assert request.topics[0].name == "orders"
