"""What stands in the way of a wish: looked for before it comes true, and for whoever only asks whether it could."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.codecs.shown_text import cut
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.findings import why_not_let_go
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.wishes import Manage

log = structlog.get_logger(__name__)

_COORDINATORS_SECONDS: Final = 5.0
_MOST_NAMED: Final = 5


class Obstacles:
    """Looks for what keeps ordinary topics from being managed. Nothing is changed."""

    def __init__(self, admin: TopicsAdmin, compaction: Compaction, takeovers: Takeovers) -> None:
        self._ends, self._transactions = admin.ends, admin.transactions
        self._compaction = compaction
        self._takeovers = takeovers

    async def of_managing(self, wish: Manage, partitions: Collection[int]) -> dict[int, int]:
        """Returns where the logs of a topic end that can be managed.

        Args:
            partitions: All partitions of the topic.

        Raises:
            WishRefused: The topic is compacted without a janitor, cannot have so many virtual partitions, or somebody
                has added it to a transaction.
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
        await self._refuse_added(wish.topic)
        return ends

    async def _refuse_added(self, topic: str) -> None:
        """Refuses while a transaction names the topic, of which nothing may be in its log yet.

        Where Kordon cannot know, such a transaction is refused when it writes.
        """
        try:
            async with asyncio.timeout(_COORDINATORS_SECONDS):
                found = await self._transactions.open()
        except (TimeoutError, UpstreamUnavailable) as error:
            log.info("transactions_not_looked_at", topic=topic, error=str(error) or "no answer in time")
            return
        if ids := sorted({cut(each.transactional_id) for each in found if each.partitions.get(topic)}):
            more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
            detail = (
                f"transactions are open that name {topic}: {', '.join(ids[:_MOST_NAMED])}{more}."
                " Wait until they end, or end them by Admin.fenceProducers"
            )
            raise WishRefused(Code.INVALID_TXN_STATE, detail)


async def refuse_filled(ends: PartitionEnds, layout: Layout) -> None:
    """Refuses to let a topic go whose records would not lie on the partitions of their keys.

    Raises:
        WishRefused: The topic holds records.
        TopicsRefused: A broker does not lead a partition any more, or Kordon may not know.
        UpstreamUnavailable: A leader does not answer.
    """
    partitions = {each.id.partition for each in layout.segments}
    starts = await ends.log_starts(layout.topic, partitions)
    found = await ends.ends_of(layout.topic, partitions)
    if left := sorted(q for q, end in found.items() if end.log_end_offset > starts[q]):
        raise WishRefused(Code.INVALID_REQUEST, why_not_let_go(layout, left))
