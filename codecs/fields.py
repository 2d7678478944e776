"""What reads and writes the fields of a struct, one after the other, as constructs.

Source: Kafka protocol guide; KIP-482 (tagged fields).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING, Any, NamedTuple

import construct

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import UNFIT, Boolean, Codec, Stream, Written, build_field, unfit
from kordon.codecs.row import Row
from kordon.codecs.tagged import Tags

if TYPE_CHECKING:
    from construct.core import Context

# construct is extended by `_parse` and `_build`, and codecs of this package call them on one another.
# pyright: reportPrivateUsage=false


class Gathered(io.BytesIO):
    """The stream that codecs write where records are not to be copied: large bytes stay where they lie."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[Buffer] = []

    def writelines(self, lines: Any, /) -> None:
        """Takes bytes in without a copy."""
        self._flush()
        self._pieces += lines

    def take(self) -> list[Buffer]:
        """Returns all that was written, in its order."""
        self._flush()
        return self._pieces

    def _flush(self) -> None:
        if self.tell():
            self._pieces.append(self.getvalue())
            self.seek(0)
            self.truncate()


class Single(NamedTuple):
    """A field, with what reads and writes it."""

    name: str
    codec: Codec
    default: Callable[[], object]
    """Returns its value when nobody has set it."""


class Numbers:
    """Consecutive fields of numbers, which are read and written at once."""

    def __init__(self, rows: list[Single]) -> None:
        self._rows = rows
        self.names = [row.name for row in rows]
        self.layout = Layout(">" + "".join(_letter(row.codec) for row in rows))
        self._defaults = {row.name: row.default() for row in rows}

    def name_at(self, size: int) -> str:
        """Returns the field that is not whole where only `size` bytes are there."""
        return next(row.name for row in self._rows if (size := size - row.codec.sizeof()) < 0)

    def build(self, value: Mapping[str, object], stream: io.BytesIO) -> None:
        """Writes the fields of a struct.

        Raises:
            BuildError: One does not fit.
        """
        defaults = self._defaults
        numbers = [value[name] if name in value else defaults[name] for name in self.names]
        try:
            stream.write(self.layout.pack(*numbers))
        except (LayoutError, TypeError, ValueError):
            for row, number in zip(self._rows, numbers, strict=True):
                build_field(row.name, row.codec, number, stream)  # one of them says what is wrong
            raise


def _letter(codec: Codec) -> str:
    """Returns the letter of a type of numbers in `struct`, "" for other types."""
    if isinstance(codec, Boolean):
        return "?"
    return codec.fmtstr[1:] if isinstance(codec, construct.FormatField) else ""


def _steps(rows: list[Single]) -> Iterator[Single | Numbers]:
    """Yields what is read in order."""
    for numbers, run in groupby(rows, lambda each: bool(_letter(each.codec))):
        if numbers:
            yield Numbers(list(run))
        else:
            yield from run


class Fields(construct.Struct):
    """construct's Struct for a table's rows: missing values are the defaults, errors name the field.

    It differs in four ways from its parent: what it returns does not hold on to the stream, it passes no context
    down (no Kafka field depends on another one's value), it reads and writes numbers in a row at once, and it ends with
    the tagged fields, if there are any.
    """

    def __init__(self, rows: list[Single], tags: Tags | None) -> None:
        super().__init__(*(row.name / row.codec for row in rows))
        self._steps = list(_steps(rows))
        self._tags = tags

    def _parse(self, stream: Stream, context: Context, path: str) -> Row:  # type: ignore[override]
        value = Row()
        for step in self._steps:
            if isinstance(step, Numbers):
                data = stream.read(step.layout.size)
                if len(data) < step.layout.size:
                    raise stream.fail("ends too early").under(step.name_at(len(data)))
                for each, number in zip(step.names, step.layout.unpack(data), strict=True):
                    value[each] = number
                continue
            name, codec, _ = step
            try:
                value[name] = codec._parse(stream, context, path)
            except construct.ConstructError:
                raise stream.fail("ends too early").under(name) from None
            except WireError as error:
                raise stream.located(error, name) from None
        if self._tags is not None:
            self._tags.parse_into(value, stream, context)
        return value

    def _build(self, obj: Mapping[str, object], stream: Stream, context: Context, path: str) -> Written:  # type: ignore[override]
        for step in self._steps:
            if isinstance(step, Numbers):
                step.build(obj, stream)
                continue
            name, codec, default = step
            value = obj[name] if name in obj else default()
            try:
                codec._build(value, stream, context, path)
            except UNFIT as error:
                raise unfit(name, value, error) from None
        if self._tags is not None:
            self._tags.build_from(obj, stream)
        return obj
