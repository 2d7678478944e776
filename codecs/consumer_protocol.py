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
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import BYTES, INT32, STRING, TOPIC_NAME, RowBudget
from kordon.codecs.row import Row
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# A member of version 1 says which partitions it owns, and from version 2 on since which generation.
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

# Nothing has changed in it since version 0; its versions rise with those of the subscription.
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
    """A value, the version that it was written in, and the bytes after it."""

    version: int
    """The version that the bytes name. For one that is not known yet, the value has the fields of the newest known."""
    value: _Body
    rest: bytes
    """Fields of versions to come."""


def parse_versioned(table: Message[_Body], data: Buffer, rows: RowBudget | None = None) -> Versioned[_Body]:
    """Reads a subscription or an assignment.

    Args:
        rows: How many rows may be read, for what strangers send; None: as many as there are.

    Raises:
        WireError: The bytes are none.
        TooManyRows: It has more rows than that.
    """
    if len(data) < _VERSION_BYTES:
        raise WireError("ends before its version", message=table.name, offset=len(data))
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    body = data[_VERSION_BYTES:]
    value, size = table.at(_known(table, version)).parse(body, rows)
    return Versioned(version, value, bytes(body[size:]))


def build_versioned(table: Message[_Body], version: int, value: Mapping[str, object], rest: bytes = b"") -> bytes:
    """Writes a subscription or an assignment after its version.

    Args:
        rest: The bytes after it, of a version that is not known.

    Raises:
        BuildError: A value does not fit its field.
    """
    return version.to_bytes(_VERSION_BYTES, "big") + table.build(_known(table, version), value) + rest


def _known(table: Message[_Body], version: int) -> int:
    return min(version, table.versions[-1])
