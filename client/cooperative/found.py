"""What a member finds of a partition that it gets: what the group has finished, as far as the log has it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kordon.client.cooperative.leader_epochs import NO_EPOCH
from kordon.codecs.ranges import NONE, Ranges


@dataclass(frozen=True, slots=True)
class Found:
    """What a group knows of a partition."""

    offset: int
    """The committed offset."""
    ranges: Ranges = NONE
    """What is finished behind it, as far as that is believed."""
    epoch: int = NO_EPOCH
    """The leader epoch of the last record of all that."""

    @property
    def reach(self) -> int:
        """The offset at which the finished records end."""
        return max(self.offset, self.ranges.end)

    def without_ranges(self) -> Found:
        """Returns the commit alone."""
        return replace(self, ranges=NONE)

    def as_of(self, epoch_end: int) -> Found:
        """Returns what a log has of it.

        Args:
            epoch_end: Where the leader epoch ends there; -1: the log knows no such epoch.
        """
        if epoch_end < 0:
            return self.without_ranges()
        if epoch_end >= self.reach:
            return self
        return replace(self, offset=min(self.offset, epoch_end), ranges=self.ranges.below(epoch_end))

    def behind(self, log_end: int) -> Found | None:
        """Returns what can be believed where only the end of the log is known; None: nothing."""
        if self.offset > log_end:
            return None
        return self if self.reach <= log_end else self.without_ranges()

    def from_start(self, log_start: int) -> Found:
        """Returns where a member continues if no record is left before an offset."""
        if log_start <= self.offset:
            return self
        stable, ranges = self.ranges.above(log_start)
        return replace(self, offset=stable, ranges=ranges)
