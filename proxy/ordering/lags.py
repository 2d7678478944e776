"""How far groups are behind, by partition, as clients reckon it: the end that they are told, less what is committed.

A virtual partition's log is its stays laid end to end, so what is left to read in former homes counts like the rest of
it. As everywhere in Kafka a lag is a difference of offsets: what a home's log has of co-residents counts, too, until
the group has passed over it.

Names of groups are the clients', as many as they like. So there is a bound on how many series are told: groups that
have no room of their own are told together, by the one that is furthest behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lookups import LATEST, FoundOffset, resolve, visible
from kordon.proxy.ordering.streams import Stream, is_physical, shown_partition

OTHERS: Final = "(others)"
"""In place of a group, or of a partition: all that have no series of their own."""


class LagKey(NamedTuple):
    """The group and the partition of a lag."""

    topic: str
    group: str
    partition: str
    """As it is shown: a virtual partition, or "~q" for a physical one as such."""


def shown(stream: Stream) -> str:
    """Returns how a stream is named.

    >>> shown(3), shown(-4)
    ('3', '~3')
    """
    return f"~{shown_partition(stream)}" if is_physical(stream) else str(stream)


def home_of(layout: Layout, stream: Stream) -> Stay | None:
    """Returns where a stream ends; None: it is not delivered, so nobody can be behind (TAKEOVER-WAITS)."""
    if not layout.knows(stream) or layout.withholds(stream):
        return None
    return layout.chain(stream).home


def end_of(layout: Layout, stream: Stream, log_end: int, limit: int | None) -> int:
    """Returns the end that clients are told of a stream.

    Args:
        layout: The layout in force, which has a `home_of` the stream.
        stream: A virtual partition, or a physical one as such.
        log_end: The end of the log of its home's physical partition.
        limit: The offset there from which on nothing is shown now; None: there is none.
    """
    floor = (layout.floors or {}).get(stream, 0)
    stays = visible(layout.chain(stream), floor, limit)
    return max(floor, resolve(stays, LATEST, {stays[-1].partition: FoundOffset(log_end)}).offset)


def bounded(
    lags: Mapping[LagKey, int], most: int, kept: Iterable[tuple[str, str]]
) -> tuple[dict[LagKey, int], set[tuple[str, str]]]:
    """Tells together what would be too many series.

    Args:
        lags: All lags.
        most: Series, if there are not more topics than that.
        kept: Topics and groups that had series of their own so far; they keep them as long as there is room.

    Returns:
        What is told, and the topics and groups that have series of their own in it.
    """
    by_group: dict[tuple[str, str], list[LagKey]] = {}
    for place in lags:
        by_group.setdefault((place.topic, place.group), []).append(place)
    if len(lags) <= most:
        return dict(lags), set(by_group)
    together = {LagKey(each.topic, OTHERS, each.partition) for each in lags}
    is_by_partition = len(together) <= most
    room = most - len(together if is_by_partition else {each.topic for each in lags})
    before, own = frozenset(kept), set[tuple[str, str]]()
    for group in sorted(by_group, key=lambda group: (group not in before, group)):
        if len(by_group[group]) <= room and group[1] != OTHERS:
            room -= len(by_group[group])
            own.add(group)
    told: dict[LagKey, int] = {}
    for place, lag in lags.items():
        if (place.topic, place.group) not in own:
            place = LagKey(place.topic, OTHERS, place.partition if is_by_partition else OTHERS)  # noqa: PLW2901
        told[place] = max(lag, told.get(place, 0))
    return told, own
