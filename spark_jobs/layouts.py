"""Layouts as the auditor derives them: where virtual partitions lived when, from the history that decisions tell.

The proxy is not asked: linear hashing, homes and stays are worked out here by code of their own (KIP-253 "Linear
hashing"; docs/decisions.md has the layout's JSON). All of it is plain Python on the driver: layouts are few and change
seldom; what comes of them is handed to Spark as tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

LINEAR: Final = "linear"
"""Virtual partitions lie by linear hashing of their slots."""
OWN: Final = "own"
"""While a topic with data is taken over: v < N on partition v still, the others by linear hashing."""
UNMANAGED: Final = "unmanaged"
"""Before a topic with data was taken over: v < N is partition v, and there are no others; batches have no tags."""


def linear(value: int, n: int, u: int) -> int:
    """Returns the partition of a slot or hash among `u`, of which there were `n` at first.

    >>> [linear(value, 3, 5) for value in range(8)]
    [0, 1, 2, 3, 4, 2, 0, 1]
    """
    whole = n
    while whole * 2 <= u:
        whole *= 2
    split = value % (whole * 2)
    return split if split < u else split - whole


def slots(n: int, v_count: int) -> list[int]:
    """Returns the slot of each virtual partition: neighbours lie together, whatever the count.

    Slot n * r + i is the r-th, bits reversed, of the run that begins at i.
    """
    run = v_count // n
    width = run.bit_length() - 1
    backwards = [sum((r >> bit & 1) << (width - 1 - bit) for bit in range(width)) for r in range(run)]
    return [v // run + n * backwards[v % run] for v in range(v_count)]


def homes(n: int, u: int, v_count: int, placement: str = LINEAR) -> list[int | None]:
    """Returns the partition of each virtual one; None where it is not born yet."""
    hashed = [linear(slot, n, u) for slot in slots(n, v_count)]
    if placement == LINEAR:
        return [*hashed]
    return [v if v < n else None if placement == UNMANAGED else hashed[v] for v in range(v_count)]


class SegmentRow(NamedTuple):
    """A row of `schema.SEGMENTS`."""

    topic: str
    layout_epoch: int
    partition: int
    start: int
    end: int | None
    kept_end: int | None
    predecessors: list[tuple[int, int]]


class StayRow(NamedTuple):
    """A row of `schema.STAYS`."""

    topic: str
    stream: int
    move: int
    partition: int
    start: int
    end: int | None
    kept_end: int | None
    tagged: bool


@dataclass(frozen=True, slots=True)
class _Epoch:
    number: int
    homes: Sequence[int | None]
    tagged: bool
    anew: frozenset[int]
    """Partitions whose residents count as moved though they stay: the log got shorter, or the segment was renewed."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the rules need of a layout."""

    topic: str
    layout_epoch: int
    v_count: int
    segments: tuple[SegmentRow, ...]
    stays: tuple[StayRow, ...]


def read(told: str) -> Layout:
    """Reads a layout from its JSON, as COMMIT and ADOPT carry it in `evidence.layout`.

    Raises:
        ValueError: It is none.
    """
    try:
        raw: dict[str, Any] = json.loads(told)
        segments = [_segment(raw["topic"], each) for each in raw["segments"]]
        epochs = list(_epochs(raw))
        stays = [*_stays(raw["topic"], raw["v_count"], epochs, segments), *_physical_stays(segments, epochs)]
        return Layout(raw["topic"], epochs[-1].number, raw["v_count"], tuple(segments), tuple(stays))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no layout: {error!r} in {told[:200]}") from error


def _segment(topic: str, raw: Mapping[str, Any]) -> SegmentRow:
    end, lost_from = raw.get("end"), raw.get("lost_from")
    sources = [(each["partition"], each["epoch"]) for each in raw.get("predecessors") or ()]
    kept_end = end if lost_from is None else lost_from
    return SegmentRow(topic, raw["id"]["epoch"], raw["id"]["partition"], raw["start"], end, kept_end, sources)


def _epochs(raw: Mapping[str, Any]) -> Iterator[_Epoch]:
    lying: dict[tuple[int, str], list[int | None]] = {}
    for each in raw["epochs"]:
        placement = each.get("placement", LINEAR)
        if (each["u"], placement) not in lying:
            lying[each["u"], placement] = homes(raw["n"], each["u"], raw["v_count"], placement)
        anew = frozenset([*map(int, each.get("shortened") or ()), *(each.get("renewed") or ())])
        yield _Epoch(each["number"], lying[each["u"], placement], placement != UNMANAGED, anew)


def _stays(topic: str, v_count: int, epochs: Iterable[_Epoch], segments: Iterable[SegmentRow]) -> list[StayRow]:
    """Walks through the epochs with all virtual partitions at once.

    A segment that is opened is a stay of its own, or lengthens the one before where nothing but a boundary came between.
    """
    opened: dict[int, dict[int, SegmentRow]] = {}
    for segment in segments:
        opened.setdefault(segment.layout_epoch, {})[segment.partition] = segment
    found: list[list[StayRow]] = [[] for _ in range(v_count)]
    for epoch in epochs:
        begun = opened.get(epoch.number, {})
        for v, q in enumerate(epoch.homes if begun else ()):
            if q in begun:
                _go_on(found[v], v, begun[cast("int", q)], epoch)
    return [stay for line in found for stay in line]


def _go_on(line: list[StayRow], v: int, segment: SegmentRow, epoch: _Epoch) -> None:
    last = line[-1] if line else None
    moved = last is not None and (last.partition != segment.partition or segment.partition in epoch.anew)
    was_cut = last is not None and last.kept_end != last.end
    if last is not None and not moved and not was_cut and last.tagged == epoch.tagged:
        line[-1] = last._replace(end=segment.end, kept_end=segment.kept_end)
        return
    move = 0 if last is None else last.move + moved
    place = (segment.partition, segment.start, segment.end, segment.kept_end)
    line.append(StayRow(segment.topic, v, move, *place, tagged=epoch.tagged))


def _physical_stays(segments: Iterable[SegmentRow], epochs: Iterable[_Epoch]) -> list[StayRow]:
    """A stay for each segment, up to where the partition's next one begins; what stands in between is nobody's."""
    tagged = {epoch.number: epoch.tagged for epoch in epochs}
    following: dict[int, StayRow] = {}
    found: list[StayRow] = []
    for segment in sorted(segments, key=lambda each: each.layout_epoch, reverse=True):
        after = following.get(segment.partition)
        end = segment.kept_end if after is None else after.start
        start = segment.start if end is None else min(segment.start, end)
        kept_end = end if segment.kept_end is None or end is None else max(min(segment.kept_end, end), start)
        stay = StayRow(
            segment.topic, ~segment.partition, segment.layout_epoch, segment.partition, start, end, kept_end,
            tagged=tagged[segment.layout_epoch],
        )  # fmt: skip
        following[segment.partition] = stay
        found.append(stay)
    return found


class Known(NamedTuple):
    """A layout as a decision told it, and where in `__kordon.layouts` it stands."""

    topic: str
    layouts_offset: int
    """What layouts are ordered by; a topic that was made anew begins its epochs again."""
    layout: str | None
    """Its JSON; None: the topic is managed no more."""


def newest(known: Iterable[Known], told: Iterable[Known]) -> list[Known]:
    """Returns the newest of each topic.

    Args:
        known: From before.
        told: By new decisions, in their order; of equal offsets the later counts.
    """
    found = {each.topic: each for each in known}
    for each in told:
        if each.topic not in found or each.layouts_offset >= found[each.topic].layouts_offset:
            found[each.topic] = each
    return sorted(found.values())


def tables(known: Iterable[Known]) -> tuple[list[SegmentRow], list[StayRow]]:
    """Returns the rows of `schema.SEGMENTS` and `schema.STAYS` for the layouts known.

    Raises:
        ValueError: One cannot be read.
    """
    layouts = [read(each.layout) for each in known if each.layout is not None]
    return [row for each in layouts for row in each.segments], [row for each in layouts for row in each.stays]
