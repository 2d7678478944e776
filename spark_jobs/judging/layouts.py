"""What layouts say, read from the decisions that carry them and derived once more: the auditor trusts no derived value.

A COMMIT or ADOPT decision carries the whole layout as the proxy writes it down: counts, segments with their cuts, and
what each layout epoch changed. Who lived where is worked out here, by linear hashing of the auditor's own.

    decisions ──newest──> a row per topic ──expand──> segments: offsets of a physical partition under one set of streams
                                                 └──> stays: a stream's time on one physical partition
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.schema import SEGMENTS, STAYS, columns
from kordon.spark_jobs.judging.tables import evidence, stacked

TOLD: Final = columns(
    topic=pl.String, layouts_offset=pl.Int64, layout_epoch=pl.Int32, layout=pl.String, let_go=pl.Int64
)
"""The newest layout of each topic, as JSON; null: the topic is managed no more. `let_go`: where that was written down
last, of the topics that had the name before; null: none was."""
_TELLING: Final = (Kind.COMMIT.value, Kind.ADOPT.value, Kind.FORGET.value)
_MOST_EXPANDED: Final = 1_000
_MOST_V: Final = (1 << 15) - 3
"""Virtual partitions that tags have room for."""
_MOST_LIVED: Final = 1 << 23
"""Virtual partitions times layout epochs: a layout is worked out within seconds."""
_WRONG: Final = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    pl.exceptions.PolarsError,
)
"""What comes of a layout that is none."""
_LINEAR: Final = "linear"
_OWN: Final = "own"
_SHARED: Final = "shared"
_UNMANAGED: Final = "unmanaged"


class SegmentRow(NamedTuple):
    """Offsets [start, end) of a physical partition; see `SEGMENTS`."""

    topic: str
    layout_epoch: int
    partition: int
    start: int
    end: int | None
    kept_end: int | None
    predecessors: list[tuple[int, int]]
    undeleted_partition_count: int
    compacted: bool


class StayRow(NamedTuple):
    """A stream's time on one physical partition; see `STAYS`."""

    topic: str
    stream: int
    move: int
    partition: int
    start: int
    end: int | None
    kept_end: int | None
    tagged: bool
    place: int
    floor: int
    compacted: bool
    shortened: bool = False
    shared_from: int | None = None
    shared_to: int | None = None


def newest(decisions: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Returns the newest layout of each topic, as `TOLD`; a later one contains all that went before.

    Args:
        known: The result for earlier decisions.
    """
    is_sure = pl.col("reason").is_null()  # of a commit that may have failed nothing is told but that
    told = decisions.filter(pl.col("kind").is_in(_TELLING), is_sure, pl.col("topic").is_not_null()).with_columns(
        pl.col("layouts_offset").fill_null(-1),
        pl.col("layout_epoch").fill_null(-1),
        evidence("$.layout").alias("layout"),
        pl.when(pl.col("kind") == Kind.FORGET.value).then("layouts_offset").alias("let_go"),
    )
    ranked = stacked(TOLD, known, told).sort("layouts_offset", "layout_epoch", "layout", nulls_last=False)
    whole = ranked.group_by("topic", maintain_order=True).agg(
        pl.last("layouts_offset", "layout_epoch", "layout"), pl.max("let_go")
    )
    return whole.select(TOLD.names())


def expanded(told: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the segments and the stays of all topics, as `SEGMENTS` and `STAYS`."""
    both = [_frames(layout) for layout in told.get_column("layout").drop_nulls().to_list()]
    segments, stays = ([each[place] for each in both] for place in range(2))
    return pl.concat([SEGMENTS.to_frame(), *segments]), pl.concat([STAYS.to_frame(), *stays])


def readable(decisions: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Leaves out decisions with a layout that no Kordon writes.

    Returns:
        The others, and how many were left out.
    """
    if not decisions.get_column("kind").is_in(_TELLING).any():
        return decisions, 0
    told = pl.when(pl.col("kind").is_in(_TELLING)).then(evidence("$.layout"))
    layouts = decisions.select(told.alias("layout")).get_column("layout")
    unreadable = [each for each in layouts.unique().drop_nulls().to_list() if not _is_readable(each)]
    kept = decisions.filter(~layouts.is_in(unreadable).fill_null(value=False)) if unreadable else decisions
    return kept, decisions.height - kept.height


@lru_cache(_MOST_EXPANDED)
def _is_readable(layout: str) -> bool:
    try:
        _frames(layout)
    except _WRONG:
        return False
    return True


@lru_cache(_MOST_EXPANDED)
def _frames(layout: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Layouts change seldom, and are looked at in each micro-batch."""
    segments, stays = expand(layout)
    table = segments_table([each._asdict() for each in segments])
    return table, pl.DataFrame([each._asdict() for each in stays], schema=STAYS)


def segments_table(segments: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Returns the fields of `SegmentRow`s as `SEGMENTS`."""
    rows = [{name: each.get(name) for name in SEGMENTS} for each in segments]
    for row in rows:
        row["predecessors"] = [{"partition": q, "epoch": epoch} for q, epoch in row["predecessors"] or ()]
    return pl.DataFrame(rows, schema=SEGMENTS)


def expand(layout: str) -> tuple[list[SegmentRow], list[StayRow]]:
    """Works out the segments and the stays of a layout.

    Args:
        layout: The JSON object of a COMMIT or ADOPT decision.

    Returns:
        Segments by layout epoch and partition, and the stays of all streams in the order of their chains.

    Raises:
        ValueError: Its numbers are none that a layout can have. What else is wrong raises what comes of it.
    """
    told: dict[str, Any] = json.loads(layout)
    if not 1 <= told["n"] <= told["v_count"] <= _MOST_V or told["v_count"] * len(told["epochs"]) > _MOST_LIVED:
        raise ValueError("a layout cannot have so many partitions")
    epochs = {epoch["number"]: epoch for epoch in told["epochs"]}
    compacted = bool(told.get("janitor"))
    segments = sorted((_segment(told["topic"], each, epochs, compacted) for each in told["segments"]), key=_by_epoch)
    stays = [*_virtual(told, epochs, segments), *_physical(epochs, segments)]
    return segments, stays


def home(v: int, n: int, u: int, v_count: int) -> int:
    """Returns on which physical partition a virtual one lives: KIP-253's linear hashing of its slot.

    >>> [home(v, 3, 5, 12) for v in range(12)]
    [0, 0, 3, 3, 1, 1, 4, 4, 2, 2, 2, 2]
    """
    per_partition = v_count // n
    slot, rest, weight = v // per_partition, v % per_partition, v_count // 2
    while rest:  # its bits in reverse, times n
        slot += weight * (rest & 1)
        rest, weight = rest >> 1, weight // 2
    level = n
    while level * 2 <= u:
        level *= 2
    split = slot % (level * 2)
    return split if split < u else slot % level


def _by_epoch(segment: SegmentRow) -> tuple[int, int]:
    return segment.layout_epoch, segment.partition


def _segment(topic: str, told: dict[str, Any], epochs: dict[int, Any], compacted: bool) -> SegmentRow:
    epoch, lost_from, end = epochs[told["id"]["epoch"]], told.get("lost_from"), told.get("end")
    before = [(each["partition"], each["epoch"]) for each in told.get("predecessors") or ()]
    count = epoch["u"] if epoch.get("placement", _LINEAR) == _LINEAR else -1
    kept_end = end if lost_from is None else lost_from
    place = epoch["number"], told["id"]["partition"]
    return SegmentRow(topic, *place, told["start"], end, kept_end, before, count, compacted)


def _lives(v: int, told: dict[str, Any], epoch: dict[str, Any]) -> int | None:
    """Returns where a virtual partition lived in an epoch; None: it was not born."""
    placement = epoch.get("placement", _LINEAR)
    if placement == _SHARED:
        return v % int(told["n"])
    if placement in {_OWN, _UNMANAGED} and v < told["n"]:
        return v
    return None if placement == _UNMANAGED else home(v, told["n"], epoch["u"], told["v_count"])


def _virtual(told: dict[str, Any], epochs: dict[int, Any], segments: list[SegmentRow]) -> Iterator[StayRow]:
    opened: dict[tuple[int, int | None], SegmentRow] = {(each[1], each[2]): each for each in segments}
    numbers = sorted({each.layout_epoch for each in segments})
    lost = {(each["id"]["epoch"], each["id"]["partition"]) for each in told["segments"] if _is_lost(each)}
    floors = {int(v): floor for v, floor in (told.get("floors") or {}).items()}
    for v in range(told["v_count"]):
        places = ((number, _lives(v, told, epochs[number])) for number in numbers)
        lived = [_Lived(epochs[place[0]], opened[place], place in lost) for place in places if place in opened]
        yield from _chain(v, lived, floors.get(v, 0))


def _shortened(epoch: dict[str, Any]) -> set[int]:
    return {int(q) for q in epoch.get("shortened") or ()}


def _is_lost(told: dict[str, Any]) -> bool:
    return told.get("lost_from") is not None


class _Lived(NamedTuple):
    """A segment in which a virtual partition lived from its beginning."""

    epoch: dict[str, Any]
    segment: SegmentRow
    is_lost: bool
    """Whether the log got shorter than it."""


def _chain(v: int, lived: list[_Lived], virtual_floor: int) -> Iterator[StayRow]:
    """Joins segments that follow on each other on one partition."""
    stays: list[StayRow] = []
    virtual_end, delta, was_lost = 0, 0, False
    for epoch, segment, is_lost in lived:
        is_short = segment.partition in _shortened(epoch)
        anew = is_short or segment.partition in (epoch.get("renewed") or ())
        tagged = epoch.get("placement", _LINEAR) != _UNMANAGED
        last = stays[-1] if stays else None
        moves = last is not None and (anew or last.partition != segment.partition)
        shared = (segment.start, segment.end) if epoch.get("placement", _LINEAR) == _SHARED else (None, None)
        if last is not None and not moves and last.tagged == tagged and not was_lost:
            stays[-1] = last._replace(end=segment.end, kept_end=segment.kept_end, shortened=is_lost)
        else:
            if last is not None and is_short:
                stays[-1] = last._replace(shortened=True)
            born = 0 if epoch["number"] == 0 else -segment.start
            delta = born if last is None else virtual_end - segment.start
            move = 0 if last is None else last.move + moves
            floor = max(segment.start, virtual_floor - delta)
            if v != segment.partition:
                floor = max(floor, shared[1] or 0)  # what it wrote there is given out as the host's
            where = segment.partition, segment.start, segment.end, segment.kept_end
            about = tagged, len(stays), floor, segment.compacted, is_lost, *shared
            stays.append(StayRow(segment.topic, v, move, *where, *about))
        virtual_end, was_lost = (segment.end or 0) + delta, is_lost
    yield from stays


def _physical(epochs: dict[int, Any], segments: list[SegmentRow]) -> Iterator[StayRow]:
    """Yields the stays of physical partitions as dialect clients read them: each segment up to where the next begins.

    What lies between is nobody's: strays where a retired partition was used again, or what a shortened log lost.
    """
    by_partition = sorted(segments, key=lambda each: (each.partition, each.layout_epoch))
    for q, run in groupby(by_partition, lambda each: each.partition):
        of_q = list(run)
        following: int | None = None
        is_short = False
        stays: list[StayRow] = []
        for place, segment in reversed(list(enumerate(of_q))):
            end = segment.kept_end if place == len(of_q) - 1 else following
            start = segment.start if end is None else min(segment.start, end)
            kept = segment.kept_end
            kept_end = max(kept, start) if kept is not None and end is not None and kept < end else end
            tagged = epochs[segment.layout_epoch].get("placement", _LINEAR) != _UNMANAGED
            where = segment.layout_epoch, q, start, end, kept_end, tagged, place
            is_short = is_short or kept != segment.end
            stays.append(StayRow(segment.topic, ~q, *where, start, segment.compacted, is_short))
            following, is_short = start, q in _shortened(epochs[segment.layout_epoch])
        yield from reversed(stays)
