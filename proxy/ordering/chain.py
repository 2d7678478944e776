"""The log of one virtual partition: the stretches it lived on, laid end to end (OFFSET-CHAIN)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Stay:
    """A time that a virtual partition spent on one physical partition: offsets [start, end) there."""

    partition: int
    move: int
    """How often it had moved before."""
    start: int
    end: int | None
    """None while it lives there."""
    delta: int
    """Virtual offset = offset in the physical partition + delta."""
    lost_from: int | None = None
    """From where on its records were lost when the log got shorter (BEYOND-LOSS); None: from nowhere."""
    tagged: bool = True
    """Whether batches carry identities; not so before the topic was taken over (PAST-STAYS)."""

    @property
    def virtual_start(self) -> int:
        """Virtual offset of the first offset."""
        return self.start + self.delta

    @property
    def virtual_end(self) -> int | None:
        """Virtual offset after the last; None while it lives there."""
        return None if self.end is None else self.end + self.delta

    @property
    def kept_end(self) -> int | None:
        """The offset after the last record that there can be: before `end` where the log got shorter."""
        return self.end if self.lost_from is None else self.lost_from

    def holds(self, offset: int) -> bool:
        """Whether what stands at an offset of the physical partition belongs to it."""
        kept_end = self.kept_end
        return self.start <= offset and (kept_end is None or offset < kept_end)


@dataclass(frozen=True)
class Chain:
    """All stays of one virtual partition, oldest first; empty while it is not born."""

    stays: tuple[Stay, ...]

    @property
    def home(self) -> Stay | None:
        """Where it lives now."""
        return self.stays[-1] if self.stays else None

    @property
    def start(self) -> int:
        """The first virtual offset there ever was."""
        return self.stays[0].virtual_start if self.stays else 0

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(stay.virtual_start for stay in self.stays)

    def stay_of(self, offset: int) -> Stay | None:
        """Returns where a virtual offset stands: of empty stays that begin there, the last. None: below the first."""
        place = bisect_right(self._starts, offset) - 1
        return self.stays[place] if place >= 0 else None

    def after(self, stay: Stay) -> Stay | None:
        """Returns the stay that followed."""
        place = self.stays.index(stay) + 1
        return self.stays[place] if place < len(self.stays) else None
