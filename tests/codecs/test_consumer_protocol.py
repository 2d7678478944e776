"""Subscriptions and assignments, as consumers of all kinds write them."""

import importlib
from random import Random

import kio.schema.consumer_protocol_assignment as kio_assignment
import kio.schema.consumer_protocol_subscription as kio_subscription
import pytest
from kio.serial import entity_reader

from kordon.codecs.consumer_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    build_versioned,
    parse_versioned,
)
from kordon.codecs.errors import WireError
from kordon.testing.messages.values import Values

VERSIONS = range(4)


@pytest.mark.parametrize("version", VERSIONS)
def test_subscription_comes_back_and_kio_agrees(version: int) -> None:
    """All versions; the version itself stands in front."""
    module = importlib.import_module(f"{kio_subscription.__name__}.v{version}.data")
    for seed in range(20):
        value = Values(Random(seed)).message(SUBSCRIPTION, version)
        data = build_versioned(SUBSCRIPTION, version, value)
        assert parse_versioned(SUBSCRIPTION, data) == (version, value, b"")
        theirs, size = entity_reader(module.ConsumerProtocolSubscription)(data, 2)
        assert size == len(data) - 2
        assert list(theirs.topics) == value["topics"]
        assert theirs.user_data == value["user_data"]


@pytest.mark.parametrize("version", VERSIONS)
def test_assignment_comes_back_and_kio_agrees(version: int) -> None:
    """All versions; the version itself stands in front."""
    module = importlib.import_module(f"{kio_assignment.__name__}.v{version}.data")
    for seed in range(20):
        value = Values(Random(seed)).message(ASSIGNMENT, version)
        data = build_versioned(ASSIGNMENT, version, value)
        assert parse_versioned(ASSIGNMENT, data) == (version, value, b"")
        theirs, _ = entity_reader(module.ConsumerProtocolAssignment)(data, 2)
        assert [(part.topic, list(part.partitions)) for part in theirs.assigned_partitions] == [
            (part["topic"], part["partitions"]) for part in value["assigned_partitions"]
        ]


def test_newer_version_is_read_as_the_newest_known() -> None:
    """Fields are only ever added at the end; the rest stays as it is."""
    data = bytearray(build_versioned(SUBSCRIPTION, 3, {"topics": ["t"], "rack_id": "r"}) + b"new")
    data[:2] = b"\0\x09"
    subscription = parse_versioned(SUBSCRIPTION, data)
    assert subscription.version == 9
    assert (subscription.value.topics, subscription.value.rack_id) == (["t"], "r")
    assert subscription.rest == b"new"
    assert build_versioned(SUBSCRIPTION, *subscription) == data


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    """Also what other protocol types on the coordinator may put there."""
    with pytest.raises(WireError, match="ConsumerProtocolSubscription"):
        parse_versioned(SUBSCRIPTION, data)
