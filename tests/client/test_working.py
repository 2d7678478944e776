"""Handlers of a cooperative consumer: failures, retries, dead letters, time limits, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord, TopicPartition

from kordon.client.cooperative.in_hand import InHand
from kordon.client.cooperative.settings import AcknowledgeType, Record, Settings
from kordon.client.cooperative.working import Hand, Working
from kordon.codecs.ranges import Ranges
from kordon.testing.waiting import until

TP = TopicPartition("t", 0)
SOON: dict[str, Any] = {"redelivery_backoff_ms": 1, "redelivery_backoff_max_ms": 1}
"""Options that let no test wait."""


def record(offset: int, key: bytes | None, value: bytes = b"") -> Record:
    return ConsumerRecord("t", 0, offset, 0, 0, key, value, None, len(key or b""), len(value), ())


class Played:
    """A member with some records of one partition, and what its handler was called with."""

    def __init__(self, *keys: bytes | None, deserializer: Callable[[bytes], Any] | None = None, **options: Any) -> None:
        self.settings = Settings(**{**SOON, **options})
        self.hand: Hand = InHand(self.settings.order, self.settings.limits)
        self.freed = 0
        self.working = Working(
            self.hand, self.settings, key_deserializer=None, value_deserializer=deserializer, freed=self._free
        )
        self.calls: list[int] = []
        self.hand.assign(TP, 0)
        rows = [(offset, key, 1, record(offset, key, b"%d" % offset)) for offset, key in enumerate(keys)]
        self.hand.take(TP, rows, len(rows))

    def _free(self) -> None:
        self.freed += 1

    def run(self, handle: Callable[[Record], Awaitable[object] | None]) -> None:
        """Handles the records."""

        def noted(each: Record) -> Awaitable[object] | None:
            self.calls.append(each.offset)
            return handle(each)

        self.working.handle = noted
        self.working.look()

    async def done(self) -> None:
        """Waits until all is finished."""
        await until(
            "all finished", lambda: self.hand.progress(TP).stable == self.hand.position(TP) and not self.hand.running
        )

    @property
    def stable(self) -> int:
        return self.hand.progress(TP).stable


class Failing:
    """A handler that raises for some offsets, so many times each."""

    def __init__(self, times: dict[int, int]) -> None:
        self.times = times

    async def __call__(self, each: Record) -> None:
        await asyncio.sleep(0)
        if self.times.get(each.offset, 0) > 0:
            self.times[each.offset] -= 1
            raise ValueError(each.offset)


async def test_a_record_that_fails_comes_again_before_those_behind_it() -> None:
    """And holds nobody else."""
    played = Played(b"a", b"a", b"b")
    played.run(Failing({0: 3}))
    await played.done()
    assert [each for each in played.calls if each != 2] == [0, 0, 0, 0, 1]
    assert played.calls.index(2) < 3
    assert played.freed == 3


async def test_a_plain_function_can_be_a_handler() -> None:
    """It need not be a coroutine."""
    played = Played(b"a", b"b")
    played.run(lambda each: None)
    await played.done()
    assert played.calls == [0, 1]


async def test_what_fails_too_often_goes_to_the_dead_letters() -> None:
    """Its key goes on behind it, once the hook has returned."""
    buried: list[tuple[int, str]] = []

    async def bury(each: Record, error: BaseException | None) -> None:
        await asyncio.sleep(0)
        buried.append((each.offset, repr(error)))

    played = Played(b"a", b"a", max_attempts=2, dead_letter=bury)
    played.run(Failing({0: 99}))
    await played.done()
    assert played.calls == [0, 0, 1]
    assert buried == [(0, "ValueError(0)")]


async def test_a_dead_letter_that_fails_is_no_end() -> None:
    """The record is tried again, and buried later."""
    failures = [ValueError("no room"), ValueError("no room")]

    def bury(each: Record, error: BaseException | None) -> None:
        if failures:
            raise failures.pop()

    played = Played(b"a", max_attempts=1, dead_letter=bury)
    played.run(Failing({0: 99}))
    await played.done()
    assert played.calls == [0, 0, 0]


async def test_without_dead_letters_a_record_is_tried_for_ever_and_holds_only_its_key() -> None:
    """It is never lost."""
    played = Played(b"a", b"a", *(b"b" for _ in range(20)))
    played.run(Failing({0: 10**9}))
    await until("it holds", lambda: len(played.calls) > 60)
    assert played.hand.progress(TP).ranges == Ranges([(2, 22)])
    assert 1 not in played.calls
    await played.working.drain(0)


async def test_the_application_decides_what_becomes_of_a_failure() -> None:
    """By `on_error`, which knows the attempt; one that fails itself has the record tried again."""
    asked: list[tuple[int, int]] = []

    def decide(each: Record, error: Exception, attempt: int) -> AcknowledgeType:
        asked.append((each.offset, attempt))
        if attempt == 1:
            raise RuntimeError("on_error fails")
        return AcknowledgeType.ACCEPT if attempt == 3 else AcknowledgeType.RELEASE

    played = Played(b"a", on_error=decide)
    played.run(Failing({0: 99}))
    await played.done()
    assert asked == [(0, 1), (0, 2), (0, 3)]


async def test_a_value_that_cannot_be_read_is_a_failure_of_its_record() -> None:
    """So it holds only its key, and not the partition."""
    buried: list[bytes | None] = []

    def read(value: bytes) -> int:
        if value == b"0":
            raise ValueError("no number")
        return int(value) * 10

    seen: list[object] = []

    def bury(each: Record, error: BaseException | None) -> None:
        buried.append(each.value)

    played = Played(b"a", b"b", deserializer=read, max_attempts=2, dead_letter=bury)
    played.run(lambda each: seen.append(each.value))
    await played.done()
    assert (seen, buried) == ([10], [b"0"])


async def test_a_handler_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    """With `handler_timeout_ms`."""
    slow = [True]

    async def handle(each: Record) -> None:
        if slow.pop() if slow else False:
            await asyncio.Event().wait()

    played = Played(b"a", handler_timeout_ms=20)
    played.run(handle)
    await played.done()
    assert played.calls == [0, 0]


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    """Nobody else has cancelled it."""
    cancelled = [True]

    async def handle(each: Record) -> None:
        if cancelled:
            cancelled.pop()
            raise asyncio.CancelledError

    played = Played(b"a")
    played.run(handle)
    await played.done()
    assert played.calls == [0, 0]


async def test_so_many_handlers_run_at_a_time() -> None:
    """And others when they have ended."""
    gate, most, running = asyncio.Semaphore(0), 0, 0

    async def handle(each: Record) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await gate.acquire()
        running -= 1

    played = Played(*(None for _ in range(50)), concurrency=7)
    played.run(handle)
    await until("it holds", lambda: running == 7)
    for _ in range(50):
        gate.release()
    await played.done()
    assert most == 7


async def test_a_drain_waits_for_what_runs_and_starts_nothing_more() -> None:
    """What has ended then is finished."""
    ending = asyncio.Event()

    async def handle(each: Record) -> None:
        await ending.wait()

    played = Played(b"a", b"a", b"b")
    played.run(handle)
    await until("it holds", lambda: played.hand.running == 2)
    drained = asyncio.ensure_future(played.working.drain(60))
    await asyncio.sleep(0)
    ending.set()
    await drained
    assert (played.calls, played.stable) == ([0, 2], 1)
    played.working.go_on()
    await played.done()


async def test_what_does_not_end_in_time_is_cancelled_and_not_finished() -> None:
    """Whoever has it next handles it again."""
    ended: list[str] = []

    async def handle(each: Record) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    played = Played(b"a", b"b")
    played.run(handle)
    await until("it holds", lambda: played.hand.running == 2)
    await played.working.drain(0.01)
    assert ended == ["cancelled", "cancelled"]
    assert played.stable == 0
    assert len(played.hand.revoke([TP])) == 2


async def test_what_is_cancelled_at_the_end_of_a_drain_has_not_failed() -> None:
    """So it is no dead letter, however few attempts it has."""
    buried: list[int] = []

    def bury(each: Record, error: BaseException | None) -> None:
        buried.append(each.offset)

    played = Played(b"a", max_attempts=1, dead_letter=bury)
    played.run(lambda each: asyncio.Event().wait())
    await until("it holds", lambda: played.hand.running == 1)
    await played.working.drain(0.01)
    assert (buried, played.stable) == ([], 0)
    played.hand.revoke([TP])


async def test_a_handler_that_cannot_be_cancelled_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """The partition is given up all the same, with an error that says which record it is."""
    ending = asyncio.Event()

    async def handle(each: Record) -> None:
        while not ending.is_set():
            try:
                await ending.wait()
            except asyncio.CancelledError:
                continue

    played = Played(b"a")
    played.run(handle)
    await until("it holds", lambda: played.hand.running == 1)
    await played.working.drain(0.01)
    assert "goes on after it was cancelled: offset 0" in caplog.text
    played.hand.revoke([TP])
    ending.set()
    await until("it holds", lambda: not played.working._tasks)  # pyright: ignore[reportPrivateUsage]
    played.working.check()


async def test_records_can_be_acknowledged_by_hand() -> None:
    """Released ones come again first; the next of a key comes when the one before is finished."""
    played = Played(b"a", b"a", b"b")

    def acknowledge(each: Record, how: AcknowledgeType = AcknowledgeType.ACCEPT) -> bool:
        entry = played.hand.find(TP, each.offset)
        return entry is not None and played.working.acknowledge(entry, how)

    first, other = await played.working.next(), await played.working.next()
    assert (first.offset, other.offset) == (0, 2)
    assert acknowledge(first, AcknowledgeType.RELEASE)
    assert not acknowledge(first, AcknowledgeType.RELEASE)
    again = await played.working.next()
    assert again.offset == 0
    assert acknowledge(again)
    assert not acknowledge(again)
    behind = await played.working.next()
    assert behind.offset == 1
    assert acknowledge(behind, AcknowledgeType.REJECT)
    assert acknowledge(other)
    await played.done()


async def test_who_waits_for_a_record_hears_of_an_error() -> None:
    """It would wait in vain."""
    played = Played()
    waiting = asyncio.ensure_future(played.working.next())
    await asyncio.sleep(0)
    played.working.fail(RuntimeError("no rights"))
    with pytest.raises(RuntimeError, match="no rights"):
        await waiting


@pytest.mark.parametrize(
    "options",
    [
        {"order": "record"},
        {"view": "real"},
        {"concurrency": 0},
        {"concurrency": True},
        {"max_attempts": 0, "dead_letter": print},
        {"max_attempts": 3},
        {"handler_timeout_ms": 0},
        {"commit_interval_ms": 1.5},
    ],
)
def test_options_out_of_their_range_are_refused(options: dict[str, Any]) -> None:
    """With what is wrong, before anything is started."""
    with pytest.raises(ValueError, match=f"`{next(iter(options))}`"):
        Settings(**options)


def test_the_wait_before_a_retry_doubles_up_to_a_limit() -> None:
    """Also after very many."""
    settings = Settings(redelivery_backoff_ms=100, redelivery_backoff_max_ms=1_000)
    assert [settings.backoff_seconds(attempt) for attempt in (1, 2, 3, 5, 10**6)] == [0.1, 0.2, 0.4, 1.0, 1.0]
