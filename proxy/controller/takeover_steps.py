"""Carries takeovers on, from the moment that clients are shown all virtual partitions (TAKEOVER-WAITS)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.controller.looks import Looks
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.records import BehindRecord, TopicRecord
from kordon.proxy.ordering.takeover import TakeoverStep, is_shared, next_step, shown
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.proxy.runtime.clock import clock, now_ms

log = structlog.get_logger(__name__)


class TakeoverSteps:
    """Does what is next with each topic that is being taken over."""

    def __init__(self, context: ControllerContext, takeovers: Takeovers) -> None:
        self._ledger, self._tasks, self._do = context.ledger, context.tasks, context.do
        self._takeovers, self._looks = takeovers, Looks()
        self._told: dict[str, BehindRecord] = {}

    def begin_next(self) -> None:
        """Begins what is due."""
        controller = self._ledger.controller
        for topic, record in self._ledger.topics.items():
            takeover = record.takeover
            if takeover is None or controller is None or topic in controller.changes or topic in self._ledger.busy:
                continue
            step = next_step(record.layout, takeover, now_ms())
            if step is TakeoverStep.CUT and is_shared(record.layout):
                if self._looks.is_due(topic, record.layout.epoch):
                    self._start(record, self._cut_if_groups_are_near)
            elif step is TakeoverStep.CUT:
                self._do(controller.begin(Change(topic, record.layout.n), clock()))
            elif step is TakeoverStep.SHOWN:
                self._start(record, self._begin_transition)
            elif self._looks.is_due(topic, record.layout.epoch):
                self._start(record, self._look_at_groups)

    async def leave_out(self, topic: str, groups: tuple[str, ...]) -> None:
        """Has a takeover wait for some groups no more.

        Raises:
            WishRefused: The topic is not being taken over.
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer.
        """
        record = self._ledger.topics.get(topic)
        if record is None or record.takeover is None:
            raise WishRefused(Code.INVALID_REQUEST, f"{topic} is not being taken over: no group is waited for")
        left_out = tuple(sorted({*record.takeover.left_out, *groups}))
        await self._ledger.renew(replace(record, takeover=replace(record.takeover, left_out=left_out)))
        self._looks.hurry(topic)

    def _start(self, record: TopicRecord, step: Callable[[TopicRecord], Awaitable[None]]) -> None:
        self._ledger.busy.add(record.layout.topic)
        self._tasks.start(self._take(record, step), name=f"takeover of {record.layout.topic}")

    async def _take(self, record: TopicRecord, step: Callable[[TopicRecord], Awaitable[None]]) -> None:
        topic = record.layout.topic
        try:
            await step(record)
        except (Fenced, UpstreamUnavailable) as error:
            log.warning("takeover_delayed", topic=topic, error=str(error))
        finally:
            self._ledger.busy.discard(topic)

    async def _begin_transition(self, record: TopicRecord) -> None:
        """Lets the time of the old view run: every proxy shows V by now."""
        assert record.takeover is not None, "it is being taken over"
        await self._ledger.renew(replace(record, takeover=shown(record.takeover, now_ms())))

    async def _cut_if_groups_are_near(self, record: TopicRecord) -> None:
        """Moves all to their homes once no group is far behind: v >= N waits from then on until all have caught up."""
        topic, takeover = record.layout.topic, record.takeover
        assert takeover is not None, "it is being taken over"
        far = await self._takeovers.far_groups(record)
        if far and far != takeover.waits_for:
            await self._ledger.renew(replace(record, takeover=replace(takeover, waits_for=far)))
            log.info("takeover_waits", topic=topic, groups=far, members=0)
        elif not far and (controller := self._ledger.controller) is not None:
            self._do(controller.begin(Change(topic, record.layout.n), clock()))

    async def _look_at_groups(self, record: TopicRecord) -> None:
        """Delivers all virtual partitions of a topic once every group has passed the cuts."""
        topic = record.layout.topic
        takeover, behind = await self._takeovers.look(record)
        if takeover is not None and behind != self._told.get(topic):
            await self._ledger.write(((f"behind/{topic}", behind),))
            self._told[topic] = behind
        if takeover == record.takeover:
            return
        layout = record.layout if takeover is not None else replace(record.layout, withheld=False)
        await self._ledger.renew(replace(record, layout=layout, takeover=takeover))
        if takeover is None:
            await self._ledger.write(((f"behind/{topic}", None),))
            self._told.pop(topic, None)
            log.info("topic_taken_over", topic=topic)
        else:
            log.info("takeover_waits", topic=topic, groups=takeover.waits_for, members=len(takeover.subscribers))
