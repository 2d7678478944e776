"""Where the virtual partitions of a topic live in each layout epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kordon.proxy.ordering import hashing


class Placement(Enum):
    """How virtual partitions lie on physical ones in an epoch."""

    LINEAR = "linear"
    """By linear hashing of their slots."""
    OWN = "own"
    """While a topic with data is taken over: v < N still on partition v, v >= N by linear hashing (TAKEOVER-WAITS)."""
    SHARED = "shared"
    """The same where nothing waits: v lives on partition v mod N and is delivered there (TAKEOVER-SHARES)."""
    UNMANAGED = "unmanaged"
    """Before a topic with data was taken over: v < N is partition v, and there are no others (PAST-STAYS)."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one layout epoch changed."""

    number: int
    u: int
    placement: Placement = Placement.LINEAR
    shortened: Mapping[int, int] | None = None
    """By physical partition whose log got shorter: from which offset on all was lost (BEYOND-LOSS)."""
    renewed: tuple[int, ...] = ()
    """Physical partitions that begin another segment though nobody comes or goes: values stand first in it that brokers
    would have taken away (KIP-253 9)."""


class Placements(NamedTuple):
    """Says where the virtual partitions of one topic live.

    Attributes:
        n: The topic's initial_partition_count.
        v_count: V, the virtual partitions.
    """

    n: int
    v_count: int

    def homes(self, epoch: Epoch) -> tuple[int | None, ...]:
        """Returns the physical partition that each virtual one lives on; None where it is not born yet."""
        if epoch.placement is Placement.LINEAR:
            return hashing.homes(self.n, epoch.u, self.v_count)
        found: list[int | None] = [None] * self.v_count
        for q in range(epoch.u):
            for vs in self.residents(epoch, q):
                found[vs.start : vs.stop] = [q] * len(vs)
        return tuple(found)

    def residents(self, epoch: Epoch, partition: int) -> tuple[range, ...]:
        """Returns the virtual partitions that live on a physical one in an epoch, as runs of neighbours."""
        vs = hashing.residents(partition, self.n, epoch.u, self.v_count)
        if epoch.placement is Placement.LINEAR:
            return (vs,)
        own = range(partition, partition + 1) if 0 <= partition < self.n else range(0)
        if epoch.placement is Placement.SHARED:
            return tuple(range(v, v + 1) for v in range(partition, self.v_count, self.n) if own)
        if epoch.placement is Placement.UNMANAGED:
            return (own,)
        return own, range(max(vs.start, self.n), max(vs.stop, self.n))
