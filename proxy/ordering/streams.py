"""Streams: what clients write to and read from a managed topic, as one kind of number.

Clients without the SDK see virtual partitions; those with it (docs/dialect.md) see the physical ones as they
are. Both are written through the same queues and read through the same chains, so both are a number here:

    stream   0, 1, 2, …     virtual partition v
    stream  -1, -2, -3, …   physical partition q as such: ~q

The chain of a physical partition has a stay for each of its segments. Its offsets are those of the log (delta 0), and
the layout epoch of the segment stands where virtual partitions have their moves: in identities (ORIGIN-TAG), and in
leader epochs, which thereby rise with each change of the partition's keys (KIP-253, "leaderEpochAfterCreation").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from kordon.proxy.ordering.chain import Chain, Stay

if TYPE_CHECKING:
    from kordon.proxy.ordering.segments import Segment

Stream: TypeAlias = int
"""A virtual partition, or a physical one as such (`physical_stream`)."""


def physical_stream(partition: int) -> Stream:
    """Returns the stream that a physical partition is to clients of the dialect.

    >>> physical_stream(0), physical_stream(2)
    (-1, -3)
    """
    return ~partition


def is_physical(stream: Stream) -> bool:
    """Whether a stream is a physical partition as such."""
    return stream < 0


def shown_partition(stream: Stream) -> int:
    """Returns the number of the virtual or physical partition that clients name to mean a stream."""
    return ~stream if stream < 0 else stream


def physical_chains(segments: Iterable[Segment], untagged_epochs: Collection[int]) -> Mapping[int, Chain]:
    """Returns the chain of each physical partition as such, by its number; it has no hole.

    Args:
        segments: All segments of a layout.
        untagged_epochs: The epochs before the topic was taken over, whose batches carry no identity (PAST-STAYS).
    """
    stays: dict[int, list[Stay]] = {}
    for segment in sorted(segments, key=lambda each: each.id.epoch, reverse=True):
        line = stays.setdefault(segment.id.partition, [])
        line.append(_stay(segment, line[-1] if line else None, tagged=segment.id.epoch not in untagged_epochs))
    return {q: Chain(tuple(reversed(line))) for q, line in stays.items()}


def _stay(segment: Segment, following: Stay | None, *, tagged: bool) -> Stay:
    """Returns the stay of a segment: up to where the next one begins, so that a reader continues from one to the other.

    What stands in between is nobody's, like what was lost: strays, where a retired partition was used again. Where a
    log got shorter (BEYOND-LOSS), the next segment begins below what this one was.
    """
    kept_end = segment.kept_end
    end = kept_end if following is None else following.start
    start = segment.start if end is None else min(segment.start, end)
    has_gap = kept_end is not None and end is not None and kept_end < end
    lost_from = max(kept_end or 0, start) if has_gap else None
    return Stay(segment.id.partition, segment.id.epoch, start, end, 0, lost_from, tagged=tagged)
