"""When a client's batches go into line, and how its requests are answered without a task."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.answers import body_of
from kordon.proxy.core.interception import EagerAnswering, Serve
from kordon.proxy.core.waiting import Answer, Body, Throttled
from kordon.proxy.handlers.guard import Guard
from kordon.proxy.handlers.rights import Rights
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.layout import Layout
from kordon.testing.handled import guard_of, route_of
from kordon.testing.managed_writes import a_batch
from kordon.testing.random_logs import NAME
from kordon.testing.writes_in_memory import WritesInMemory

V_COUNT = 4


@asynccontextmanager
async def a_stage() -> AsyncIterator[WritesInMemory]:
    """A worker whose connections to brokers are open."""
    async with WritesInMemory(Layout.created(NAME, UUID(int=1), 1, V_COUNT)) as stage:
        for v in range(V_COUNT):
            assert await stage.write(v, a_batch("before", producer_id=9, epoch=0, sequence=0)) == 0
        yield stage


class Asked:
    """A Produce request as its connection's guard decides on it, and what makes its answer once that is known."""

    def __init__(self, guard: Guard, value: str, sequence: int = 0, acks: int = -1) -> None:
        batch = a_batch(value, producer_id=7, epoch=0, sequence=sequence)
        rows = [{"name": NAME, "partition_data": [{"index": 0, "records": batch}]}]
        body = request(apis.PRODUCE).build(9, {"acks": acks, "timeout_ms": 10_000, "topic_data": rows})
        decision = guard.decide(route_of(apis.PRODUCE, 9), memoryview(bytearray(body)))
        assert isinstance(decision, Serve)
        assert isinstance(decision.answer, EagerAnswering)
        self.decision = decision
        self.answering = decision.answer
        self.made: list[Callable[[], Body | Throttled]] = []

    def begin(self) -> Callable[[], None] | None:
        """Begins at once, if that can be."""
        return self.answering.begin(self.made.append)

    def codes(self) -> list[int]:
        """Returns the error codes of its answer."""
        (make,) = self.made
        answer: Any = response(apis.PRODUCE).parse(9, body_of(make))
        return [row.error_code for topic in answer.responses for row in topic.partition_responses]


def values(stage: WritesInMemory) -> list[str]:
    """What the client has written."""
    return [value for value in stage.logs[0].values if value != "before"]


async def test_batches_are_queued_with_the_request_and_answered_without_a_task() -> None:
    """Each answer is known when the broker has answered."""
    async with a_stage() as stage:
        guard = guard_of(stage.topics, [stage.produces])
        first = Asked(guard, "c-0")
        assert first.begin() is not None
        second = Asked(guard, "c-1", sequence=1)
        assert second.begin() is not None
        assert first.made == second.made == []
        await stage.rest()
        assert first.codes() == second.codes() == [0]
        assert values(stage) == ["c-0", "c-1"]


async def test_a_request_takes_a_task_as_long_as_an_earlier_ones_batches_are_not_queued() -> None:
    """The earlier one waits for what the client may do. A broker would find a gap if the later one came first."""
    async with a_stage() as stage:
        rights = Rights(1.0, lambda: 0.0)
        guard = guard_of(stage.topics, [stage.produces], rights=rights)
        first = Asked(guard, "c-0")
        (question,) = first.decision.questions
        assert first.begin() is None
        waiting = asyncio.ensure_future(_answered(first.answering))
        await stage.rest()
        row = SimpleNamespace(name=NAME, error_code=0, topic_authorized_operations=1 << Operation.WRITE)
        question.told(SimpleNamespace(topics=[row]))
        second = Asked(guard, "c-1", sequence=1)  # the first one's task has not gone on yet
        assert second.begin() is None
        both = await asyncio.gather(waiting, _answered(second.answering))
        assert len(both) == 2
        third = Asked(guard, "c-2", sequence=2)
        assert third.begin() is not None
        await stage.rest()
        assert (third.codes(), values(stage)) == ([0], ["c-0", "c-1", "c-2"])


async def test_batches_keep_their_order_if_the_client_may_write_them_from_one_turn_to_the_next() -> None:
    """The task of a request begins in the turn in which an earlier one is told that it may go on."""
    async with a_stage() as stage:
        guard = guard_of(stage.topics, [stage.produces], rights=Rights(1.0, lambda: 0.0))
        first = Asked(guard, "c-0")
        (question,) = first.decision.questions
        waiting = [asyncio.ensure_future(_answered(first.answering))]
        await stage.rest()
        waiting.append(asyncio.ensure_future(_answered(Asked(guard, "c-1", sequence=1).answering)))
        row = SimpleNamespace(name=NAME, error_code=0, topic_authorized_operations=1 << Operation.WRITE)
        question.told(SimpleNamespace(topics=[row]))
        third = Asked(guard, "c-2", sequence=2)
        assert third.begin() is None
        await asyncio.gather(*waiting, _answered(third.answering))
        assert values(stage) == ["c-0", "c-1", "c-2"]


async def test_requests_that_came_together_are_queued_one_after_the_other_without_a_task() -> None:
    """All of them are decided on before the first one is served."""
    async with a_stage() as stage:
        guard = guard_of(stage.topics, [stage.produces])
        together = [Asked(guard, f"c-{each}", sequence=each) for each in range(3)]
        assert together[1].begin() is None
        assert [each.begin() is not None for each in together] == [True] * 3
        await stage.rest()
        assert values(stage) == ["c-0", "c-1", "c-2"]


async def test_what_may_be_refused_or_has_no_answer_takes_a_task() -> None:
    """That is acks=0, a client that may not write, and a topic whose layout cannot be read."""
    async with a_stage() as stage:
        silent = Asked(guard_of(stage.topics, [stage.produces]), "c-0", acks=0)
        assert silent.begin() is None
        rights = Rights(1.0, lambda: 0.0)
        guard = guard_of(stage.topics, [stage.produces], rights=rights)
        before = Asked(guard, "c-1")
        (question,) = before.decision.questions
        row = SimpleNamespace(name=NAME, error_code=0, topic_authorized_operations=1 << Operation.READ)
        question.told(SimpleNamespace(topics=[row]))
        await _answered(before.answering)
        assert Asked(guard, "c-2").begin() is None
        stage.topics.serve(NAME, "unreadable")
        assert Asked(guard_of(stage.topics, [stage.produces]), "c-3").begin() is None
        assert values(stage) == []


async def test_a_client_that_goes_away_takes_back_what_is_not_sent() -> None:
    """What waited for a fence is not written behind it (LATE-BINDING)."""
    async with a_stage() as stage:
        guard = guard_of(stage.topics, [stage.produces])
        stage.fence()
        asked = Asked(guard, "c-0")
        give_up = asked.begin()
        assert give_up is not None
        give_up()
        stage.topic.cancel_fence()
        assert await stage.write(0, a_batch("d-0", producer_id=8, epoch=0, sequence=0)) == 0
        assert values(stage) == ["d-0"]


async def test_a_batch_that_is_refused_at_once_is_answered_without_a_task() -> None:
    """Its answer is there before anything is sent."""
    async with a_stage() as stage:
        asked = Asked(guard_of(stage.topics, [stage.produces]), "c-0", acks=7)
        assert asked.begin() is not None
        assert asked.codes() == [Code.INVALID_REQUIRED_ACKS]


async def _answered(answering: EagerAnswering) -> Answer:
    return await answering(None)
