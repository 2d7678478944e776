"""Topic names inside of what consumers tell each other through JoinGroup and SyncGroup (ConsumerProtocol).

Only bytes that can be written again exactly as they came are changed; fields of versions to come stand behind those
that are known and stay where they are. All else, such as what only one client's assignor understands, passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from kordon.codecs.bodies import (
    ConsumerProtocolAssignmentAssignedPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionOwnedPartition,
)
from kordon.codecs.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned, parse_versioned
from kordon.codecs.errors import TooManyRows, WireError
from kordon.codecs.primitives import RowBudget
from kordon.codecs.row import Row
from kordon.codecs.schema import Message
from kordon.proxy.topics.names import Rename

_Body = TypeVar("_Body", bound=Row)
_Partitions: TypeAlias = ConsumerProtocolAssignmentAssignedPartition | ConsumerProtocolSubscriptionOwnedPartition
Change: TypeAlias = Callable[[bytes, Rename, RowBudget | None], bytes]
MOST_ROWS: Final = 12_000
"""Topics, and sixteenths of partitions, that all members of a group may be told of in one request: as many as the
default of `limits.request_rows`."""
CONSUMER: Final = "consumer"
"""The protocol type whose members speak ConsumerProtocol."""


def speaks_consumer(*values: Row) -> bool:
    """Whether members speak ConsumerProtocol; the newer versions of SyncGroup and of the answers say so."""
    return all((value.get("protocol_type", CONSUMER) or CONSUMER) == CONSUMER for value in values)


def rename_subscription(data: bytes, rename: Rename, rows: RowBudget | None = None) -> bytes:
    """Renames the topics that a member subscribes to and those it owns partitions of; see `change_field`."""
    return _changed(SUBSCRIPTION, data, rows, lambda value: _rename_subscribed(value, rename))


def rename_assignment(data: bytes, rename: Rename, rows: RowBudget | None = None) -> bytes:
    """Renames the topics that a member is given partitions of; see `change_field`."""
    return _changed(ASSIGNMENT, data, rows, lambda value: _rename_partitions(value.assigned_partitions, rename))


def change_field(row: Row, field: str, change: Change, rename: Rename, rows: RowBudget | None = None) -> bool:
    """Changes the names inside of a field's bytes; False: there was nothing to change.

    Args:
        change: Renames in such bytes.
        rows: How many rows may be read of all that a client sends; None: as many as there are.

    Raises:
        TooManyRows: There are more rows than that.
    """
    before = bytes(row.get(field, b"") or b"")
    after = change(before, rename, rows)
    if after == before:
        return False
    row[field] = after
    return True


def _changed(table: Message[_Body], data: bytes, rows: RowBudget | None, change: Callable[[_Body], bool]) -> bytes:
    try:
        version, value, rest = parse_versioned(table, data, rows)
    except TooManyRows:
        raise
    except WireError:
        return data
    if build_versioned(table, version, value, rest) != data or not change(value):
        return data
    return build_versioned(table, version, value, rest)


def _rename_subscribed(value: ConsumerProtocolSubscription, rename: Rename) -> bool:
    before, value.topics = value.topics, list(map(rename, value.topics))
    owned = value.get("owned_partitions", list[ConsumerProtocolSubscriptionOwnedPartition]())
    return _rename_partitions(owned, rename) or value.topics != before


def _rename_partitions(rows: Iterable[_Partitions], rename: Rename) -> bool:
    changed = False
    for row in rows:
        before, row.topic = row.topic, rename(row.topic)
        changed |= row.topic != before
    return changed
