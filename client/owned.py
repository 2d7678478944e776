"""One partition of a member whose keys can move: where it stands, what was flushed and told, what it may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokafka.structs import TopicPartition

from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.layout import Segment, SegmentId

if TYPE_CHECKING:
    from kordon.client.moves_events import Place

Window: TypeAlias = tuple[int, int]
"""Offsets [begin, end) from which the partition may be fetched."""

NOWHERE: Final[Window] = (0, 0)
_NO_END: Final = 2**63 - 1
_NOTHING: Final = Evidence()


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
    furthest: int = -1
    """The highest that was ever told: who goes back below it owes news until it is reached again."""
    is_needed: bool = False
    """Whether somebody asks for its position."""
    entered: SegmentId | None = None
    """The segment that is delivered."""
    window: Window = NOWHERE
    asks: tuple[TopicPartition, ...] = ()
    """The partitions whose positions hold it."""
    wants_load: bool = False
    """Whether nothing but the application's load is missing."""
    flushing: int | None = None
    """Up to where the flush under way goes."""
    loading: SegmentId | None = None
    """For which segment the application loads."""
    retry_at: float = 0.0
    is_behind_a_cut: bool = False
    """Whether the end of a segment has not been handled yet: somebody may wait for that."""
    _segment: Segment | None = None
    """Of which records come next."""

    @property
    def evidence(self) -> int:
        """What the group knows of it; at most where it stands."""
        return min(self.known, self.position)

    @property
    def has_news(self) -> bool:
        """Whether something else is to be told than was told."""
        return self.safe not in (-1, self.known)

    def stand(self, place: Place) -> None:
        """Takes in where the member stands."""
        if self.position < 0:
            # what it got before this member had it was flushed, or died with its owner
            self.safe = self.handled = place.delivered if place.handled < 0 else place.handled
        elif place.delivered < self.position:
            self.handled = min(self.handled, place.delivered)
        self.position, self.high_watermark = place.delivered, place.high_watermark
        self.safe = min(self.safe, self.position)
        handled = min(place.handled, place.delivered)
        if handled > self.handled:
            self.handled, self.is_dirty = handled, True

    def look(self, gate: Gate, evidence: Evidence) -> None:
        """Holds or opens it, by what is known now."""
        if self.position < 0:
            return
        q, topic = self.tp.partition, self.tp.topic
        being_handled = gate.segment_at(q, self.handled)
        self.is_behind_a_cut = _ends_behind(being_handled, self.handled)
        segment = self._segment = gate.segment_at(q, self.position)
        self.asks = tuple(TopicPartition(topic, each) for each in gate.asks(q, self.position, evidence))
        if segment is None:
            self.window = (0, _NO_END)
            return
        if self.asks:
            # a load under way does not count: what others flush from now on is missing in it
            self.entered, self.loading, self.wants_load, self.window = None, None, False, NOWHERE
            return
        if self.entered != segment.id and self._is_entered_freely(segment, gate):
            self.entered = segment.id
        self.wants_load = self.entered != segment.id and self.loading is None
        self.window = _window(segment, self.position) if self.entered == segment.id else NOWHERE

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
        if self.flushing is not None or not (self.is_needed or self.told < self.furthest):
            return False
        if self.handled < 0 or self.handled == self.safe:
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
        """The flush under way is done; where the member went back meanwhile, it stands there."""
        if self.flushing is not None:
            self.safe, self.flushing = min(self.flushing, self.position), None

    def begin_load(self) -> None:
        """Notes for which segment the application loads."""
        self.loading, self.wants_load = self._segment.id if self._segment is not None else None, False

    def loaded(self) -> None:
        """The load under way is done."""
        self.entered, self.loading = self.loading, None

    def call_failed(self, retry_at: float) -> None:
        """The call under way is to be made again."""
        if self.flushing is not None:
            self.is_dirty, self.flushing = True, None
        self.loading, self.retry_at = None, retry_at

    def tell(self) -> int:
        """Returns what to tell; from now on others may know it."""
        self.told = max(self.told, self.safe)
        self.furthest = max(self.furthest, self.safe)
        return self.safe

    def answered(self, position: int) -> None:
        """Others know what was told, and nothing higher."""
        if position >= 0:
            self.told = self.known = position


def _ends_behind(segment: Segment | None, offset: int) -> bool:
    return segment is not None and segment.end is not None and offset < segment.end


def _window(segment: Segment, position: int) -> Window:
    has_passed = segment.end is None or position >= segment.end
    return min(segment.start, position), _NO_END if segment.end is None or has_passed else segment.end
