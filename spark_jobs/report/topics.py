"""What the page says of each topic: its pictures, its changes and its streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kordon.spark_jobs.report import heat, timeline
from kordon.spark_jobs.report.heat import Heat
from kordon.spark_jobs.report.series import Clock, lag, per_second, sums
from kordon.spark_jobs.report.tables import Row, Tables
from kordon.spark_jobs.report.timeline import Story, Timeline, is_question

MOST_TOPICS: Final = 50
MOST_FENCES: Final = 200
CATCH_UP_MS: Final = 1_000
"""Layouts without a commit on record that are adopted within such a time are history, read when a worker starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTotals:
    """One row of a topic's table."""

    stream: int
    partition: int | None
    """The partition where it lived last, as far as its traffic tells."""
    moves: int
    written: int
    written_bytes: int
    repeated: int
    refused: int
    delivered: int
    delivered_bytes: int
    lag: int | None
    """The lag of the foremost reader at the end; None: nobody reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """A fence and what came of it."""

    fence: Row
    before: int | None
    after: int | None
    outcome: str
    took_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTopic:
    """One topic of the page."""

    name: str
    number: int
    """On this page: part of the ids of its pictures."""
    counts: Sequence[int]
    """undeleted_partition_count over time."""
    timeline: Timeline
    words: str
    heats: Sequence[Heat]
    streams: Sequence[StreamTotals]
    changes: Sequence[ShownChange]
    pauses: Sequence[Row]
    open_holds: int
    written: int
    delivered: int


def topics(tables: Tables) -> list[ShownTopic]:
    """Returns those that something happened to, the busiest first."""
    names = {row["topic"] for table in (tables.traffic, tables.layouts, tables.fences) for row in table}
    busy: dict[str, int] = defaultdict(int)
    for row in tables.traffic:
        busy[row["topic"]] += (row["admitted_records"] or 0) + (row["delivered_records"] or 0)
    ordered = sorted((name for name in names if name), key=lambda name: (-busy[name], name))[:MOST_TOPICS]
    return [_topic(name, number, tables) for number, name in enumerate(ordered)]


def _topic(name: str, number: int, tables: Tables) -> ShownTopic:
    traffic = _of(name, tables.traffic)
    layouts = _of_its_time(sorted(_of(name, tables.layouts), key=lambda row: row["layout_epoch"]))
    fences = sorted(_of(name, tables.fences), key=lambda row: row["fenced_ms"] or row["committed_ms"] or 0)
    pauses = sorted(_of(name, tables.pauses), key=lambda row: row["began_ms"] or 0)
    findings = _of(name, tables.findings)
    clock = _clock(traffic, layouts, fences, tables)
    behind, last = lag(traffic, clock)
    story = Story(
        clock=clock,
        layouts=layouts,
        fences=fences,
        pauses=pauses,
        findings=findings,
        written=per_second(sums(traffic, "admitted_records", clock), clock),
        delivered=per_second(sums(traffic, "delivered_records", clock), clock),
        lag=behind if last else (),
    )
    times = [row["fenced_ms"] for row in fences if row["fenced_ms"] and not is_question(row)]
    pictures = (heat.draw(column, traffic, clock, times) for column in ("admitted_records", "delivered_records"))
    counts = [row["u"] for row in layouts if row["u"] is not None]
    return ShownTopic(
        name=name,
        number=number,
        counts=[*counts[:1], *(after for before, after in pairwise(counts) if before != after)],
        timeline=timeline.draw(story),
        words=timeline.in_words(story),
        heats=[picture for picture in pictures if picture],
        streams=_streams(traffic, last),
        changes=_changes(fences, layouts)[-MOST_FENCES:],
        pauses=[row for row in pauses if row["ended_ms"] is not None][-MOST_FENCES:],
        open_holds=sum(row["ended_ms"] is None for row in pauses),
        written=sum(row["admitted_records"] or 0 for row in traffic),
        delivered=sum(row["delivered_records"] or 0 for row in traffic),
    )


def _of(topic: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["topic"] == topic]


def _of_its_time(layouts: Sequence[Row]) -> list[Row]:
    """Leaves out those that had passed before the record begins: a worker that starts adopts one after the other."""
    passed = [_is_caught_up(row, following) for row, following in pairwise(layouts)]
    return [row for row, is_over in zip(layouts, (*passed, False), strict=True) if not is_over]


def _is_caught_up(row: Row, following: Row) -> bool:
    known_ms, next_ms = row["since_ms"], following["since_ms"]
    if row["committed_ms"] or following["committed_ms"] or known_ms is None or next_ms is None:
        return False
    return bool(next_ms - known_ms < CATCH_UP_MS)


def _clock(traffic: Sequence[Row], layouts: Iterable[Row], fences: Iterable[Row], tables: Tables) -> Clock:
    """Covers the topic's traffic and changes; where there are none, all that was read."""
    times = [row["bucket_ms"] for row in traffic]
    times += [row["bucket_ms"] + row["width_ms"] - 1 for row in traffic]
    times += [at for row in fences for at in (row["fenced_ms"], row["committed_ms"]) if at]
    if not times:
        times = [at for row in tables.read_decisions for at in (row["first_ms"], row["last_ms"]) if at]
    times += [row["since_ms"] for row in layouts if row["since_ms"] and not traffic]
    return Clock.of(traffic, min(times, default=0), max(times, default=0))


def _streams(traffic: Iterable[Row], last: dict[int, int]) -> list[StreamTotals]:
    by_stream: dict[int, list[Row]] = defaultdict(list)
    for row in traffic:
        by_stream[row["stream"]].append(row)
    ordered = sorted(by_stream, key=lambda stream: (stream < 0, abs(stream)))
    return [_totals(stream, by_stream[stream], last.get(stream)) for stream in ordered]


def _totals(stream: int, rows: Sequence[Row], behind: int | None) -> StreamTotals:
    def total(column: str) -> int:
        return sum(row[column] or 0 for row in rows)

    homes = [row for row in rows if row["partition"] is not None and row["move"] is not None]
    newest = max(homes, key=lambda row: (row["move"], row["bucket_ms"]), default=None)
    return StreamTotals(
        stream=stream,
        partition=None if newest is None else newest["partition"],
        moves=len({row["move"] for row in homes}) - 1 if homes else 0,
        written=total("admitted_records"),
        written_bytes=total("admitted_bytes"),
        repeated=total("repeated"),
        refused=total("refused"),
        delivered=total("delivered_records"),
        delivered_bytes=total("delivered_bytes"),
        lag=behind,
    )


def _changes(fences: Iterable[Row], layouts: Iterable[Row]) -> list[ShownChange]:
    counts = {row["layout_epoch"]: row["u"] for row in layouts}
    return [_change(fence, counts) for fence in fences if not is_question(fence)]


def _change(fence: Row, counts: dict[int, int | None]) -> ShownChange:
    epoch = -1 if fence["layout_epoch"] is None else int(fence["layout_epoch"])
    earlier = [known for known in counts if known < epoch]
    began, until = fence["fenced_ms"], fence["committed_ms"] or fence["cancelled_ms"]
    outcome = "committed" if fence["committed_ms"] else "cancelled" if fence["cancelled_ms"] else "no end on record"
    return ShownChange(
        fence=fence,
        before=counts[max(earlier)] if earlier else None,
        after=counts.get(epoch) if fence["committed_ms"] else None,
        outcome=outcome,
        took_ms=max(0, until - began) if until and began else None,
    )
