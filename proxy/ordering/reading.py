"""Whose batches are whose in the log of a physical partition, and where a virtual offset is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.identity import CLIENT_BITS, MOVES, Identity, untag
from kordon.proxy.ordering.layout import Layout, Placement
from kordon.proxy.ordering.streams import physical_stream


class Hidden(Enum):
    """Why nobody gets a batch as it is."""

    CONTROL = "control"
    """It holds nothing to deliver."""
    STRAY = "stray"
    """It landed behind its cut: it was never acknowledged (STRAY-HIDDEN)."""
    BYPASS = "bypass"
    """Its writer went round Kordon: its records are given out one by one (BYPASS-SHARED)."""
    DIALECT = "dialect"
    """A client of the dialect wrote it to the physical partition as such: given out likewise (ORIGIN-TAG)."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A virtual partition during one of its stays."""

    v: int
    stay: Stay
    is_bypass: bool = False
    """Whether the batch went round Kordon: it is given out as it is, and counted."""


@dataclass(slots=True)
class Tenancy:  # noqa: PLW1641 - it is filled by and by
    """Who lives and has lived on one physical partition."""

    partition: int
    own: tuple[Stay, ...] = ()
    """Of the physical partition as such."""
    lines: list[tuple[range, list[Stay]]] = field(default_factory=list[tuple[range, list[Stay]]])
    """By virtual partitions that have always lived together, in their order: their stays here."""
    untagged: list[Resident] = field(default_factory=list[Resident])
    """Those from before the topic was taken over (PAST-STAYS)."""
    inheriting: frozenset[int] = frozenset()
    """Layout epochs in which clients of the dialect see the virtual partition of its number here (TAKEOVER-WAITS)."""
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
                {v: stays for vs, stays in each.lines for v in vs},
            )
            for each in (self, other)
        )
        return mine == others

    def owner(self, producer_id: int, base_offset: int, *, is_control: bool) -> Resident | Hidden:
        """Says whose a batch is.

        Args:
            producer_id: As the log has it.
            base_offset: The batch's, in the physical partition.
            is_control: Whether it is a control batch.
        """
        for past in self.untagged:
            if past.stay.holds(base_offset):
                return past  # its log is passed on as it is, control batches included
        if is_control:
            return Hidden.CONTROL
        found = self._tagged.get(producer_id >> CLIENT_BITS)
        if found is None:
            identity = untag(producer_id)
            if identity is None:
                return Hidden.BYPASS
            found = self._look_up(identity, producer_id >> CLIENT_BITS)
        for stay, resident in found:
            if stay.holds(base_offset):
                return resident or self._of_segment(stay)
        return Hidden.STRAY

    def _of_segment(self, segment: Stay) -> Resident | Hidden:
        """Says whose all is that clients of the dialect wrote in a segment: of one resident, or of several."""
        owner = self._of_segments.get(segment)
        if owner is None:
            here = self.at(segment.start)
            v, *others = [self.partition] if segment.move in self.inheriting else list(here)
            clipped = replace(here[v], start=segment.start, end=segment.end, lost_from=segment.lost_from)
            owner = self._of_segments[segment] = Hidden.DIALECT if others else Resident(v, clipped)
        return owner

    def at(self, offset: int) -> dict[int, Stay]:
        """Returns who lives here at an offset."""
        return {v: stay for vs, stays in self.lines for stay in stays if stay.holds(offset) for v in vs}

    def _look_up(self, who: Identity, tag: int) -> list[tuple[Stay, Resident | None]]:
        stays: Iterable[Stay] = self.own
        if not who.is_physical:
            place = bisect_right(self.lines, who.v, key=lambda line: line[0].start) - 1
            stays = self.lines[place][1] if place >= 0 and who.v in self.lines[place][0] else ()
        mine = [stay for stay in stays if stay.tagged and stay.move % MOVES == who.move]
        found = [(stay, None if who.is_physical else Resident(who.v, stay)) for stay in mine]
        if found:
            self._tagged[tag] = found
        return found


def tenancies(layout: Layout) -> Mapping[int, Tenancy]:
    """Returns by physical partition who lives and has lived there."""
    found: dict[int, Tenancy] = {}
    for vs, chain in layout.runs:
        here: dict[int, list[Stay]] = {}
        for stay in chain.stays:
            here.setdefault(stay.partition, []).append(stay)
        for q, stays in here.items():
            tenancy = found.setdefault(q, Tenancy(q))
            tenancy.lines.append((vs, stays))
            tenancy.untagged += [Resident(v, stay) for stay in stays if not stay.tagged for v in vs]
    inheriting = frozenset(epoch.number for epoch in layout.epochs if epoch.placement is Placement.OWN)
    for q, tenancy in found.items():
        tenancy.inheriting = inheriting
        tenancy.own = layout.chain(physical_stream(q)).stays
    return found


def share_out(hashes: Iterable[int], residents: Iterable[int], v_count: int) -> list[int]:
    """Gives the records of a batch that went round Kordon to those who live there (BYPASS-SHARED).

    Args:
        hashes: Of each record's key, not negative.
        residents: The virtual partitions that live there, at least one.
        v_count: V.

    Returns:
        A virtual partition for each record: that of its key where it lives there, else one that its key alone decides.
    """
    here = sorted(residents)
    return [v if (v := each % v_count) in here else here[each % len(here)] for each in hashes]


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """Where a virtual offset is read."""

    stay: Stay
    position: int
    """In the physical partition."""
    is_home: bool
    """Whether the virtual partition lives there now: only there can more come."""


def reading_place(chain: Chain, offset: int, floor: int) -> ReadingPlace | None:
    """Finds where a virtual offset is read; None: it lies below all there is (HOLE-PASSED).

    Args:
        chain: Not empty.
        offset: Virtual.
        floor: The virtual offset below which records were deleted (OWN-FLOOR).
    """
    stay = chain.stay_of(offset)
    if stay is None or offset < floor:
        return None
    return ReadingPlace(stay, offset - stay.delta, stay is chain.stays[-1])


def position_beyond(stay: Stay, position: int, log_start: int, log_end: int) -> int | None:
    """Returns where reading goes on that has come to a position which the physical log may not have.

    Args:
        stay: That holds it.
        position: In the physical partition.
        log_start: Of the physical log, as its leader says now.
        log_end: The same.

    Returns:
        The position itself if it is there, else where a hole ends (HOLE-PASSED). None: it lies behind the end of a log
        that is still written to, which is out of range if no later layout says otherwise (NO-FALSE-END).
    """
    if position < log_start:
        return log_start if stay.end is None else min(log_start, stay.end)
    return position if position <= log_end else stay.end


def first_readable(chain: Chain, floor: int, log_start: Callable[[int], int]) -> int:
    """Returns the first virtual offset that readers can get: log_start_offset in answers.

    Args:
        chain: Not empty.
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

    A stretch of the log that was read without a gap, and by virtual partition the end of its last batch in it. Whoever
    stands behind that has nothing to read up to the end of the stretch: ranges found empty are remembered (STEP-OVER).
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.leader_epoch = -1
        """Of the last batch."""
        self._last: dict[int, int] = {}

    def extend(self, start: int, end: int, last: Mapping[int, int], leader_epoch: int) -> None:
        """Takes in what was read.

        Args:
            start: Offset from which on everything was read.
            end: Offset up to which.
            last: By virtual partition that has batches there, the end of the last one.
            leader_epoch: Of the last batch there.
        """
        if end <= self.end:
            return
        if not self.start <= start <= self.end:
            self._last.clear()
            self.start = start
        self._last |= last
        self.end, self.leader_epoch = end, leader_epoch

    def skip(self, v: int, position: int) -> int:
        """Returns the offset up to which nothing of `v` stands behind `position`."""
        if self.start <= position < self.end and self._last.get(v, self.start) <= position:
            return self.end
        return position
