"""Holds layouts to the topics that they were made for, which somebody may delete without asking Kordon (SAME-TOPIC)."""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import UUID

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.open_wishes import OpenWishes
from kordon.proxy.controller.unmanaging import Unmanaging
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsRefused
from kordon.proxy.ordering.changes import Stage
from kordon.proxy.ordering.findings import topic_gone
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.wishes import Delete
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.proxy.runtime.clock import now_ms

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two looks; one that was deleted and made again answers LEADER_NOT_AVAILABLE for so long."""

_LOOKS: Final = 10
_AGAIN_SECONDS: Final = 0.2


class Bindings:
    """Looks whether managed topics are still there, while this proxy is the controller.

    Args:
        unmanaging: The part that ends the layout of a topic that is gone.
        open_wishes: The open wishes. They say whether somebody has deleted a topic through Kordon.
    """

    def __init__(self, context: ControllerContext, unmanaging: Unmanaging, open_wishes: OpenWishes) -> None:
        self._ledger, self._admin = context.ledger, context.admin
        self._unmanaging = unmanaging
        self._open_wishes = open_wishes

    async def run(self) -> None:
        """Looks at the topics until it is cancelled.

        A topic that is only missing is let go at the second look: whoever deletes it through Kordon says so next.
        """
        missing: frozenset[str] = frozenset()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                gone = await self._admin.gone(self._topic_ids())
            except UpstreamUnavailable as error:
                log.debug("topics_not_looked_at", error=str(error))
                continue
            for topic, successor in gone.items():
                if successor is not None or topic in missing:
                    await self._let_go(topic, successor)
            missing = frozenset(gone)

    async def look_at(self, topic: str) -> None:
        """Looks at one topic that somebody says is gone, and lets it go; brokers hear of it one after the other.

        Raises:
            UpstreamUnavailable: Not all brokers answer.
        """
        for _ in range(_LOOKS):
            expected = {name: topic_id for name, topic_id in self._topic_ids().items() if name == topic}
            gone = await self._admin.gone(expected)
            for name, successor in gone.items():
                await self._let_go(name, successor)
            if gone or not expected:
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def _topic_ids(self) -> dict[str, UUID]:
        return {topic: record.layout.topic_id for topic, record in self._ledger.topics.items()}

    async def _let_go(self, topic: str, successor: UUID | None) -> None:
        """Lets a topic go that somebody has deleted who went around Kordon (SAME-TOPIC)."""
        controller, record = self._ledger.controller, self._ledger.topics.get(topic)
        if controller is None or record is None:
            return
        change = controller.changes.get(topic)
        if change is not None and change.stage not in (Stage.PAUSING, Stage.OLDER):
            return  # it fails, as there is no such topic, and is found again
        is_announced = Delete(topic) in self._open_wishes.all
        finding = None if is_announced else topic_gone(record.layout, successor, now_ms())
        try:
            await self._unmanaging.let_go(topic, finding)
            if finding is not None:
                log.error("finding", kind=finding.kind, topic=topic, detail=finding.text)
            if change is not None:
                outcome = OutcomeRecord(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted")
                await self._open_wishes.conclude(topic, outcome)
        except TopicsRefused as refusal:
            log.warning("face_not_deleted", topic=topic, error=str(refusal))
        except (Fenced, UpstreamUnavailable) as error:
            self._ledger.fail(error)
