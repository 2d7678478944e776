"""When a member is given what was locked for it, of several partitions at once."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers import share_serving
from kordon.proxy.handlers.share_ahead import AheadRecords
from kordon.proxy.handlers.share_serving import OpenedGroup, ShareLimits, ShareServing
from kordon.proxy.handlers.share_sessions import ShareSession, VirtualPartition
from kordon.proxy.ordering.claims import PlaceKey
from kordon.proxy.ordering.share.acquiring import GivenRecord, Terms
from kordon.proxy.ordering.share.locks import Held
from kordon.proxy.ordering.share.policy import DEFAULT
from kordon.proxy.ordering.share.window import WindowRecord
from kordon.proxy.own_topics import share_log, share_partition
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.share_log_in_memory import SharedRecords, ShareLogInMemory
from kordon.testing.waiting import turns

# pyright: reportPrivateUsage=false

TOPIC = UUID(int=1)
LIMITS = ShareLimits(0, 10, 1 << 20)


class SlowReads:
    """Reads the first records; the first read of partition 1 takes longer than it may."""

    def __init__(self, first: Callable[[], Awaitable[None]]) -> None:
        self.tasks = Tasks()
        self._first: Callable[[], Awaitable[None]] | None = first

    async def read_ahead(self, offsets: Mapping[tuple[str, int], int], **_: Any) -> Mapping[tuple[str, int], None]:
        await turns()
        wanted = {place: None for place, offset in offsets.items() if offset == 0}
        first = self._first
        if first is not None and ("orders", 1) in wanted:
            self._first = None
            await first()
        return wanted

    def pick(self, _: object, first: int, left: Collection[int]) -> tuple[list[bytes], set[int]]:
        return [first.to_bytes(8, "big")] if left else [], set()


class Stage:
    """A member that asks for records of two partitions, each of which has one."""

    def __init__(self, first: Callable[[], Awaitable[None]]) -> None:
        self.log = ShareLogInMemory(SharedRecords())
        topic = SimpleNamespace(name="orders", layout=SimpleNamespace(share=DEFAULT))
        topics, none = SimpleNamespace(served_by_id={TOPIC: topic}.get), cast("Any", None)
        reads = cast("Any", SlowReads(first))
        self.serving = ShareServing(cast("Any", topics), none, none, reads, none, journal=NO_JOURNAL)
        self.group = OpenedGroup(self.log, cast("Any", SimpleNamespace(is_committed=False)), Terms(30.0))

    async def given(self) -> dict[int, list[GivenRecord]]:
        """Asks; returns by partition what the member is given."""
        for number in (0, 1):
            partition = self.log.partition(_place(number))
            assert await partition.begin(0)
            partition.ahead()
            partition.look(0, 1, [WindowRecord(0, None)])
        session = ShareSession("g", "m", lambda _: None, Client(1))
        wanted = [VirtualPartition(TOPIC, number) for number in (0, 1)]
        served = await self.serving.give(session, self.group, wanted, LIMITS)
        return {each.which.number: [*each.given] for each in served}

    def held(self, number: int) -> Held:
        """The lock of a partition's record."""
        held = self.log.state_of(_place(number)).locks.of(0)
        assert held is not None
        return held


def _place(number: int) -> PlaceKey:
    return PlaceKey("g", TOPIC, number)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns what has time pass."""
    now = [1000.0]

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    for module in (share_log, share_partition, share_serving):
        monkeypatch.setattr(module, "clock", lambda: now[0])
    return pass_by


async def test_a_record_is_not_given_later_than_it_may_because_another_partition_is_slow(
    passes: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock runs while the other is waited for: then another member could have it too (KEY-IN-HAND)."""
    monkeypatch.setattr(share_partition, "SEND_WITHIN_SECONDS", 600.0)

    async def first() -> None:
        await turns()
        passes(601.0)

    stage = Stage(first)
    assert await stage.given() == {}
    assert [(stage.held(number).is_over, stage.held(number).tries) for number in (0, 1)] == [(True, 0)] * 2


async def test_a_partition_that_cannot_be_read_in_time_holds_up_no_other(
    passes: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is free at once, and the try does not count."""
    monkeypatch.setattr(share_partition, "SEND_WITHIN_SECONDS", 0.26)
    pick = AheadRecords.pick

    def kept(ahead: AheadRecords, offsets: Collection[int]) -> tuple[list[bytes], set[int]]:
        return ([bytes(8)], set()) if ahead is first_ahead else pick(ahead, offsets)

    async def first() -> None:
        await asyncio.Event().wait()

    stage = Stage(first)
    first_ahead = stage.serving._ahead.of(stage.log.partition(_place(0)))
    monkeypatch.setattr(AheadRecords, "pick", kept)
    assert await stage.given() == {0: [GivenRecord(0, 1)]}
    assert (stage.held(1).is_over, stage.held(1).tries) == (True, 0)
