"""What a log of claims amounts to: what a group has done of a partition, offset by offset (individual commit).

A *claim* says that offsets are done. Claims only add to each other, so it does not matter in which order they come, nor
who writes them or how often. Every proxy writes claims, and every one reads them all; nobody owns them.

A group can go back: an operator resets it, or it is deleted and begins again. From then on earlier claims are void. So
each claim belongs to an *incarnation* of the group's progress on the partition. A *start* begins one:

    start    names a new incarnation and the one that it ends, and says what is done when the new one begins
    claim    adds to the incarnation that its member was told

A start counts if the incarnation that it ends is the newest before it (ONE-START). Names are drawn at random, so no two
incarnations have the same one, whatever becomes of the log. A start that ends its own name goes on with it: it says all
that is known, so what stands before it may be taken out.

What counts follows from the records that stand in the log, and not from how they came there: a record that is taken out
is taken out of the reckoning. So a reader that begins behind a half done compaction comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from kordon.codecs.ranges import MOST_STORED, NONE, Range, Ranges

NO_INCARNATION: Final = 0
"""Where there is no start."""
MOST_INCARNATION: Final = 2**62 - 1
"""Names are from 1 to this."""
MOST_ENDED: Final = 8
"""Earlier incarnations that a start names, so that they are known when the starts that ended them are gone."""
NO_OFFSET: Final = -1
"""Of a group without a commit."""
RENEW_AFTER_CLAIMS: Final = 32
"""What is known is written as one record once so many claims stand in the log …"""
RENEW_AFTER_BYTES: Final = 64 * 1024
"""… or claims of so many bytes …"""
RENEW_AFTER_MS: Final = 24 * 3_600_000
"""… or the start is so old: it must not grow as old as the log's retention."""


VOID_AFTER_MS: Final = 6 * 24 * 3_600_000
"""What nobody has added to for so long is void: a day later retention takes records out one after the other."""
_FORGOTTEN_AFTER_MS: Final = VOID_AFTER_MS + 3_600_000
"""When it leaves the memory: clocks of proxies differ."""


class PlaceKey(NamedTuple):
    """The group and the partition of claims."""

    group_id: str
    topic_id: UUID
    """By which the coordinator knows what is committed: a topic's own, or that of its face."""
    partition: int


@dataclass(frozen=True, slots=True)
class Done:
    """Offsets that are done."""

    stable: int = NO_OFFSET
    """All before it are."""
    ranges: Ranges = NONE
    """And these behind it."""

    def joined(self, other: Done) -> Done:
        """Returns what is done by either."""
        stable, ranges = self.ranges.joined(other.ranges).above(max(self.stable, other.stable))
        return Done(stable, ranges)

    def missing(self, other: Done) -> Done:
        """Returns what the other has beyond this; nothing if this has all of it."""
        stable = other.stable if other.stable > self.stable else NO_OFFSET
        here = Ranges([(0, self.stable)]).joined(self.ranges)
        return Done(stable, other.ranges.without(here))

    def has(self, offset: int) -> bool:
        """Whether an offset is done."""
        return offset < self.stable or offset in self.ranges


NOTHING: Final = Done()


@dataclass(frozen=True, slots=True)
class Start:
    """A record that begins an incarnation, or continues with it."""

    name: int
    """The name of the incarnation."""
    ends: int
    """The incarnation that it ends, as its writer knew it; its own name: it continues."""
    done: Done
    """What is done when it begins."""
    ended: tuple[int, ...] = ()
    """Incarnations that ended earlier, the last one last."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A record that says what is done."""

    incarnation: int
    """That its member was told."""
    done: Done


Said: TypeAlias = Start | Claim


class _StandingRecord(NamedTuple):
    """A record that stands in the log."""

    offset: int
    name: int
    """The incarnation that it begins, or adds to."""
    size: int
    timestamp_ms: int
    ends: int = NO_INCARNATION
    """The incarnation that a start ends."""
    ended: tuple[int, ...] = ()


class Seen(NamedTuple):
    """What was known of the incarnations when the log had been read to some place."""

    incarnation: int
    """The newest incarnation."""
    ended: tuple[int, ...]
    """Earlier ones, as far as the log still has that, the last one last."""

    def knows(self, mark: int) -> bool:
        """Whether an incarnation is one of these."""
        return mark != NO_INCARNATION and (mark == self.incarnation or mark in self.ended)


class Told(NamedTuple):
    """What a member is told of a partition."""

    incarnation: int
    done: Done
    """`stable` is -1 where there is no commit."""


def counts(ends: int, newest: int) -> bool:
    """Whether a start counts behind the newest incarnation before it.

    Args:
        ends: The incarnation that it ends.
        newest: The newest one.
    """
    return newest in (NO_INCARNATION, ends)


class Place:
    """What the log has of one group and partition, as far as it was read."""

    __slots__ = ("_claims", "_done", "_ended", "_newest_key", "_starts", "incarnation", "newest_ms")

    def __init__(self) -> None:
        self.incarnation = NO_INCARNATION
        """The newest that counts."""
        self.newest_ms = 0
        """When its newest record was written."""
        self._newest_key = ""
        """The key of the last start that counts."""
        self._ended: tuple[int, ...] = ()
        """What those that count have ended."""
        self._starts: dict[str, _StandingRecord] = {}
        """By key, in the order of the log."""
        self._claims: dict[str, _StandingRecord] = {}
        self._done: dict[int, Done] = {}
        """By incarnation, of all that stands."""

    @property
    def done(self) -> Done:
        """What is done in the newest incarnation."""
        return self.done_in(self.incarnation)

    def done_in(self, incarnation: int) -> Done:
        """Returns what is done in an incarnation, as far as records that stand in the log say so."""
        return self._done.get(incarnation, NOTHING)

    @property
    def records(self) -> int:
        """How many records stand in the log."""
        return len(self._starts) + len(self._claims)

    @property
    def ranges(self) -> int:
        """How many ranges are in memory."""
        return sum(len(each.ranges) for each in self._done.values())

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return sum(each.size for records in (self._starts, self._claims) for each in records.values())

    def apply(self, key: str, offset: int, said: Said | None, *, size: int = 0, timestamp_ms: int = 0) -> None:
        """Takes in a record.

        Args:
            key: By which it can be taken out again; no other record has it.
            offset: Where it stands.
            said: What it says; None: what had the key is taken out.
            size: In bytes.
            timestamp_ms: When it was written.
        """
        if said is not None:
            self.newest_ms = max(self.newest_ms, timestamp_ms)
        if said is None:
            self._claims.pop(key, None)
            self._starts.pop(key, None)
        elif isinstance(said, Start):
            self._starts[key] = _StandingRecord(offset, said.name, size, timestamp_ms, said.ends, said.ended)
            self._add(said.name, said.done)
        else:
            self._claims[key] = _StandingRecord(offset, said.incarnation, size, timestamp_ms)
            self._add(said.incarnation, said.done)
            return
        self._reckon()

    def _add(self, incarnation: int, done: Done) -> None:
        self._done[incarnation] = self.done_in(incarnation).joined(done)

    def _reckon(self) -> None:
        """Finds the newest start that counts, and forgets what nothing in the log speaks of any more."""
        newest, found, ended = NO_INCARNATION, "", dict[int, None]()
        for key, each in self._starts.items():
            if counts(each.ends, newest):
                newest, found = each.name, key
                ended.update(dict.fromkeys((*each.ended, each.ends)))
        self.incarnation, self._newest_key = newest, found
        self._ended = tuple(each for each in ended if each not in (newest, NO_INCARNATION))[-MOST_ENDED:]
        standing = {each.name for records in (self._starts, self._claims) for each in records.values()}
        for gone in self._done.keys() - standing:
            del self._done[gone]

    def to_write(self, incarnation: int, done: Done, now_ms: int = 0) -> Said | None:
        """Returns the record to write for what a member says is done; None: all of that stands in the log.

        Args:
            incarnation: That the member was told; the newest one.
            done: What it says. Where that is nothing new, an old start is written again: retention would take it.
            now_ms: The time of now.
        """
        known = self.done
        missing = known.missing(done)
        if missing == NOTHING and not self._is_old(now_ms):
            return None
        union = known.joined(done)
        if self._is_renewal_due(now_ms) and len(union.ranges) <= MOST_STORED:
            return Start(incarnation, incarnation, union, self._ended)
        return Claim(incarnation, missing)

    def _is_renewal_due(self, now_ms: int) -> bool:
        claims = self._claims.values()
        is_many = len(claims) >= RENEW_AFTER_CLAIMS or sum(each.size for each in claims) >= RENEW_AFTER_BYTES
        return is_many or self._is_old(now_ms)

    def _is_old(self, now_ms: int) -> bool:
        return now_ms - self._starts[self._newest_key].timestamp_ms >= RENEW_AFTER_MS

    def outlived(self, own_key: str, read_to: int) -> list[str]:
        """Returns the keys that whoever wrote a start may take out once it was read back (COVER-BEHIND).

        That is what had been read when the start was made, so that it says all of that, and stands before it. They are
        taken out at once, in one batch: of two starts one may count only because of the other.

        Args:
            own_key: Of the start.
            read_to: How far the log had been read when the start was made.
        """
        if own_key != self._newest_key:
            return []
        own = self._starts[own_key]
        void = [key for key, each in self._starts.items() if each.offset < own.offset and each.name != own.name]
        known = (*self._starts.items(), *self._claims.items())
        return list(dict.fromkeys([*void, *(key for key, each in known if each.offset < read_to and key != own_key)]))

    def offset_of(self, key: str) -> int:
        """Returns where a start stands; 0: it does not."""
        start = self._starts.get(key)
        return start.offset if start is not None else 0

    def seen(self) -> Seen:
        """Returns what is known of the incarnations now."""
        return Seen(self.incarnation, self._ended)


class Begun(NamedTuple):
    """What the coordinator had when a start was written for it."""

    committed: int
    mark: int | None
    name: int
    """The name of the incarnation that the start begins."""


def found_start(before: Seen, committed: int, mark: int | None, name: int, begun: Begun | None = None) -> Start | None:
    """Returns the start to write, because what the coordinator knows was not put there by Kordon (MARKED-PUSH).

    Whoever has written one asks the coordinator again, and then this: the start may not count, and a member or an
    operator may have committed while it was written. None says that what the coordinator has can be told.

    Args:
        before: What had been read before the coordinator was asked. What came later may be newer than its answer.
        committed: The coordinator's offset; -1: there is none.
        mark: The incarnation in its mark; None: it has no mark for this offset.
        name: Of a new incarnation, drawn at random.
        begun: What the caller has written a start for already.
    """
    if mark is not None and before.knows(mark):
        return None
    if begun == (committed, mark, before.incarnation):
        return None
    return Start(name, before.incarnation, Done(committed), before.ended)


def told(place: Place, committed: int, mark: int | None) -> Told:
    """Returns what a member is told.

    Args:
        place: As it was read after the coordinator had answered, and after what `found_start` wants was read back.
        committed: The coordinator's offset.
        mark: The incarnation in its mark.
    """
    is_first = place.done.stable == NO_OFFSET and mark is not None  # a member has said where the group begins
    if mark == place.incarnation or is_first:
        return Told(place.incarnation, place.done.joined(Done(committed)))
    return Told(place.incarnation, place.done)


def to_push(place: Place, stable: int) -> int:
    """Returns the offset that the coordinator is given: nothing before it is undone (NEVER-AHEAD).

    Args:
        stable: All before it is done, as a member of the newest incarnation says.
    """
    return place.done.joined(Done(stable)).stable


class Fitting(NamedTuple):
    """What is taken of a commit."""

    done: Done
    left: int
    """How many ranges are not: there would be too many."""


def fitting(known: Done, said: Done, most: int) -> Fitting:
    """Returns as much of a commit as leaves no more ranges than may be kept (GAP-CLOSES).

    What closes a gap leaves fewer, so it is always taken. Of the rest the lowest are: who holds the stable offset is
    never refused.

    Args:
        known: What is done in the newest incarnation.
        said: What a member says.
        most: How many ranges are kept at most.
    """
    base = known.joined(Done(said.stable))
    count, taken, left = len(base.ranges), list[Range](), 0
    for begin, end in base.missing(Done(NO_OFFSET, said.ranges)).ranges:
        more = 1 - (begin <= base.stable or begin - 1 in base.ranges) - (end in base.ranges)
        if more <= 0 or count + more <= most:
            taken.append((begin, end))
            count += more
        else:
            left += 1
    return Fitting(Done(said.stable, Ranges(taken)), left)


class Claims:
    """What one partition of the log amounts to."""

    def __init__(self) -> None:
        self._places: dict[PlaceKey, Place] = {}
        self._nothing: Final = Place()

    def __len__(self) -> int:
        """Returns how many groups and partitions there are."""
        return len(self._places)

    def __iter__(self) -> Iterator[tuple[PlaceKey, Place]]:
        """Yields all that there is something of."""
        return iter(self._places.items())

    def of(self, key: PlaceKey, now_ms: int = 0) -> Place:
        """Returns what there is of a group and partition; it must not be changed.

        Args:
            now_ms: The time of now; what is void by then is nothing (VOID-TOGETHER).
        """
        place = self._places.get(key)
        return place if place is not None and now_ms - place.newest_ms < VOID_AFTER_MS else self._nothing

    def forget_void(self, now_ms: int) -> list[PlaceKey]:
        """Forgets what has been void for some time; returns whose it was."""
        gone = [key for key, each in self._places.items() if now_ms - each.newest_ms >= _FORGOTTEN_AFTER_MS]
        for key in gone:
            del self._places[key]
        return gone

    def apply(
        self, place_key: PlaceKey, key: str, offset: int, said: Said | None, *, size: int = 0, timestamp_ms: int = 0
    ) -> None:
        """Takes in a record, as `Place.apply` does.

        What was void when it was written counts for nothing any more, whoever reads that (VOID-TOGETHER): retention
        may have taken it, or parts of it, before others could read it.
        """
        place = self._places.get(place_key)
        if place is not None and said is not None and timestamp_ms - place.newest_ms >= VOID_AFTER_MS:
            place = None
        if place is None:
            if said is None:
                return
            place = self._places[place_key] = Place()
        place.apply(key, offset, said, size=size, timestamp_ms=timestamp_ms)
        if not place.records:
            del self._places[place_key]
