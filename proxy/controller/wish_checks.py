"""Tells whether a wish could come true now, and changes nothing (validate_only)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.ledger import WishRefused, settled_in
from kordon.proxy.controller.obstacles import Obstacles, refuse_filled
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.findings import why_no_second
from kordon.proxy.ordering.records import OutcomeRecord, TopicRecord, why_no_more
from kordon.proxy.ordering.wishes import Manage, Resize, Unmanage, Wish
from kordon.proxy.topics.managed_topics import ManagedTopics


class WishChecks:
    """Checks wishes, on whichever worker somebody asks.

    A controller looks again when the wish comes true: much can happen in between.

    Args:
        topics: The managed topics.
        refuse_lacking: Called with a topic. It raises TopicsRefused where Kordon lacks a right to manage the topic.
        wishes: Returns the open wishes.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        admin: TopicsAdmin,
        *,
        refuse_lacking: Callable[[str], Awaitable[None]],
        obstacles: Obstacles,
        wishes: Callable[[], Iterable[Wish]],
    ) -> None:
        self._topics = topics
        self._admin = admin
        self._refuse_lacking = refuse_lacking
        self._obstacles = obstacles
        self._wishes = wishes

    async def check(self, wish: Wish) -> OutcomeRecord:
        """Returns what would come of a wish.

        Raises:
            TopicsRefused: Kordon lacks a right, or a transaction is open.
            UpstreamUnavailable: The cluster does not answer.
        """
        try:
            match wish:
                case Manage():
                    await self._manage(wish)
                case Resize():
                    await self._resize(wish)
                case Unmanage(topic):
                    await self._unmanage(topic)
                case _:
                    pass  # a controller looks at nothing that a client could not see
        except WishRefused as refusal:
            return OutcomeRecord(refusal.code, str(refusal))
        return OutcomeRecord(Code.NONE, "")

    async def _manage(self, wish: Manage) -> None:
        await self._refuse_lacking(wish.topic)  # first, as Kordon may see no topic without
        leaders = await self._admin.ends.leaders(wish.topic)
        if not leaders:
            raise WishRefused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wish.topic}")
        await self._obstacles.of_managing(wish, leaders)

    async def _resize(self, wish: Resize) -> None:
        record = self._settled(wish.topic)
        self._refuse_second(wish)
        layout = record.layout
        if wish.partitions == layout.u:
            return
        following = layout.next_epoch(wish.partitions)
        if problem := why_no_more(record, following):
            raise WishRefused(Code.INVALID_PARTITIONS, problem)
        present = await self._admin.ends.leaders(wish.topic)
        await self._admin.ends.ends_of(wish.topic, layout.change_to(following).touched & present.keys())
        await self._admin.create_partitions(wish.topic, wish.partitions, only_checked=True)

    async def _unmanage(self, topic: str) -> None:
        layout = self._settled(topic).layout
        if not layout.residence.is_plain or layout.has_transactions:
            await refuse_filled(self._admin.ends, layout)

    def _settled(self, topic: str) -> TopicRecord:
        known = self._topics.named(topic)
        records = {} if known is None else {topic: TopicRecord(known.layout, known.face_id, known.takeover)}
        return settled_in(records, topic)

    def _refuse_second(self, wish: Resize) -> None:
        for other in self._wishes():
            if isinstance(other, Resize) and other.topic == wish.topic and other.partitions != wish.partitions:
                raise WishRefused(Code.REASSIGNMENT_IN_PROGRESS, why_no_second(wish.topic, other.partitions))
