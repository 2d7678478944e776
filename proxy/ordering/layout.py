"""The layout of a managed topic: which physical partition each virtual one lives on, and on which it lived before.

A layout is a value; `changed` makes the next one. All else is derived from the history of counts and the segments:

    epoch       0            1               2
    U           3            4               3
    partition 0 [0, 120)     [120, 300)      [300, …)    0 splits at 120, and takes 3 back in at 300
    partition 3              [0, 95)                     the child lives from epoch 1 to 2
    partition 1 [0, …)                                   nothing changes here: one segment
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple
from uuid import UUID

from pydantic import TypeAdapter

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.hashing import homes, residents, shortest_run, why_not
from kordon.proxy.ordering.segments import Segment, SegmentId
from kordon.proxy.ordering.streams import Stream, physical_chains, physical_stream, shown_partition


class Placement(Enum):
    """How virtual partitions lie on physical ones in an epoch."""

    LINEAR = "linear"
    """By linear hashing of their slots."""
    OWN = "own"
    """While a topic with data is taken over: v < N still on partition v, v >= N by linear hashing (TAKEOVER-WAITS)."""
    UNMANAGED = "unmanaged"
    """Before a topic with data was taken over: v < N is partition v, and there are no others (PAST-STAYS)."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one layout epoch changed."""

    number: int
    u: int
    placement: Placement = Placement.LINEAR
    shortened: Mapping[int, int] | None = None
    """By physical partition whose log got shorter: from which offset on all was lost (BEYOND-LOSS)."""
    renewed: tuple[int, ...] = ()
    """Physical partitions that begin another segment though nobody comes or goes: values stand first in it that brokers
    would have taken away (KIP-253 9)."""


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
        topic: Its name.
        topic_id: Of the real topic (SAME-TOPIC).
        n: initial_partition_count.
        v_count: V, the virtual partitions.
        epochs: All so far, oldest first.
        segments: All so far, by epoch and partition.
        withheld: v >= N are written but not delivered yet (TAKEOVER-WAITS).
        floors: By virtual partition, the virtual offset that DeleteRecords has raised its start to (OWN-FLOOR).
        ordered_delivery: enable.ordered.delivery of KIP-253: no key is delivered before what it was in earlier.
        janitor: Old values of keys are taken out of partitions that they have left (KIP-253 9).
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
        """By which undeleted_partition_count dialect clients must have chosen a partition to write to it (KIP-253).

        While a topic with data is taken over it is to them what it was before: N partitions, by hash, without a count.
        """
        return self.u if self.epochs[-1].placement is Placement.LINEAR else NO_COUNT

    @cached_property
    def _by_epoch(self) -> Mapping[int, Mapping[int, Segment]]:
        found: dict[int, dict[int, Segment]] = {}
        for segment in self.segments:
            found.setdefault(segment.id.epoch, {})[segment.id.partition] = segment
        return found

    @cached_property
    def open_segments(self) -> Mapping[int, Segment]:
        """By physical partition, the segment that is written to."""
        return {segment.id.partition: segment for segment in self.segments if segment.end is None}

    @cached_property
    def segments_of(self) -> Mapping[int, Sequence[Segment]]:
        """By physical partition, all its segments, in the order of `segments`."""
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
        """By physical partition, where its log must reach at least: a shorter one has lost records (BEYOND-LOSS)."""
        newest = {segment.id.partition: segment for segment in sorted(self.segments, key=lambda each: each.id.epoch)}
        return {
            q: LogBound(segment.start if segment.end is None else segment.kept_end or 0, segment.bound_epoch)
            for q, segment in newest.items()
        }

    @cached_property
    def homes(self) -> tuple[int | None, ...]:
        """By virtual partition, the physical one that it lives on; None where it is not born yet."""
        return self._homes(self.epochs[-1])

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """By virtual partition, where it lives and has lived."""
        return tuple(run.chain for run in self.runs for _ in run.vs)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The virtual partitions as runs of neighbours that have always lived together, and so share a chain."""
        lines: list[list[Stay]] = [[] for _ in self._run_starts]
        for epoch in self.epochs:
            begins_anew = {*(epoch.shortened or ()), *epoch.renewed}
            for q, segment in self._by_epoch.get(epoch.number, {}).items():
                before: Stay | None = None
                after: list[Stay] = []
                for place in itertools.chain(*self._runs_on(epoch, q)):
                    line = lines[place]
                    last = line.pop() if line else None
                    if not after or last is not before:  # else the run before this one has come the same way
                        before, after = last, _gone_on(last, epoch, segment, begins_anew=q in begins_anew)
                    line += after
        ends = (*self._run_starts[1:], self.v_count)
        return tuple(
            Run(range(start, end), Chain(tuple(line)))
            for start, end, line in zip(self._run_starts, ends, lines, strict=True)
        )

    @cached_property
    def _run_starts(self) -> tuple[int, ...]:
        length = shortest_run(self.n, max(epoch.u for epoch in self.epochs), self.v_count)
        starts = range(0, self.v_count, length)
        if all(epoch.placement is Placement.LINEAR for epoch in self.epochs):
            return tuple(starts)
        return tuple(sorted({*starts, *range(min(self.n + 1, self.v_count))}))  # v < N have lived each by itself

    def _runs_on(self, epoch: Epoch, partition: int) -> list[range]:
        """Finds the runs that lived on a physical partition in an epoch, by their places."""
        starts = self._run_starts
        return [
            range(bisect_left(starts, vs.start), bisect_left(starts, vs.stop))
            for vs in self._residents(epoch, partition)
        ]

    @property
    def run_count(self) -> int:
        """How many `runs` there are."""
        return len(self._run_starts)

    @cached_property
    def steps(self) -> int:
        """How often any of the `runs` has gone on in another segment, which is what deriving the chains takes."""
        segments = ((self.epochs[each.id.epoch], each.id.partition) for each in self.segments)
        return sum(len(places) for epoch, q in segments for places in self._runs_on(epoch, q))

    @cached_property
    def _physical_chains(self) -> Mapping[int, Chain]:
        untagged = {epoch.number for epoch in self.epochs if epoch.placement is Placement.UNMANAGED}
        return physical_chains(self.segments, untagged)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All that clients write and have written to: virtual partitions, and physical ones as such."""
        return (*range(self.v_count), *(physical_stream(q) for q in self._physical_chains))

    def chain(self, stream: Stream) -> Chain:
        """Returns where a stream lives and has lived; without stays where the layout knows none of it.

        Args:
            stream: A virtual partition below V, or a physical partition as such (`streams.physical_stream`).
        """
        if stream >= 0:  # not by `is_physical`: it is asked some times for each batch
            return self.chains[stream]
        return self._physical_chains.get(shown_partition(stream), _NOWHERE)

    @cached_property
    def open_homes(self) -> Mapping[Stream, Stay]:
        """By stream, where it is written and delivered now; what is not, or withheld (TAKEOVER-WAITS), is missing."""
        shown = self.n if self.withholds(self.n) else self.v_count
        homes: dict[Stream, Stay] = {}
        for vs, chain in self.runs:
            if chain.home is not None and chain.home.end is None:
                homes |= dict.fromkeys(vs[: max(shown - vs.start, 0)], chain.home)
        physical = ((physical_stream(q), chain.home) for q, chain in self._physical_chains.items())
        return homes | {stream: home for stream, home in physical if home is not None and home.end is None}

    def knows(self, stream: Stream) -> bool:
        """Whether there is such a stream, and it lives or has lived anywhere."""
        return stream < self.v_count and bool(self.chain(stream).stays)

    @property
    def is_plain(self) -> bool:
        """Whether each virtual partition has only ever been the physical one of its number, offset by offset."""
        stays = ((vs, stay) for vs, chain in self.runs for stay in chain.stays)
        return all(vs == range(stay.partition, stay.partition + 1) and not stay.delta for vs, stay in stays)

    def withholds(self, v: int) -> bool:
        """Whether a virtual partition is written and not delivered now (TAKEOVER-WAITS)."""
        return self.withheld and self.ordered_delivery and v >= self.n

    def residents(self, partition: int) -> tuple[int, ...]:
        """Returns the virtual partitions that live on a physical one."""
        return tuple(v for vs in self._residents(self.epochs[-1], partition) for v in vs)

    def next_epoch(
        self,
        u: int,
        placement: Placement = Placement.LINEAR,
        shortened: Mapping[int, int] | None = None,
        renewed: Iterable[int] = (),
    ) -> Epoch:
        """Returns the epoch that a change to `u` partitions would begin.

        Args:
            u: As many as now, or another number.
            placement: How virtual partitions will lie.
            shortened: Physical partitions whose log got shorter, by the offset from which all was lost (BEYOND-LOSS).
            renewed: Physical partitions that begin another segment; as many partitions as now.

        Raises:
            ValueError: The count is impossible.
        """
        if problem := why_not(self.n, u, self.v_count):
            raise ValueError(problem)
        return Epoch(self.epoch + 1, u, placement, shortened or None, tuple(sorted(renewed)))

    def sealed_by(self, following: Epoch) -> frozenset[int]:
        """Returns the physical partitions whose segment ends when `following` begins.

        Their residents change, or (where partitions are chosen in another way from then on) whose keys are theirs.
        """
        if following.placement is not self.epochs[-1].placement:
            return frozenset(self.open_segments) | frozenset(following.shortened or ())
        changes = zip(self.homes, self._homes(following), strict=True)
        touched = frozenset(q for change in changes if change[0] != change[1] for q in change if q is not None)
        renewed = touched.union(following.renewed)
        return renewed & frozenset(self.open_segments) | frozenset(following.shortened or ())

    def opened_by(self, following: Epoch) -> frozenset[int]:
        """Returns the physical partitions on which a segment begins with `following`."""
        homes = self._homes(following)
        sealed = self.sealed_by(following)
        return frozenset(q for q in homes if q is not None and (q in sealed or q not in self.open_segments))

    def movers(self, following: Epoch) -> tuple[int, ...]:
        """Returns the virtual partitions that write under another identity from `following` on.

        Their home changes, is renewed, or has lost what they wrote, or what they are was not written down before.
        """
        if not self.is_managed:
            return tuple(range(self.n))
        changes = enumerate(zip(self.homes, self._homes(following), strict=True))
        anew = {*(following.shortened or ()), *following.renewed}
        return tuple(v for v, (q, after) in changes if q is not None and (q != after or q in anew))

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
            following: By `next_epoch`.
            cuts: The next offset of each physical partition that is sealed or opened.
            withheld: Keep v >= N from readers (TAKEOVER-WAITS).
            leader_epochs: In which the cuts were read, as far as it is known.
            told: Up to where somebody may have been told of a partition whose log has got shorter: what follows begins
                there, so that virtual offsets do not fall (BEYOND-LOSS).

        Raises:
            KeyError: A cut is missing.
            ValueError: A cut lies below the start of its segment.
        """
        epochs, shortened = leader_epochs or {}, following.shortened or {}
        sealed, tagged = self.sealed_by(following), self._tagged_epochs
        segments: list[Segment] = []
        for segment in self.segments:
            q = segment.id.partition
            if segment.end is not None and q in shortened:
                # where batches carry identities, what was written since then is its writer's: it was acknowledged
                lost_from = cuts[q] if segment.id.epoch in tagged else min(shortened[q], cuts[q])
                segments.append(_shortened(segment, lost_from, epochs.get(q, -1)))
            elif segment.end is None and q in sealed:
                ended = _ended(segment, cuts[q], q in shortened, (told or {}).get(q, 0))
                segments.append(replace(ended, bound_epoch=epochs.get(q, -1)))
            else:
                segments.append(segment)
        for q in sorted(self.opened_by(following)):
            settlers = [v for vs in self._residents(following, q) for v in vs]
            before = {self.homes[v] for v in settlers} - {None}
            if self.epochs[-1].placement is not Placement.LINEAR:
                before |= {v % self.n for v in settlers}  # where those write who see N partitions (TAKEOVER-WAITS)
            sources = tuple(self.open_segments[p].id for p in sorted(p for p in before if p is not None))
            opened = Segment(SegmentId(q, following.number), cuts[q], predecessors=sources)
            segments.append(replace(opened, bound_epoch=epochs.get(q, -1)))
        return replace(self, epochs=(*self.epochs, following), segments=tuple(segments), withheld=withheld)

    @property
    def _tagged_epochs(self) -> frozenset[int]:
        return frozenset(epoch.number for epoch in self.epochs if epoch.placement is not Placement.UNMANAGED)

    def _homes(self, epoch: Epoch) -> tuple[int | None, ...]:
        if epoch.placement is Placement.LINEAR:
            return homes(self.n, epoch.u, self.v_count)
        found: list[int | None] = [None] * self.v_count
        for q in range(epoch.u):
            for vs in self._residents(epoch, q):
                found[vs.start : vs.stop] = [q] * len(vs)
        return tuple(found)

    def _residents(self, epoch: Epoch, partition: int) -> tuple[range, ...]:
        """Returns the virtual partitions that live on a physical one in an epoch, as runs of neighbours."""
        vs = residents(partition, self.n, epoch.u, self.v_count)
        if epoch.placement is Placement.LINEAR:
            return (vs,)
        own = range(partition, partition + 1) if 0 <= partition < self.n else range(0)
        if epoch.placement is Placement.UNMANAGED:
            return (own,)
        return own, range(max(vs.start, self.n), max(vs.stop, self.n))


class Run(NamedTuple):
    """Virtual partitions that have always lived together: neighbours."""

    vs: range
    chain: Chain
    """Of each of them."""


def _gone_on(last: Stay | None, epoch: Epoch, segment: Segment, *, begins_anew: bool) -> list[Stay]:
    """Returns what comes in the place of a last stay when its virtual partitions live on in a segment.

    Segments in a row on one partition, without a gap, are one stay, unless the partition was to begin anew.
    """
    q, start, end, lost_from = segment.id.partition, segment.start, segment.end, segment.lost_from
    tagged = epoch.placement is not Placement.UNMANAGED
    if last is None:
        delta = 0 if epoch.number == 0 else -start
        return [Stay(q, 0, start, end, delta, lost_from, tagged=tagged)]
    moves = last.partition != q or begins_anew
    if last.tagged == tagged and last.lost_from is None and not moves:
        return [Stay(q, last.move, last.start, end, last.delta, lost_from, tagged=tagged)]
    delta = (last.end or 0) + last.delta - start
    return [last, Stay(q, last.move + moves, start, end, delta, lost_from, tagged=tagged)]


def _ended(segment: Segment, cut: int, is_shortened: bool, told: int) -> Segment:
    """Ends a segment at a cut; where the log has got shorter than its start, behind all that somebody was told of.

    Raises:
        ValueError: The cut lies below the start, and nobody knew that the log got shorter.
    """
    if not is_shortened:
        if cut < segment.start:
            raise ValueError(f"cut {cut} lies below the start of {segment}")
        return replace(segment, end=cut)
    kept = max(cut, segment.start)  # what was written behind the start since then is all there is of it
    end = max(kept, told)
    return replace(segment, end=end, lost_from=kept if kept < end else None)


def _shortened(segment: Segment, lost_from: int, leader_epoch: int) -> Segment:
    """Says of a segment that had ended that nothing of it is there from an offset on."""
    kept_end = segment.kept_end
    if kept_end is None or kept_end <= lost_from:
        return segment
    return replace(segment, lost_from=max(lost_from, segment.start), bound_epoch=leader_epoch)


_NOWHERE: Final = Chain(())

LAYOUT_JSON: TypeAdapter[Layout] = TypeAdapter(Layout)
"""How a layout is written into `__kordon.layouts`."""
