"""Where each stream of a topic lives and has lived, derived from the topic's epochs and segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from kordon.proxy.ordering.chain import Chain
from kordon.proxy.ordering.placements import Epoch, Placement, Placements
from kordon.proxy.ordering.runs import Run, RunHistory
from kordon.proxy.ordering.segments import Segment
from kordon.proxy.ordering.streams import Stream, physical_chains, physical_stream


class Residence:
    """Tells where streams live and have lived.

    Args:
        placements: Say where virtual partitions live in an epoch.
        epochs: All so far, oldest first.
        segments: All segments so far.
    """

    def __init__(self, placements: Placements, epochs: Sequence[Epoch], segments: Sequence[Segment]) -> None:
        self.placements = placements
        self._epochs = epochs
        self._segments = segments
        self._physical_chains: dict[int, Chain] = {}

    @cached_property
    def homes(self) -> tuple[int | None, ...]:
        """The physical partition on which each virtual one lives; None where it is not born yet."""
        return self.placements.homes(self._epochs[-1])

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The virtual partitions as runs of neighbours that have always lived together, and so share a chain."""
        return RunHistory(self.placements, self._epochs, self._segments).runs()

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The homes, present and former, of each virtual partition."""
        return tuple(run.chain for run in self.runs for _ in run.vs)

    @cached_property
    def physical_chains(self) -> Mapping[int, Chain]:
        """The homes, present and former, of the stream of each physical partition as such."""
        return physical_chains(self._segments, self._untagged)

    def physical_chain(self, partition: int) -> Chain | None:
        """Returns where the stream of a physical partition as such lives and has lived; None: nowhere.

        Only that one is derived: few workers need that of all partitions.
        """
        found = self._physical_chains.get(partition)
        if found is None and (segments := self._segments_of.get(partition)) is not None:  # clients may name any number
            found = self._physical_chains[partition] = physical_chains(segments, self._untagged)[partition]
        return found

    @cached_property
    def _segments_of(self) -> Mapping[int, Sequence[Segment]]:
        """The segments of each physical partition."""
        found: dict[int, list[Segment]] = {}
        for each in self._segments:
            found.setdefault(each.id.partition, []).append(each)
        return found

    @cached_property
    def _untagged(self) -> frozenset[int]:
        """The epochs before the topic was taken over."""
        return frozenset(epoch.number for epoch in self._epochs if epoch.placement is Placement.UNMANAGED)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All that clients write and have written to: virtual partitions, and physical ones as such."""
        return (*range(self.placements.v_count), *(physical_stream(q) for q in self.physical_chains))

    @property
    def is_plain(self) -> bool:
        """Whether each virtual partition has only ever been the physical one of its number, offset by offset."""
        stays = ((vs, stay) for vs, chain in self.runs for stay in chain.stays)
        return all(vs == range(stay.partition, stay.partition + 1) and not stay.delta for vs, stay in stays)

    def residents(self, partition: int) -> tuple[int, ...]:
        """Returns the virtual partitions that live on a physical one."""
        return tuple(v for vs in self.placements.residents(self._epochs[-1], partition) for v in vs)
