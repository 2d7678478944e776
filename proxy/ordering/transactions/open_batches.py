"""Which batches of a physical log may still be undecided, by stream. Last stable offsets rest on that (STABLE-END).

A worker does not read a whole log to tell where its streams are stable. It begins at the log's own last stable offset,
below which brokers know no open transaction, and continues from there without a gap. What is written late below that
offset concerns those who read there, and does not hold up an end.

Of the batches of one transaction in a stream the first one is kept, so a long transaction costs no more than a short
one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.events import Batch, Event, Protocol
from kordon.proxy.ordering.transactions.stable_offset import Decide, StableOffset

_LONG: Final = 64
"""Batches of a stream from which on those in front are looked at even if nobody asks for its end."""
_MOST_PRODUCERS: Final = 100_000
"""Of which it is known that nothing has ended their batches; beyond it, more batches than needed are kept."""

_Kind = tuple[Stream, int, Protocol]
"""Stream, producer epoch and protocol: batches of one producer that are decided alike while no event comes between."""


class OwnBatch(NamedTuple):
    """A transactional batch of a stream."""

    stream: Stream
    batch: Batch

    @property
    def offset(self) -> int:
        """Its offset in the physical log."""
        return self.batch.offset


Seen = Event | OwnBatch
"""What of a log concerns transactions."""


class StableEnd(NamedTuple):
    """How far a stream is known to be stable, as an offset of the physical log."""

    offset: int
    is_known: bool
    """Whether that is its last stable offset; if not, that may lie behind it, since the rest has not been read."""
    undecided: Batch | None = None
    """The batch that stands there; None: none does."""


class OpenBatches:
    """Kept for each physical partition of whose streams last stable offsets are told.

    Args:
        most: Batches of one stream at most. Beyond it nothing more is taken until it is begun again.
    """

    def __init__(self, most: int = 10_000) -> None:
        self.end: int | None = None
        """The offset up to which the log has been read for this; None: it has not been begun."""
        self._most = most
        self._stable: dict[Stream, StableOffset] = {}
        self._unbroken: dict[int, set[_Kind]] = {}
        """By producer, which kinds have a batch here that nothing of the producer has followed."""
        self._left_out: dict[Stream, int] = {}
        """By stream that has had too many, the first batch that was not taken."""

    def begin(self, last_stable_offset: int) -> None:
        """Continues at the physical log's last stable offset if it has come further than what was read."""
        if self.end is None or self.end < last_stable_offset:
            self.end = last_stable_offset
            self._unbroken.clear()

    def read(self, end: int, seen: Iterable[Seen], decide: Decide) -> None:
        """Takes in the next stretch of the log.

        Args:
            end: The offset behind it.
            seen: The batches and markers there, in order. What lies below `self.end` has been read before.
            decide: Returns a batch's outcome by all that has been read.
        """
        begin = self.end
        assert begin is not None  # or else it has not been begun
        for each in seen:
            if each.offset < begin:
                continue
            if isinstance(each, OwnBatch):
                self._take(each.stream, each.batch, decide)
            else:
                self._unbroken.pop(each.producer_id, None)
        self.end = max(begin, end)

    def stable_end(self, stream: Stream, decide: Decide, high_watermark: int) -> StableEnd | None:
        """Returns how far a stream is stable. It never falls while the log keeps its end; None: nothing is known.

        Args:
            high_watermark: The log's, asked for now.
        """
        if self.end is None:
            return None
        stable = self._stable.setdefault(stream, StableOffset())
        first = stable.first_undecided(decide)
        if first is None and stream in self._left_out:
            self._begin_anew()
        told = stable.tell(decide, self.end, high_watermark)
        if told is not None:
            return StableEnd(told, is_known=True, undecided=stable.first)
        offset = max(stable.told, self.end if first is None else first)
        return StableEnd(offset, is_known=first is not None, undecided=stable.first)

    def _take(self, stream: Stream, batch: Batch, decide: Decide) -> None:
        kind = stream, batch.epoch, batch.protocol
        if len(self._unbroken) > _MOST_PRODUCERS:
            self._unbroken.clear()
        unbroken = self._unbroken.setdefault(batch.producer_id, set())
        if kind in unbroken or stream in self._left_out:
            return
        stable = self._stable.setdefault(stream, StableOffset())
        if len(stable) > _LONG:
            stable.first_undecided(decide)
        if len(stable) >= self._most:
            self._left_out[stream] = batch.offset
            return
        unbroken.add(kind)
        stable.take(batch)

    def _begin_anew(self) -> None:
        """Has the log read again from where a stream first had too many batches. What others have taken comes twice."""
        first = min(self._left_out.values())
        self._left_out.clear()
        self._unbroken.clear()
        self.end = min(first, self.end or 0)
