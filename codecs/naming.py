"""Where messages name things: topics, their ids, groups, transactional ids, in any version of any table.

The tables say it by the types of their fields (`primitives.Entity`). What walks over a parsed message goes only where
something is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from kordon.codecs.primitives import Entity, Primitive
from kordon.codecs.row import Row
from kordon.codecs.schema import Array, Field, Message, Struct


class NamingField(NamedTuple):
    """A field that names something, or that leads to fields which do."""

    field: str
    entity: Entity | None
    """What it names; None: the names are further inside."""
    inner: tuple[NamingField, ...]
    is_list: bool


@cache
def places(message: Message[Row]) -> tuple[NamingField, ...]:
    """Returns where a message names things, in all its versions."""
    return tuple(_of(message.fields))


@cache
def entities_at(message: Message[Row], version: int) -> frozenset[Entity]:
    """Returns what a message can name in one version."""
    return frozenset(_named(message.fields, version))


def _of(rows: Iterable[Field]) -> Iterator[NamingField]:
    for row in rows:
        is_list = isinstance(row.type, Array)
        of = row.type.of if isinstance(row.type, Array) else row.type
        if isinstance(of, Primitive) and of.entity is not None:
            yield NamingField(row.name, of.entity, (), is_list)
        elif isinstance(of, Struct) and (inner := tuple(_of(of.fields))):
            yield NamingField(row.name, None, inner, is_list)


def _named(rows: Iterable[Field], version: int) -> Iterator[Entity]:
    for row in rows:
        of = row.type.of if isinstance(row.type, Array) else row.type
        if version not in row.versions:
            continue
        if isinstance(of, Primitive) and of.entity is not None:
            yield of.entity
        elif isinstance(of, Struct):
            yield from _named(of.fields, version)
