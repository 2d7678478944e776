"""Wishes as the controller takes them up, however many there are: whoever may write the layouts can wish anything."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.ledger import WishRefused
from kordon.proxy.controller.open_wishes import OpenWishes
from kordon.proxy.controller.wish_queue import MOST_AT_A_TIME, WishQueue
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.ordering import soundness
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import OutcomeRecord, TopicRecord, Value
from kordon.proxy.ordering.wishes import Resize, Unmanage, Wish
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.calls import calls_of

MOST_TICKS = 10_000
RECORD = TopicRecord(Layout.created("orders", UUID(int=1), 3, 12), UUID(int=2))


def begin_nothing(work: Coroutine[Any, Any, Any], **_: object) -> None:
    """Is `Tasks.start` where nothing is to be done."""
    work.close()


class Desk:
    """A controller's wish_queue, its ledger, and what it does for topics: it lets them go, one or all at a time."""

    def __init__(self) -> None:
        self.outcomes: dict[str, OutcomeRecord] = {}
        self.busy: set[str] = set()
        self.changes: dict[str, Change] = {}
        self.resized: list[str] = []
        self.controller = SimpleNamespace(changes=self.changes, begin=self.begin, withdraw=self.withdraw)
        self.topics = {"orders": RECORD}
        self.waits_for_transactions = False
        self.done: list[str] = []
        self.fails: set[str] = set()
        self.too_old: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.most_at_once = self.at_once = 0
        self.tasks = Tasks()
        nothing: Any = None
        self.open_wishes = OpenWishes(cast("Any", self))
        self.wish_queue = WishQueue(
            ControllerContext(cast("Any", self), nothing, nothing, self.tasks, lambda _: None),
            self.open_wishes,
            managing=cast("Any", None),
            unmanaging=cast("Any", self),
            transacting=cast("Any", None),
            takeovers=cast("Any", None),
            bindings=cast("Any", None),
            why_untouched=lambda _: None,
        )

    def managed(self, topic: str) -> TopicRecord:
        """Is the ledger, which knows one topic."""
        if topic != "orders":
            raise WishRefused(Code.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return RECORD

    def settled(self, topic: str) -> TopicRecord:
        return self.managed(topic)

    async def write(self, records: tuple[tuple[str, Value | None], ...]) -> None:
        for key, value in records:
            if isinstance(value, OutcomeRecord):
                self.outcomes[key.partition("/")[2]] = value

    async def attempt(self, records: tuple[tuple[str, Value | None], ...]) -> None:
        await self.write(records)

    def begin(self, change: Change, _: float) -> list[Any]:
        """Is the controller, which begins a change."""
        self.resized.append(change.topic)
        self.changes[change.topic] = change
        return []

    def withdraw(self, topic: str, problem: str, _: float) -> list[Any]:
        """Is the controller, which gives a change up if that waits for older transactions."""
        if not self.waits_for_transactions:
            return []
        self.changes[topic].problem = problem
        return [problem]

    async def unmanage(self, topic: str) -> None:
        """Is what a wish asks for."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.gate.wait()
        self.at_once -= 1
        if topic in self.fails:
            raise UpstreamUnavailable("away")
        if topic in self.too_old:
            raise NoCommonVersion("no common version of DescribeProducers")
        self.done.append(topic)

    async def tick_until(self, is_enough: Callable[[], bool]) -> None:
        for _ in range(MOST_TICKS):
            if is_enough():
                return
            self.wish_queue.begin_next()
            await asyncio.sleep(0)
        pytest.fail(f"not within {MOST_TICKS} ticks")


FLOODS: dict[str, Callable[[int], Wish]] = {
    "for one topic": lambda _: Unmanage("orders"),
    "for as many topics": lambda number: Unmanage(f"t{number}"),
    "for another number of partitions": lambda number: Resize("orders", 3 + number % 3),
}


@pytest.mark.parametrize("wish", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("is_changing", [False, True])
async def test_what_a_wish_costs_does_not_grow_with_those_before_it(
    wish: Callable[[int], Wish], is_changing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 of them take four times the calls of 1,000, and ticks while they wait take next to none."""

    def flood(wishes: int) -> tuple[int, int]:
        desk = Desk()
        if is_changing:
            desk.changes["orders"] = Change("orders", 4)
        monkeypatch.setattr(desk.tasks, "start", begin_nothing)

        def all_come() -> None:
            for number in range(wishes):
                desk.wish_queue.on_wish(f"w{number}", wish(number))

        coming = calls_of(all_come)
        desk.wish_queue.begin_next()

        def ticks() -> None:
            for _ in range(10):
                desk.wish_queue.begin_next()

        return coming, calls_of(ticks)

    few, few_ticks = flood(1_000)
    many, many_ticks = flood(4_000)
    assert few < many < 5 * few
    assert many_ticks <= 2 * few_ticks + 100


async def test_wishes_for_one_topic_come_true_in_their_order_and_all_have_an_outcome() -> None:
    """However many topics there are, so many are worked on at a time."""
    desk = Desk()
    desk.gate.clear()
    topics = [f"t{number}" for number in range(3 * MOST_AT_A_TIME)]
    for turn in range(2):
        for topic in topics:
            desk.wish_queue.on_wish(f"{topic}-{turn}", Unmanage(topic))
    await desk.tick_until(lambda: desk.at_once == MOST_AT_A_TIME)
    desk.gate.set()
    await desk.tick_until(lambda: len(desk.outcomes) == 2 * len(topics))
    assert desk.most_at_once == MOST_AT_A_TIME
    assert sorted(desk.done) == sorted(2 * topics)
    assert not desk.open_wishes.all
    assert not desk.busy


async def test_topics_whose_wishes_cannot_come_true_now_leave_room_for_others() -> None:
    """They are tried again and again, behind the others."""
    desk = Desk()
    away = [f"away{number}" for number in range(2 * MOST_AT_A_TIME)]
    desk.fails = set(away)
    for topic in (*away, "orders"):
        desk.wish_queue.on_wish(topic, Unmanage(topic))
    await desk.tick_until(lambda: "orders" in desk.outcomes)
    assert set(desk.outcomes) == {"orders"}
    desk.fails.clear()
    await desk.tick_until(lambda: len(desk.outcomes) == 1 + len(away))


async def test_what_brokers_are_too_old_for_is_refused_with_the_version_that_can() -> None:
    """It is not tried again: that would bring the same."""
    desk = Desk()
    desk.too_old = {"orders"}
    desk.wish_queue.on_wish("w", Unmanage("orders"))
    await desk.tick_until(lambda: "w" in desk.outcomes)
    assert desk.outcomes["w"].error_code == Code.UNSUPPORTED_VERSION
    assert "DescribeProducers; managed topics" in desk.outcomes["w"].message
    assert desk.outcomes["w"].message.endswith("brokers of Kafka 3.0 or newer")
    assert not desk.open_wishes.all


async def test_wishes_for_another_number_are_refused_once_a_change_is_under_way() -> None:
    """Those that came before the change, too (ONE-CHANGE); what else is wished waits."""
    desk = Desk()
    for wish_id, partitions in {"first": 4, "same": 4, "other": 5}.items():
        desk.wish_queue.on_wish(wish_id, Resize("orders", partitions))
    desk.wish_queue.on_wish("later", Unmanage("orders"))
    await desk.tick_until(lambda: bool(desk.resized))
    await desk.tick_until(lambda: "other" in desk.outcomes)
    desk.wish_queue.on_wish("another", Resize("orders", 6))
    await desk.tick_until(lambda: "another" in desk.outcomes)
    refused = {wish_id: outcome.error_code for wish_id, outcome in desk.outcomes.items()}
    assert refused == dict.fromkeys(("other", "another"), Code.REASSIGNMENT_IN_PROGRESS)
    assert desk.open_wishes.all == (Resize("orders", 4), Resize("orders", 4), Unmanage("orders"))


async def test_a_wish_for_what_there_is_takes_a_change_back_that_waits_for_transactions() -> None:
    """Nothing has been held yet. Any other change goes on, and the wish is refused."""
    desk = Desk()
    desk.wish_queue.on_wish("first", Resize("orders", 4))
    await desk.tick_until(lambda: bool(desk.resized))
    desk.wish_queue.on_wish("early", Resize("orders", RECORD.layout.u))
    await desk.tick_until(lambda: "early" in desk.outcomes)
    assert desk.outcomes["early"].error_code == Code.REASSIGNMENT_IN_PROGRESS
    desk.waits_for_transactions = True
    desk.wish_queue.on_wish("other", Resize("orders", 5))
    desk.wish_queue.on_wish("back", Resize("orders", RECORD.layout.u))
    await desk.tick_until(lambda: "other" in desk.outcomes)
    assert "stay at" in desk.changes["orders"].problem
    desk.wish_queue.begin_next()
    assert "back" not in desk.outcomes, "it comes true when the change is given up"
    del desk.changes["orders"]
    await desk.open_wishes.conclude("orders", OutcomeRecord(Code.INVALID_REQUEST, "taken back"))
    await desk.tick_until(lambda: "back" in desk.outcomes)
    assert desk.outcomes["back"].error_code == Code.NONE


async def test_a_growth_that_nobody_could_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic goes on as it is."""
    monkeypatch.setattr(soundness, "MOST_CHANGES", 0)
    desk = Desk()
    desk.wish_queue.on_wish("w", Resize("orders", 4))
    await desk.tick_until(lambda: "w" in desk.outcomes)
    assert desk.outcomes["w"].error_code == Code.INVALID_PARTITIONS
    assert "changed too often" in desk.outcomes["w"].message
    assert not desk.resized
