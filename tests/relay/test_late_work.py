"""What a connection has done later: it comes back as an event, and what fails ends the connection."""

import asyncio
from collections.abc import Awaitable

import pytest

from kordon.codecs import apis
from kordon.codecs.row import Row
from kordon.proxy.core import verdicts
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import BrokerProtocolError, SilentWriteFailed
from kordon.proxy.core.events import Decided, Event, LongReadDone, ReadInTurns, Served
from kordon.proxy.core.interception import Answering
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.waiting import Awaits, PendingRequest
from kordon.proxy.relay.late_work import LateWork
from kordon.proxy.runtime.tasks import Failures, Tasks
from kordon.proxy.runtime.turns import Turns

ROUTE = next(each for each in verdicts.ROUTES if each.api.key == apis.METADATA)


class Stage:
    """A connection's late work, and what came of it."""

    def __init__(self) -> None:
        self.taken: list[Event] = []
        self.ended: list[tuple[CloseCause, str]] = []
        self.tasks = Tasks(Failures())
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


async def test_a_connection_that_ends_takes_its_work_along() -> None:
    """What it waits for may never come."""
    stage = Stage()
    stage.work.serve(pending(Awaits.PART), says(b"mine"))
    stage.work.cancel()
    await stage.tasks.stop()
    assert (stage.taken, stage.ended) == ([], [])
