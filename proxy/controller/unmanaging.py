"""Ends what Kordon does with a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.controller.obstacles import refuse_filled
from kordon.proxy.ordering.controller import FENCE_SECONDS
from kordon.proxy.ordering.records import FindingRecord, TopicRecord
from kordon.proxy.own_topics.layouts_writer import Records
from kordon.proxy.runtime.clock import clock
from kordon.proxy.topics.managed_topics import face_of


class Unmanaging:
    """Lets topics go, where that breaks no order.

    Args:
        confirm: Returns whether the known generation is still the present one.
    """

    def __init__(self, context: ControllerContext, confirm: Callable[[], Awaitable[bool]]) -> None:
        self._ledger, self._admin, self._adoption = context.ledger, context.admin, context.adoption
        self._confirm = confirm

    async def unmanage(self, topic: str) -> None:
        """Makes a topic an ordinary one again.

        Raises:
            WishRefused: The topic is not managed, is being taken over, or keys would lie elsewhere than their history.
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        record = self._ledger.settled(topic)
        if record.layout.residence.is_plain and not record.layout.has_transactions:
            await self.let_go(topic)
        else:
            await self._let_go_empty(record)

    async def let_go(self, topic: str, finding: FindingRecord | None = None) -> None:
        """Ends a topic's layout, and its face with the commits that groups have there; tells `finding` of it.

        A topic that is not managed has been let go before.

        Raises:
            TopicsRefused: Kordon may not delete the face.
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        record, controller = self._ledger.topics.get(topic), self._ledger.controller
        if record is None or controller is None:
            return
        images: Records = tuple((key, None) for key in controller.known.image_keys(topic))
        controller.forget(topic)
        await self._admin.delete_topic(face_of(topic))  # first: a layout whose face has gone is found again, not this
        found: Records = () if finding is None else tuple(self._ledger.findings.told(finding).items())
        announced: Records = ((f"announcement/{topic}", None),) if record.layout.has_transactions else ()
        await self._ledger.write((*images, *announced, (f"topic/{topic}", None), (f"janitor/{topic}", None), *found))
        self._ledger.topics.pop(topic, None)

    async def _let_go_empty(self, record: TopicRecord) -> None:
        """Lets a topic go whose keys will lie on other partitions: only while it holds nothing, and nobody writes."""
        topic, layout = record.layout.topic, record.layout
        fence, is_held = await self._adoption.raise_fence(record, layout.open_segments.keys(), FENCE_SECONDS)
        try:
            controller = self._ledger.controller
            is_held = is_held and await self._confirm()  # else somebody may have joined who was not asked
            if controller is None or not (is_held and clock() >= controller.alone_from):
                detail = f"not all proxies have stopped writing to {topic} within {FENCE_SECONDS:g} s; try again"
                raise WishRefused(Code.REQUEST_TIMED_OUT, detail)
            await refuse_filled(self._admin.ends, layout)
            await self.let_go(topic)
        finally:
            await self._ledger.write(self._adoption.lowering(fence))
