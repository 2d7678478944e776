"""One partition of a member whose keys can move: where it stands, what was flushed and told, what it may read.

Whoever goes back below a cut has others of the group go back too: they have gone on by what it told. It takes that
back (-1), and reads on when all of them have *withdrawn*: they flush what they got since, and tell that they stand
where they stood before (-1: nowhere). Then it loads. Where keys of 0 went to 3 at offset 100:

    a, in 0:  told 120   seek 50   told -1, asks for 3 ──────────────────> -1: told 50, load, read …     told 100
    b, in 3:  reads                         is asked: asks for 0 > -1: flush, told -1     … held …    > 100: load, read

So that neither misses the other, both speak before they listen: what was heard opens a partition only where it was
heard in the answer to a report that told where that one stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokafka.structs import TopicPartition

from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.segments import Segment, SegmentId

if TYPE_CHECKING:
    from kordon.client.moves_events import MemberPositions, TopicGate

Window: TypeAlias = tuple[int, int]
"""Offsets [begin, end) from which the partition may be fetched."""

NOWHERE: Final[Window] = (0, 0)
_NO_END: Final = 2**63 - 1
_NOTHING: Final = Evidence()
_NOBODY: Final = frozenset[int]()


@dataclass(slots=True)
class Withdrawn:
    """The partitions that have taken back what they got since another one went back to where it stands."""

    partitions: set[int] = field(default_factory=set[int])

    def hear(self, gate: Gate, q: int, position: int, told: Mapping[int, int]) -> None:
        """Takes in what partitions have told of themselves since `q` stands at a position."""
        for follower, at in told.items():
            has_gone_on = at >= 0 and gate.needs(follower, at).get(q, 0) > position
            if not has_gone_on:
                self.partitions.add(follower)

    def missing(
        self, gate: Gate, q: int, position: int, told: Mapping[int, int], followers: frozenset[int]
    ) -> tuple[int, ...]:
        """Returns the followers that may still have gone on by what was taken back; the member's own have `told`."""
        self.hear(gate, q, position, {each: told[each] for each in followers & told.keys()})
        return tuple(sorted(followers - self.partitions))


@dataclass(slots=True)
class Owned:
    """What `KeyMoves` keeps of a partition, for as long as it is assigned."""

    tp: TopicPartition
    position: int = -1
    """The next offset to be fetched; -1: not known yet."""
    handled: int = -1
    """The application has come back from all before it."""
    high_watermark: int = -1
    safe: int = -1
    """All before it that this member ever got is flushed: what may be told."""
    is_dirty: bool = False
    """Whether something was handled since the application last flushed."""
    told: int = -1
    """The highest position that others may know."""
    known: int = -1
    """The position that was told last, and answered."""
    relied: int = -1
    """The highest that others may have gone on by."""
    is_needed: bool = False
    """Whether somebody asks for its position."""
    entered: SegmentId | None = None
    """The segment that is delivered."""
    window: Window = NOWHERE
    asks: tuple[TopicPartition, ...] = ()
    """The partitions whose positions hold it, or may."""
    heard: dict[int, int] = field(default_factory=dict[int, int])
    """What others have told since `known` is known, by the partition asked for; -1: nothing."""
    wants_load: bool = False
    """Whether nothing but the application's load is missing."""
    flushing: int | None = None
    """The position up to which the flush under way goes."""
    loading: SegmentId | None = None
    """The segment for which the application loads."""
    retry_at: float = 0.0
    is_behind_a_cut: bool = False
    """Whether the end of a segment has not been handled yet: somebody may wait for that."""
    is_back: bool = False
    """Whether it waits for others to withdraw: what they have gone on by is taken back."""
    withdraws_to: int | None = None
    """The position to tell others once all is flushed, because what it has relied on is taken back."""
    is_unheard: bool = False
    """Whether what it waits for can only be heard when it has told where it stands."""
    _withdrawn: Withdrawn = field(default_factory=Withdrawn)
    _segment: Segment | None = None
    """The segment of the next records."""

    @property
    def evidence(self) -> int:
        """What the group knows of it; at most where it stands."""
        return min(self.known, self.position)

    @property
    def has_news(self) -> bool:
        """Whether something else is to be told than was told."""
        return self._telling != self.known

    @property
    def _telling(self) -> int:
        if self._owes_a_flush:
            return self.known
        if self.is_back:
            return -1
        is_flushed = not self.is_dirty and self.flushing is None and self.handled == self.position
        return self.safe if self.withdraws_to is None or not is_flushed else min(self.withdraws_to, self.safe)

    @property
    def _owes_a_flush(self) -> bool:
        """Whether it went back from what was not flushed: it stands there for others until it is."""
        return self.position < self.told and (self.is_dirty or self.flushing is not None)

    def stand(self, place: MemberPositions) -> None:
        """Takes in where the member stands."""
        if self.position < 0:
            # what it got before this member had it was flushed, or died with its owner
            self.safe = self.handled = place.delivered if place.handled < 0 else place.handled
        elif place.delivered < self.position:
            self.is_dirty = self.is_dirty or self.handled < self.position
            self.handled = min(self.handled, place.delivered)
            if self.flushing is not None:
                self.flushing = min(self.flushing, place.delivered)  # what comes again is flushed again
            self._withdrawn.partitions.clear()
        self.position, self.high_watermark = place.delivered, place.high_watermark
        self.safe = min(self.safe, self.position)
        handled = min(place.handled, place.delivered)
        if handled > self.handled:
            self.handled, self.is_dirty = handled, True

    def look(self, topic: TopicGate, mine: Mapping[int, int], told: Mapping[int, int]) -> None:
        """Holds or opens it, by what is known now.

        Args:
            mine: Where the member's own partitions of that topic stand for all; those that are gone are read.
            told: What the group knows of the member's own partitions.
        """
        if self.position < 0:
            return
        gate, q = topic.gate, self.tp.partition
        being_handled = gate.segment_at(q, self.handled)
        self.is_behind_a_cut = _ends_behind(being_handled, self.handled)
        segment = self._segment = gate.segment_at(q, self.position)
        if segment is None:
            self.asks, self.window = (), (0, _NO_END)
            return
        followers = gate.followers(q, self.position, self.relied) if self.position < self.relied else _NOBODY
        gone_on = self._withdrawn.missing(gate, q, self.position, told, followers - topic.gone) if followers else ()
        self.is_back, self.is_unheard = bool(gone_on), False
        waits_for = gone_on or self._missing(gate, mine)
        self._ask(gate, mine, waits_for)
        if waits_for:
            # a load under way does not count: what others flush from now on is missing in it
            self.entered, self.loading, self.wants_load, self.window = None, None, False, NOWHERE
            return
        if self.entered != segment.id and not followers and self._is_entered_freely(segment, gate):
            self.entered = segment.id
        self.wants_load = self.entered != segment.id and self.loading is None
        self.window = _window(segment, self.position) if self.entered == segment.id else NOWHERE

    def _missing(self, gate: Gate, mine: Mapping[int, int]) -> tuple[int, ...]:
        """Returns the partitions that are not known to be far enough."""
        q = self.tp.partition
        without_others = gate.asks(q, self.position, Evidence(mine))
        if not without_others:
            return ()
        missing = gate.asks(q, self.position, Evidence({**self.heard, **mine})) if self.heard else without_others
        if not self._has_told_so(gate):
            self.is_unheard = True
            return missing or without_others
        return missing

    def _has_told_so(self, gate: Gate) -> bool:
        """Whether others know that it stands where all this has to be waited for."""
        q = self.tp.partition
        return self.known >= 0 and gate.needs(q, self.known) == gate.needs(q, self.position)

    def _ask(self, gate: Gate, mine: Mapping[int, int], waits_for: tuple[int, ...]) -> None:
        """Asks for what it waits for; where somebody asks for this one, also whether what opened it still holds."""
        asked, self.withdraws_to = waits_for, None
        if self.is_needed:
            needs = gate.needs(self.tp.partition, self.position)
            before = self._before_what_was_taken_back(gate, {**self.heard, **mine})
            self.withdraws_to = before if before < self.position else None
            asked += tuple(q for q in needs if q not in mine and q not in waits_for)
        self.asks = tuple(TopicPartition(self.tp.topic, q) for q in asked)

    def _before_what_was_taken_back(self, gate: Gate, known: Mapping[int, int]) -> int:
        """Returns up to where it has gone on by nothing that is taken back now."""
        q, position = self.tp.partition, self.position
        while position >= 0:
            segment = gate.segment_at(q, position)
            if segment is None or all(known.get(each, 0) >= 0 for each in gate.needs(q, position)):
                break
            position = gate.last_before(segment)
        return position

    def _is_entered_freely(self, segment: Segment, gate: Gate) -> bool:
        """Whether no key comes into a segment that the member has not had in the one before it, or never moved."""
        if not gate.asks(self.tp.partition, self.position, _NOTHING):
            return True
        stays = all(each.partition == self.tp.partition for each in segment.predecessors)
        return stays and self.entered in segment.predecessors

    def is_due(self, gate: Gate) -> bool:
        """Whether its position is to be flushed and told: KIP-253 "Proposed Changes" 7, the condition in three parts.

        The third is met where a segment's end is reached: nothing before it is left, and what comes next is another's.
        """
        if self.flushing is not None:
            return False
        if self.is_dirty and (self.withdraws_to is not None or self._owes_a_flush):
            return True
        if not (self.is_needed or self.is_unheard) or self.handled < 0 or self.handled == self.safe:
            return False
        never_told = self.known < 0
        caught_up = self.handled > self.known and self.handled == self.high_watermark
        return never_told or caught_up or self._has_passed_a_cut(gate)

    def _has_passed_a_cut(self, gate: Gate) -> bool:
        q = self.tp.partition
        now, then = gate.segment_at(q, self.handled), gate.segment_at(q, self.known)
        # the last segment of a retired partition has an end and nothing behind it
        ended = now is not None and now.end is not None and self.known < now.end <= self.handled
        return ended or (now is not None and then is not None and now.id.epoch > then.id.epoch)

    def begin_flush(self) -> bool:
        """Notes that a flush begins; returns False, and counts as flushed, where there is nothing to be flushed."""
        if not self.is_dirty:
            self.safe = self.handled
            return False
        self.flushing, self.is_dirty = self.handled, False
        return True

    def flushed(self) -> None:
        """The flush under way is done."""
        if self.flushing is not None:
            self.safe, self.flushing = self.flushing, None

    def begin_load(self) -> None:
        """Notes for which segment the application loads."""
        self.loading, self.wants_load = self._segment.id if self._segment is not None else None, False

    def loaded(self) -> None:
        """The load under way is done."""
        if self.loading is not None:
            self.relied = self.told
        self.entered, self.loading = self.loading, None

    def call_failed(self, retry_at: float) -> None:
        """The call under way is to be made again."""
        if self.flushing is not None:
            self.is_dirty, self.flushing = True, None
        self.loading, self.retry_at = None, retry_at

    def tell(self) -> int:
        """Returns what to tell; from now on others may know it."""
        telling = self._telling
        if telling < self.safe:
            self.known = min(self.known, telling)  # at once: what others continue by is no longer certain
        self.told = max(self.told, telling)
        self.relied = max(self.relied, telling)
        return telling

    def answered(self, told: int, heard: Mapping[int, int], gate: Gate) -> None:
        """Others know what was told, and nothing higher; what they have told is heard.

        Args:
            told: The positions of the report that is answered.
            heard: The group's positions by partition, for those that the report asked for.
        """
        q = self.tp.partition
        needs = gate.needs(q, self.position)
        if self.known < 0 or told < 0 or gate.needs(q, self.known) != gate.needs(q, told):
            self.heard.clear()
        self.told = self.known = told
        self.heard.update((each, position) for each, position in heard.items() if each in needs)
        if self.is_back and told < 0:
            self._withdrawn.hear(gate, q, self.position, heard)


def _ends_behind(segment: Segment | None, offset: int) -> bool:
    return segment is not None and segment.end is not None and offset < segment.end


def _window(segment: Segment, position: int) -> Window:
    has_passed = segment.end is None or position >= segment.end
    return min(segment.start, position), _NO_END if segment.end is None or has_passed else segment.end
