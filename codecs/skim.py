"""The skim: finds where a field of a message ends, in bytes that come in chunks, without keeping or copying them.

Kordon needs what comes *after* the data of a Fetch response (the addresses of new leaders, KIP-951). A skim walks over
the data as it streams by. It follows a short program, made from the message's table once per version. The program has
one skip for a run of fields of fixed size, and reads only lengths, counts and tags.

A program is a row of steps. Each first skips `before` bytes of fixed size, then reads a number as its `read` says:

    bytes after a length             skip number * 1
    array of elements of fixed size  skip number * their size
    array of others, tagged fields   take the steps up to `target` number times
    nullable struct                  the same, 0 or 1 times
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from struct import Struct as Layout
from typing import Final, NamedTuple

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import LARGEST_UVARINT, Primitive
from kordon.codecs.row import Row
from kordon.codecs.schema import Array, Field, Message, Struct, Type, fixed_size, plain_fields

_INT16: Final = Layout(">h")
_INT32: Final = Layout(">i")
_LONGEST_UVARINT: Final = 5


class _Read(IntEnum):
    """What a step does after the bytes that it skips."""

    UVARINT = 0
    INT32 = 1
    INT16 = 2
    MARKER = 3
    """One byte: negative is null, which counts as 0 elements, all others as 1."""
    REPEAT = 4
    """Reads nothing. It goes back to `target`, or on if there are no more elements."""
    END = 5
    """Reads nothing. The field has been passed."""


class SkimStep(NamedTuple):
    """One step of a program."""

    read: int
    before: int
    """Bytes of fixed size that are skipped first."""
    bias: int = 0
    """What is subtracted from the number that is read: 1 in compact encodings."""
    least: int = 0
    """The smallest number allowed after that: -1 if null is allowed."""
    unit: int = 0
    """The bytes that each of the counted things takes; -1: elements that have to be walked."""
    target: int = 0
    """The step after the elements; of REPEAT the first step of an element."""
    what: str = ""
    """The field, for errors."""


class Skim:
    """A walk over the body of one message.

    Args:
        after: The top-level field after which the walk ends.

    Raises:
        WireError: The message has no such version.
    """

    __slots__ = (
        "_ahead",
        "_counts",
        "_message",
        "_offset",
        "_partial",
        "_resumed",
        "_step",
        "_steps",
        "_version",
        "done",
    )

    def __init__(self, message: Message[Row], version: int, after: str) -> None:
        self.done = False
        """Whether the field has been passed."""
        self._message = message
        self._version = version
        self._steps = program(message, version, after)
        self._step = 0
        self._counts: list[int] = []  # of the arrays under way: elements still to come
        self._ahead = 0  # bytes to skip that have not come yet
        self._resumed = False  # what the step skips is behind it (or in `_ahead`), its number is not
        self._partial = b""  # what has come of that number
        self._offset = 0  # of the chunk in the body

    def advance(self, chunk: Buffer, start: int, end: int) -> int:
        """Walks on.

        Args:
            start: The position of the next byte.
            end: The position after the last byte at hand.

        Returns:
            Where the field ends, if `done` is true now, else `end`.

        Raises:
            WireError: A length is impossible.
        """
        # Taken for every partition of every Fetch: hence local names, and 0 and 4 for _Read.UVARINT and _Read.REPEAT.
        steps, index, counts, resumed = self._steps, self._step, self._counts, self._resumed
        at = start + self._ahead
        while True:
            read, before, bias, least, unit, target, _ = steps[index]
            if not resumed:
                at += before
            if read == 0 and at < end and chunk[at] < 0x80 and not resumed:  # a uvarint of one byte: nearly all are
                number = chunk[at]
                at += 1
            elif read == 4:
                counts[-1] -= 1
                if counts[-1]:
                    index = target
                else:
                    counts.pop()
                    index += 1
                continue
            else:
                resumed = False
                self._step = index
                at, found = self._number(read, chunk, at, end)
                if found is None:
                    return self._pause(start, at, end)
                number = found
            number -= bias
            if number < least:
                self._step = index
                raise self._error(f"has the length {number}", at - start)
            if unit >= 0:
                at += max(number, 0) * unit
                index += 1
            elif number > 0:
                counts.append(number)
                index += 1
            else:
                index = target

    def skips(self, nbytes: int) -> bool:
        """Whether the next `nbytes` of the message hold nothing to read. If so, they count as walked over."""
        if nbytes > self._ahead:
            return False
        self._ahead -= nbytes
        self._offset += nbytes
        return True

    def _number(self, read: int, chunk: Buffer, at: int, end: int) -> tuple[int, int | None]:
        """Reads the number of the step, of which a part may have come in earlier chunks.

        Returns:
            The position after it and the number; None if it is incomplete, or if the end is reached.
        """
        if read == _Read.END:
            self.done = at <= end
            return at, None
        if at >= end:
            return at, None
        before = len(self._partial)
        window = self._partial + bytes(chunk[at : min(at + _LONGEST_UVARINT, end)])
        number, size = self._decode(read, window)
        if number is None:
            self._partial = window
            return end, None
        self._partial = b""
        return at + size - before, number

    def _decode(self, read: int, window: bytes) -> tuple[int | None, int]:
        """Returns the number at the start of `window` and its size; None if it does not end there."""
        if read == _Read.UVARINT:
            return self._uvarint(window)
        if read == _Read.MARKER:
            return int(window[0] < 0x80), 1
        layout = _INT32 if read == _Read.INT32 else _INT16
        if len(window) < layout.size:
            return None, 0
        return layout.unpack_from(window)[0], layout.size

    def _uvarint(self, window: bytes) -> tuple[int | None, int]:
        value = 0
        for place, byte in enumerate(window[:_LONGEST_UVARINT]):  # what is kept of a cut one may make it longer
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if value > LARGEST_UVARINT:
                    raise self._error(f"unsigned varint {value} is above 2^31 - 1", 0)
                return value, place + 1
        if len(window) >= _LONGEST_UVARINT:
            raise self._error("unsigned varint is longer than 5 bytes", 0)
        return None, 0

    def _pause(self, start: int, at: int, end: int) -> int:
        if self.done:
            return at
        self._resumed = True
        self._ahead = at - end
        self._offset += end - start
        return end

    def _error(self, reason: str, position: int) -> WireError:
        return WireError(
            reason,
            message=self._message.name,
            version=self._version,
            path=self._steps[self._step].what,
            offset=self._offset + position,
        )


@cache
def program(message: Message[Row], version: int, after: str) -> tuple[SkimStep, ...]:
    """Makes the steps that lead from the start of a message's body to the end of a top-level field.

    Raises:
        WireError: The message has no such version.
    """
    message.at(version)
    names = [row.name for row in message.fields]
    builder = _Builder(version, flexible=version in message.flexible_versions)
    builder.fields(message.fields[: names.index(after) + 1], "")
    builder.step(_Read.END)
    return tuple(builder.steps)


class _Builder:
    """Makes a program; fixed sizes gather in `skip` until the next step takes them."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.steps: list[SkimStep] = []
        self._version = version
        self._flexible = flexible
        self._skip = 0

    def step(
        self, read: _Read, what: str = "", *, least: int = 0, unit: int = 0, target: int = 0, bias: int = 0
    ) -> None:
        """Appends a step."""
        self.steps.append(SkimStep(int(read), self._skip, bias, least, unit, target, what))
        self._skip = 0

    def fields(self, rows: Iterable[Field], path: str) -> None:
        """Appends the steps that walk over fields which follow each other."""
        for row in plain_fields(tuple(rows), self._version):
            nullable = self._version in row.nullable
            self.type(row.type, f"{path}{row.name}", flexible=self._flexible, nullable=nullable)

    def type(self, type_: Type, what: str, *, flexible: bool, nullable: bool) -> None:
        """Appends the steps that walk over one value."""
        size = fixed_size(type_, self._version, flexible=flexible, nullable=nullable)
        if size is not None:
            self._skip += size
            return
        match type_:
            case Primitive():
                self._length(_Read.INT16 if type_.length_bytes == _INT16.size else _Read.INT32, what, 1, nullable)
            case Array():
                unit = fixed_size(type_.of, self._version, flexible=flexible)
                opening = len(self.steps)
                self._length(_Read.INT32, what, -1 if unit is None else unit, nullable)
                if unit is None:
                    self.type(type_.of, what, flexible=flexible, nullable=False)
                    self._repeat(opening)
            case Struct() if nullable:
                opening = len(self.steps)
                self.step(_Read.MARKER, what, unit=-1)
                self.type(type_, what, flexible=flexible, nullable=False)
                self._repeat(opening)
            case Struct():
                self.fields(type_.fields, f"{what}.")
                if flexible:
                    self._tags(what)

    def _length(self, read: _Read, what: str, unit: int, nullable: bool) -> None:
        read = _Read.UVARINT if self._flexible else read
        self.step(read, what, least=-1 if nullable else 0, unit=unit, bias=int(self._flexible))

    def _tags(self, what: str) -> None:
        opening = len(self.steps)
        self.step(_Read.UVARINT, f"{what}: tagged fields", unit=-1)
        self.step(_Read.UVARINT, f"{what}: tag")
        self.step(_Read.UVARINT, f"{what}: tagged field", unit=1)
        self._repeat(opening)

    def _repeat(self, opening: int) -> None:
        """Closes the elements that the step at `opening` counts."""
        self.step(_Read.REPEAT, target=opening + 1)
        self.steps[opening] = self.steps[opening]._replace(target=len(self.steps))
