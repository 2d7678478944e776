"""A request of each api key about one topic, made from the tables: for tests that ask all there is to ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kordon.codecs.messages import REQUESTS
from kordon.codecs.primitives import Primitive
from kordon.codecs.schema import Array, Field, Struct, Type
from kordon.testing.managed_writes import a_batch

_TOPIC_FIELDS: Final = frozenset(
    {
        "name",
        "resource_name",
        "resource_name_filter",
        "sink_topic",
        "source_topics",
        "subscribed_topic_names",
        "topic",
        "topic_name",
        "topic_names",
        "topics",
    }
)
"""Strings that name topics, whatever else has such a name in a table."""
_GROUP_FIELDS: Final = frozenset({"coordinator_keys", "group_id", "groups", "groups_names", "key"})
_NAMED: Final = _TOPIC_FIELDS | _GROUP_FIELDS
_NOTHING: Final = frozenset(
    {
        "active_tasks",
        "assignments",
        "client_tags",
        "configuration_keys",
        "copartition_groups",
        "cursor",
        "forgotten_topics_data",
        "standby_tasks",
        "state_changelog_topics",
        "task_end_offsets",
        "task_offsets",
        "user_endpoint",
        "warmup_tasks",
    }
)
"""What is left as it is by default."""
_NUMBERS: Final[Mapping[str, int]] = {
    "acks": -1,
    "count": 40,
    "current_leader_epoch": -1,
    "leader_epoch": -1,
    "max_bytes": 1000,
    "max_num_offsets": 1,
    "max_wait_ms": 50,
    "partition_max_bytes": 1000,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 2,
    "permission_type": 3,
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "resource_pattern_type": 3,
    "resource_type": 2,
    "resource_type_filter": 2,
    "response_partition_limit": 100,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "timeout_ms": 1000,
    "timestamp": -1,
}


_INT32_BYTES: Final = 4
NO_ID: Final = UUID(int=0)
_PARTITION_FIELDS: Final = frozenset({"index", "partition", "partition_index", "partition_indexes", "partitions"})


@dataclass(frozen=True)
class About:
    """What requests name.

    Attributes:
        topic_id: By its id, where a request has one; a name is left out there that may be.
    """

    topic: str
    topic_id: UUID
    group: str
    partition: int = 0

    def fields(self, api_key: int, version: int) -> dict[str, Any]:
        """Returns the fields of a request, all arrays with one element."""
        return dict(self._struct(REQUESTS[api_key].fields, version))

    def _struct(self, rows: tuple[Field, ...], version: int) -> Iterator[tuple[str, Any]]:
        for row in rows:
            if version in row.versions and version not in row.tagged:
                nullable = version in row.nullable
                is_left = row.name in _NOTHING
                yield row.name, _nothing(row, nullable=nullable) if is_left else self._value(row, row.type, version)

    def _value(self, row: Field, type_: Type, version: int) -> Any:
        match type_:
            case Array(Primitive() as of) if isinstance(of.default, str) and row.name not in _NAMED:
                return []
            case Array(of):
                return [self._value(row, of, version)]
            case Struct(fields):
                return dict(self._struct(fields, version))
            case Primitive():
                return self._primitive(row, type_, version)

    def _primitive(self, row: Field, type_: Primitive, version: int) -> Any:
        words: dict[str, Any] = {"records": a_batch("one"), "topic_id": self.topic_id, "member_id": "member"}
        words |= {"protocol_type": "consumer", "transactional_id": "someone", "mechanism": "PLAIN"}
        words["v3_and_below_transactional_id"] = "someone"
        if row.name in words:
            return words[row.name]
        if isinstance(type_.default, str) and row.name in _NAMED:
            is_by_id = self.topic_id != NO_ID and version in row.nullable and row.type is type_
            return self._name(row.name, is_by_id=is_by_id)
        if row.name in _PARTITION_FIELDS and type_.fixed_bytes == _INT32_BYTES:
            return self.partition
        nothing = None if version in row.nullable and row.type is type_ else type_.default
        return _NUMBERS.get(row.name, nothing)

    def _name(self, field: str, *, is_by_id: bool) -> str | None:
        if field in _GROUP_FIELDS:
            return self.group
        return None if is_by_id else self.topic


def _nothing(row: Field, *, nullable: bool) -> Any:
    return None if nullable else row.new_default()


def errors_in(value: Any, where: str = "") -> Iterator[tuple[str, int]]:
    """Yields the error codes of an answer that are not zero, and where in it they stand."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if str(name).endswith("error_code") and each:
                yield f"{where}.{name}", int(each)
            yield from errors_in(each, f"{where}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from errors_in(each, where)
