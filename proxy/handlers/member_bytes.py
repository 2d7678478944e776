"""Topic names inside of what consumers tell each other through JoinGroup and SyncGroup (ConsumerProtocol).

Only bytes that can be written again exactly as they came are changed; fields of versions to come stand behind those
that are known and stay where they are. All else, such as what only one client's assignor understands, passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kordon.codecs.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kordon.codecs.errors import TooManyRows, WireError
from kordon.codecs.primitives import RowBudget
from kordon.codecs.schema import Message
from kordon.proxy.topics.names import Rename

Change: TypeAlias = Callable[[bytes, Rename, RowBudget | None], bytes]
MOST_ROWS: Final = 12_000
"""Topics, and sixteenths of partitions, that all members of a group may be told of in one request: as many as the
default of `limits.request_rows`."""
_VERSION_BYTES: Final = 2


def rename_subscription(data: bytes, rename: Rename, rows: RowBudget | None = None) -> bytes:
    """Renames the topics that a member subscribes to and those it owns partitions of; see `change_field`."""
    return _changed(SUBSCRIPTION, data, rows, lambda value: _rename_subscribed(value, rename))


def rename_assignment(data: bytes, rename: Rename, rows: RowBudget | None = None) -> bytes:
    """Renames the topics that a member is given partitions of; see `change_field`."""
    return _changed(ASSIGNMENT, data, rows, lambda value: _rename_partitions(value.assigned_partitions, rename))


def change_field(row: Any, field: str, change: Change, rename: Rename, rows: RowBudget | None = None) -> bool:
    """Changes the names inside of a field's bytes; False: there was nothing to change.

    Args:
        row: What has the field; changed.
        field: Its name.
        change: Renames in such bytes.
        rename: Gives the new names.
        rows: How many rows may be read of all that a client sends; None: as many as there are.

    Raises:
        TooManyRows: There are more rows than that.
    """
    before = bytes(row[field] or b"")
    after = change(before, rename, rows)
    if after == before:
        return False
    row[field] = after
    return True


def _changed(table: Message, data: bytes, rows: RowBudget | None, change: Callable[[Any], bool]) -> bytes:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    body = data[_VERSION_BYTES:]
    try:
        part = table.at(min(version, table.versions[-1]))
        value, size = part.parse(body, rows)
    except TooManyRows:
        raise
    except WireError:
        return data
    if part.build(value) != body[:size] or not change(value):
        return data
    return data[:_VERSION_BYTES] + part.build(value) + body[size:]


def _rename_subscribed(value: Any, rename: Rename) -> bool:
    before = list(value.topics)
    value.topics[:] = map(rename, before)
    owned = _rename_partitions(value.get("owned_partitions") or (), rename)
    return owned or list(value.topics) != before


def _rename_partitions(rows: Any, rename: Rename) -> bool:
    changed = False
    for row in rows:
        before, row["topic"] = row.topic, rename(row.topic)
        changed |= row.topic != before
    return changed
