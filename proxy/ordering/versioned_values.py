"""Values of records, as JSON that says its version. What another version has written is told from what is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _AnyVersion:
    version: int


_ANY_VERSION: Final = TypeAdapter(_AnyVersion)


def read_value(value: bytes, form: TypeAdapter[_Value], version: int) -> _Value | None:
    """Reads a record's value; None: it is of another version.

    Args:
        form: The type of a value of this version.

    Raises:
        ValueError: The value is not a record of this version.
    """
    try:
        return form.validate_json(value)
    except ValidationError:
        if _ANY_VERSION.validate_json(value).version != version:
            return None
        raise
