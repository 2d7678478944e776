"""The tagged fields that end every struct of a flexible version.

Source: KIP-482, "The Kafka Protocol should Support Optional Tagged Fields".
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import construct

from kordon.codecs.errors import WireError
from kordon.codecs.primitives import UVARINT, Codec, Frame, Sized, build_field, uvarint
from kordon.codecs.row import Row

if TYPE_CHECKING:
    from construct.core import Context

# construct is extended by `_parse` and `_build`, and codecs of this package call them on one another.
# pyright: reportPrivateUsage=false

_MOST_TAGS: Final = 256
"""In one section; no struct of Kafka's has ten."""
_TAGGED_BYTES: Final = Sized(UVARINT, "tagged field", nullable=False)


class Tags(Codec):
    """The tagged fields that end every flexible struct: known ones by name, unknown ones as bytes by tag.

    Works on the struct's own container: what is known is added by name (its default if it is absent), `_tagged` holds
    the rest. A known field is written when its bytes differ from its default's, as Kafka's own code does; tags ascend.

    Args:
        known: By tag, the field's name, what reads and writes it, and a function that makes its default.
    """

    def __init__(self, known: Mapping[int, tuple[str, Codec, Callable[[], object]]]) -> None:
        super().__init__()
        self._known = dict(sorted(known.items()))
        self._default_bytes = {tag: _bytes_of(name, codec, make()) for tag, (name, codec, make) in known.items()}
        self._lasting = {name: make() for name, _, make in known.values() if not isinstance(make(), (list, dict))}
        """Defaults that all messages may share: nothing can change them."""
        self._made = {tag: each for tag, each in self._known.items() if each[0] not in self._lasting}

    def parse_into(self, value: Row, stream: Frame, context: Context) -> None:
        """Reads the section and adds what it holds to `value`."""
        if self._lasting:
            value.update(self._lasting)
        for tag, (name, codec, make) in self._made.items():
            default = make()
            absent_struct = isinstance(default, dict)
            value[name] = (
                _parse_tagged(name, codec, Frame(self._default_bytes[tag]), context) if absent_struct else default
            )
        unknown: dict[int, bytes] = {}
        seen: set[int] = set()
        count = UVARINT._parse(stream, context, "")
        if not count:
            value["_tagged"] = {}
            return
        if count > _MOST_TAGS:
            raise stream.fail(f"{count} tagged fields in one section")
        if stream.rows is not None:
            stream.rows.take(count, stream.base + stream.tell())
        for _ in range(count):
            tag = UVARINT._parse(stream, context, "")
            size = UVARINT._parse(stream, context, "")
            if tag in seen:
                raise stream.fail(f"tag {tag} comes twice")
            seen.add(tag)
            start = stream.base + stream.tell()
            data = stream.take(size, f"tagged field {tag}")
            if tag in self._known:
                name, codec, _ = self._known[tag]
                value[name] = _parse_tagged(name, codec, Frame(data, start, stream.rows), context)
            else:
                unknown[tag] = data
        value["_tagged"] = unknown

    def build_from(self, value: Mapping[str, Any], stream: io.BytesIO) -> None:
        """Writes the section of `value`."""
        fields: dict[int, bytes] = dict(value.get("_tagged") or ())
        for tag, (name, codec, _) in self._known.items():
            if name not in value or value[name] is self._lasting.get(name, self):
                continue
            data = _bytes_of(name, codec, value[name])
            if data != self._default_bytes[tag]:
                fields[tag] = data
        if not fields:
            stream.write(b"\0")
            return
        stream.write(uvarint(len(fields)))
        for tag, data in sorted(fields.items()):
            build_field("_tagged", UVARINT, tag, stream)
            build_field("_tagged", _TAGGED_BYTES, data, stream)


def _parse_tagged(name: str, codec: Codec, stream: Frame, context: Context) -> object:
    try:
        value = codec._parse(stream, context, name)
        if stream.remaining:
            raise stream.fail(f"{stream.remaining} bytes too many in a tagged field")
    except construct.ConstructError:
        raise stream.fail("tagged field ends too early").under(name) from None
    except WireError as error:
        raise stream.located(error, name) from None
    return value


def _bytes_of(name: str, codec: Codec, value: object) -> bytes:
    stream = io.BytesIO()
    build_field(name, codec, value, stream)
    return stream.getvalue()
