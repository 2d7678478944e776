"""What has been read of one physical partition and is kept for its readers: views, and what was found empty."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from kordon.proxy.ordering.reading import Scanned
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.outcome import Outcome
from kordon.proxy.ordering.transactions.stable_offset import Decide
from kordon.proxy.reads.indexing import Indexed
from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.reads.segment_views import LogSegmentView, PassedRange, ServedBatch
from kordon.proxy.reads.view_cache import ViewCache

_NEXT_OFFSET: Final = attrgetter("next_offset")
_HIDDEN: Final = frozenset({Outcome.ABORTED, Outcome.LATE})
"""From read_committed readers."""
_MOST_PASSED: Final = 1_000
"""Batches that cannot be opened; readers learn of them as they pass."""


@dataclass(slots=True)
class ReadSoFar:
    """The records of one stay that a reader got, and its position there."""

    position: int
    """The position in the physical partition. Everything before it has been looked at."""
    entries: list[ServedBatch] = field(default_factory=list[ServedBatch])
    """The batches in order."""
    size_bytes: int = 0
    leader_epoch: int = -1
    """The physical leader epoch of the last batch that was looked at; -1: there was no batch."""
    is_full: bool = False
    """Whether more would not fit."""
    undecided: Batch | None = None
    """The batch of a transaction at which a read_committed reader stands still; None: it does not."""
    late: int = 0
    """Batches that it has passed because they were written after the end of their transaction."""


_Reach = tuple[int, int]
"""The offset from which on nothing is given out, and the most bytes in all."""


class KeptViews:
    """The views of one physical partition, by offset.

    Args:
        cache: The cache, which decides how long views are kept.
        tally: The tally, which counts how often the wanted views are here.
    """

    def __init__(self, cache: ViewCache, tally: ReadTally) -> None:
        self.span = 0
        """The offsets in the view that came last."""
        self._cache = cache
        self._tally = tally
        self._scanned = Scanned()
        self._starts: list[int] = []
        self._views: dict[int, LogSegmentView] = {}
        self._passed: list[PassedRange] = []

    @property
    def end(self) -> int:
        """The offset up to which the log has been read; 0: it has not."""
        return self._scanned.end

    @property
    def is_full(self) -> bool:
        """Whether more views would drive out what is still to be read."""
        return self._cache.is_full

    def take(self, stream: int, taken: ReadSoFar, limit: int, room_bytes: int, decide: Decide | None = None) -> None:
        """Continues through what is here.

        Args:
            limit: The offset from which on nothing is given out.
            room_bytes: The most bytes in all. The first batch is taken whatever its size.
            decide: Returns the outcome of a transactional batch, for a reader that gets committed batches only; None:
                the reader gets all of them.
        """
        taken.undecided = None
        while taken.position < limit and not taken.is_full and taken.undecided is None:
            skipped = self._scanned.skip(stream, taken.position)
            if skipped > taken.position:
                taken.position, taken.leader_epoch = min(skipped, limit), self._scanned.leader_epoch
                continue
            view = self.at(taken.position)
            if view is None:
                self._tally.misses += 1
                return
            self._tally.hits += 1
            _take_from(view, view.entries.get(stream, []), taken, (limit, room_bytes), decide)
            if taken.position >= view.end:
                view.unsent.discard(stream)
            self._cache.touch(view)

    def skip(self, stream: int, position: int) -> int:
        """Returns the offset up to which a stream has nothing from a position on, as `Scanned.skip`."""
        return self._scanned.skip(stream, position)

    def pass_empty(self, taken: ReadSoFar, position: int) -> None:
        """Takes a reader to a position before which nothing is left for it, as `take` does where it finds that."""
        if position > taken.position:
            taken.position, taken.leader_epoch = position, self._scanned.leader_epoch

    def empty_until(self, stream: int, position: int, limit: int, decide: Decide | None = None) -> int | None:
        """Returns up to which offset of [position, limit) nothing of a stream is known to stand; None: something does.

        What has not been read ends it: then it is below `limit`.

        Args:
            decide: Returns the outcome of a transactional batch. Batches that nobody has committed count as nothing.
        """
        while position < limit:
            skipped = self._scanned.skip(stream, position)
            if skipped > position:
                position = skipped
                continue
            view = self.at(position)
            if view is None:
                return position
            entries = view.entries.get(stream, [])
            for entry in entries[bisect_right(entries, position, key=_NEXT_OFFSET) :]:
                if entry.base_offset >= limit:
                    break
                if entry.txn is None or decide is None or decide(entry.txn) not in _HIDDEN:
                    return None
            position = view.end
        return limit

    def passed_between(self, start: int, end: int) -> list[PassedRange]:
        """Returns what nobody gets of [start, end), because it cannot be opened."""
        return [each for each in self._passed if start < each.end and each.start < end]

    def at(self, offset: int) -> LogSegmentView | None:
        """Returns the view that holds an offset."""
        place = bisect_right(self._starts, offset) - 1
        view = self._views[self._starts[place]] if place >= 0 else None
        return view if view is not None and offset < view.end else None

    def start_after(self, offset: int) -> int | None:
        """Returns where the next view begins."""
        place = bisect_right(self._starts, offset)
        return self._starts[place] if place < len(self._starts) else None

    def add(self, start: int, found: Indexed, size_bytes: int) -> None:
        """Keeps what was found from an offset on, up to the next view, if there is anything between.

        Args:
            found: The batches that were found, by owner.
        """
        before = self.start_after(start)
        end = found.end if before is None else min(found.end, before)
        if end <= start:
            return
        view = LogSegmentView(start, end, found.entries, found.leader_epoch, size_bytes, self._forget, found.seen)
        self.span = end - start
        insort(self._starts, start)
        self._views[start] = view
        if found.passed:
            self._passed = sorted({*self._passed, *found.passed})[-_MOST_PASSED:]
        self._scanned.extend(start, end, view.last, found.leader_epoch)
        self._cache.add(view)

    def drop(self) -> None:
        """Lets all views go."""
        for view in list(self._views.values()):
            self._cache.drop(view)

    def _forget(self, view: LogSegmentView) -> None:
        del self._views[view.start]
        self._starts.remove(view.start)


def _take_from(
    view: LogSegmentView, entries: Sequence[ServedBatch], taken: ReadSoFar, reach: _Reach, decide: Decide | None
) -> None:
    """Takes what a view has for a reader from its position on."""
    limit, room_bytes = reach
    for entry in entries[bisect_right(entries, taken.position, key=_NEXT_OFFSET) :]:
        if entry.base_offset >= limit:
            break
        if decide is not None and entry.txn is not None and (outcome := decide(entry.txn)) is not Outcome.COMMITTED:
            if outcome is Outcome.UNDECIDED:
                taken.position, taken.undecided = max(taken.position, entry.base_offset), entry.txn
                return
            taken.position = max(taken.position, entry.next_offset)
            taken.late += outcome is Outcome.LATE
            continue
        size = len(entry.data)
        if taken.entries and taken.size_bytes + size > room_bytes:
            taken.is_full = True
            return
        taken.entries.append(entry)
        taken.size_bytes += size
        taken.position = max(taken.position, entry.next_offset)
    taken.position = max(taken.position, min(view.end, limit))
    taken.leader_epoch = view.leader_epoch
