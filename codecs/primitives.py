"""The primitive types of the Kafka protocol, as `construct` classes that trust no length.

construct's own `VarInt` has no bound, and its strings and arrays believe the count they are told. Here every length is
held against the bytes that are really there before anything is read or allocated.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact types, tagged fields); KIP-893 (nullable
structs).
"""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import construct

from kordon.codecs.errors import BuildError, TooManyRows, WireError
from kordon.codecs.turns import LAST_AT_ONCE, ROWS_AT_ONCE, rows_done

# construct is extended by `_parse` and `_build`, and codecs of this package call them on one another.
# pyright: reportPrivateUsage=false

if TYPE_CHECKING:
    from construct.core import Context

    Codec: TypeAlias = construct.Construct[Any, Any]
    _Number: TypeAlias = construct.FormatField[float, float]
    _NumberCodec: TypeAlias = construct.Construct[int, int]
    _LengthAdapter: TypeAlias = construct.Adapter[int, int, int, int]
    _BooleanAdapter: TypeAlias = construct.Adapter[int, int, bool, bool]
    _TextAdapter: TypeAlias = construct.Adapter[bytes | None, bytes | None, str | None, str | None]
    _UuidAdapter: TypeAlias = construct.Adapter[bytes, bytes, uuid.UUID, uuid.UUID]
    _SizedCodec: TypeAlias = construct.Construct[bytes | None, "bytes | Pieces | None"]
    _RepeatedCodec: TypeAlias = construct.Construct[list[object] | None, Sequence[object] | None]
else:
    Codec = _NumberCodec = _SizedCodec = _RepeatedCodec = construct.Construct
    _LengthAdapter = _BooleanAdapter = _TextAdapter = _UuidAdapter = construct.Adapter

Stream: TypeAlias = Any
"""What codecs read is a `Frame`, what they write to a BytesIO; construct's stubs ask for any IO[bytes]."""
Written: TypeAlias = Any
"""construct's own classes return the value that they wrote, and its stubs say a number; nobody uses it."""

UNFIT: Final = (construct.ConstructError, TypeError, ValueError, AttributeError)
"""What a codec raises for a value that it cannot write, BuildError among them."""
NO_CONTEXT: Final[Any] = construct.Container()
"""No Kafka field depends on the value of another one."""
LARGEST_UVARINT: Final = 2**31 - 1
"""Lengths, counts and tags are Java ints; nothing above is ever written."""
_NUMBERS_PER_ROW: Final = 16
"""Numbers of an array that cost no more time or memory than one row of fields."""


class RowBudget:
    """How many rows may still be read: elements of arrays and tagged fields, those inside of others included.

    A row takes a byte on the wire and hundreds in memory, so a bound on bytes does not bound what a message costs.

    Args:
        most: As many as one message may have, or several that are read for one purpose.
    """

    __slots__ = ("_left", "_most")

    def __init__(self, most: int) -> None:
        self._left = self._most = most

    def take(self, count: int, offset: int) -> None:
        """Takes as many rows as are about to be read at `offset`.

        Raises:
            TooManyRows: Fewer are left.
        """
        self._left -= count
        if self._left < 0:
            raise TooManyRows(f"more than {self._most} rows", offset=offset)


class Frame(io.BytesIO):
    """The stream that codecs read: bytes whose number is known.

    Args:
        buffer: All bytes there are.
        base: Offset of the first one in what the caller of `parse` handed over.
        rows: How many rows may be read; None: as many as there are.
    """

    def __init__(self, buffer: bytes | bytearray | memoryview, base: int = 0, rows: RowBudget | None = None) -> None:
        super().__init__(buffer)
        self.base = base
        self.rows = rows
        self.end = buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)

    @property
    def remaining(self) -> int:
        """Bytes that have not been read."""
        return self.end - self.tell()

    def fail(self, reason: str) -> WireError:
        """Returns the error that says so, here."""
        return WireError(reason, offset=self.base + self.tell())

    def located(self, error: WireError, name: str) -> WireError:
        """Adds the field's name to an error, and this place if it knows none: adapters do not see the stream."""
        if error.offset is None:
            error.offset = self.base + self.tell()
        return error.under(name)

    def take(self, count: int, what: str) -> bytes:
        """Reads exactly `count` bytes.

        Raises:
            WireError: There are fewer.
        """
        if count > self.end - self.tell():
            raise self.fail(f"{what} of {count} bytes, but only {self.remaining} remain")
        return self.read(count)


class UVarint(_NumberCodec):
    """An unsigned varint of at most 5 bytes and 31 bits: the lengths, counts and tags of flexible versions."""

    def _parse(self, stream: Stream, context: Context, path: str) -> int:
        byte: bytes = stream.read(1)
        if byte and byte[0] < 0x80:  # nearly all are
            return byte[0]
        return self.parse_behind(byte, stream)

    def parse_behind(self, byte: bytes, stream: Stream) -> int:
        """Reads the rest of a number whose first byte has been read; none: there was nothing left.

        Raises:
            WireError: It is no such number.
        """
        value = shift = 0
        while True:
            if not byte:
                raise stream.fail("ends inside an unsigned varint")
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                break
            shift += 7
            if shift > 28:
                raise stream.fail("unsigned varint is longer than 5 bytes")
            byte = stream.read(1)
        if value > LARGEST_UVARINT:
            raise stream.fail(f"unsigned varint {value} is above 2^31 - 1")
        return value

    def _build(self, obj: int, stream: Stream, context: Context, path: str) -> Written:
        if not 0 <= obj <= LARGEST_UVARINT:
            raise ValueError(f"{obj} is no unsigned varint of 31 bits")
        stream.write(uvarint(obj))
        return obj


def uvarint(value: int) -> bytes:
    """Returns the bytes of a small non-negative number as an unsigned varint."""
    encoded: tuple[int, ...] = ()
    while value > 0x7F:
        encoded = (*encoded, value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


UVARINT: Final = UVarint()


class CompactLength(_LengthAdapter):
    """Length plus one, so that 0 can say null (KIP-482)."""

    def _parse(self, stream: Stream, context: Context, path: str) -> int:
        byte: bytes = stream.read(1)
        if byte and byte[0] < 0x80:  # nearly all are
            return byte[0] - 1
        return UVARINT.parse_behind(byte, stream) - 1

    def _decode(self, obj: int, context: Context, path: str) -> int:
        return obj - 1

    def _encode(self, obj: int, context: Context, path: str) -> int:
        return obj + 1


COMPACT_LENGTH: Final = CompactLength(UVARINT)


class Pieces(list[bytes | bytearray | memoryview]):
    """Bytes that lie in several places, as the value of a bytes field that is built: they are written one by one."""


class Built(dict[str, object]):
    """An element of an array with its bytes, for what is written again and again; nobody changes it.

    Args:
        data: As the array's version writes it.
    """

    def __init__(self, value: Mapping[str, object], data: bytes) -> None:
        super().__init__(value)
        self.data = data


class Sized(_SizedCodec):
    """Bytes behind their length; a length of -1 is null, where null is allowed."""

    def __init__(self, length: Codec, what: str, *, nullable: bool) -> None:
        super().__init__()
        self._length = length
        self._what = what
        self._nullable = nullable

    def _parse(self, stream: Stream, context: Context, path: str) -> bytes | None:
        length: int = self._length._parse(stream, context, path)
        if length < 0:
            if length == -1 and self._nullable:
                return None
            raise stream.fail(f"{self._what} has the length {length}" + (", but is never null" * (length == -1)))
        taken: bytes = stream.take(length, self._what)
        return taken

    def _build(self, obj: bytes | Pieces | None, stream: Stream, context: Context, path: str) -> Written:
        if obj is None:
            if not self._nullable:
                raise TypeError("null is not allowed")
            self._length._build(-1, stream, context, path)
            return None
        if isinstance(obj, Pieces):
            self._length._build(sum(map(len, obj)), stream, context, path)
            stream.writelines(obj)
            return obj
        self._length._build(len(obj), stream, context, path)
        stream.write(obj)
        return obj


class Text(_TextAdapter):
    """UTF-8, strictly: a name that is none is refused, not mended into another name."""

    def _parse(self, stream: Stream, context: Context, path: str) -> str | None:
        return self._decode(self.subcon._parse(stream, context, path), context, path)

    def _decode(self, obj: bytes | None, context: Context, path: str) -> str | None:
        if obj is None:
            return None
        try:
            return obj.decode()
        except UnicodeDecodeError as error:
            raise WireError(f"string is not UTF-8: {error.reason}") from None

    def _encode(self, obj: str | None, context: Context, path: str) -> bytes | None:
        return None if obj is None else obj.encode()


class UuidText(_UuidAdapter):
    """16 bytes as a `uuid.UUID`; all zero stands for "no id"."""

    def _decode(self, obj: bytes, context: Context, path: str) -> uuid.UUID:
        return uuid.UUID(bytes=obj)

    def _encode(self, obj: uuid.UUID, context: Context, path: str) -> bytes:
        return obj.bytes


class Boolean(_BooleanAdapter):
    """One byte; anything but 0 is true, as in Java."""

    def _decode(self, obj: int, context: Context, path: str) -> bool:
        return obj != 0

    def _encode(self, obj: bool, context: Context, path: str) -> int:
        return 1 if obj else 0


class Repeated(_RepeatedCodec):
    """An array: a count, then as many elements.

    Args:
        count: Codec of the count; -1 is null.
        least_bytes: Fewest bytes an element takes, at least 1; bounds what a count can make us allocate.
        nullable: Whether null is allowed.
    """

    def __init__(self, count: Codec, element: Codec, least_bytes: int, *, nullable: bool) -> None:
        super().__init__()
        self._count = count
        self._element = element
        self._least_bytes = least_bytes
        self._nullable = nullable

    def _parse(self, stream: Stream, context: Context, path: str) -> list[object] | None:
        count: int = self._count._parse(stream, context, path)
        if count < 0:
            if count == -1 and self._nullable:
                return None
            raise stream.fail(f"array has the count {count}" + (", but is never null" * (count == -1)))
        if count * self._least_bytes > stream.remaining:
            raise stream.fail(f"array of {count} elements, but only {stream.remaining} bytes remain")
        if isinstance(self._element, construct.FormatField):
            return self._parse_numbers(stream, self._element, count)
        if stream.rows is not None:
            stream.rows.take(count, stream.base + stream.tell())
        parse = self._element._parse
        elements: list[object] = []
        try:
            for index in range(count):
                if not index & LAST_AT_ONCE:
                    rows_done(min(count, ROWS_AT_ONCE))
                elements.append(parse(stream, context, path))
        except WireError as error:
            raise error.under(f"[{len(elements)}]") from None
        return elements

    def _parse_numbers(self, stream: Stream, number: _Number, count: int) -> list[object]:
        """Reads numbers at once: many of them cost what a row does."""
        if stream.rows is not None:
            stream.rows.take(count // _NUMBERS_PER_ROW, stream.base + stream.tell())
        kind = number.fmtstr[1:]
        return list(struct.unpack(f">{count}{kind}", stream.take(count * number.length, "array")))

    @staticmethod
    def _build_numbers(number: _Number, obj: Sequence[object], stream: Stream) -> bool:
        """Writes numbers at once; False: one of them does not fit, and writing them one by one says which."""
        try:
            stream.write(struct.pack(f">{len(obj)}{number.fmtstr[1:]}", *obj))
        except (struct.error, TypeError, ValueError):
            return False
        return True

    def _build(self, obj: Sequence[object] | None, stream: Stream, context: Context, path: str) -> Written:
        if obj is None:
            if not self._nullable:
                raise TypeError("null is not allowed")
            self._count._build(-1, stream, context, path)
            return None
        if isinstance(obj, (str, bytes)):
            raise TypeError("text is no array of its letters")
        self._count._build(len(obj), stream, context, path)
        build = self._element._build
        if isinstance(self._element, construct.FormatField) and self._build_numbers(self._element, obj, stream):
            return obj
        index, element = 0, None
        try:
            for index, element in enumerate(obj):
                if not index & LAST_AT_ONCE:
                    rows_done(min(len(obj), ROWS_AT_ONCE))
                if isinstance(element, Built):
                    stream.write(element.data)
                else:
                    build(element, stream, context, path)
        except UNFIT as error:
            raise unfit(f"[{index}]", element, error) from None
        return obj


class Nullable(Codec):
    """A struct that may be null: one byte in front, -1 for null and 1 for "here it is" (KIP-893)."""

    def __init__(self, inner: Codec) -> None:
        super().__init__()
        self._inner = inner

    def _parse(self, stream: Stream, context: Context, path: str) -> object:
        marker = stream.take(1, "marker of a nullable struct")
        if marker[0] >= 0x80:  # Java takes every negative byte for null
            return None
        return self._inner._parse(stream, context, path)

    def _build(self, obj: object, stream: Stream, context: Context, path: str) -> Written:
        stream.write(b"\xff" if obj is None else b"\x01")
        if obj is not None:
            self._inner._build(obj, stream, context, path)
        return obj


class Entity(Enum):
    """What a string or id in a message names; the values are Kafka's words where its schemas have one (entityType)."""

    TOPIC_NAME = "topicName"
    TOPIC_ID = "topicId"
    GROUP_ID = "groupId"
    TRANSACTIONAL_ID = "transactionalId"
    RESOURCE_NAME = "resourceName"
    """The name of a topic, a group, a broker …; the field `resource_type` beside it says which."""
    COORDINATOR_KEY = "coordinatorKey"
    """A group or a transactional id; `key_type` says which."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type of the schema language, as tables name it."""

    name: str
    """The type's name in Kafka's schemas."""
    codec: Callable[[bool, bool], Codec]
    """From (flexible, nullable) to what reads and writes it."""
    default: float | str | bytes | uuid.UUID
    """The value of a field that the table gives no other default."""
    fixed_bytes: int = 0
    """Its size, 0 if a length stands in front."""
    length_bytes: int = 0
    """Size of that length in versions that are not flexible (int16 or int32)."""
    entity: Entity | None = None
    """What its values name, where they name something."""

    def __repr__(self) -> str:
        return self.name


def _fixed(name: str, codec: Codec, size: int, default: float | uuid.UUID = 0) -> Primitive:
    return Primitive(name, lambda _flexible, _nullable: codec, default, fixed_bytes=size)


def _sized(name: str, length: Codec, length_bytes: int, default: str | bytes) -> Primitive:
    def codec(flexible: bool, nullable: bool) -> Codec:
        sized = Sized(COMPACT_LENGTH if flexible else length, name, nullable=nullable)
        return Text(sized) if isinstance(default, str) else sized

    return Primitive(name, codec, default, length_bytes=length_bytes)


BOOL: Final = _fixed("bool", Boolean(construct.Int8sb), 1, default=False)
INT8: Final = _fixed("int8", construct.Int8sb, 1)
INT16: Final = _fixed("int16", construct.Int16sb, 2)
UINT16: Final = _fixed("uint16", construct.Int16ub, 2)
INT32: Final = _fixed("int32", construct.Int32sb, 4)
UINT32: Final = _fixed("uint32", construct.Int32ub, 4)
INT64: Final = _fixed("int64", construct.Int64sb, 8)
FLOAT64: Final = _fixed("float64", construct.Float64b, 8, default=0.0)
UUID: Final = Primitive(
    "uuid", lambda _flexible, _nullable: UuidText(construct.Bytes(16)), uuid.UUID(int=0), fixed_bytes=16
)
STRING: Final = _sized("string", construct.Int16sb, 2, "")
BYTES: Final = _sized("bytes", construct.Int32sb, 4, b"")
RECORDS: Final = _sized("records", construct.Int32sb, 4, b"")
"""Record batches as they are: bytes that nobody opens here (`kordon.codecs.records` reads their headers)."""


def build_field(name: str, codec: Codec, value: object, stream: io.BytesIO) -> None:
    """Writes the value of a field.

    Raises:
        BuildError: It does not fit.
    """
    try:
        codec._build(value, stream, NO_CONTEXT, "")
    except UNFIT as error:
        raise unfit(name, value, error) from None


def unfit(name: str, value: object, error: Exception) -> BuildError:
    """Returns the error that says so of a field, or of an element by its index; `error` is one of `UNFIT`."""
    if isinstance(error, BuildError):
        return error.under(name)
    shown = value if isinstance(value, int) or value is None else f"a value of type {type(value).__name__}"
    return BuildError(f"{shown} does not fit", path=name)


TOPIC_NAME: Final = replace(STRING, entity=Entity.TOPIC_NAME)
TOPIC_ID: Final = replace(UUID, entity=Entity.TOPIC_ID)
GROUP_ID: Final = replace(STRING, entity=Entity.GROUP_ID)
TRANSACTIONAL_ID: Final = replace(STRING, entity=Entity.TRANSACTIONAL_ID)
RESOURCE_NAME: Final = replace(STRING, entity=Entity.RESOURCE_NAME)
COORDINATOR_KEY: Final = replace(STRING, entity=Entity.COORDINATOR_KEY)
