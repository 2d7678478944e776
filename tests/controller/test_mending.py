"""Topics whose logs got shorter go on behind what was lost, where there is room for one more layout (BEYOND-LOSS)."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.controller_notes import ControllerNotes
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.controller.mending import Mending
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering import soundness
from kordon.proxy.ordering.changes import Command, Prepare
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import TopicRecord
from kordon.proxy.ordering.standing_findings import StandingFindings
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.waiting import until

CREATED = Layout.created("orders", UUID(int=1), 3, 12)
GROWN = CREATED.changed(CREATED.next_epoch(4), {0: 100, 3: 90})


class Role:
    """A controller's role that knows one topic, and keeps what it is to do and which keys it writes."""

    def __init__(self, layout: Layout) -> None:
        self.keys: list[str] = []
        self.asked: list[Command] = []
        nothing: Any = None
        self.ledger = Ledger(cast("Any", self), ControllerNotes(NoJournal(), frozenset), StandingFindings())
        self.controller = self.ledger.controller = Controller(frozenset({"me"}), 0.0)
        record = TopicRecord(layout, UUID(int=2))
        self.ledger.take((record,))
        self.controller.known.know(record, {})
        self.mending = Mending(ControllerContext(self.ledger, nothing, nothing, Tasks(), self.asked.extend))

    async def commit(self, entries: Sequence[NewRecord]) -> list[int]:
        """Is the writer of the layouts."""
        self.keys += [each.key for each in entries]
        return [0] * len(entries)


async def test_a_log_that_cannot_be_mended_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic goes on as it is; it is looked at each second, and what is new is found again."""
    role = Role(GROWN)
    with monkeypatch.context() as full:
        full.setattr(soundness, "MOST_CHANGES", 1)
        for _ in range(3):
            role.mending.mend(GROWN, {3: 60})
            await until("it is found", lambda: bool(role.keys))
        role.mending.mend(GROWN, {3: 60, 0: 7})
        await until("it is found again", lambda: len(role.keys) > 1)
        assert role.keys == ["finding/orders/not_mended"] * 2
        assert not role.asked
    role.mending.mend(GROWN, {3: 60, 0: 5})
    assert role.asked == [Prepare("orders", 4)], "there is room: it is mended"


async def test_a_log_is_mended_under_the_number_of_partitions_that_the_topic_has_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is room for one more segment of its partition, and for none of all that a shrink would begin."""
    layout = CREATED.changed(CREATED.next_epoch(6), {0: 100, 1: 100, 2: 100, 3: 0, 4: 0, 5: 0})
    role = Role(layout)
    monkeypatch.setattr(soundness, "MOST_SEGMENTS", len(layout.segments) + 1)
    role.mending.mend(layout, {3: 60})
    assert role.asked == [Prepare("orders", 6)]


async def test_nothing_is_mended_while_a_wish_for_the_topic_is_fulfilled() -> None:
    """It is found again with the next look. A change that is under way takes the loss in itself."""
    role = Role(GROWN)
    role.ledger.busy.add("orders")
    role.mending.mend(GROWN, {3: 60})
    await asyncio.sleep(0)
    assert not role.asked
    assert not role.keys
    role.ledger.busy.clear()
    role.mending.mend(GROWN, {3: 60})
    role.ledger.busy.add("orders")
    role.mending.mend(GROWN, {0: 7})
    assert role.controller.changes["orders"].shortened == {3: 60, 0: 7}
