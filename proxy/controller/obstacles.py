"""What stands in the way of a wish: looked for before it comes true, and for whoever only asks whether it could."""

from __future__ import annotations

from collections.abc import Collection

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.ordering.findings import why_not_let_go
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.wishes import Manage


class Obstacles:
    """Looks for what keeps ordinary topics from being managed. Nothing is changed."""

    def __init__(self, ends: PartitionEnds, compaction: Compaction, takeovers: Takeovers) -> None:
        self._ends = ends
        self._compaction = compaction
        self._takeovers = takeovers

    async def of_managing(self, wish: Manage, partitions: Collection[int]) -> dict[int, int]:
        """Returns where the logs of a topic end that can be managed.

        Args:
            partitions: All that the topic has.

        Raises:
            WishRefused: It is compacted without a janitor, or cannot have so many virtual partitions.
            TopicsRefused: A transaction is open, or Kordon may not know.
            UpstreamUnavailable: A leader does not answer.
        """
        if not wish.janitor:
            await self._compaction.refuse(wish.topic)
        if problem := why_not(len(partitions), len(partitions), wish.virtual_partitions):
            raise WishRefused(Code.INVALID_PARTITIONS, problem)
        ends = {q: each.log_end_offset for q, each in (await self._ends.ends_of(wish.topic, partitions)).items()}
        if any(ends.values()):
            await self._takeovers.refuse_transactions(wish.topic, frozenset(ends))
        return ends


async def refuse_filled(ends: PartitionEnds, layout: Layout) -> None:
    """Refuses to let a topic go whose records would not lie on the partitions of their keys.

    Raises:
        WishRefused: It holds records.
        TopicsRefused: A broker does not lead a partition any more, or Kordon may not know.
        UpstreamUnavailable: A leader does not answer.
    """
    partitions = {each.id.partition for each in layout.segments}
    starts = await ends.log_starts(layout.topic, partitions)
    found = await ends.ends_of(layout.topic, partitions)
    if left := sorted(q for q, end in found.items() if end.log_end_offset > starts[q]):
        raise WishRefused(Code.INVALID_REQUEST, why_not_let_go(layout, left))
