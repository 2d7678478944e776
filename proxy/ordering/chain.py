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
    """The offset behind the stay; None while the virtual partition lives there."""
    delta: int
    """Virtual offset = offset in the physical partition + delta."""
    lost_from: int | None = None
    """The first offset whose record was lost when the log got shorter (BEYOND-LOSS); None: nothing was lost."""
    tagged: bool = True
    """Whether batches carry identities. They do not before the topic was taken over (PAST-STAYS)."""

    @property
    def virtual_start(self) -> int:
        """The virtual offset of the stay's first offset."""
        return self.start + self.delta

    @property
    def virtual_end(self) -> int | None:
        """The virtual offset behind the stay; None while the virtual partition lives there."""
        return None if self.end is None else self.end + self.delta

    @property
    def kept_end(self) -> int | None:
        """The offset behind the last record that there can be; it lies before `end` where the log got shorter."""
        return self.end if self.lost_from is None else self.lost_from

    def holds(self, offset: int) -> bool:
        """Whether a record at this offset of the physical partition belongs to the stay."""
        kept_end = self.kept_end
        return self.start <= offset and (kept_end is None or offset < kept_end)


@dataclass(frozen=True)
class Chain:
    """All stays of one virtual partition, oldest first; none while the partition is not born."""

    stays: tuple[Stay, ...]

    @property
    def home(self) -> Stay | None:
        """The last stay, where the virtual partition lives now; None while it is not born."""
        return self.stays[-1] if self.stays else None

    @property
    def start(self) -> int:
        """The first virtual offset there ever was."""
        return self.stays[0].virtual_start if self.stays else 0

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(stay.virtual_start for stay in self.stays)

    def stay_of(self, offset: int) -> Stay | None:
        """Returns the stay that holds a virtual offset, or None below the first; of empty stays there, the last one."""
        place = bisect_right(self._starts, offset) - 1
        return self.stays[place] if place >= 0 else None

    def after(self, stay: Stay) -> Stay | None:
        """Returns the stay that followed; None: it is the last one."""
        place = self.stays.index(stay) + 1
        return self.stays[place] if place < len(self.stays) else None
