"""The language of the message tables: `field`, `array`, `struct`, `message`, in Kafka's own notation for versions.

A table reads line by line against the upstream schema of its name. A wire type is a function of (version, flexible,
nullable) to a construct; `Message.at(version)` makes the construct of a version once and keeps it. Structs of flexible
versions end with tagged fields: known ones by name, unknown ones kept as bytes in `_tagged`.

Example:
    >>> from kordon.codecs.primitives import INT32, STRING
    >>> REQUEST = message(
    ...     "ExampleRequest",
    ...     field("names", array(STRING), "0+", nullable="1+"),
    ...     field("timeout_ms", INT32, "1+", default=1000),
    ...     key=99, versions="0-2", flexible="2+",
    ... )
    >>> REQUEST.build(2, {"names": ["a"]}).hex()
    '020261000003e800'
    >>> REQUEST.parse(2, bytes.fromhex("020261000003e800")).timeout_ms
    1000
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import construct

from kordon.codecs.errors import BuildError, WireError
from kordon.codecs.fields import Fields, Gathered, Single
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import COMPACT_LENGTH, NO_CONTEXT, Codec, Frame, Nullable, Primitive, Repeated, RowBudget
from kordon.codecs.row import Row
from kordon.codecs.tagged import Tags
from kordon.codecs.turns import MOST_BYTES_AT_ONCE, let_go

# construct is extended by `_parse` and `_build`, and codecs of this package call them on one another.
# pyright: reportPrivateUsage=false

_Stream = TypeVar("_Stream", bound=io.BytesIO)
_Body_co = TypeVar("_Body_co", bound=Row, covariant=True)
_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

_OPEN_END: Final = 2**15
_TYPE_DEFAULT: Final = object()


def versions_of(notation: str | None) -> range:
    """Reads Kafka's notation for versions.

    Example:
        >>> versions_of("3+"), versions_of("0-12"), versions_of("4"), versions_of(None)
        (range(3, 32768), range(0, 13), range(4, 5), range(0, 0))
    """
    if notation is None or notation == "none":
        return range(0)
    if notation.endswith("+"):
        return range(int(notation[:-1]), _OPEN_END)
    first, _, last = notation.partition("-")
    return range(int(first), int(last or first) + 1)


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type behind their count."""

    of: Type


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in the order in which they are written."""

    fields: tuple[Field, ...]


Type: TypeAlias = Primitive | Array | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a table."""

    name: str
    type: Type
    versions: range
    """Versions that have the field."""
    nullable: range
    """Versions in which it may be null."""
    tag: int | None
    tagged: range
    """Versions in which it is a tagged field."""
    flexible: range | None
    """Versions in which it is encoded compactly, if they are not the message's."""
    default: object

    def new_default(self) -> object:
        """Returns what the field holds when nobody has set it: a list or mapping is a new one each time."""
        if self.default is not _TYPE_DEFAULT:
            return self.default
        match self.type:
            case Primitive():
                return self.type.default
            case Array():
                return []
            case Struct():
                return {}


def field(
    name: str,
    type: Type,  # noqa: A002  the word of Kafka's schemas
    versions: str,
    *,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    flexible: str | None = None,
    default: object = _TYPE_DEFAULT,
) -> Field:
    """Makes one row of a table.

    Args:
        name: The field's name as the schema has it, in snake case.
        type: Its type; the same word as in the schema.
        versions: Versions that have it: `"0+"`, `"3-12"`, `"5"`.
        nullable: Versions in which it may be null.
        tag: Its number, if it is a tagged field.
        tagged: Versions in which it is one.
        flexible: Versions in which it is encoded compactly, where they are not the message's.
        default: Its value when it is not set, if not the type's own (0, empty, false).
    """
    own_flexible = None if flexible is None else versions_of(flexible)
    return Field(
        name, type, versions_of(versions), versions_of(nullable), tag, versions_of(tagged), own_flexible, default
    )


def array(of: Type) -> Array:
    """Makes the type of an array; written `[]type` in Kafka's schemas."""
    return Array(of)


def struct(*fields: Field) -> Struct:
    """Makes the type of a struct."""
    return Struct(fields)


def fixed_size(type_: Type, version: int, *, flexible: bool, nullable: bool = False) -> int | None:
    """Returns the bytes that every value of a type takes, or None if they differ."""
    match type_:
        case Primitive():
            return type_.fixed_bytes or None
        case Array():
            return None
        case Struct():
            if flexible or nullable:
                return None
            sizes = [fixed_size(row.type, version, flexible=False) for row in plain_fields(type_.fields, version)]
            return None if None in sizes else sum(size or 0 for size in sizes)


def least_size(type_: Type, version: int, *, flexible: bool, nullable: bool = False) -> int:
    """Returns the fewest bytes that a value of a type takes."""
    match type_:
        case Primitive():
            return type_.fixed_bytes or (1 if flexible else type_.length_bytes)
        case Array():
            return 1 if flexible else 4
        case Struct() if nullable:
            return 1
        case Struct():
            rows = plain_fields(type_.fields, version)
            sizes = (least_size(row.type, version, flexible=flexible, nullable=version in row.nullable) for row in rows)
            return sum(sizes) + (1 if flexible else 0)


def plain_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    """Returns the fields that a version writes one after the other, without the tagged ones."""
    return [row for row in fields if version in row.versions and version not in row.tagged]


def tagged_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    """Returns the fields that a version knows by their tag."""
    return [row for row in fields if version in row.tagged and version in row.versions]


def codec_of(type_: Type, version: int, *, flexible: bool, nullable: bool = False) -> Codec:
    """Makes the construct of a type in a version."""
    match type_:
        case Primitive():
            return type_.codec(flexible, nullable)
        case Array():
            count: Codec = COMPACT_LENGTH if flexible else construct.Int32sb
            least = least_size(type_.of, version, flexible=flexible)
            element = codec_of(type_.of, version, flexible=flexible)
            return Repeated(count, element, max(least, 1), nullable=nullable)
        case Struct():
            fields = fields_of(type_.fields, version, flexible=flexible)
            return Nullable(fields) if nullable else fields


def fields_of(fields: tuple[Field, ...], version: int, *, flexible: bool, tags: bool = True) -> Fields:
    """Makes the construct of a struct's fields in a version.

    Args:
        flexible: Whether that version is flexible.
        tags: Whether the tagged fields belong to what is read; not so for the first part of a message.
    """
    rows = [
        Single(row.name, _codec_of_field(row, version, flexible=flexible), row.new_default)
        for row in plain_fields(fields, version)
    ]
    if not (flexible and tags):
        return Fields(rows, None)
    known: dict[int, tuple[str, Codec, Callable[[], object]]] = {
        row.tag: (row.name, _codec_of_field(row, version, flexible=True), row.new_default)
        for row in tagged_fields(fields, version)
        if row.tag is not None
    }
    return Fields(rows, Tags(known))


def _codec_of_field(row: Field, version: int, *, flexible: bool) -> Codec:
    compact = flexible if row.flexible is None else version in row.flexible
    return codec_of(row.type, version, flexible=compact, nullable=version in row.nullable)


@dataclass(frozen=True, slots=True)
class Part(Generic[_Body_co]):
    """Some of a message's top-level fields in one version: all of them, the first ones, or the last ones."""

    message: str
    version: int
    fields: Fields

    def parse(self, buffer: Buffer, rows: RowBudget | None = None) -> tuple[_Body_co, int]:
        """Reads the part from the start of `buffer`.

        Args:
            rows: How many rows may be read, for what strangers send; None: as many as there are.

        Returns:
            The fields' values, and the number of bytes they took.

        Raises:
            TooManyRows: There are more rows than that.
            WireError: The bytes cannot be read.
        """
        stream = Frame(buffer, rows=rows)
        try:
            value = self.fields._parse(stream, NO_CONTEXT, "")
        except WireError as error:
            raise error.within(self.message, self.version) from None
        return cast(_Body_co, value), stream.tell()

    def build(self, value: Mapping[str, object]) -> bytes:
        """Writes the part; fields that are not in `value` have their defaults, what is not of the part is ignored.

        Raises:
            BuildError: A value does not fit its field.
        """
        return self._write(value, io.BytesIO()).getvalue()

    def build_pieces(self, value: Mapping[str, object]) -> list[Buffer]:
        """Does as `build`; what the value has as `Pieces` is not copied, but stands among what is returned.

        Raises:
            BuildError: A value does not fit its field.
        """
        return self._write(value, Gathered()).take()

    def _write(self, value: Mapping[str, object], stream: _Stream) -> _Stream:
        try:
            self.fields._build(value, stream, NO_CONTEXT, "")
        except BuildError as error:
            raise error.within(self.message, self.version) from None
        return stream


@dataclass(frozen=True, slots=True, eq=False)
class Message(Generic[_Body_co]):
    """A message of the Kafka protocol: its table, and what reads and writes it in every version.

    Type checkers know its body as a class of `kordon.codecs.bodies`, if it has one there, and else as Any.
    """

    name: str
    """As Kafka's schema has it: `MetadataRequest`."""
    fields: tuple[Field, ...]
    api_key: int
    """The api key; -1 for what is no request or response (headers, what is inside of bytes)."""
    versions: range
    flexible_versions: range
    _cache: dict[tuple[int, str, str], Part[_Body_co]] = attribute(default_factory=dict, repr=False)

    @property
    def flexible(self) -> int | None:
        """The first flexible version, None if there is none."""
        return self.flexible_versions[0] if self.flexible_versions else None

    def at(self, version: int) -> Part[_Body_co]:
        """Returns the codec of a version, made at the first call.

        Raises:
            WireError: The message has no such version.
        """
        return self._part(version, "", "")

    def prefix(self, version: int, until: str) -> Part[_Body_co]:
        """Returns the codec of the top-level fields before `until`, for messages whose rest is of no interest."""
        return self._part(version, "", until)

    def suffix(self, version: int, after: str) -> Part[_Body_co]:
        """Returns the codec of the top-level fields behind `after`, tagged fields included."""
        return self._part(version, after, "")

    def parse(self, version: int, buffer: Buffer) -> _Body_co:
        """Reads a message that fills `buffer`.

        Returns:
            The values by field name, also as attributes: the fields of that version, and `_tagged`, unknown tagged
            fields as bytes by tag, in flexible ones.

        Raises:
            WireError: The bytes cannot be read, are too few or too many, or the message has no such version.
        """
        value, consumed = self.at(version).parse(buffer)
        size = buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        if consumed != size:
            reason = f"{size - consumed} bytes too many"
            raise WireError(reason, message=self.name, version=version, offset=consumed)
        return value

    def build(self, version: int, value: Mapping[str, object]) -> bytes:
        """Writes a message; fields that are not in `value` have their defaults.

        Raises:
            BuildError: A value does not fit its field.
            WireError: The message has no such version.
        """
        return self.at(version).build(value)

    def build_last(self, version: int, value: MutableMapping[str, object]) -> bytes:
        """Writes a message that is needed no more; the rows of a large one are freed, in turns.

        Raises:
            BuildError: A value does not fit its field.
            WireError: The message has no such version.
        """
        body = self.build(version, value)
        if len(body) > MOST_BYTES_AT_ONCE:
            let_go(value)
        return body

    def build_pieces(self, version: int, value: Mapping[str, object]) -> list[Buffer]:
        """Writes a message whose large fields are `Pieces`, and does not copy these.

        Returns:
            The bytes in their order.

        Raises:
            BuildError: A value does not fit its field.
            WireError: The message has no such version.
        """
        return self.at(version).build_pieces(value)

    def _part(self, version: int, after: str, until: str) -> Part[_Body_co]:
        key = (version, after, until)
        part = self._cache.get(key)
        if part is None:
            part = self._cache[key] = self._make(version, after, until)
        return part

    def _make(self, version: int, after: str, until: str) -> Part[_Body_co]:
        if version not in self.versions:
            known = f"{self.versions[0]} to {self.versions[-1]}"
            raise WireError(f"no such version, known are {known}", message=self.name, version=version)
        names = [row.name for row in self.fields]
        rows = self.fields[: names.index(until)] if until else self.fields
        if after:
            first = names.index(after) + 1
            rows = rows[first:] + tuple(row for row in rows[:first] if version in row.tagged)
        flexible = version in self.flexible_versions
        return Part(self.name, version, fields_of(rows, version, flexible=flexible, tags=not until))


@dataclass(frozen=True, slots=True)
class Api(Generic[_Request, _Response]):
    """A request with its response: type checkers know from it what to give to a broker, and what comes back."""

    request: Message[_Request]
    response: Message[_Response]

    @property
    def key(self) -> int:
        """The api key."""
        return self.request.api_key


def message(name: str, *fields: Field, versions: str, flexible: str | None = None, key: int = -1) -> Message[Any]:
    """Makes a message's table.

    Args:
        name: The message's name in Kafka's schemas.
        versions: Versions that exist: `"0-13"`.
        flexible: Versions that are flexible: `"9+"`.
    """
    return Message(name, fields, key, versions_of(versions), versions_of(flexible))
