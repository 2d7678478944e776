"""Fences that somebody else has written into the layouts: they would hold writes until another controller begins."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.controller.controller_notes import ControllerNotes
from kordon.proxy.controller.forged_fences import ForgedFences
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering.controller import FENCE_SECONDS
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.layouts_state import StandingFence
from kordon.proxy.ordering.records import FenceRecord
from kordon.proxy.ordering.standing_findings import StandingFindings
from kordon.proxy.own_topics.layouts_writer import Fenced

LAYOUT = Layout.created("orders", UUID(int=1), 3, 12)
FENCE = FenceRecord("f1", "orders", LAYOUT.next_epoch(4), LAYOUT.change_to(LAYOUT.next_epoch(4)).sealed)
LATER = FENCE_SECONDS + 0.1
PRODUCER = 7


class Role:
    """A controller with its ledger, and the fences that stand in the layouts as they were read at second 0."""

    def __init__(self) -> None:
        self.end = 0
        self.written: list[str] = []
        self.fails = False
        self.told: list[tuple[str, int]] = []
        self.standing: dict[str, StandingFence] = {}
        self.unreadable: set[str] = set()
        self.controller = SimpleNamespace(changes={})
        self.ledger = Ledger(cast("Any", self), ControllerNotes(NoJournal(), frozenset), StandingFindings())
        self.ledger.controller = cast("Any", self.controller)
        self.forged = ForgedFences(
            self.ledger,
            lambda: self.standing,
            why_untouched=lambda topic: "unreadable" if topic in self.unreadable else None,
            on_forged=lambda key, offset: self.told.append((key, offset)),
        )

    async def commit(self, entries: list[NewRecord]) -> list[int]:
        if self.fails:
            raise Fenced("another controller")
        self.written += [each.key for each in entries if each.value is None]
        first, self.end = self.end, self.end + len(entries)
        return list(range(first, self.end))

    def somebody_writes(self, topic: str = "orders", producer_id: int = -1) -> int:
        """A fence by nobody knows whom; returns where it stands."""
        self.standing[topic] = StandingFence(self.end, 0.0, producer_id)
        self.end += 1
        return self.standing[topic].offset


async def test_a_fence_that_no_controller_has_raised_is_lifted_and_told_of() -> None:
    """Once it has stood for longer than any fence may; each one once."""
    role = Role()
    offset = role.somebody_writes()
    assert role.forged.look(FENCE_SECONDS) == []
    assert role.forged.look(LATER) == ["orders"]
    assert role.forged.look(LATER) == []
    assert role.told == [("fence/orders", offset)]
    await role.forged.lift(["orders"])
    assert role.written == ["fence/orders"]
    another = role.somebody_writes()
    assert role.forged.look(LATER) == ["orders"]
    assert role.told[1:] == [("fence/orders", another)]


async def test_the_controllers_own_fences_stand() -> None:
    """Those that it has written, whatever became of them, and those that it found when it began."""
    role = Role()
    await role.ledger.write((("fence/orders", FENCE),))
    role.standing["orders"] = StandingFence(0, 0.0)
    assert role.forged.look(LATER) == []
    role.somebody_writes("invoices", PRODUCER)
    assert role.forged.found(PRODUCER) == {"invoices"}
    assert role.forged.look(LATER) == []
    assert role.told == []


@pytest.mark.parametrize("producer_id", [-1, PRODUCER + 1], ids=["in no transaction", "in another's"])
async def test_a_forged_fence_that_stood_before_is_no_former_controllers(producer_id: int) -> None:
    """Nobody else writes in the transactions of controllers: it is lifted, and its topic not changed as it says."""
    role = Role()
    offset = role.somebody_writes("orders", producer_id)
    assert role.forged.found(PRODUCER) == frozenset()
    assert role.forged.look(LATER) == ["orders"]
    assert role.told == [("fence/orders", offset)]


@pytest.mark.parametrize("what", ["change", "busy", "unreadable", "no controller"])
async def test_nothing_is_lifted_while_something_goes_on_with_its_topic(what: str) -> None:
    """A change under way has a fence of its own under the same key, and ends both: to lift that would break order."""
    role = Role()
    role.somebody_writes()
    match what:
        case "change":
            role.controller.changes["orders"] = None
        case "busy":
            role.ledger.busy.add("orders")
        case "unreadable":
            role.unreadable.add("orders")
        case _:
            role.ledger.controller = None
    assert role.forged.look(LATER) == []
    role.controller.changes.clear()
    role.ledger.busy.clear()
    role.unreadable.clear()
    role.ledger.controller = cast("Any", role.controller)
    assert role.forged.look(LATER) == ["orders"]


async def test_a_lifting_that_fails_ends_the_role() -> None:
    """As any write of the controller does."""
    role = Role()
    role.fails = True
    await role.forged.lift(["orders"])
    assert await role.ledger.failed(0)
    with pytest.raises(Fenced):
        role.ledger.raise_failure()
