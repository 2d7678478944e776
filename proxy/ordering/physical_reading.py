"""Whose batches are whose in the log of a physical partition that clients of the dialect read as such (ORIGIN-TAG).

All that is not hidden is its own: batches of the virtual partitions that lived there, of clients of the dialect, and of
writers that went around Kordon. Nothing is opened or shared out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import Hidden, Resident, Tenancy
from kordon.proxy.ordering.streams import Stream, is_physical, physical_stream, shown_partition

_START: Final = attrgetter("start")
_GIVEN_OUT: Final = frozenset({Hidden.BYPASS, Hidden.DIALECT})
"""Hidden from readers of virtual partitions only as whole batches."""


@dataclass(frozen=True, slots=True)
class PhysicalTenancy:
    """A physical partition as its only tenant."""

    partition: int
    shared: Tenancy
    """Who lives and has lived there: what is right there."""
    chain: Chain
    """Its own chain."""

    @property
    def stream(self) -> Stream:
        """As which clients of the dialect know it."""
        return physical_stream(self.partition)

    def owner(self, producer_id: int, base_offset: int, *, is_control: bool) -> Resident | Hidden:
        """Says whether a batch is given out; see `Tenancy.owner`."""
        found = self.shared.owner(producer_id, base_offset, is_control=is_control)
        if not (isinstance(found, Resident) or found in _GIVEN_OUT):
            return found
        stay = self._stay_at(base_offset)
        return Hidden.STRAY if stay is None else Resident(self.stream, stay, found is Hidden.BYPASS)

    def at(self, offset: int) -> dict[int, Stay]:
        """Returns itself, where its log holds anything at an offset."""
        stay = self._stay_at(offset)
        return {} if stay is None else {self.stream: stay}

    def _stay_at(self, offset: int) -> Stay | None:
        place = bisect_right(self.chain.stays, offset, key=_START) - 1
        stay = self.chain.stays[place] if place >= 0 else None
        return stay if stay is not None and stay.holds(offset) else None


def log_read_by(stream: Stream, partition: int) -> int:
    """Returns which of the logs kept of a physical partition a reader reads.

    All virtual partitions share one, in which each has offsets of its own; a physical partition as such has another.
    """
    return stream if is_physical(stream) else partition


def tenancy_of(layout: Layout, shared: Mapping[int, Tenancy], log: int) -> AnyTenancy:
    """Returns whose batches are whose in a log.

    Args:
        shared: The streams that live and have lived in each physical partition (`tenancies`).
        log: The log, as from `log_read_by`.
    """
    partition = shown_partition(log)
    found = shared.get(partition) or Tenancy(partition)
    return PhysicalTenancy(partition, found, layout.chain(log)) if is_physical(log) else found


AnyTenancy: TypeAlias = Tenancy | PhysicalTenancy
"""Of a physical partition as virtual ones share it, or as such."""
