"""The controller's role when what it writes does not arrive."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.controller import sweeping
from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.controller.fence_times import FenceTimes
from kordon.proxy.controller.leading_worker import LeadingWorker
from kordon.proxy.controller.topic_janitor import JanitorTools
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.layouts_state import LayoutsState, StandingFence
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.records import AnnouncementRecord, FenceRecord, TopicRecord, Value, dump
from kordon.proxy.ordering.wishes import Resize, Wish
from kordon.proxy.own_topics.layouts_writer import ChangeNotCommitted
from kordon.proxy.runtime.clock import clock
from kordon.testing.waiting import until


class Writer:
    """Opens, and then writes nothing."""

    producer_id = 7

    async def open(self) -> None:
        """Takes over."""

    async def close(self) -> None:
        """Ends."""

    async def commit(self, entries: Sequence[NewRecord]) -> list[int]:
        """Fails as when no coordinator is found."""
        raise ChangeNotCommitted("no coordinator")


async def read() -> None:
    """Has read all there is."""


async def confirm() -> bool:
    return True


def nobody(_: str, __: int) -> None:
    """Is told, and does nothing."""


def state_with(*values: Value, wishes: Mapping[str, Wish] | None = None) -> LayoutsState:
    """What the layouts say, in a group of one."""
    state = LayoutsState("me", Leftovers({"outcome": 0.0}))
    state.presence.joined(1, {"me"}, 0.0, clock())
    for value in values:
        state.member.on_record(f"{'fence' if isinstance(value, FenceRecord) else 'topic'}/orders", value)
    state.wishes |= wishes or {}
    return state


def leads(writer: Writer, state: LayoutsState, on_forged: Callable[[str, int], None] = nobody) -> ControllerRole:
    """A controller that is the only member and has nothing to do with topics."""
    nothing: Any = None
    return ControllerRole(
        LeadingWorker(state, confirm, lambda *_: None, on_forged, FenceTimes()),
        admin=cast("Any", SimpleNamespace(ends=None, transactions=None)),
        writer=cast("Any", writer),
        admit=nothing,
        takeovers=nothing,
        tools=JanitorTools(nothing, nothing, nothing, nothing, 0),
        journal=NoJournal(),
    )


async def test_a_role_whose_writer_failed_ends_and_is_taken_up_again() -> None:
    """A writer that failed has to be opened anew: to go on with it would delay every wish for ever."""
    leading = leads(Writer(), state_with(wishes={"w1": Resize("nobody-manages-it", 4)}))
    with pytest.raises(ChangeNotCommitted):
        await leading.run(read)


class Written(Writer):
    """Writes, and keeps the keys."""

    def __init__(self) -> None:
        self.entries: list[NewRecord] = []

    @property
    def keys(self) -> list[str]:
        return [each.key for each in self.entries]

    async def commit(self, entries: Sequence[NewRecord]) -> list[int]:
        self.entries += entries
        return [0] * len(entries)


async def test_controller_that_began_with_an_empty_log_removes_what_is_left_over_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps to the leftovers that the proxy reads, whether or not there are any when it begins."""
    monkeypatch.setattr(sweeping, "SWEEP_SECONDS", 0.001)
    written, state = Written(), state_with()
    running = asyncio.ensure_future(leads(written, state).run(read))
    state.leftovers.on_record("outcome/w1", 0.0, is_tombstone=False)
    await until("the outcome is removed", lambda: "outcome/w1" in written.keys)
    running.cancel()


async def test_an_announcement_that_nobody_has_taken_away_is_written_again() -> None:
    """A worker that starts behind a forged tombstone would not know what is announced (DOUBLE-ADD)."""
    layout = replace(Layout.created("orders", UUID(int=1), 3, 12), has_transactions=True)
    state, written = state_with(TopicRecord(layout, UUID(int=2))), Written()
    announced = state.member.announcements["orders"] = AnnouncementRecord("a1", "orders", 7, {})
    leading = leads(written, state)
    running = asyncio.ensure_future(leading.run(read))
    await until("it leads", lambda: leading.controller is not None)
    assert leading.why_forged("orders", announced) == ""
    assert leading.why_forged("other", None) == ""
    assert "written again" in leading.why_forged("orders", None)
    await until("it is written again", lambda: bool(written.entries))
    assert [(each.key, each.value) for each in written.entries] == [("announcement/orders", dump(announced))]
    assert leading.controller is not None
    leading.controller.forget("orders")
    assert leading.why_forged("orders", None) == "", "the topic was let go"
    running.cancel()


@pytest.mark.parametrize("is_forged", [False, True], ids=["former", "forged"])
async def test_a_controller_goes_on_with_what_a_former_one_has_begun_and_nobody_else(*, is_forged: bool) -> None:
    """Both fences end; a forged one is told of, and nothing is changed as it says."""
    record = TopicRecord(Layout.created("orders", UUID(int=1), 3, 12), UUID(int=2))
    following = record.layout.next_epoch(4)
    fence = FenceRecord("f1", "orders", following, record.layout.change_to(following).sealed)
    standing = StandingFence(5, clock() - 10, -1 if is_forged else Written.producer_id)
    told: list[str] = []
    written = Written()

    def on_forged(key: str, _: int) -> None:
        told.append(key)

    state = state_with(record, fence)
    state.fences_read["orders"] = standing
    leading = leads(written, state, on_forged)
    running = asyncio.ensure_future(leading.run(read))
    await until("the fence ends", lambda: bool(written.keys))
    assert written.keys == ["fence/orders"]
    assert leading.controller is not None
    assert set(leading.controller.changes) == (set() if is_forged else {"orders"})
    assert told == (["fence/orders"] if is_forged else [])
    running.cancel()
