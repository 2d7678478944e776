"""The controller's role when what it writes does not arrive."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.controller import sweeping
from kordon.proxy.controller.fence_times import FenceTimes
from kordon.proxy.controller.forged_fences import StandingFence
from kordon.proxy.controller.leading import Cleaning, Leading
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering import soundness
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.records import FenceRecord, TopicRecord
from kordon.proxy.ordering.wishes import Resize
from kordon.proxy.own_topics.layouts_writer import NotCommitted
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
        raise NotCommitted("no coordinator")


async def read() -> None:
    """Has read all there is."""


async def confirm() -> bool:
    return True


def nobody(_: str, __: int) -> None:
    """Is told, and does nothing."""


def leads(
    writer: Writer,
    leftovers: Leftovers,
    standing: Callable[[], Mapping[str, StandingFence]] = dict,
    on_forged: Callable[[str, int], None] = nobody,
) -> Leading:
    """A controller that is the only member and has nothing to do with topics."""
    return Leading(
        cast("Any", None),
        cast("Any", writer),
        lambda: frozenset({"me"}),
        confirm,
        presence=Presence(),
        admit=cast("Any", None),
        takeovers=cast("Any", None),
        times=FenceTimes(),
        on_layout=lambda *_: None,
        cleaning=Cleaning(cast("Any", None), dict, 0),
        leftovers=leftovers,
        standing=standing,
        on_forged=on_forged,
    )


async def test_a_role_whose_writer_failed_ends_and_is_taken_up_again() -> None:
    """A writer that failed has to be opened anew: to go on with it would delay every wish for ever."""
    leading = leads(Writer(), Leftovers({}))
    with pytest.raises(NotCommitted):
        await leading.run(
            read_to_end=read,
            known=dict,
            unfinished=lambda: ({}, {"w1": Resize("nobody-manages-it", 4)}),
        )


class Written(Writer):
    """Writes, and keeps the keys."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def commit(self, entries: Sequence[NewRecord]) -> list[int]:
        self.keys += [each.key for each in entries]
        return [0] * len(entries)


async def test_controller_that_began_with_an_empty_log_removes_what_is_left_over_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps to the leftovers that the proxy reads, whether or not there are any when it begins."""
    monkeypatch.setattr(sweeping, "SWEEP_SECONDS", 0.001)
    written, leftovers = Written(), Leftovers({"outcome": 0.0})
    running = asyncio.ensure_future(
        leads(written, leftovers).run(read_to_end=read, known=dict, unfinished=lambda: ({}, {}))
    )
    leftovers.on_record("outcome/w1", 0.0, is_tombstone=False)
    await until("the outcome is removed", lambda: "outcome/w1" in written.keys)
    running.cancel()


async def test_a_log_that_cannot_be_mended_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic goes on as it is; it is looked at each second, and what is new is found again."""
    written = Written()
    leading = cast("Any", leads(written, Leftovers({})))
    layout = Layout.created("orders", UUID(int=1), 3, 12)
    layout = layout.changed(layout.next_epoch(4), {0: 100, 3: 90})
    record = TopicRecord(layout, UUID(int=2))
    leading._ledger.take((record,))
    leading._ledger.controller = controller = Controller(frozenset({"me"}), 0.0)
    controller.know(record, {})
    monkeypatch.setattr(soundness, "MOST_CHANGES", 1)
    for _ in range(3):
        leading._mend(layout, {3: 60})
        await until("it is found", lambda: bool(written.keys))
    leading._mend(layout, {3: 60, 0: 7})
    await until("it is found again", lambda: len(written.keys) > 1)
    assert written.keys == ["finding/orders"] * 2
    assert not controller.changes
    monkeypatch.undo()
    leading._tasks.start = begin_nothing
    leading._mend(layout, {3: 60, 0: 5})
    assert controller.changes.keys() == {"orders"}, "there is room: it is mended"


async def test_a_log_is_mended_under_the_number_of_partitions_that_the_topic_has_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is room for one more segment of its partition, and for none of all that a shrink would begin."""
    leading = cast("Any", leads(Written(), Leftovers({})))
    layout = Layout.created("orders", UUID(int=1), 3, 12)
    layout = layout.changed(layout.next_epoch(6), {0: 100, 1: 100, 2: 100, 3: 0, 4: 0, 5: 0})
    record = TopicRecord(layout, UUID(int=2))
    leading._ledger.take((record,))
    leading._ledger.controller = controller = Controller(frozenset({"me"}), 0.0)
    controller.know(record, {})
    monkeypatch.setattr(soundness, "MOST_SEGMENTS", len(layout.segments) + 1)
    leading._tasks.start = begin_nothing
    leading._mend(layout, {3: 60})
    assert controller.changes.keys() == {"orders"}


def begin_nothing(work: Coroutine[Any, Any, Any], **_: object) -> None:
    """Is `Tasks.start` where nothing is to be done."""
    work.close()


@pytest.mark.parametrize("is_forged", [False, True], ids=["former", "forged"])
async def test_a_controller_goes_on_with_what_a_former_one_has_begun_and_nobody_else(*, is_forged: bool) -> None:
    """Both fences end; a forged one is told of, and nothing is changed as it says."""
    record = TopicRecord(Layout.created("orders", UUID(int=1), 3, 12), UUID(int=2))
    following = record.layout.next_epoch(4)
    fence = FenceRecord("f1", "orders", following, record.layout.sealed_by(following))
    standing = StandingFence(5, clock() - 10, -1 if is_forged else Written.producer_id)
    told: list[str] = []
    written = Written()

    def on_forged(key: str, _: int) -> None:
        told.append(key)

    leading = leads(written, Leftovers({}), lambda: {"orders": standing}, on_forged)
    running = asyncio.ensure_future(
        leading.run(
            read_to_end=read,
            known=lambda: {"orders": (record, cast("Any", {}))},
            unfinished=lambda: ({"orders": fence}, {}),
        )
    )
    await until("the fence ends", lambda: bool(written.keys))
    assert written.keys == ["fence/orders"]
    assert leading.controller is not None
    assert set(leading.controller.changes) == (set() if is_forged else {"orders"})
    assert told == (["fence/orders"] if is_forged else [])
    running.cancel()
