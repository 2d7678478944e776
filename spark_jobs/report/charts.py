"""What all pictures need: scales, ticks and paths, as the numbers that stand in an SVG.

Pictures are drawn by the template, with the page's own colours, so that they follow light, dark and paper. A plotting
library would bring pictures that know one of these, and a megabyte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

Point: TypeAlias = tuple[float, float]

_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 172_800, 604_800),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight line from values to places in a picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Returns where a value is; what lies outside is put on the edge."""
        if self.high <= self.low:
            return self.start
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


@dataclass(frozen=True, slots=True)
class AxisMark:
    """A mark on an axis."""

    at: float
    label: str


def nice(most: float) -> float:
    """Returns the next number that a person would end an axis with.

    >>> nice(0), nice(7), nice(23), nice(180), nice(0.3)
    (1.0, 10.0, 25.0, 200.0, 0.5)
    """
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= most * 0.999)


def time_ticks(scale: Scale, most: int) -> list[AxisMark]:
    """Returns at most so many round times (UTC) on an axis of milliseconds.

    >>> [tick.label for tick in time_ticks(Scale(1_760_000_000_000, 1_760_000_060_000, 0, 100), 4)]
    ['08:53:30', '08:53:45', '08:54:00', '08:54:15']
    """
    span = (scale.high - scale.low) / 1000
    step = next((each for each in _STEPS_S if span / each <= most), math.ceil(span / most / 86_400) * 86_400)
    first = math.ceil(scale.low / 1000 / step) * step
    times = [first + place * step for place in range(most + 1) if first + place * step <= scale.high / 1000]
    shape = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%d %b"
    return [AxisMark(scale(at * 1000), datetime.fromtimestamp(at, UTC).strftime(shape)) for at in times]


def line(points: Sequence[Point]) -> str:
    """Returns the path through some points."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points) if points else ""


def area(points: Sequence[Point], base: float) -> str:
    """Returns the path around what lies between some points and a base line."""
    if not points:
        return ""
    return f"{line([(points[0][0], base), *points, (points[-1][0], base)])}Z"


def steps(points: Iterable[Point], end: float) -> list[Point]:
    """Returns the corners of a line that keeps its height until the next point."""
    corners: list[Point] = []
    for x, y in points:
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return [*corners, (end, corners[-1][1])] if corners else []


def boxes(places: Iterable[Point], width: float, height: float) -> str:
    """Returns one path for many boxes of one size."""
    return "".join(f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z" for x, y in places)
