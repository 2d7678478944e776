"""The picture of each virtual partition over time: a row for each, the darker the more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from kordon.spark_jobs.report.charts import AxisMark, Point, Scale, boxes, time_ticks
from kordon.spark_jobs.report.series import Clock
from kordon.spark_jobs.report.tables import Row
from kordon.spark_jobs.report.timeline import LEFT, RIGHT, WIDTH
from kordon.spark_jobs.report.words import short, stream_name

MOST_COLUMNS: Final = 120
MOST_ROWS: Final = 64
SHADES: Final = 6
_TOP: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """All cells of one shade, as one path."""

    level: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """The whole picture; the template draws it."""

    column: str
    """written or delivered."""
    height: float
    shades: Sequence[Shade]
    rows: Sequence[AxisMark]
    ticks: Sequence[AxisMark]
    fences: Sequence[float]
    most: str
    """From which rate on the shade is the darkest: what all but two of a hundred cells are below."""
    words: str
    width: int = WIDTH
    left: int = LEFT
    right: int = RIGHT
    top: int = _TOP

    @property
    def bottom(self) -> float:
        """The y at which the last row ends."""
        return self.height - 26


def draw(column: str, traffic: Iterable[Row], clock: Clock, fences: Iterable[int]) -> Heat | None:
    """Draws the records of each stream; None if there are none."""
    told = [row for row in traffic if row[column]]
    if not told:
        return None
    streams = sorted({row["stream"] for row in told}, key=lambda stream: (stream < 0, abs(stream)))
    each = ceil(len(streams) / MOST_ROWS)
    rows = {stream: place // each for place, stream in enumerate(streams)}
    wide = ceil(clock.count / MOST_COLUMNS)
    columns = ceil(clock.count / wide)
    cells: dict[tuple[int, int], int] = defaultdict(int)
    for row in told:
        cells[rows[row["stream"]], clock.place(row["bucket_ms"]) // wide] += row[column]
    count = len(set(rows.values()))
    high = round(min(14.0, max(5.0, 260 / count)), 1)
    x = Scale(clock.start_ms, clock.start_ms + columns * wide * clock.width_ms, LEFT, RIGHT)
    seconds = wide * clock.width_ms / 1000
    darkest = sorted(cells.values())[(len(cells) - 1) * 98 // 100]
    name = "written" if column == "admitted_records" else "delivered"
    return Heat(
        column=name,
        height=_TOP + count * high + 26,
        shades=_shades(cells, darkest, high, (RIGHT - LEFT) / columns),
        rows=_labels(streams, each, high),
        ticks=time_ticks(x, 8),
        fences=sorted({x(at) for at in fences}),
        most=short(darkest / seconds),
        words=_words(name, told, column, streams),
    )


def _shades(cells: dict[tuple[int, int], int], darkest: int, high: float, wide: float) -> list[Shade]:
    by_level: dict[int, list[Point]] = defaultdict(list)
    for (row, column), count in cells.items():
        level = min(SHADES, 1 + count * SHADES // darkest)
        by_level[level].append((round(LEFT + column * wide, 1), round(_TOP + row * high, 1)))
    gap = 1 if wide > 4 else 0
    return [
        Shade(level=level, path=boxes(sorted(places), round(wide - gap, 1), high - 1))
        for level, places in sorted(by_level.items())
    ]


def _labels(streams: Sequence[int], each: int, high: float) -> list[AxisMark]:
    rows = [streams[place : place + each] for place in range(0, len(streams), each)]
    every = max(1, ceil(13 / high))
    return [
        AxisMark(round(_TOP + (place + 0.5) * high, 1), _name(group))
        for place, group in enumerate(rows)
        if place % every == 0
    ]


def _name(streams: Sequence[int]) -> str:
    first, last = stream_name(streams[0]), stream_name(streams[-1])
    return first if first == last else f"{first} … {last}"


def _words(name: str, told: Iterable[Row], column: str, streams: Sequence[int]) -> str:
    sums: dict[int, int] = defaultdict(int)
    for row in told:
        sums[row["stream"]] += row[column]
    if len(streams) == 1:
        return f"Records {name}. All {sums[streams[0]]:,} are in {stream_name(streams[0])}."
    largest, least = max(streams, key=lambda each: sums[each]), min(streams, key=lambda each: sums[each])
    return (
        f"Records {name} in {len(streams)} streams, a row for each. {stream_name(largest)} has most "
        f"({sums[largest]:,}), {stream_name(least)} fewest ({sums[least]:,}). The table below has all numbers."
    )
