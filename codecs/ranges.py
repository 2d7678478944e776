"""Sets of offsets as ranges, and how they travel: what a group has done of a partition beside all that comes before.

On the wire and in the log a set is

    count       uvarint
    then, for each range in order:
    distance    uvarint: from the end of the range before to its first offset; from 0 for the first range
    length      uvarint: how many offsets it has, 1 or more

Ranges neither overlap nor touch, so every distance but the first is 1 or more, and each set has one form only. Ten
thousand random ranges take some 20 KB. All sets are values: nothing changes one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Range: TypeAlias = tuple[int, int]
"""Offsets [begin, end)."""
MOST_RANGES: Final = 10_000
"""Of a set that is read; more are refused before they are read (max.num.ranges.to.commit)."""
MOST_STORED: Final = 2 * MOST_RANGES
"""Of a set in the log: what several members say at once may come to more than one may say."""
MOST_OFFSET: Final = 2**62
"""No range ends behind it, so that all that is reckoned with offsets has 64 bits."""
_LEAST_BYTES: Final = 2
"""Of a range."""
_MOST_VARINT_BYTES: Final = 9
"""Of a number below 2^63."""
MOST_BYTES: Final = 2 * _MOST_VARINT_BYTES * MOST_RANGES + _MOST_VARINT_BYTES
"""Of a set as it travels."""


class Ranges:
    """A set of offsets.

    Args:
        ranges: In any order; they may overlap. Empty ones are left out.
    """

    __slots__ = ("_begins", "_ends")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._begins = array("q")
        self._ends = array("q")
        for begin, end in sorted(each for each in ranges if each[0] < each[1]):
            self._put(begin, end)

    @classmethod
    def between(cls, gaps: Iterable[int], end: int) -> Ranges:
        """Returns what lies between gaps, from the first gap to the end.

        Args:
            gaps: Single offsets, ascending, all below `end`.
        """
        found = cls()
        at = end
        for gap in gaps:
            if at < gap:
                found._begins.append(at)
                found._ends.append(gap)
            at = gap + 1
        if at < end:
            found._begins.append(at)
            found._ends.append(end)
        return found

    def _put(self, begin: int, end: int) -> None:
        """Adds a range that begins nowhere before the last one."""
        ends = self._ends
        if ends and begin <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            self._begins.append(begin)
            ends.append(end)

    def __len__(self) -> int:
        """Returns the number of ranges."""
        return len(self._begins)

    def __iter__(self) -> Iterator[Range]:
        """Yields the ranges in order."""
        return zip(self._begins, self._ends, strict=True)

    def __eq__(self, other: object) -> bool:
        """Whether it has the same offsets."""
        if not isinstance(other, Ranges):
            return NotImplemented
        return self._begins == other._begins and self._ends == other._ends

    def __hash__(self) -> int:
        """Returns the same for the same offsets."""
        return hash((self._begins.tobytes(), self._ends.tobytes()))

    def __repr__(self) -> str:
        """Shows a few of the ranges."""
        shown = [f"[{begin}, {end})" for begin, end in (*self,)[:5]]
        return f"Ranges({', '.join(shown)}{f', … {len(self)} in all' if len(self) > len(shown) else ''})"

    def __contains__(self, offset: int) -> bool:
        """Whether an offset is in it."""
        place = bisect_right(self._begins, offset) - 1
        return place >= 0 and offset < self._ends[place]

    @property
    def end(self) -> int:
        """The end of the last range; 0: there is none."""
        return self._ends[-1] if self._ends else 0

    def joined(self, other: Ranges) -> Ranges:
        """Returns the offsets of both."""
        if not other or not self:
            return self or other
        both = Ranges()
        for begin, end in sorted((*self, *other)):
            both._put(begin, end)
        return both

    def without(self, other: Ranges) -> Ranges:
        """Returns the offsets that the other set lacks."""
        left = Ranges()
        others = iter(other)
        hole = next(others, None)
        for begin, end in self:
            at = begin
            while hole is not None and hole[1] <= at:
                hole = next(others, None)
            while hole is not None and hole[0] < end:
                if at < hole[0]:
                    left._put(at, hole[0])
                at = hole[1]
                if at >= end:
                    break
                hole = next(others, None)
            if at < end:
                left._put(at, end)
        return left

    def above(self, offset: int) -> tuple[int, Ranges]:
        """Returns how far all is done if all before an offset is, and the ranges behind that."""
        place = bisect_right(self._begins, offset)
        if place and self._ends[place - 1] > offset:
            offset = self._ends[place - 1]
        if not place:
            return offset, self
        rest = Ranges()
        rest._begins, rest._ends = self._begins[place:], self._ends[place:]
        return offset, rest

    def below(self, end: int) -> Ranges:
        """Returns the offsets before one."""
        if end >= self.end:
            return self
        return Ranges((begin, min(each_end, end)) for begin, each_end in self if begin < end)

    def first(self, count: int) -> Ranges:
        """Returns so many of the ranges, the lowest."""
        if count >= len(self):
            return self
        found = Ranges()
        found._begins, found._ends = self._begins[:count], self._ends[:count]
        return found

    def dump(self) -> bytes:
        """Returns it as it travels."""
        written = bytearray()
        _write(written, len(self._begins))
        before = 0
        for begin, end in self:
            distance, length = begin - before, end - begin
            if distance < 0x80 and length < 0x80:  # most are
                written.append(distance)
                written.append(length)
            else:
                _write(written, distance)
                _write(written, length)
            before = end
        return bytes(written)


NONE: Final = Ranges()
"""The set without offsets."""


def load(data: bytes | memoryview, most: int = MOST_RANGES) -> Ranges:
    """Reads a set as it travels.

    Args:
        data: All of it, and nothing behind it.
        most: More ranges are refused.

    Raises:
        ValueError: It is not such a set; the message says why.
    """
    if len(data) > 2 * _MOST_VARINT_BYTES * most + _MOST_VARINT_BYTES:
        raise ValueError(f"{len(data)} bytes are more than {most} ranges take")
    count, at = _read(data, 0)
    if count > most:
        raise ValueError(f"{count} ranges are more than {most}")
    if count * _LEAST_BYTES > len(data) - at:
        raise ValueError(f"{len(data) - at} bytes are too few for {count} ranges")
    found = Ranges()
    end = 0
    for place in range(count):
        if at + 1 < len(data) and data[at] < 0x80 and data[at + 1] < 0x80:  # most are
            distance, length, at = data[at], data[at + 1], at + 2
        else:
            distance, at = _read(data, at)
            length, at = _read(data, at)
        if not length:
            raise ValueError(f"range {place} is empty")
        if place and not distance:
            raise ValueError(f"range {place} touches the one before")
        begin = end + distance
        end = begin + length
        if end > MOST_OFFSET:
            raise ValueError(f"range {place} ends at {end}, behind the last offset that there may be")
        found._begins.append(begin)  # pyright: ignore[reportPrivateUsage] - it is in order already
        found._ends.append(end)  # pyright: ignore[reportPrivateUsage]
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last range")
    return found


def load_stored(data: bytes | memoryview) -> Ranges:
    """Reads a set as it stands in the log.

    Raises:
        ValueError: It is not such a set.
    """
    return load(data, MOST_STORED)


def _write(written: bytearray, value: int) -> None:
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)


def _read(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Returns a number in its shortest form, and where the next one begins."""
    value = shift = 0
    for place in range(at, min(at + _MOST_VARINT_BYTES, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte and shift:
                raise ValueError(f"the number at byte {at} is longer than it need be")
            return value, place + 1
        shift += 7
    raise ValueError(f"the number at byte {at} does not end")
