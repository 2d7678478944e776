"""The options as a flat list: for environment variables, documentation, hints, and what a reload changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from kordon.proxy.config.config import Config, Folder, NodeId
from kordon.proxy.config.host_port import HostPort

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from kordon.proxy.config.config_source import Key

UNITS = {"_ms": "milliseconds", "_bytes": "bytes"}
"""What the end of an option's name says about its value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the configuration, as it is documented."""

    key: Key
    type: str
    """The type in words: `host:port`, `whole number`, `none, requested or required`."""
    unit: str
    """Empty where there is none."""
    default: str
    """The default as YAML has it; empty for a required option."""
    description: str
    reloads: bool
    """Whether a running proxy takes a new value over."""


@cache
def options() -> dict[Key, Option]:
    """All options by key, in the order of the models."""
    return {option.key: option for option in _walk(Config, ())}


def differences(old: Config, new: Config) -> list[Option]:
    """The options whose values differ between two configurations."""
    return [option for key, option in options().items() if value_of(old, key) != value_of(new, key)]


def value_of(config: BaseModel, key: Key) -> object:
    """The value of an option; None where its section is absent."""
    value: object = config
    for name in key:
        value = getattr(value, str(name), None)
    return value


def sections_of(annotation: object) -> type[BaseModel] | None:
    """The model behind a field that is a section, `Section | None` included."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _walk(model: type[BaseModel], path: Key) -> Iterator[Option]:
    for name, field in model.model_fields.items():
        section = sections_of(field.annotation)
        if section is not None:
            yield from _walk(section, (*path, name))
        else:
            yield _option((*path, name), field)


def _option(key: Key, field: FieldInfo) -> Option:
    name = str(key[-1])
    extra = field.json_schema_extra
    return Option(
        key=key,
        type=_type_text(field.annotation),
        unit=next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), ""),
        default=_default_text(field),
        description=field.description or "",
        reloads=isinstance(extra, dict) and bool(extra.get("reload")),
    )


def _default_text(field: FieldInfo) -> str:
    match field.default:
        case value if value is PydanticUndefined:
            return ""
        case None:
            return "null"
        case bool() as value:
            return str(value).lower()
        case value:
            return str(value)


PLAIN_TYPES: dict[object, str] = {
    int: "whole number",
    str: "text",
    bool: "true or false",
    Path: "file",
    Folder: "folder",
    HostPort: "host:port",
    SecretStr: "secret text",
}


def _type_text(annotation: object) -> str:
    if annotation in PLAIN_TYPES:
        return PLAIN_TYPES[annotation]
    arguments = [part for part in get_args(annotation) if part is not NoneType]
    match get_origin(annotation):
        case origin if origin is Literal:
            return ", ".join(arguments[:-1]) + f" or {arguments[-1]}"
        case origin if origin is Annotated:
            return _type_text(arguments[0])
        case origin if origin is dict:
            keys = "node id" if arguments[0] == NodeId else "name"
            return f"map of {keys} to {_type_text(arguments[1])}"
        case origin if origin is tuple:
            return f"list of {_type_text(arguments[0])}"
        case origin if origin is Union or len(arguments) == 1:
            return _type_text(arguments[0])
        case _:
            raise TypeError(f"no words for the type {annotation!r}")
