"""Which partitions held the keys of a segment before it, and up to where, by the layouts alone.

Those are its predecessors that have records, and what these have before them. Segments asked for are few, so they are
looked at one by one. A topic's are brought into order again only when its layout has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import polars as pl

from kordon.spark_jobs.judging.schema import columns

SEGMENT: Final = ("topic", "partition", "move")
"""`move` is the layout epoch of the segment's opening."""
BEFORE: Final = columns(
    topic=pl.String, partition=pl.Int32, move=pl.Int32, of=pl.Int32, until=pl.Int64, compacted=pl.Boolean
)
"""Before a segment, partition `of` has to be done up to `until`. A segment that needs nothing names itself."""
_MOST_TOPICS: Final = 100


class _TopicSegments:
    """The segments of a topic as the key of a cache."""

    def __init__(self, segments: pl.DataFrame) -> None:
        self.segments = segments

    def __hash__(self) -> int:
        return hash(self.segments.select("topic").row(0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TopicSegments) and self.segments.equals(other.segments)


def before(segments: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Returns what some segments need, as `BEFORE`; nothing of those that are not known.

    Args:
        segments: The segments, as in `Facts`.
        asked: With the columns of `SEGMENT`.
    """
    of_topics = segments.filter(pl.col("topic").is_in(asked.get_column("topic").unique().to_list()))
    known = {
        topic: _by_place(_TopicSegments(rows))
        for (topic,), rows in of_topics.partition_by("topic", as_dict=True).items()
    }
    rows = [
        (*each, of, until, known[topic][move, q]["compacted"])
        for each in asked.select(SEGMENT).unique().rows()
        for topic, q, move in [each]
        if (move, q) in known.get(topic, {})
        for of, until in _needs(known[topic], (move, q)).items()
    ]
    return pl.DataFrame(rows, schema=BEFORE, orient="row")


@lru_cache(_MOST_TOPICS)
def _by_place(topic: _TopicSegments) -> Mapping[tuple[int, int], Mapping[str, Any]]:
    return {(row["layout_epoch"], row["partition"]): row for row in topic.segments.to_dicts()}


def _needs(segments: Mapping[tuple[int, int], Mapping[str, Any]], segment: tuple[int, int]) -> Mapping[int, int]:
    """Returns by partition up to where it has to be done before a segment; also its own partition."""
    ends = {segment[1]: 0}
    seen = {segment}
    waiting = [segment]
    while waiting:
        named = segments[waiting.pop()]["predecessors"] or ()
        following = {(each["epoch"], each["partition"]) for each in named} & segments.keys() - seen
        for place in following:
            end = segments[place]["kept_end"]
            if end is not None and end > segments[place]["start"]:
                ends[place[1]] = max(end, ends.get(place[1], 0))
        seen |= following
        waiting += following
    return ends
