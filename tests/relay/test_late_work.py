"""What a connection has done later: it comes back as an event, and what fails ends the connection."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from kordon.codecs import apis
from kordon.codecs.row import Row
from kordon.proxy.core import verdicts
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import BrokerProtocolError, SilentWriteFailed
from kordon.proxy.core.events import Decided, Event, LongReadDone, ReadInTurns, Served
from kordon.proxy.core.interception import Answering, EagerAnswering, Tell
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.waiting import Awaits, PendingRequest
from kordon.proxy.relay.late_work import LateWork
from kordon.proxy.runtime.tasks import PASSING, Failures, Tasks
from kordon.proxy.runtime.turns import Turns

ROUTE = next(each for each in verdicts.ROUTES if each.api.key == apis.METADATA)


class Stage:
    """A connection's late work, and what came of it."""

    def __init__(self) -> None:
        self.taken: list[Event] = []
        self.ended: list[tuple[CloseCause, str]] = []
        self.failures = Failures()
        self.tasks = Tasks(self.failures)
        self.work = LateWork(
            self.tasks,
            Turns(Tally()),
            take=self.taken.append,
            end=lambda cause, detail: self.ended.append((cause, detail)),
        )

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def says(words: bytes | Exception) -> Answering:
    """What answers a request so, behind the broker's part."""

    async def answer(part: Awaitable[Row] | None) -> bytes:
        if isinstance(words, Exception):
            raise words
        return words + ((await part).get("said", b"") if part is not None else b"")

    return answer


def pending(awaits: Awaits) -> PendingRequest:
    """A request that waits for this."""
    made = PendingRequest(ROUTE, 1, 0.0)
    made.awaits = awaits
    return made


async def test_an_answer_comes_back_when_the_brokers_part_is_there() -> None:
    """One that awaits no part comes at once."""
    stage, alone, merged = Stage(), pending(Awaits.SERVICE), pending(Awaits.PART)
    stage.work.serve(merged, says(b"mine, "))
    stage.work.serve(alone, says(b"mine"))
    await stage.settle()
    assert stage.taken == [Served(alone, b"mine")]
    stage.work.pass_part(merged, Row({"said": b"the broker's"}))
    await stage.settle()
    assert stage.taken[1:] == [Served(merged, b"mine, the broker's")]
    assert stage.ended == []


async def test_large_messages_come_back_read_and_decided() -> None:
    """With the brokers that they name, and with what goes to the broker."""
    stage, read = Stage(), pending(Awaits.SERVICE)
    stage.work.read(ReadInTurns(read, lambda: (b"read", {1: ("one", 9092)})))
    stage.work.decide(lambda: [b"decided"])
    await stage.settle()
    assert stage.taken == [LongReadDone(read, b"read", {1: ("one", 9092)}), Decided([b"decided"])]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (SilentWriteFailed("nobody waits"), CloseCause.WRITE_FAILED),
        (BrokerProtocolError(CloseCause.MALFORMED_RESPONSE, "unreadable"), CloseCause.MALFORMED_RESPONSE),
        (RuntimeError("a mistake"), CloseCause.INTERNAL_ERROR),
    ],
)
async def test_work_that_fails_ends_the_connection(error: Exception, cause: CloseCause) -> None:
    """Its client would wait for ever."""
    stage = Stage()
    stage.work.serve(pending(Awaits.SERVICE), says(error))
    await stage.settle()
    assert [(each, str(error) in detail) for each, detail in stage.ended] == [(cause, True)]
    assert stage.taken == []


class Eager:
    """Answers when the test says so: without a task, or awaited if it cannot begin."""

    def __init__(self, *, begins: bool = True) -> None:
        self.tell: Tell | None = None
        self.given_up = 0
        self.answering = EagerAnswering(says(b"awaited"), self._begin)
        self._begins = begins

    def _begin(self, tell: Tell) -> Callable[[], None] | None:
        self.tell = tell
        return self._give_up if self._begins else None

    def says(self, words: bytes | Exception) -> None:
        assert self.tell is not None
        self.tell(partial(_made, words))

    def _give_up(self) -> None:
        self.given_up += 1


def _made(words: bytes | Exception) -> bytes:
    if isinstance(words, Exception):
        raise words
    return words


async def test_an_answer_that_begins_at_once_takes_no_task_and_comes_when_it_is_told() -> None:
    """In a turn of its own, so that whoever tells it is through first."""
    stage, eager, asked = Stage(), Eager(), pending(Awaits.SERVICE)
    tasks = len(asyncio.all_tasks())
    stage.work.serve(asked, eager.answering)
    assert len(asyncio.all_tasks()) == tasks
    eager.says(b"mine")
    assert stage.taken == []
    await stage.settle()
    assert stage.taken == [Served(asked, b"mine")]
    stage.work.cancel()
    assert (eager.given_up, stage.ended) == (0, [])


@pytest.mark.parametrize("awaits", [Awaits.SERVICE, Awaits.PART])
async def test_an_answer_that_cannot_begin_at_once_is_awaited(awaits: Awaits) -> None:
    """So is one of which the broker is asked a part."""
    stage, eager, asked = Stage(), Eager(begins=awaits is Awaits.PART), pending(awaits)
    stage.work.serve(asked, eager.answering)
    if awaits is Awaits.PART:
        assert eager.tell is None
        stage.work.pass_part(asked, Row({"said": b""}))
    await stage.settle()
    assert stage.taken == [Served(asked, b"awaited")]


async def test_what_was_begun_and_fails_ends_the_connection_alone() -> None:
    """It is reported like the failure of a task."""
    stage, eager = Stage(), Eager()
    stage.work.serve(pending(Awaits.SERVICE), eager.answering)
    eager.says(RuntimeError("a mistake"))
    await stage.settle()
    assert [(cause, "a mistake" in detail) for cause, detail in stage.ended] == [(CloseCause.INTERNAL_ERROR, True)]
    assert stage.failures.counts[PASSING] == 1


async def test_a_connection_that_ends_gives_up_what_was_begun() -> None:
    """An answer that comes later goes nowhere."""
    stage, eager = Stage(), Eager()
    stage.work.serve(pending(Awaits.SERVICE), eager.answering)
    stage.work.cancel()
    eager.says(b"mine")
    await stage.settle()
    assert (eager.given_up, stage.taken, stage.ended) == (1, [], [])


async def test_a_connection_that_ends_takes_its_work_along() -> None:
    """What it waits for may never come."""
    stage = Stage()
    stage.work.serve(pending(Awaits.PART), says(b"mine"))
    stage.work.cancel()
    await stage.tasks.stop()
    assert (stage.taken, stage.ended) == ([], [])
