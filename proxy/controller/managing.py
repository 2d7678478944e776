"""Makes a topic a managed one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from uuid import UUID

import structlog

from kordon.codecs.counted import counted
from kordon.codecs.error_codes import Code
from kordon.proxy.controller.bindings import Bindings
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.controller.obstacles import Obstacles
from kordon.proxy.controller.takeovers import Takeovers, prove_quiesced
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.leaders import Leader
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.janitor import has_returned
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import TopicRecord
from kordon.proxy.ordering.takeover import Takeover, first_placement
from kordon.proxy.ordering.wishes import Manage
from kordon.proxy.runtime.clock import clock
from kordon.proxy.topics.managed_topics import face_of

log = structlog.get_logger(__name__)


class Managing:
    """Fulfils wishes to manage topics, new ones at once; for those with data it begins a takeover.

    Args:
        admit: Called with a topic. It raises TopicsRefused where Kordon lacks a right to manage the topic.
        bindings: The check whether a topic is still the one that is managed.
        compaction: The part that sees to the configs of compacted topics.
    """

    def __init__(
        self,
        context: ControllerContext,
        admit: Callable[[str], Awaitable[None]],
        *,
        bindings: Bindings,
        takeovers: Takeovers,
        compaction: Compaction,
    ) -> None:
        self._ledger, self._admin, self._adoption, _, self._do = context
        self._admit = admit
        self._bindings = bindings
        self._takeovers = takeovers
        self._compaction = compaction
        self._obstacles = Obstacles(self._admin, compaction, takeovers)

    async def manage(self, wish: Manage) -> bool:
        """Makes a topic's face, then its first layout.

        Returns:
            Whether it is managed by now; a topic with data is when its takeover has begun.

        Raises:
            WishRefused: The topic is already managed in another way, does not exist, or cannot be managed.
            TopicsRefused: Kordon lacks a right, or a transaction is open.
            NotQuiesced: Somebody writes to the topic.
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        topic = wish.topic
        if topic in self._ledger.topics:
            await self._bindings.look_at(topic)
        if record := self._ledger.topics.get(topic):
            if record.layout.v_count == wish.virtual_partitions:
                return True  # this very wish had come true when its controller ended
            detail = f"{topic} is managed already, with {counted(record.layout.v_count, 'virtual partition')}"
            raise WishRefused(Code.TOPIC_ALREADY_EXISTS, detail)
        leaders = await self._leaders_of_new(topic)
        await self._admit(topic)
        ends = await self._obstacles.of_managing(wish, leaders)
        if wish.janitor:
            await self._compaction.hold(topic)
        if any(ends.values()):
            await self._take_over(wish, ends)
            return False
        await self._create(wish, len(leaders))
        return True

    async def _leaders_of_new(self, topic: str) -> Mapping[int, Leader]:
        """Waits for the leaders of a topic that may have been created a moment ago; brokers hear of it one by one."""
        try:
            return await self._admin.wait_for_leaders(topic, partitions=1)
        except UpstreamUnavailable as error:
            await self._admit(topic)  # names the right that is missing, if it is that
            raise WishRefused(Code.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from error

    async def set_janitor(self, topic: str, *, on: bool) -> None:
        """Has old values of keys taken out of partitions that they have left, from now on or not any more.

        Raises:
            WishRefused: The topic is not managed, is compacted, or has keys that have come back to a partition.
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer, or does not let Kordon change its configs.
        """
        record = self._ledger.settled(topic)
        if on == record.layout.janitor:
            return
        if on and record.layout.has_transactions:
            detail = f"{topic} has transactions: it cannot be compacted, so it needs no janitor"
            raise WishRefused(Code.INVALID_CONFIG, detail)
        if on and has_returned(record.layout):
            detail = f"keys of {topic} have come back to partitions that they had left, so it cannot be compacted now"
            raise WishRefused(Code.INVALID_CONFIG, detail)
        if on:
            await self._compaction.hold(topic)
        else:
            await self._compaction.refuse(topic)
        await self._ledger.renew(replace(record, layout=replace(record.layout, janitor=on)))
        await self._ledger.write(((f"janitor/{topic}", None),))

    async def _create(self, wish: Manage, n: int) -> None:
        topic = wish.topic
        created = Layout.created(topic, await self._admin.topic_id(topic), n, wish.virtual_partitions)
        layout = replace(created, ordered_delivery=wish.ordered_delivery, janitor=wish.janitor, share=wish.share)
        record = TopicRecord(layout, await self._make_face(layout))
        await self._ledger.write(((f"topic/{topic}", record),))
        self._ledger.take((record,))
        if self._ledger.controller is not None:
            self._ledger.controller.known.know(record, {})
        await self._ledger.write(await self._adoption.wait_until_adopted(record))
        log.info("topic_managed", topic=topic, partitions=n, virtual_partitions=wish.virtual_partitions)

    async def _take_over(self, wish: Manage, ends: Mapping[int, int]) -> None:
        """Begins to manage a topic that has data: a change like others, from the layout that it has had all along."""
        topic = wish.topic
        if wish.quiesced:
            await prove_quiesced(self._admin.ends, topic, ends)
        before = Layout.unmanaged(topic, await self._admin.topic_id(topic), len(ends), wish.virtual_partitions)
        layout = replace(before, janitor=wish.janitor)
        takeover = Takeover(None, transition_ms=wish.transition_ms)
        record = TopicRecord(layout, await self._make_face(layout), takeover)
        placement = first_placement(layout, quiesced=wish.quiesced, delivers=wish.delivers)
        if (controller := self._ledger.controller) is not None:
            controller.known.know(record, {})
            change = Change(topic, layout.n, placement=placement, expected=ends if wish.quiesced else None)
            self._do(controller.begin(change, clock()))

    async def _make_face(self, layout: Layout) -> UUID:
        face = face_of(layout.topic)
        await self._admin.create_topic(face, partitions=layout.v_count, replicas=-1, configs={})
        await self._admin.wait_for_leaders(face, partitions=layout.v_count)
        return await self._admin.topic_id(face)
