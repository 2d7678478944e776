"""The janitor of compacted topics: which keys are to leave which partitions (KIP-253 9).

Brokers compact each physical partition by itself. When a key has moved from p to q, its old value in p stays forever,
and comes back to life when its user deletes the key and the broker has dropped the tombstone in q. So the janitor reads
what is written, and puts a tombstone of its own, a marker, into each partition where a key has lived before:

    p    K=1 ─┐ cut            marker K       the broker's compaction leaves nothing of K in p
    q         └──────── K=2 ──────┘           from here on it may drop K=2 when K is deleted

Readers do not see markers: they carry an identity of their own (`identity.JANITOR`). To brokers a marker is a record
like others: behind a visible record of its key it would take that away. So

- a marker goes only where its key has lived before and has not lived since (`FormerHomes`), under a layout in force;
- no layout comes into force before all that its cuts end has been looked at, and the markers are written. What becomes
  a key's home again has all markers of that key behind it, before its new segment begins;
- what lands late all the same, or is a stray, is found: its keys are in doubt until what it would have brokers take
  away is written again (`Doubts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from struct import Struct
from typing import Any, Final, NamedTuple

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import JANITOR, MOVES, NO_V, tag, untag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.reading import Hidden, share_out, tenancies
from kordon.proxy.ordering.segments import SegmentId
from kordon.proxy.ordering.streams import physical_stream

MOST_KEYS: Final = 200_000
"""Of one topic, keys whose markers are known to be written: some 30 MB; of others they are written once more."""
_LONGEST_KEY: Final = 31
_NAME: Final = Struct(">iii")
"""Partition, layout epoch, virtual partition."""


class Visible(NamedTuple):
    """A batch that readers see."""

    segment: SegmentId
    """The segment in which it stands."""
    v: int | None
    """The virtual partition of the batch; None: its keys tell, or it was written to the physical partition as such."""
    former: frozenset[int]
    """Physical partitions where its keys have lived before, and have not lived since; none are known of what was
    written around Kordon, where a key may be anywhere."""


def marker_id(layout_epoch: int, producer_id: int) -> int:
    """Returns the producer id of markers in the log, made of a broker's, which is below 2^38, and the layout epoch."""
    return tag(JANITOR, layout_epoch, producer_id)


class FormerHomes:
    """The former homes of keys under one layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._tenancies = tenancies(layout)
        self._taken_over = layout.epochs[0].placement is Placement.UNMANAGED
        self._by_id = {segment.id: segment for segment in layout.segments}
        self._visible: dict[tuple[SegmentId, int | None], Visible] = {}

    def look(self, partition: int, producer_id: int, base_offset: int, *, is_control: bool) -> Visible | Hidden:
        """Says what a batch means to the janitor, by its producer id in the log.

        Returns:
            `Hidden.CONTROL` where there is nothing to do about it, regular markers among them. `Hidden.STRAY` where
            readers do not see it and brokers may take a visible record before it away.
        """
        stay, tenancy = self._stay(partition, base_offset), self._tenancies.get(partition)
        owner = tenancy.owner(producer_id, base_offset, is_control=is_control) if tenancy else Hidden.STRAY
        identity = untag(producer_id)
        if is_control:
            return Hidden.CONTROL
        if identity is not None and identity.v == JANITOR:
            return Hidden.STRAY if self._is_late(partition, identity.move, base_offset) else Hidden.CONTROL
        if stay is None:
            return Hidden.STRAY
        segment = SegmentId(partition, stay.move)
        if not isinstance(owner, Hidden):
            return self._of(segment, owner.v)
        if identity is None:
            return Visible(segment, None, frozenset())
        is_known = identity.v == NO_V and identity.move == stay.move % MOVES
        return self._of(segment, None) if is_known else Hidden.STRAY

    def begin(self, partition: int) -> int:
        """Returns where to begin with a partition: before a topic was taken over no key has moved (PAST-STAYS)."""
        stays = self.layout.chain(physical_stream(partition)).stays
        return next((stay.start for stay in stays if stay.tagged), 0)

    def owner_of(self, seen: Visible, key_hash: int, offset: int) -> int | None:
        """Returns the virtual partition at whose home a record is written again; None: nobody lived where it stood."""
        v = key_hash % self.layout.v_count
        if seen.v is None:  # as readers are given it (BYPASS-SHARED)
            residents = self._tenancies[seen.segment.partition].at(offset)
            return share_out([key_hash], residents, self.layout.v_count)[0] if residents else None
        has_few = self.layout.epochs[seen.segment.epoch].placement is not Placement.LINEAR
        if has_few and v % self.layout.n == seen.v:  # written by who saw N partitions (TAKEOVER-WAITS)
            return v
        return seen.v

    def _stay(self, partition: int, offset: int) -> Stay | None:
        stays = self.layout.chain(physical_stream(partition)).stays
        return next((stay for stay in stays if stay.holds(offset)), None)

    def _is_late(self, partition: int, move: int, offset: int) -> bool:
        """Whether a marker stands in a segment that began after the layout epoch in which it was written."""
        written = self.layout.epoch - (self.layout.epoch - move) % MOVES
        stays = self.layout.chain(physical_stream(partition)).stays
        return any(stay.move > written and stay.start <= offset for stay in stays)

    def _of(self, segment: SegmentId, v: int | None) -> Visible:
        found = self._visible.get((segment, v))
        if found is None:
            keys_of = self._tenancies[segment.partition].at(self._by_id[segment].start) if v is None else (v,)
            around = [self._homes_around(segment, each) for each in keys_of]
            former = (
                frozenset[int]().union(*(before for before, _ in around)).difference(*(since for _, since in around))
            )
            found = self._visible[segment, v] = Visible(segment, v, former)
        return found

    def _homes_around(self, segment: SegmentId, v: int) -> tuple[set[int], set[int]]:
        """Returns where a virtual partition has lived before it stood on a segment, and where from then on."""
        stays = self.layout.chains[v].stays
        start = self._by_id[segment].start
        place = next(
            place
            for place, stay in enumerate(stays)
            if stay.partition == segment.partition and stay.start <= start and (stay.end is None or start < stay.end)
        )
        before = {stay.partition for stay in stays[:place]}
        if self._taken_over and v >= self.layout.n:
            before.add(v % self.layout.n)  # where clients put its keys while there were N partitions
        return before, {stay.partition for stay in stays[place:]}


class Latest(NamedTuple):
    """The last visible record of a key, as far as is known."""

    epoch: int
    """Layout epoch of its segment: wherever a key moves, a new segment begins, so this and the offset order all that is
    written of one key."""
    offset: int
    """In the physical partition."""
    partition: int
    v: int
    """At whose home it is written again."""
    record: Any
    """What is written again; a tombstone, too: older values may not be compacted yet in partitions the key has left."""

    @property
    def place(self) -> tuple[int, int]:
        """Its place among everything that is written of its key."""
        return self.epoch, self.offset


@dataclass(slots=True)
class _Doubt:
    hidden: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """By physical partition, the first and the last hidden record."""
    latest: Latest | None = None
    is_searched: bool = False


class Doubts:
    """Keys whose last visible record brokers may take away, because a hidden one stands behind it.

    A hidden record is a batch that landed behind its cut (a stray), or a marker that landed late. Its key is in doubt
    until its last visible record is found; where that stands before the hidden one it is lost, and is to be written
    again.
    """

    def __init__(self) -> None:
        self._doubts: dict[bytes, _Doubt] = {}

    def __len__(self) -> int:
        return len(self._doubts)

    def __contains__(self, key: bytes) -> bool:
        return key in self._doubts

    @property
    def unsearched(self) -> frozenset[bytes]:
        """Keys whose last visible record is still to be looked for."""
        return frozenset(key for key, doubt in self._doubts.items() if not doubt.is_searched)

    def hide(self, key: bytes, partition: int, offset: int) -> None:
        """Takes in a hidden record."""
        doubt = self._doubts.setdefault(key, _Doubt())
        first, last = doubt.hidden.get(partition, (offset, offset))
        doubt.hidden[partition] = min(first, offset), max(last, offset)
        doubt.is_searched = False

    def see(self, key: bytes, latest: Latest) -> None:
        """Takes in a visible record of a key in doubt."""
        doubt = self._doubts.get(key)
        if doubt is not None and (doubt.latest is None or doubt.latest.place <= latest.place):
            doubt.latest = latest

    def searched(self, keys: Iterable[bytes]) -> None:
        """All visible records of these keys have been seen; those that are not lost are not in doubt any more."""
        for key in keys:
            if key in self._doubts:
                self._doubts[key].is_searched = True
        lost = self.lost()
        self._doubts = {key: doubt for key, doubt in self._doubts.items() if key in lost or not doubt.is_searched}

    def settle(self, keys: Iterable[bytes]) -> None:
        """These keys are in doubt no more, whatever stands where."""
        for key in keys:
            self._doubts.pop(key, None)

    def lost(self) -> dict[bytes, Latest]:
        """Returns the records that brokers will take away, by key."""
        found = {key: doubt.latest for key, doubt in self._doubts.items() if doubt.is_searched}
        return {key: latest for key, latest in found.items() if latest is not None and self._is_lost(key, latest)}

    def first(self, partition: int) -> int | None:
        """Returns the first offset of a partition whose record is the reason of a doubt."""
        firsts = (doubt.hidden[partition][0] for doubt in self._doubts.values() if partition in doubt.hidden)
        return min(firsts, default=None)

    def _is_lost(self, key: bytes, latest: Latest) -> bool:
        _, last = self._doubts[key].hidden.get(latest.partition, (-1, -1))
        return last > latest.offset


class KnownKeys:
    """Keys whose markers are written: a key that is written again and again gets them once in a segment.

    Two generations of names: what was seen in neither of them is forgotten, and gets its markers once more.
    """

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most = most
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def unknown(self, visible: Visible, keys: Collection[bytes]) -> list[bytes]:
        """Returns those whose markers may not be written yet, each once."""
        named = _named(visible, keys)
        names = set(named)  # of two sets the smaller one is gone through, of views of a dict the other one
        unknown = [named[name] for name in names - self._young - self._old]
        self._keep(names & self._old)
        return unknown

    def add(self, visible: Visible, keys: Collection[bytes]) -> None:
        """Takes in keys whose markers are durable."""
        self._keep(set(_named(visible, keys)))

    def _keep(self, names: set[bytes]) -> None:
        self._young |= names
        if len(self._young) > self._most // 2:
            self._old, self._young = self._young, names


def _named(visible: Visible, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Returns keys by what they are called among those of all segments; long ones are shortened."""
    prefix = _NAME.pack(visible.segment.partition, visible.segment.epoch, -1 if visible.v is None else visible.v)
    return {
        prefix + (key if len(key) <= _LONGEST_KEY else blake2b(key, digest_size=_LONGEST_KEY + 1).digest()): key
        for key in keys
    }


def has_returned(layout: Layout) -> bool:
    """Whether keys have come back to a partition that they had left: what nobody has cleaned there, nobody can."""
    partitions = ([stay.partition for stay in run.chain.stays] for run in layout.residence.runs)
    runs = ([partition for partition, _ in groupby(each)] for each in partitions)
    return any(len(set(each)) < len(each) for each in runs)
