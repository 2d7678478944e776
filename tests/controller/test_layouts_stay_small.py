"""What stands in `__kordon.layouts` when much has been asked and many proxies have come and gone: next to nothing."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.controller.sweeping import MOST_AT_ONCE, SWEEP_SECONDS, Sweeping
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers.floor_wishes import FloorWishes
from kordon.proxy.ordering import leftovers
from kordon.proxy.ordering.floors import with_floors
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.records import GoneRecord, OutcomeRecord, Value, WishRecord, dump
from kordon.proxy.ordering.wishes import RaiseFloors, Wish
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.testing.waiting import turns

AGES = {"outcome": 120.0, "ack": 120.0, "gone": 40.0}
OTHERS = frozenset({"a", "b"})


class Log:
    """The layouts as compaction leaves them, and one proxy that reads and sweeps them."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.written = 0
        self.failures: list[Exception] = []
        self.fails: Exception | None = None
        self.members = set(OTHERS)
        self.leftovers = Leftovers(AGES)
        self.now = 0.0
        self.controller = SimpleNamespace(changes={})
        self.sweeping = Sweeping(cast("Any", self), self.leftovers, lambda: frozenset(self.members))

    def put(self, key: str, value: Value | None) -> None:
        """Writes a record, which is read at once."""
        self.written += 1
        if value is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = dump(value)
        self.leftovers.on_record(key, self.now, is_tombstone=value is None)

    async def write(self, records: tuple[tuple[str, Value | None], ...]) -> Mapping[str, int]:
        """Is the ledger, where a failure ends the role."""
        if self.fails is not None:
            self.failures.append(self.fails)
            raise self.fails
        for key, value in records:
            self.put(key, value)
        return {}

    async def attempt(self, records: tuple[tuple[str, Value | None], ...]) -> None:
        """Is the ledger, too: the role ends by a failure, and nobody else is told."""
        with suppress(Fenced, UpstreamUnavailable):
            await self.write(records)

    async def sweep_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += SWEEP_SECONDS
            await self.sweeping.sweep(self.now)


async def test_many_wishes_and_restarts_leave_next_to_nothing() -> None:
    """10,000 wishes in a quarter of an hour and 200 proxies that came and went: no key is left of them."""
    log = Log()
    for number in range(10_000):
        log.put(f"wish/{number}", WishRecord(RaiseFloors("orders", {0: number})))
        await log.write(((f"wish/{number}", None), (f"outcome/{number}", OutcomeRecord(0, ""))))
        if number % 50 == 0:
            log.put(f"gone/{number}", GoneRecord(f"{number}"))
            log.put(f"ack/f{number}/late", None)
        log.now += 0.09
        if number % 55 == 0:
            await log.sweeping.sweep(log.now)
    assert len(log.kept) < 10_000 / 5, "of the last two minutes"
    await log.sweep_for(130.0)
    assert log.kept == {}
    assert len(log.leftovers) == 0


async def test_nothing_goes_before_its_time() -> None:
    """Whoever wished may still wait, and a proxy that has gone may still hold a lease that others count."""
    log = Log()
    log.put("outcome/1", OutcomeRecord(0, ""))
    log.put("gone/c", GoneRecord("c"))
    await log.sweep_for(35.0)
    assert set(log.kept) == {"outcome/1", "gone/c"}
    await log.sweep_for(10.0)
    assert set(log.kept) == {"outcome/1"}
    await log.sweep_for(80.0)
    assert log.kept == {}


async def test_a_proxy_that_goes_is_known_to_as_long_as_the_group_names_it() -> None:
    """Its successor in the generation to come would wait for its lease."""
    log = Log()
    log.put("gone/a", GoneRecord("a"))
    await log.sweep_for(200.0)
    assert set(log.kept) == {"gone/a"}
    log.members.remove("a")
    await log.sweep_for(5.0)
    assert log.kept == {}


async def test_a_sweep_is_bounded_and_its_failure_ends_the_role() -> None:
    """As that of any other write: whoever leads next begins from what the layouts say."""
    log = Log()
    for number in range(MOST_AT_ONCE + 7):
        log.put(f"outcome/{number}", OutcomeRecord(0, ""))
    log.now = 1_000.0
    await log.sweeping.sweep(log.now)
    assert len(log.kept) == 7
    log.fails = Fenced("by another")
    await log.sweeping.sweep(log.now)
    assert log.failures == [log.fails]
    assert len(log.kept) == 7


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten; a proxy that starts reads it again."""
    monkeypatch.setattr(leftovers, "MOST_KEPT", 10)
    log = Log()
    for number in range(1_000):
        log.put(f"gone/{number}", GoneRecord(f"{number}"))
    assert len(log.leftovers) == 10


class Controller:
    """Takes wishes; answers when the test says so."""

    def __init__(self) -> None:
        self.wishes: list[Wish] = []
        self.answers: list[asyncio.Future[OutcomeRecord]] = []

    async def fulfil(self, wish: Wish) -> OutcomeRecord:
        self.wishes.append(wish)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


async def begun(controller: Controller, floors: FloorWishes) -> asyncio.Future[None]:
    """Has a first wish be under way."""
    first = asyncio.ensure_future(floors.raise_floors("orders", {0: 1}))
    await turns()
    assert controller.wishes == [RaiseFloors("orders", {0: 1})]
    return first


async def test_floors_that_are_asked_for_meanwhile_are_one_wish() -> None:
    """The highest of each; other topics do not wait."""
    controller = Controller()
    floors = FloorWishes(controller.fulfil)
    first = await begun(controller, floors)
    later = [asyncio.ensure_future(floors.raise_floors("orders", {0: each % 70, each: 5})) for each in range(100)]
    other = asyncio.ensure_future(floors.raise_floors("invoices", {0: 1}))
    await turns()
    assert controller.wishes[1:] == [RaiseFloors("invoices", {0: 1})]
    controller.answers[0].set_result(OutcomeRecord(0, ""))
    await first
    await turns()
    assert controller.wishes[2:] == [RaiseFloors("orders", {**dict.fromkeys(range(100), 5), 0: 69})]
    for answer in controller.answers[1:]:
        answer.set_result(OutcomeRecord(0, ""))
    await asyncio.gather(*later, other)


async def test_whoever_shares_a_wish_shares_its_refusal() -> None:
    """It is not asked for again by each of them."""
    controller = Controller()
    floors = FloorWishes(controller.fulfil)
    first = await begun(controller, floors)
    asked = [asyncio.ensure_future(floors.raise_floors("orders", {0: each})) for each in range(5)]
    await turns()
    controller.answers[0].set_result(OutcomeRecord(0, ""))
    await first
    await turns()
    controller.answers[1].set_result(OutcomeRecord(3, "it is not managed"))
    for each in asked:
        with pytest.raises(UpstreamUnavailable, match="not managed"):
            await each
    assert len(controller.wishes) == 2


async def test_a_client_that_goes_takes_nobody_with_it() -> None:
    """Who waits for the same wish has it said again."""
    controller = Controller()
    floors = FloorWishes(controller.fulfil)
    first = await begun(controller, floors)
    one, other = (asyncio.ensure_future(floors.raise_floors("orders", {0: each})) for each in (2, 3))
    await turns()
    controller.answers[0].set_result(OutcomeRecord(0, ""))
    await first
    await turns()
    one.cancel()
    await turns()
    assert controller.wishes[1:] == [RaiseFloors("orders", {0: 3})] * 2
    controller.answers[-1].set_result(OutcomeRecord(0, ""))
    await other


def test_a_floor_that_is_there_already_changes_no_layout() -> None:
    """It is the same object, so that nothing is written."""
    layout = with_floors(Layout.created("orders", UUID(int=1), 3, 12), {0: 5})
    assert with_floors(layout, {0: 5, 1: 0}) is layout
    assert with_floors(layout, {0: 6}).floors == {0: 6}


def test_a_record_of_other_kinds_is_nobodys_leftover() -> None:
    """Layouts, images and wishes go by their own rules."""
    kept = Leftovers(AGES)
    for key in ("topic/orders", "image/orders/1/1", "wish/1", "", "finding/orders"):
        kept.on_record(key, 0.0, is_tombstone=False)
    assert len(kept) == 0
