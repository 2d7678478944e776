"""The decisions that are not written yet: numbered, and bounded in bytes.

A decision that does not fit is dropped, and its number is not used again. One GAP before the next decision that fits
names the dropped numbers, so no loss is silent.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, NamedTuple

import structlog

from kordon.codecs.decision import Decision, Entry, Kind

log = structlog.get_logger(__name__)

_RECORD_BYTES: Final = 100
"""The memory that a waiting record takes beside its bytes."""
_LATER_BYTES: Final = 700
"""The memory that a run takes until it is written, about."""
_FULL: Final = "the queue is full"
_UNWRITABLE: Final = "it cannot be written"
_GAP_BYTES: Final = 1 << 16
"""More than all gaps can take, so a gap always fits."""
_LINE_SECONDS: Final = 10.0


class _Waiting(NamedTuple):
    """A decision that is not written."""

    value: bytes | _Later
    at_ms: int
    number: int
    size: int
    """The bytes that it counts for; an estimate while it is not written down."""


class _Later(NamedTuple):
    """A decision that is written down when its turn comes."""

    make: Callable[[], Decision]
    began_ms: int


class Backlog:
    """The decisions of one worker, from when they are taken until they are written.

    Args:
        most_bytes: The most bytes that may wait.
        now_ms: The time of day, in milliseconds since 1970.
        on_first: Called when there is something to write and there was nothing.

    Attributes:
        counts: All decisions by kind, dropped ones too.
        dropped: The number of dropped decisions.
        bytes: The bytes that wait.
    """

    def __init__(
        self,
        host: str,
        worker: str,
        most_bytes: int,
        now_ms: Callable[[], int],
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self.host = host
        self.worker = worker
        self.counts: Counter[Kind] = Counter()
        self.dropped = 0
        self.bytes = 0
        self._most_bytes = most_bytes
        self._now_ms = now_ms
        self._on_first = on_first
        self._number = 0
        self._waiting: deque[_Waiting] = deque()
        self._gap: tuple[int, str] | None = None
        """The first number that was dropped since the last decision that fitted, and the reason."""
        self._said = -_LINE_SECONDS

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def newest_number(self) -> int:
        """The number of the newest decision; -1: there was none yet."""
        return self._number - 1

    @property
    def oldest_ms(self) -> int | None:
        """The time of the oldest decision that waits, in milliseconds since 1970; None: none waits."""
        return self._waiting[0].at_ms if self._waiting else None

    def add(self, decision: Decision, began_ms: int | None = None) -> None:
        """Numbers a decision and keeps it until it is written; never blocks, never raises."""
        self.counts[decision.kind] += 1
        self.mend()
        problem = self._keep(decision, began_ms, self._most_bytes)
        if problem is not None:
            self._drop(decision.kind, problem)

    def add_later(self, kind: Kind, make: Callable[[], Decision], began_ms: int) -> None:
        """Numbers a decision that is made when its turn comes to be written.

        Args:
            make: Makes the decision; it is small, of numbers and names.
            began_ms: The time of its first verdict, in milliseconds since 1970.
        """
        self.counts[kind] += 1
        self.mend()
        if self.bytes + _LATER_BYTES > self._most_bytes:
            self._drop(kind, _FULL)
        else:
            self._put(_Later(make, began_ms), self._now_ms(), _LATER_BYTES)

    def mend(self) -> None:
        """Notes dropped decisions as a gap, as soon as there is room."""
        if self._gap is None or self.bytes + _RECORD_BYTES > self._most_bytes:
            return
        first, reason = self._gap
        self._gap = None
        self._note_gap(first, self._number - 1, reason)

    def next(self, most: int, most_bytes: int) -> list[bytes]:
        """Returns the oldest records that wait. They wait until `written` takes them.

        Args:
            most: The most records.
            most_bytes: The most bytes; one record is always returned.
        """
        taken: list[bytes] = []
        size = 0
        for place in range(min(most, len(self._waiting))):
            value = self._written_down(place)
            size += len(value)
            if taken and size > most_bytes:
                break
            taken.append(value)
        return taken

    def written(self, values: Sequence[bytes]) -> None:
        """Drops the records that `next` has returned."""
        for _ in values:
            self.bytes -= self._waiting.popleft().size
        self.mend()

    def refuse_oldest(self, reason: str) -> None:
        """Turns the oldest record into a gap because the sink never takes it; `written` drops it."""
        number = self._waiting[0].number
        self.dropped += 1
        log.error("decision_refused", number=number, reason=reason)
        self._note_gap(number, number, reason)

    def abandon(self, reason: str) -> int:
        """Gives up all records that wait, and returns their number."""
        left = len(self._waiting)
        self._waiting.clear()
        self.bytes = 0
        self.dropped += left
        if left:
            log.error("decisions_lost", decisions=left, reason=reason)
        return left

    def _note_gap(self, first: int, last: int, reason: str) -> None:
        self.counts[Kind.GAP] += 1
        gap = Decision(kind=Kind.GAP, first_number=first, last_number=last, batches=last - first + 1, reason=reason)
        self._keep(gap, None, self._most_bytes + _GAP_BYTES)

    def _keep(self, decision: Decision, began_ms: int | None, most_bytes: int) -> str | None:
        """Puts a decision after the others, or returns the reason against it."""
        at_ms = self._now_ms()
        value = self._dump(decision, at_ms, self._number, began_ms)
        if value is None:
            return _UNWRITABLE
        if self.bytes + len(value) + _RECORD_BYTES > most_bytes:
            return _FULL
        self._put(value, at_ms, len(value) + _RECORD_BYTES)
        return None

    def _put(self, value: bytes | _Later, at_ms: int, size: int) -> None:
        self._waiting.append(_Waiting(value, at_ms, self._number, size))
        self._number += 1
        self.bytes += size
        if len(self._waiting) == 1:
            self._on_first()

    def _written_down(self, place: int) -> bytes:
        """Returns the record at a place. What JSON cannot hold becomes a gap under its own number."""
        value, at_ms, number, size = self._waiting[place]
        if isinstance(value, bytes):
            return value
        found = self._dump(value.make(), at_ms, number, value.began_ms)
        if found is None:
            gap = Decision(kind=Kind.GAP, first_number=number, last_number=number, batches=1, reason=_UNWRITABLE)
            found = self._dump(gap, at_ms, number, None)
            assert found is not None, "a gap can be written"
            self.dropped += 1
        self._waiting[place] = _Waiting(found, at_ms, number, size)
        return found

    def _dump(self, decision: Decision, at_ms: int, number: int, began_ms: int | None) -> bytes | None:
        entry = Entry(
            at_ms=at_ms, host=self.host, worker=self.worker, number=number, began_ms=began_ms, decision=decision
        )
        try:
            return entry.dump()
        except ValueError:  # it holds what JSON cannot: a mistake of ours, which must not stop traffic
            log.exception("decision_unwritable", kind=decision.kind.value)
            return None

    def _drop(self, kind: Kind, reason: str) -> None:
        self._gap = self._gap or (self._number, reason)
        self._number += 1
        self.dropped += 1
        now = monotonic()
        if now - self._said >= _LINE_SECONDS:
            self._said = now
            cure = "see why they cannot be written (decisions_unwritten), or raise decisions.queue_bytes"
            log.warning("decisions_dropped", kind=kind.value, dropped=self.dropped, reason=reason, cure=cure)
