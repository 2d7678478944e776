"""What is decided and not written yet: numbered, and never more than so many bytes.

What does not fit is dropped. Its numbers are not used again, and one GAP that names them goes in front of the next
decision that fits, so nothing is missing silently.
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
"""Of memory beside the bytes of a record that waits."""
_LATER_BYTES: Final = 700
"""What a run takes until it is written down, and then, about."""
_FULL: Final = "the queue is full"
_UNWRITABLE: Final = "it cannot be written"
_GAP_BYTES: Final = 1 << 16
"""More than gaps can take: they fit always."""
_LINE_SECONDS: Final = 10.0


class _Waiting(NamedTuple):
    """A decision that is not written."""

    value: bytes | _Later
    at_ms: int
    number: int
    size: int
    """As it counts; of what is not written down yet a guess."""


class _Later(NamedTuple):
    """A decision that is written down when its turn comes."""

    make: Callable[[], Decision]
    began_ms: int


class Backlog:
    """The decisions of one worker, from when they are taken until they are written.

    Args:
        host: Where the proxy runs.
        worker: The incarnation of the worker.
        most_bytes: That wait at a time.
        now_ms: The time of day, in milliseconds since 1970.

    Attributes:
        counts: Decisions by kind, those that were dropped included.
        dropped: How many were.
        bytes: That wait.
    """

    def __init__(self, host: str, worker: str, most_bytes: int, now_ms: Callable[[], int]) -> None:
        self.host = host
        self.worker = worker
        self.counts: Counter[Kind] = Counter()
        self.dropped = 0
        self.bytes = 0
        self.on_first: Callable[[], None] = _nothing
        """Called when there is something to write and there was nothing."""
        self._most_bytes = most_bytes
        self._now_ms = now_ms
        self._number = 0
        self._waiting: deque[_Waiting] = deque()
        self._gap: tuple[int, str] | None = None
        """The first number that was dropped since the last one that fitted, and why."""
        self._said = -_LINE_SECONDS

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest was taken that waits; None: there is none."""
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
            kind: What it will be.
            make: Makes it; small, of numbers and names.
            began_ms: When its first verdict was taken.
        """
        self.counts[kind] += 1
        self.mend()
        if self.bytes + _LATER_BYTES > self._most_bytes:
            self._drop(kind, _FULL)
        else:
            self._put(_Later(make, began_ms), self._now_ms(), _LATER_BYTES)

    def mend(self) -> None:
        """Notes what has been dropped, as soon as there is room for it."""
        if self._gap is None or self.bytes + _RECORD_BYTES > self._most_bytes:
            return
        first, reason = self._gap
        self._gap = None
        self._note_gap(first, self._number - 1, reason)

    def next(self, most: int, most_bytes: int) -> list[bytes]:
        """Returns the oldest that wait; they go on waiting until `written` says how many were.

        Args:
            most: How many at most.
            most_bytes: How much at most, but always one.
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
        """Lets go of what `next` returned."""
        for _ in values:
            self.bytes -= self._waiting.popleft().size
        self.mend()

    def refuse_oldest(self, reason: str) -> None:
        """Makes a gap of the oldest, which nobody will ever take; `written` lets go of it."""
        number = self._waiting[0].number
        self.dropped += 1
        log.error("decision_refused", number=number, reason=reason)
        self._note_gap(number, number, reason)

    def abandon(self, reason: str) -> int:
        """Gives up all that waits; returns how many."""
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
        """Puts a decision behind the others, or returns why not."""
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
            self.on_first()

    def _written_down(self, place: int) -> bytes:
        """Returns what waits at a place, as it is written; what cannot be is a gap under its own number."""
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


def _nothing() -> None:
    pass
