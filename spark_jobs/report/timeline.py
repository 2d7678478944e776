"""The picture of a topic over time: layouts, fences and pauses above what was written, delivered and left to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from kordon.spark_jobs.report.charts import AxisMark, Scale, area, line, nice, steps, time_ticks
from kordon.spark_jobs.report.series import Clock
from kordon.spark_jobs.report.tables import Row
from kordon.spark_jobs.report.words import duration, moment, several, short, whole

WIDTH: Final = 1000
LEFT: Final = 112
RIGHT: Final = 988
_GAP: Final = 26
_THINNEST: Final = 2.0
"""A pause of milliseconds is seen in a picture of hours."""
_THINNEST_FINDING: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box with what it stands for."""

    style: str
    x: float
    y: float
    width: float
    height: float
    title: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A path, in the colour of what it shows."""

    style: str
    path: str


@dataclass(slots=True, kw_only=True)
class Panel:
    """One row of the picture."""

    label: str
    unit: str
    y: float
    height: float
    ticks: list[AxisMark] = field(default_factory=list[AxisMark])
    curves: list[Curve] = field(default_factory=list[Curve])
    marks: list[Box] = field(default_factory=list[Box])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A row of numbers that the page shows where the pointer is."""

    label: str
    style: str
    unit: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The whole picture; the template draws it."""

    height: float
    panels: Sequence[Panel]
    ticks: Sequence[AxisMark]
    fences: Sequence[float]
    clock: Clock
    shown: Sequence[Shown]
    left: int = LEFT
    right: int = RIGHT
    width: int = WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a timeline is drawn from."""

    clock: Clock
    layouts: Sequence[Row]
    fences: Sequence[Row]
    pauses: Sequence[Row]
    findings: Sequence[Row]
    written: Sequence[float]
    """Records per second, as are `delivered`."""
    delivered: Sequence[float]
    lag: Sequence[float]
    """Records; empty if nobody reads."""

    @property
    def is_used(self) -> bool:
        """Whether anything was written or read."""
        return any(self.written) or any(self.delivered)


def draw(story: Story) -> Timeline:
    """Lays the panels out below each other, over one axis of time."""
    x = Scale(story.clock.start_ms, story.clock.end_ms, LEFT, RIGHT)
    panels = [_layouts(story, x, 22.0)]
    for build in (_events, *([_rates] if story.is_used else ()), *([_lag] if story.lag else ())):
        above = panels[-1]
        panels.append(build(story, x, above.y + above.height + _GAP))
    bottom = panels[-1].y + panels[-1].height
    return Timeline(
        height=bottom + 30,
        panels=panels,
        ticks=time_ticks(x, 8),
        fences=sorted({x(at) for fence in story.fences if (at := fence["fenced_ms"]) and not is_question(fence)}),
        clock=story.clock,
        shown=[
            Shown(label="partitions", style="u", unit="", values=_counts(story)),
            Shown(label="written", style="written", unit="records/s", values=story.written),
            Shown(label="delivered", style="delivered", unit="records/s", values=story.delivered),
            *([Shown(label="lag", style="lag", unit="records", values=story.lag)] if story.lag else ()),
        ],
    )


def is_question(fence: Row) -> bool:
    """Whether a fence only asked who had adopted what, and was to change no layout."""
    return bool(fence["kind"] == "question")


def _counts(story: Story) -> list[float]:
    return [
        next((row["u"] or 0 for row in reversed(story.layouts) if (row["since_ms"] or 0) < at), 0)
        for at in (story.clock.start_ms + story.clock.width_ms * (place + 1) for place in range(story.clock.count))
    ]


def _layouts(story: Story, x: Scale, top: float) -> Panel:
    known = [row for row in story.layouts if row["u"] is not None and row["since_ms"] is not None]
    most = max((row["u"] for row in known), default=1)
    panel = Panel(label="Partitions", unit="written to", y=top, height=64)
    y = Scale(0, most * 1.3, top + panel.height, top)
    panel.ticks = [AxisMark(y(value), short(value)) for value in (0, most)]
    points = [(x(row["since_ms"]), y(row["u"])) for row in known]
    if points:
        corners = steps(points, RIGHT)
        panel.curves = [Curve(style="u area", path=area(corners, y(0))), Curve(style="u line", path=line(corners))]
    ends = [*(row["since_ms"] for row in known[1:]), story.clock.end_ms]
    for row, end in zip(known, ends, strict=True):
        left, width = x(row["since_ms"]), x(end) - x(row["since_ms"])
        told = (
            f"layout epoch {row['layout_epoch']}: {row['u']} partitions since {moment(row['since_ms'], parts=True)} UTC"
        )
        label = str(row["u"]) if width >= 14 else ""
        panel.marks.append(
            Box(style="layout", x=left, y=y(row["u"]), width=width, height=y(0) - y(row["u"]), title=told, label=label)
        )
    return panel


_ROWS: Final = ("fences", "writes held", "readers held", "findings")


def _events(story: Story, x: Scale, top: float) -> Panel:
    panel = Panel(label="", unit="", y=top, height=20.0 * len(_ROWS))
    rows = {name: top + 20 * place + 4 for place, name in enumerate(_ROWS)}
    panel.ticks = [AxisMark(y + 6, name) for name, y in rows.items()]
    for fence in story.fences:
        if fence["fenced_ms"] is not None and not is_question(fence):
            until = fence["committed_ms"] or fence["cancelled_ms"]
            held = duration(until - fence["fenced_ms"]) if until else "no end on record"
            title = f"fence {fence['fence']} at {moment(fence['fenced_ms'], parts=True)} UTC: {held}"
            span = (x(fence["fenced_ms"]), x(until or fence["fenced_ms"]))
            panel.marks.append(_bar("fence", span, rows["fences"], title))
    for pause in story.pauses:
        if pause["ended_ms"] is not None:
            long = duration(pause["ended_ms"] - pause["began_ms"])
            title = (
                f"{pause['what']} held for {long} ({pause['reason']}) from {moment(pause['began_ms'], parts=True)} UTC"
            )
            style, row = ("readers", "readers held") if pause["what"] == "readers" else ("pause", "writes held")
            panel.marks.append(_bar(style, (x(pause["began_ms"]), x(pause["ended_ms"])), rows[row], title))
    for finding in story.findings:
        if finding["found_ms"]:
            title = f"{finding['name']} {finding['kind']} at {moment(finding['found_ms'])} UTC"
            at = x(finding["found_ms"])
            panel.marks.append(_bar(f"finding {finding['verdict']}", (at, at), rows["findings"], title))
    return panel


def _bar(style: str, span: tuple[float, float], y: float, title: str) -> Box:
    thinnest = _THINNEST_FINDING if style.startswith("finding") else _THINNEST
    width = round(max(thinnest, span[1] - span[0]), 1)
    return Box(style=style, x=min(span[0], RIGHT - width), y=y, width=width, height=12, title=title)


def _rates(story: Story, x: Scale, top: float) -> Panel:
    panel = Panel(label="Traffic", unit="records/s", y=top, height=110)
    _fill(panel, x, story.clock, (("delivered", story.delivered), ("written", story.written)))
    return panel


def _lag(story: Story, x: Scale, top: float) -> Panel:
    panel = Panel(label="Lag", unit="records", y=top, height=64)
    _fill(panel, x, story.clock, (("lag", story.lag),))
    return panel


def _fill(panel: Panel, x: Scale, clock: Clock, lines: Iterable[tuple[str, Sequence[float]]]) -> None:
    told = list(lines)
    most = nice(max((value for _, values in told for value in values), default=0))
    y = Scale(0, most, panel.y + panel.height, panel.y)
    panel.ticks = [AxisMark(y(value), short(value)) for value in (0, most / 2, most)]
    for style, values in told:
        points = [(x(clock.start_ms + (place + 0.5) * clock.width_ms), y(value)) for place, value in enumerate(values)]
        panel.curves.append(Curve(style=f"{style} area", path=area(points, y(0))))
        panel.curves.append(Curve(style=f"{style} line", path=line(points)))


def in_words(story: Story) -> str:
    """Says what the picture shows, for whoever does not see it."""
    counts = [row["u"] for row in story.layouts if row["u"] is not None]
    path = [counts[0], *(after for before, after in pairwise(counts) if after != before)] if counts else []
    changes = [fence for fence in story.fences if fence["committed_ms"] and fence["fenced_ms"] is not None]
    longest = max((fence["committed_ms"] - fence["fenced_ms"] for fence in changes), default=None)
    parts = [
        f"Partitions: {' → '.join(map(str, path))}." if path else "Its layout is not on record.",
        f"Fences: {len(changes)}" + (f", the longest {duration(max(0, longest))}." if longest is not None else "."),
        _traffic_in_words(story),
    ]
    return " ".join(parts)


def _traffic_in_words(story: Story) -> str:
    if not story.is_used:
        return "Nothing was written or read meanwhile."
    rates = (
        f"At most {several(round(max(story.written, default=0)), 'record')} a second written and "
        f"{whole(max(story.delivered, default=0))} delivered."
    )
    if not story.lag:
        return f"{rates} Nobody read it."
    behind = several(round(max(story.lag)), "record")
    return f"{rates} The foremost reader was at most {behind} behind, and {whole(story.lag[-1])} at the end."
