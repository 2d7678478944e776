"""Writes `codecs/bodies.pyi`, the types of the messages that Kordon looks into, from the tables of messages.

`python -m kordon.testing.messages.make_bodies` writes it anew after a change of a table or of `API_KEYS`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kordon.codecs import apis, bodies
from kordon.codecs.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kordon.codecs.messages import request, response
from kordon.codecs.row import Row
from kordon.codecs.schema import Array, Field, Message, Struct, Type

PATH: Final = Path(bodies.__file__).with_suffix(".pyi")
API_KEYS: Final = (
    apis.PRODUCE,
    apis.FETCH,
    apis.LIST_OFFSETS,
    apis.METADATA,
    apis.OFFSET_COMMIT,
    apis.OFFSET_FETCH,
    apis.FIND_COORDINATOR,
    apis.JOIN_GROUP,
    apis.HEARTBEAT,
    apis.LEAVE_GROUP,
    apis.SYNC_GROUP,
    apis.DESCRIBE_GROUPS,
    apis.LIST_GROUPS,
    apis.SASL_HANDSHAKE,
    apis.SASL_AUTHENTICATE,
    apis.API_VERSIONS,
    apis.CREATE_TOPICS,
    apis.DELETE_TOPICS,
    apis.DELETE_RECORDS,
    apis.INIT_PRODUCER_ID,
    apis.OFFSET_FOR_LEADER_EPOCH,
    apis.ADD_PARTITIONS_TO_TXN,
    apis.END_TXN,
    apis.TXN_OFFSET_COMMIT,
    apis.OFFSET_DELETE,
    apis.DESCRIBE_ACLS,
    apis.CREATE_ACLS,
    apis.DELETE_ACLS,
    apis.DESCRIBE_CONFIGS,
    apis.ALTER_CONFIGS,
    apis.INCREMENTAL_ALTER,
    apis.DESCRIBE_LOG_DIRS,
    apis.CREATE_PARTITIONS,
    apis.ELECT_LEADERS,
    apis.ALTER_REPLICA_LOG_DIRS,
    apis.ALTER_PARTITION_REASSIGNMENTS,
    apis.DESCRIBE_CLIENT_QUOTAS,
    apis.DESCRIBE_CLUSTER,
    apis.DESCRIBE_PRODUCERS,
    apis.DESCRIBE_TRANSACTIONS,
    apis.LIST_TRANSACTIONS,
    apis.DESCRIBE_TOPIC_PARTITIONS,
    apis.CONSUMER_GROUP_HEARTBEAT,
    apis.CONSUMER_GROUP_DESCRIBE,
    apis.SHARE_GROUP_HEARTBEAT,
    apis.SHARE_GROUP_DESCRIBE,
    apis.SHARE_FETCH,
    apis.SHARE_ACKNOWLEDGE,
    apis.STREAMS_GROUP_HEARTBEAT,
    apis.DESCRIBE_SHARE_GROUP_OFFSETS,
    apis.ALTER_SHARE_GROUP_OFFSETS,
    apis.DELETE_SHARE_GROUP_OFFSETS,
    apis.CONSUMER_GROUP_POSITION,
    apis.PARTITION_LEADER_EPOCHS,
)
"""Whose requests and responses have types."""
_HEAD: Final = '''"""Made by `python -m kordon.testing.messages.make_bodies`; `bodies.py` says what this is."""

# mypy: disable-error-code="override, assignment"
# pyright: reportIncompatibleMethodOverride=false
# fmt: off

from typing import Literal, TypeVar
from uuid import UUID

from kordon.codecs.row import Row

_T = TypeVar("_T")
'''
_PYTHON_TYPES: Final = {"bool": "bool", "float64": "float", "uuid": "UUID", "string": "str"}
"""By Kafka's word; those that begin with `int` or `uint` are ints, the others bytes."""
_WORDS: Final = {
    "responses": "Topic",
    "topic_responses": "Topic",
    "topic_data": "Topic",
    "partition_responses": "Partition",
    "partition_data": "Partition",
    "status": "Status",
    "subtopologies": "Subtopology",
}
"""What a row is called, by the field that has it, where this is not the field's name without its last letter."""


class _Bodies:
    """The classes of one message; structs with the same fields are one class.

    Args:
        message: Its table.
    """

    def __init__(self, message: Message[Row]) -> None:
        self._message = message
        self._names = {_shape(message.fields): message.name}
        self._classes: dict[str, list[str]] = {message.name: []}
        self._add(message.fields, set(message.versions), "")

    def classes(self) -> Iterator[str]:
        """Yields the class of each struct, the message's own first."""
        for name, lines in self._classes.items():
            yield "\n".join([f"class {name}(Row):", *lines])

    def _add(self, fields: tuple[Field, ...], versions: set[int], word: str) -> None:
        """Adds the classes of the structs in one that is called `word`, and what its own class has to say."""
        for row in fields:
            inner = _struct_in(row.type)
            if inner is not None:
                inner_word = _word(row)
                self._name(inner, word, inner_word)
                self._add(inner.fields, versions & set(row.versions), inner_word)
        self._classes[self._names[_shape(fields)]] = [*map(self._field, fields), *_get(fields, versions)]

    def _name(self, inner: Struct, around: str, word: str) -> None:
        """Names a struct by the message and its own word; where another one has that name, also by that around it."""
        name = self._message.name + word
        if _shape(inner.fields) not in self._names:
            name = name if name not in self._classes else self._message.name + around + word
            self._names[_shape(inner.fields)] = name
            self._classes[name] = []

    def _field(self, row: Field) -> str:
        none = " | None" if row.nullable or row.default is None else ""
        return f"    {row.name}: {self._type(row.type)}{none} = ..."

    def _type(self, type_: Type) -> str:
        match type_:
            case Array():
                return f"list[{self._type(type_.of)}]"
            case Struct():
                return self._names[_shape(type_.fields)]
            case _:
                return "int" if "int" in type_.name else _PYTHON_TYPES.get(type_.name, "bytes")


def _shape(fields: tuple[Field, ...]) -> str:
    """Returns what two structs have in common that are one class: names and types, but not the versions."""
    return "".join(f"{row.name} {_shape_of(row.type)} {bool(row.nullable)}," for row in fields)


def _shape_of(type_: Type) -> str:
    match type_:
        case Array():
            return f"[{_shape_of(type_.of)}]"
        case Struct():
            return f"({_shape(type_.fields)})"
        case _:
            return type_.name


def _word(row: Field) -> str:
    """Returns what a row is called that is read or written in a field."""
    if row.name in _WORDS:
        return _WORDS[row.name]
    word = "".join(map(str.title, row.name.split("_")))
    return word.removesuffix("s") if isinstance(row.type, Array) else word


def _get(fields: tuple[Field, ...], versions: set[int]) -> Iterator[str]:
    """Yields the method for fields that some of the struct's versions lack."""
    names = [f'"{row.name}"' for row in fields if not versions <= set(row.versions)]
    if names:
        method = f"def get(self, name: Literal[{', '.join(names)}], default:~_T, /)~->~_T:~..."
        yield textwrap.fill(method, 120, initial_indent=" " * 4, subsequent_indent=" " * 8).replace("~", " ")


def _struct_in(type_: Type) -> Struct | None:
    while isinstance(type_, Array):
        type_ = type_.of
    return type_ if isinstance(type_, Struct) else None


def text() -> str:
    """Returns what `codecs/bodies.pyi` has to say."""
    tables = [make(key) for key in API_KEYS for make in (request, response)]
    classes = [each for table in (*tables, SUBSCRIPTION, ASSIGNMENT) for each in _Bodies(table).classes()]
    return "\n".join([_HEAD, *classes, ""])


if __name__ == "__main__":
    PATH.write_text(text())
