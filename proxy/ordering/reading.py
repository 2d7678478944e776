"""Says to whom each batch in the log of a physical partition belongs, and where a virtual offset is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.identity import JANITOR, MOVES, WRITER_BITS, Identity, untag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.streams import Stream, physical_stream


class Hidden(Enum):
    """The reasons for which no reader gets a batch as it is."""

    CONTROL = "control"
    """The batch holds nothing to deliver."""
    STRAY = "stray"
    """The batch landed after its cut and was never acknowledged (STRAY-HIDDEN)."""
    BYPASS = "bypass"
    """Somebody wrote it without Kordon. Its records are given out one by one (BYPASS-SHARED)."""
    WITNESS = "witness"
    """The batch makes a coordinator end a transaction in this log, and holds nothing to deliver."""
    DIALECT = "dialect"
    """A client of the dialect wrote it to the physical partition. Its records are given out one by one (ORIGIN-TAG)."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A virtual partition during one of its stays."""

    v: int
    stay: Stay
    is_bypass: bool = False
    """Whether somebody wrote the batch without Kordon. It is given out as it is, and counted."""


@dataclass(slots=True)
class Tenancy:  # noqa: PLW1641 - it remembers what it has found
    """The virtual partitions that live or have lived on one physical partition."""

    partition: int
    own: tuple[Stay, ...] = ()
    """The stays of the physical partition itself."""
    lines: list[tuple[range, list[Stay]]] = field(default_factory=list[tuple[range, list[Stay]]])
    """The stays here, by the virtual partitions that have always lived together, in their order."""
    untagged: list[Resident] = field(default_factory=list[Resident])
    """The stays from before the topic was taken over (PAST-STAYS)."""
    inheriting: frozenset[int] = frozenset()
    """The layout epochs in which dialect clients see here the virtual partition with the partition's number
    (TAKEOVER-WAITS)."""
    shared: tuple[Stay, ...] = ()
    """The segments, as stays of the partition itself, that are delivered as the virtual partition with its number
    (TAKEOVER-SHARES)."""
    _of_segments: dict[Stay, Resident | Hidden] = field(default_factory=dict[Stay, "Resident | Hidden"], compare=False)
    _tagged: dict[int, list[tuple[Stay, Resident | None]]] = field(
        default_factory=dict[int, list[tuple[Stay, "Resident | None"]]], compare=False
    )
    """As identities name them, without the client's part; more than one only after 256 moves. None: a dialect client
    wrote to the partition as such."""

    def __eq__(self, other: object) -> bool:
        """Whether the same have lived here at the same offsets, however their lines are cut."""
        if not isinstance(other, Tenancy):
            return NotImplemented
        mine, others = (
            (
                each.partition,
                each.own,
                each.untagged,
                each.inheriting,
                each.shared,
                {v: stays for vs, stays in each.lines for v in vs},
            )
            for each in (self, other)
        )
        return mine == others

    def owner(self, producer_id: int, base_offset: int, *, is_control: bool) -> Resident | Hidden:
        """Returns the owner of a batch, or why it has none.

        Args:
            producer_id: The producer id in the log.
            base_offset: The batch's, in the physical partition.
            is_control: Whether it is a control batch.
        """
        for past in self.untagged:
            if past.stay.holds(base_offset):
                return past  # its log is passed on as it is, control batches included
        if is_control:
            return Hidden.CONTROL
        found = self._tagged.get(producer_id >> WRITER_BITS)
        if found is None:
            identity = untag(producer_id)
            if identity is None:
                return Hidden.BYPASS
            found = self._look_up(identity, producer_id >> WRITER_BITS)
        for stay, resident in found:
            if stay.holds(base_offset):
                return resident or self._of_segment(stay)
        return Hidden.STRAY

    def knows(self, producer_id: int, base_offset: int) -> bool:
        """Whether the virtual partition that a batch names has ever lived here, even if the batch is a stray.

        Args:
            producer_id: The producer id in the log. Ids without a meaning, and those of a janitor, count as known.
            base_offset: The batch's offset. Every batch from before the takeover counts as known, because the topic may
                have been managed before.
        """
        identity = untag(producer_id)
        if identity is None or identity.v == JANITOR or any(past.stay.holds(base_offset) for past in self.untagged):
            return True
        return bool(self._look_up(identity, producer_id >> WRITER_BITS))

    def _of_segment(self, segment: Stay) -> Resident | Hidden:
        """Returns the owners of what dialect clients wrote in a segment: one resident, or several."""
        owner = self._of_segments.get(segment)
        if owner is None:
            here = self.at(segment.start)
            v, *others = [self.partition] if segment.move in self.inheriting else list(here)
            clipped = self._clipped(here[v], segment)
            owner = self._of_segments[segment] = Hidden.DIALECT if others else Resident(v, clipped)
        return owner

    @staticmethod
    def _clipped(stay: Stay, segment: Stay) -> Stay:
        """Returns the part of a stay that lies in a segment, because a remembered owner counts only there."""
        return replace(stay, start=segment.start, end=segment.end, lost_from=segment.lost_from)

    def at(self, offset: int) -> dict[int, Stay]:
        """Returns the virtual partitions that live here at an offset and get the records there."""
        here = {v: stay for vs, stays in self.lines for stay in stays if stay.holds(offset) for v in vs}
        if any(stay.holds(offset) for stay in self.shared):
            return {v: stay for v, stay in here.items() if v == self.partition}
        return here

    def _look_up(self, who: Identity, tag: int) -> list[tuple[Stay, Resident | None]]:
        stays: Iterable[Stay] = self.own
        if not who.is_physical:
            place = bisect_right(self.lines, who.v, key=lambda line: line[0].start) - 1
            stays = self.lines[place][1] if place >= 0 and who.v in self.lines[place][0] else ()
        mine = [stay for stay in stays if stay.tagged and stay.move % MOVES == who.move]
        found = [(stay, None if who.is_physical else Resident(who.v, stay)) for stay in mine]
        if mine and not who.is_physical:
            its_own = (stay for stay in self.shared if any(each.holds(stay.start) for each in mine))
            hosts = ((stay, self.at(stay.start).get(self.partition)) for stay in its_own)
            given = ((stay, self._clipped(host, stay)) for stay, host in hosts if host is not None)
            found = [*((stay, Resident(self.partition, host)) for stay, host in given), *found]
        if found:
            self._tagged[tag] = found
        return found


def tenancies(layout: Layout) -> Mapping[int, Tenancy]:
    """Returns for each physical partition which virtual partitions live or have lived there.

    Each is derived when somebody asks for it: a worker reads few of thousands of partitions, and all at once would
    take it as long as dozens of requests.
    """
    return _Tenancies(layout)


class _Tenancies(Mapping[int, Tenancy]):
    """The tenancies of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._made: dict[int, Tenancy] = {}
        self._lines: dict[int, list[tuple[range, list[Stay]]]] = {}
        for vs, chain in layout.residence.runs:
            here: dict[int, list[Stay]] = {}
            for stay in chain.stays:
                here.setdefault(stay.partition, []).append(stay)
            for q, stays in here.items():
                self._lines.setdefault(q, []).append((vs, stays))
        taking_over = (Placement.OWN, Placement.SHARED)
        self._inheriting = frozenset(epoch.number for epoch in layout.epochs if epoch.placement in taking_over)
        self._shared = frozenset(epoch.number for epoch in layout.epochs if epoch.placement is Placement.SHARED)

    def __getitem__(self, q: int) -> Tenancy:
        """Returns who lives and has lived on a physical partition; raises KeyError."""
        found = self._made.get(q)
        if found is None:
            lines, own = self._lines[q], self._layout.chain(physical_stream(q)).stays
            untagged = [Resident(v, stay) for vs, stays in lines for stay in stays if not stay.tagged for v in vs]
            shared = _shared(own, self._shared)
            found = self._made[q] = Tenancy(q, own, lines, untagged, self._inheriting, shared)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def _shared(own: Iterable[Stay], epochs: frozenset[int]) -> tuple[Stay, ...]:
    """Picks the stays of a partition as such in which all is delivered as one virtual partition (TAKEOVER-SHARES)."""
    return tuple(stay for stay in own if stay.move in epochs) if epochs else ()


def share_out(hashes: Iterable[int], residents: Iterable[int], v_count: int) -> list[int]:
    """Shares the records of a batch that was written without Kordon among the residents (BYPASS-SHARED).

    Args:
        hashes: The hash of each record's key, not negative.
        residents: The virtual partitions that live there, at least one.
        v_count: The number of virtual partitions.

    Returns:
        A virtual partition for each record: that of its key where it lives there, else one that its key alone decides.
    """
    here = sorted(residents)
    return [v if (v := each % v_count) in here else here[each % len(here)] for each in hashes]


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """The place at which a virtual offset is read."""

    stay: Stay
    position: int
    """In the physical partition."""
    is_home: bool
    """Whether the virtual partition lives there now. New records come only there."""

    @property
    def is_read_out(self) -> bool:
        """Whether it lies after the last record of a retired partition. Only another layout brings more."""
        end = self.stay.end  # where a stay ends begins the next one, if there is one
        return end is not None and self.position >= end


def reading_place(chain: Chain, offset: int, floor: int) -> ReadingPlace | None:
    """Finds where a virtual offset is read; None: it lies below the first record (HOLE-PASSED).

    Args:
        chain: The chain, which is not empty.
        offset: The virtual offset.
        floor: The virtual offset below which records were deleted (OWN-FLOOR).
    """
    stay = chain.stay_of(offset)
    if stay is None or offset < floor:
        return None
    return ReadingPlace(stay, offset - stay.delta, stay is chain.stays[-1])


def place_in(layout: Layout, stream: Stream, offset: int) -> ReadingPlace | None:
    """Finds where an offset of a stream is read under a layout; None: it lies below the stream's first record."""
    return reading_place(layout.chain(stream), offset, (layout.floors or {}).get(stream, 0))


def position_beyond(stay: Stay, position: int, log_start: int, log_end: int) -> int | None:
    """Returns where to continue reading from a position that the physical log may no longer have.

    Args:
        position: The offset in the physical partition.
        log_start: The start of the physical log, as its leader now gives it.

    Returns:
        The position itself if the log has it, else the end of the hole (HOLE-PASSED). None: it lies after the end of a
        log that is still written to, and is out of range unless a later layout says otherwise (NO-FALSE-END).
    """
    if position < log_start:
        return log_start if stay.end is None else min(log_start, stay.end)
    return position if position <= log_end else stay.end


def end_told(home: Stay, mark: int, limit: int | None, *, position: int | None, after: int) -> int:
    """Returns the end of a partition that an answer tells its reader (OWN-END).

    A reader that has read everything is told its own position, so that its lag is 0. Others are told the home's high
    watermark.

    Args:
        home: The last stay of the partition.
        mark: The high watermark of its log.
        limit: The offset there from which on nothing is shown; None: there is none.
        position: The position in that log up to which the reader has everything; None: it reads an earlier stay.
        after: The virtual offset at which the reader stands after the answer.
    """
    end = max(min(each for each in (mark, limit, home.end) if each is not None), home.start)
    if position is not None and position >= end:
        return after
    return max(after, end + home.delta)


def may_step_over(
    stay: Stay, position: int, mark: int | None, *, has_batches: bool, has_holes: bool, is_sealed: bool, is_late: bool
) -> bool:
    """Whether an answer moves its reader over what is not its own, up to a position (STEP-OVER).

    Args:
        position: Up to where all has been looked at.
        mark: The high watermark of the physical partition; None: not known.
        has_batches: Whether the answer gives any.
        has_holes: Whether the reader is moved over offsets that are gone.
        is_sealed: Whether a fence seals the physical partition.
        is_late: Whether the reader has waited as long as it wanted to.
    """
    if stay.end is not None:
        return position >= stay.end or has_holes or (is_late and not has_batches)
    if is_sealed:
        return False
    has_all = mark is not None and position >= mark  # so that it commits, and lags, like one with all
    return has_holes or (has_all if has_batches else is_late)


def past_loss(stay: Stay, position: int) -> int:
    """Returns where to continue reading after a position: past the offsets that the log has lost (BEYOND-LOSS).

    Args:
        stay: The stay that holds the position. It has lost its last offsets if the log got shorter.
        position: The offset in the physical partition.
    """
    if stay.end is None or stay.lost_from is None or not stay.lost_from <= position < stay.end:
        return position
    return stay.end


def first_readable(chain: Chain, floor: int, log_start: Callable[[int], int]) -> int:
    """Returns the first virtual offset that readers can get: log_start_offset in answers.

    Args:
        chain: The chain, which is not empty.
        floor: The virtual offset below which records were deleted (OWN-FLOOR).
        log_start: Returns where a physical partition's log begins, 0 where it is not known.
    """
    for stay in chain.stays:
        start = max(stay.start, log_start(stay.partition), floor - stay.delta)
        if stay.end is None or start < stay.end:
            return start + stay.delta
    return chain.stays[-1].virtual_end or 0


class Scanned:
    """What is known of the end of a physical partition's log without looking at it again.

    It holds a stretch of the log that was read without a gap, and for each virtual partition the end of its last batch
    there. A reader after that end has nothing to read in the rest of the stretch (STEP-OVER).
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.leader_epoch = -1
        """The leader epoch of the last batch."""
        self._last: dict[int, int] = {}

    def extend(self, start: int, end: int, last: Mapping[int, int], leader_epoch: int) -> None:
        """Takes in what was read.

        Args:
            start: Offset from which on everything was read.
            end: Offset up to which.
            last: The end of the last batch, by virtual partition that has batches there.
            leader_epoch: The leader epoch of the last batch there.
        """
        if end <= self.end:
            return
        if not self.start <= start <= self.end:
            self._last.clear()
            self.start = start
        self._last |= last
        self.end, self.leader_epoch = end, leader_epoch

    def skip(self, v: int, position: int) -> int:
        """Returns the offset up to which `v` has no record after `position`."""
        if self.start <= position < self.end and self._last.get(v, self.start) <= position:
            return self.end
        return position
