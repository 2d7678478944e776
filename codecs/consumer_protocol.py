"""What consumers tell each other inside JoinGroup and SyncGroup: subscriptions and assignments.

The bytes begin with their own version. A reader that meets a newer version reads it as the newest it knows and
leaves the rest, because fields are only ever added at the end. None of it is flexible.

Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json in Kafka 4.3; ConsumerProtocol.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from kordon.codecs.bodies import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kordon.codecs.errors import WireError
from kordon.codecs.primitives import BYTES, INT32, STRING, TOPIC_NAME
from kordon.codecs.row import Row
from kordon.codecs.schema import Buffer, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 1 added the "OwnedPartitions" field to allow assigner know what partitions each member owned
# Version 2 added a new field "GenerationId" to indicate if the member has out-of-date ownedPartitions.
# Version 3 adds rack id to enable rack-aware assignment.
SUBSCRIPTION: Final[Message[ConsumerProtocolSubscription]] = message(
    "ConsumerProtocolSubscription",
    field("topics", array(STRING), "0+"),
    field("user_data", BYTES, "0+", nullable="0+", default=None),
    field("owned_partitions", array(struct(
        field("topic", TOPIC_NAME, "1+"),
        field("partitions", array(INT32), "1+"),
    )), "1+"),
    field("generation_id", INT32, "2+", default=-1),
    field("rack_id", STRING, "3+", nullable="3+", default=None),
    versions="0-3",
)

# Version 2 is to support a new field "GenerationId" in ConsumerProtocolSubscription.
# Version 3 adds rack id to ConsumerProtocolSubscription.
ASSIGNMENT: Final[Message[ConsumerProtocolAssignment]] = message(
    "ConsumerProtocolAssignment",
    field("assigned_partitions", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(INT32), "0+"),
    )), "0+"),
    field("user_data", BYTES, "0+", nullable="0+", default=None),
    versions="0-3",
)
# fmt: on

_VERSION_BYTES: Final = 2
_Body = TypeVar("_Body", bound=Row)


class Versioned(NamedTuple, Generic[_Body]):
    """A value and the version it was written in."""

    version: int
    """As the bytes say; above 3 the value is what version 3 has of it."""
    value: _Body


def parse_subscription(data: Buffer) -> Versioned[ConsumerProtocolSubscription]:
    """Reads the metadata that a member of protocol type `consumer` joins with.

    Raises:
        WireError: The bytes are no subscription.
    """
    return _parse(SUBSCRIPTION, data)


def parse_assignment(data: Buffer) -> Versioned[ConsumerProtocolAssignment]:
    """Reads the assignment that a member of protocol type `consumer` is given.

    Raises:
        WireError: The bytes are no assignment.
    """
    return _parse(ASSIGNMENT, data)


def build_subscription(version: int, value: Mapping[str, object]) -> bytes:
    """Writes a subscription, its version in front.

    Raises:
        BuildError: A value does not fit its field.
    """
    return version.to_bytes(_VERSION_BYTES, "big") + SUBSCRIPTION.build(version, value)


def build_assignment(version: int, value: Mapping[str, object]) -> bytes:
    """Writes an assignment, its version in front.

    Raises:
        BuildError: A value does not fit its field.
    """
    return version.to_bytes(_VERSION_BYTES, "big") + ASSIGNMENT.build(version, value)


def _parse(table: Message[_Body], data: Buffer) -> Versioned[_Body]:
    if len(data) < _VERSION_BYTES:
        raise WireError("ends before its version", message=table.name, offset=len(data))
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    newest = table.versions[-1]
    value, _ = table.at(min(version, newest)).parse(data[_VERSION_BYTES:])
    return Versioned(version, value)
