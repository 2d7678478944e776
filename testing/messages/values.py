"""Values that a message can hold, drawn from its table: what the codecs are tried on.

The same generator serves plain seeds and Hypothesis (`strategies.randoms(use_true_random=False)`, which shrinks).
"""

from __future__ import annotations

import uuid
from random import Random
from typing import Any, Final

from kordon.codecs.dialect import is_private
from kordon.codecs.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Primitive,
)
from kordon.codecs.row import Row
from kordon.codecs.schema import Array, Field, Message, Struct, Type, plain_fields, tagged_fields

_RANGES: Final = {
    INT8.name: (-(2**7), 2**7 - 1),
    INT16.name: (-(2**15), 2**15 - 1),
    UINT16.name: (0, 2**16 - 1),
    INT32.name: (-(2**31), 2**31 - 1),
    UINT32.name: (0, 2**32 - 1),
    INT64.name: (-(2**63), 2**63 - 1),
}
_LETTERS: Final = "abcXYZ-_.019 äß→日本🙂"
_FLOATS: Final = (0.0, 1.5, -2.25, 1e300, 0.1)
_ERROR_CODES: Final = (-1, 0, 3, 25, 35, 78, 119)
_MILLISECONDS: Final = (0, 1, 30_000, 86_400_000)
UNKNOWN_TAGS: Final = (40, 127, 128, 16383, 2**21, 2**31 - 1)
"""Tags that no table knows, at the borders of the varint's sizes."""


class Values:
    """Draws values.

    Args:
        unknown_tags: Whether flexible structs may carry tagged fields that no table knows.
        plausible: Whether error codes and times stay among those that Kafka has: other libraries insist on it.
        private: Whether tagged fields of Kordon's dialect are set: others than Kordon do not know them.
        longest: The most elements of an array, and characters of a string.
    """

    def __init__(
        self,
        random: Random,
        *,
        unknown_tags: bool = False,
        plausible: bool = False,
        private: bool = True,
        longest: int = 3,
    ) -> None:
        self._random = random
        self._unknown_tags = unknown_tags
        self._plausible = plausible
        self._private = private
        self._longest = longest

    def message(self, message: Message[Row], version: int) -> dict[str, Any]:
        """Draws a value for every field of a message in a version."""
        return self._fields(message.fields, version, flexible=version in message.flexible_versions)

    def _fields(self, fields: tuple[Field, ...], version: int, *, flexible: bool) -> dict[str, Any]:
        rows = plain_fields(fields, version) + (tagged_fields(fields, version) if flexible else [])
        value = {row.name: self._field(row, version, flexible=flexible) for row in rows}
        if flexible:
            chosen = self._random.sample(UNKNOWN_TAGS, self._random.randint(0, 2)) if self._unknown_tags else []
            value["_tagged"] = {tag: self._bytes(200) for tag in sorted(chosen)}
        return value

    def _field(self, row: Field, version: int, *, flexible: bool) -> Any:
        if version in row.nullable and self._random.random() < 0.2:
            return None
        if version in row.tagged and self._random.random() < 0.3 and not isinstance(row.type, Struct):
            return row.new_default()
        if is_private(row.tag) and not self._private:
            return row.new_default()
        if self._plausible and isinstance(row.type, Primitive):
            if row.name.endswith("error_code"):
                return self._random.choice(_ERROR_CODES)
            if row.name.endswith(("_ms", "timestamp")):
                return self._random.choice(_MILLISECONDS)
        return self._value(row.type, version, flexible=flexible)

    def _value(self, type_: Type, version: int, *, flexible: bool) -> Any:
        match type_:
            case Primitive():
                return self._primitive(type_)
            case Array():
                count = self._random.randint(0, self._longest)
                return [self._value(type_.of, version, flexible=flexible) for _ in range(count)]
            case Struct():
                return self._fields(type_.fields, version, flexible=flexible)

    def _primitive(self, type_: Primitive) -> Any:
        if type_.name in _RANGES:
            low, high = _RANGES[type_.name]
            near = (low, high, max(low, -1), 0, 1)
            return self._random.choice(near) if self._random.random() < 0.5 else self._random.randint(low, high)
        if type_ is BOOL:
            return self._random.random() < 0.5
        if type_ is FLOAT64:
            return self._random.choice(_FLOATS)
        if type_.name == UUID.name:
            return uuid.UUID(int=self._random.choice((0, 1, 2**128 - 1, self._random.getrandbits(128))))
        if type_.name == STRING.name:
            return "".join(self._random.choice(_LETTERS) for _ in range(self._length()))
        if type_ in (BYTES, RECORDS):
            return self._bytes(self._length())
        raise AssertionError(type_)

    def _length(self) -> int:
        """Mostly short; sometimes at the border where a compact length takes two bytes."""
        return self._random.choice((126, 127, 128)) if self._random.random() < 0.05 else self._random.randint(0, 3)

    def _bytes(self, most: int) -> bytes:
        return self._random.randbytes(self._random.randint(0, most))
