"""Has topics continue behind what their logs have lost (BEYOND-LOSS)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering.findings import not_mended
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FindingRecord, TopicRecord, why_never
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.proxy.runtime.clock import clock, now_ms


class Mending:
    """Begins a change of each topic whose log got shorter, where there is room for one more layout."""

    def __init__(self, context: ControllerContext) -> None:
        self._ledger, self._tasks, self._do = context.ledger, context.tasks, context.do
        self._not_mended: dict[str, tuple[int, Mapping[int, int]]] = {}
        """By topic that cannot be mended, its layout epoch, and what has got shorter."""

    def mend(self, layout: Layout, shortened: Mapping[int, int]) -> None:
        """Has a topic go on behind what its logs have lost, unless a wish is being fulfilled just now (BEYOND-LOSS)."""
        topic, controller = layout.topic, self._ledger.controller
        record = self._ledger.topics.get(topic)
        if controller is None or record is None or record.layout is not layout:
            return
        is_changing = topic in controller.changes
        if is_changing or (topic not in self._ledger.busy and self._is_mendable(record, shortened)):
            self._do(controller.mend(topic, shortened, clock()))

    def _is_mendable(self, record: TopicRecord, shortened: Mapping[int, int]) -> bool:
        """Whether there is room for one more layout; where there is none, that is found once."""
        layout = record.layout
        newest = layout.epochs[-1]
        if self._not_mended.get(layout.topic) == (layout.epoch, shortened):
            return False
        why = why_never(record, layout.next_epoch(newest.u, newest.placement, shortened))
        if not why:
            return True
        self._not_mended[layout.topic] = (layout.epoch, dict(shortened))
        finding = not_mended(layout, shortened, why, now_ms())
        self._tasks.start(self._find(finding), name=f"tell what is wrong with {layout.topic}")
        return False

    async def _find(self, finding: FindingRecord) -> None:
        with suppress(Fenced, UpstreamUnavailable):  # the role ends by that
            await self._ledger.write_finding(finding)
