"""The layout of a managed topic: which physical partition each virtual one lives on, and on which it lived before.

A layout is a value; `changed` makes the next one. All else is derived from the history of counts and the segments:
`Residence` tells where streams live and have lived, `LayoutChange` what the next epoch changes.

    epoch       0            1               2
    U           3            4               3
    partition 0 [0, 120)     [120, 300)      [300, …)    0 splits at 120, and takes 3 back in at 300
    partition 3              [0, 95)                     the child lives from epoch 1 to 2
    partition 1 [0, …)                                   nothing changes here: one segment
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import not_
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from pydantic import Field, TypeAdapter

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.layout_change import LayoutChange
from kordon.proxy.ordering.placements import Epoch, Placement, Placements
from kordon.proxy.ordering.residence import Residence
from kordon.proxy.ordering.segments import Segment, SegmentId
from kordon.proxy.ordering.share.policy import DEFAULT, SharePolicy, is_default
from kordon.proxy.ordering.streams import Stream, shown_partition


class LogBound(NamedTuple):
    """An offset of a physical partition on which a layout stands."""

    offset: int
    leader_epoch: int
    """In which it was read; -1: not known."""


NO_COUNT: Final = -1
"""What dialect clients send, and what is in force, where partitions are not chosen by undeleted_partition_count."""


@dataclass(frozen=True)
class Layout:
    """One immutable layout of a topic; names are KIP-253's.

    Attributes:
        topic: The topic's name.
        topic_id: The id of the real topic (SAME-TOPIC).
        n: The topic's initial_partition_count.
        v_count: V, the virtual partitions.
        epochs: All so far, oldest first.
        segments: All so far, by epoch and partition.
        withheld: v >= N are written but not delivered yet (TAKEOVER-WAITS).
        floors: The virtual offset to which DeleteRecords has raised the start, by virtual partition (OWN-FLOOR).
        ordered_delivery: enable.ordered.delivery of KIP-253: no key is delivered before what it was in earlier.
        janitor: Old values of keys are taken out of partitions that they have left (KIP-253 9).
        share: The topic's promises to share groups.
        has_transactions: Its logs may hold transactions. It stays so once the topic takes any. A record that says it
            cannot be read by versions that do not know transactions, so they do not serve the topic (UNREAD-UNSERVED).
    """

    topic: str
    topic_id: UUID
    n: int
    v_count: int
    epochs: tuple[Epoch, ...]
    segments: tuple[Segment, ...]
    withheld: bool = False
    floors: Mapping[int, int] | None = None
    ordered_delivery: bool = True
    janitor: bool = False
    has_transactions: Annotated[bool, Field(exclude_if=not_)] = False
    share: Annotated[SharePolicy, Field(exclude_if=is_default)] = DEFAULT

    @classmethod
    def created(cls, topic: str, topic_id: UUID, n: int, v_count: int) -> Layout:
        """Returns the first layout of a topic that is empty.

        Raises:
            ValueError: The counts are impossible.
        """
        if problem := why_not(n, n, v_count):
            raise ValueError(problem)
        segments = tuple(Segment(SegmentId(q, 0), 0) for q in range(n))
        return cls(topic, topic_id, n, v_count, (Epoch(0, n),), segments)

    @classmethod
    def unmanaged(cls, topic: str, topic_id: UUID, n: int, v_count: int) -> Layout:
        """Returns the layout that a topic with data has had all along; the first `changed` takes it over.

        Raises:
            ValueError: The counts are impossible.
        """
        created = cls.created(topic, topic_id, n, v_count)
        return replace(created, epochs=(Epoch(0, n, Placement.UNMANAGED),))

    @property
    def epoch(self) -> int:
        """The layout epoch."""
        return self.epochs[-1].number

    @property
    def is_managed(self) -> bool:
        """False before a topic with data is taken over: then this is what it was all along."""
        return self.epochs[-1].placement is not Placement.UNMANAGED

    @property
    def u(self) -> int:
        """undeleted_partition_count: partitions that are written to."""
        return self.epochs[-1].u

    @cached_property
    def count_in_force(self) -> int:
        """The undeleted_partition_count by which dialect clients must have chosen a partition to write to it (KIP-253).

        While a topic with data is taken over it is to them what it was before: N partitions, by hash, without a count.
        """
        return self.u if self.epochs[-1].placement is Placement.LINEAR else NO_COUNT

    @cached_property
    def open_segments(self) -> Mapping[int, Segment]:
        """The segment that is written to, by physical partition."""
        return {segment.id.partition: segment for segment in self.segments if segment.end is None}

    @cached_property
    def segments_of(self) -> Mapping[int, Sequence[Segment]]:
        """All segments of each physical partition, in the order of `segments`."""
        found: dict[int, list[Segment]] = {}
        for segment in self.segments:
            found.setdefault(segment.id.partition, []).append(segment)
        return found

    @cached_property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """The layout epochs that brought another undeleted_partition_count, each with it; the first one begins."""
        befores = [None, *(epoch.u for epoch in self.epochs)]
        return tuple((epoch.number, epoch.u) for epoch, u in zip(self.epochs, befores, strict=False) if epoch.u != u)

    @cached_property
    def last_bounds(self) -> Mapping[int, LogBound]:
        """The least end of each physical partition's log: a shorter log has lost records (BEYOND-LOSS)."""
        newest = {segment.id.partition: segment for segment in sorted(self.segments, key=lambda each: each.id.epoch)}
        return {
            q: LogBound(segment.start if segment.end is None else segment.kept_end or 0, segment.bound_epoch)
            for q, segment in newest.items()
        }

    @cached_property
    def residence(self) -> Residence:
        """Tells where streams live and have lived."""
        return Residence(Placements(self.n, self.v_count), self.epochs, self.segments)

    @cached_property
    def homes(self) -> tuple[int | None, ...]:
        """The physical partition on which each virtual one lives; None where it is not born yet."""
        return self.residence.homes

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The homes, present and former, of each virtual partition."""
        return self.residence.chains

    def chain(self, stream: Stream) -> Chain:
        """Returns where a stream lives and has lived; without stays where the layout knows none of it.

        Args:
            stream: A virtual partition below V, or a physical partition as such (`streams.physical_stream`).
        """
        if stream >= 0:  # not by `is_physical`: it is asked some times for each batch
            return self.chains[stream]
        return self.residence.physical_chain(shown_partition(stream)) or _NOWHERE

    def open_home(self, stream: Stream) -> Stay | None:
        """Returns where a stream is written and delivered now; None: nowhere, or it is withheld (TAKEOVER-WAITS)."""
        if stream >= self.v_count or self.withholds(stream):
            return None
        home = self.chain(stream).home
        return home if home is not None and home.end is None else None

    def knows(self, stream: Stream) -> bool:
        """Whether there is such a stream, and it lives or has lived anywhere."""
        return stream < self.v_count and bool(self.chain(stream).stays)

    def withholds(self, v: int) -> bool:
        """Whether a virtual partition is written and not delivered now (TAKEOVER-WAITS)."""
        return self.withheld and self.ordered_delivery and v >= self.n

    def next_epoch(
        self,
        u: int,
        placement: Placement = Placement.LINEAR,
        shortened: Mapping[int, int] | None = None,
        renewed: Iterable[int] = (),
    ) -> Epoch:
        """Returns the epoch that a change to `u` partitions would begin.

        Args:
            u: The number of partitions, which may be the present one.
            placement: How virtual partitions will lie.
            shortened: Physical partitions whose log got shorter, by the offset from which all was lost (BEYOND-LOSS).
            renewed: Physical partitions that begin another segment; as many partitions as now.

        Raises:
            ValueError: The count is impossible.
        """
        if problem := why_not(self.n, u, self.v_count):
            raise ValueError(problem)
        return Epoch(self.epoch + 1, u, placement, shortened or None, tuple(sorted(renewed)))

    def change_to(self, following: Epoch) -> LayoutChange:
        """Returns what changes when `following` begins."""
        return LayoutChange(self.residence, self.epochs, self.segments, following)

    def changed(
        self,
        following: Epoch,
        cuts: Mapping[int, int],
        *,
        withheld: bool = False,
        leader_epochs: Mapping[int, int] | None = None,
        told: Mapping[int, int] | None = None,
    ) -> Layout:
        """Returns the layout in which `following` has begun.

        Args:
            following: The epoch that `next_epoch` returned.
            cuts: The next offset of each physical partition that is sealed or opened.
            withheld: Keep v >= N from readers (TAKEOVER-WAITS).
            leader_epochs: The leader epochs in which the cuts were read, as far as they are known.
            told: Up to where somebody may have been told of a partition whose log has got shorter: what follows begins
                there, so that virtual offsets do not fall (BEYOND-LOSS).

        Raises:
            KeyError: A cut is missing.
            ValueError: A cut lies below the start of its segment.
        """
        segments = self.change_to(following).made(cuts, leader_epochs or {}, told or {})
        return replace(self, epochs=(*self.epochs, following), segments=segments, withheld=withheld)


_NOWHERE: Final = Chain(())

LAYOUT_JSON: TypeAdapter[Layout] = TypeAdapter(Layout)
"""How a layout is written into `__kordon.layouts`."""
