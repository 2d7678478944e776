"""Questions to leaders about producers are shared among those who wait (ASKED-LEADER)."""

import asyncio
from typing import Any

from kordon.codecs.producers import ProducerRow
from kordon.proxy.kafka.open_producers import OpenProducers
from kordon.proxy.ordering.transactions.open_answers import LeaderAnswer
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.transactions_in_memory import FakeBrokers, P

NODE = 1


def asking() -> tuple[OpenProducers, Any]:
    brokers: Any = FakeBrokers()
    return OpenProducers(brokers, Tasks()), brokers


async def test_a_leader_says_what_it_remembers() -> None:
    """Of a producer that it does not know, that it is not open."""
    open_producers, brokers = asking()
    brokers.rows[0] = ProducerRow(P, 4, 9, 0, 0, 7)
    assert await open_producers.ask("orders", 0, NODE, P) == LeaderAnswer(3, 3, 4, 9, 7, 100)
    assert await open_producers.ask("orders", 0, NODE, P + 1) == LeaderAnswer(3, 3, -1, -1, -1, 100)


async def test_who_comes_meanwhile_shares_the_next_question() -> None:
    """What was asked before may have been answered before, too: it proves nothing to them."""
    open_producers, brokers = asking()
    brokers.may_answer.clear()
    first = asyncio.ensure_future(open_producers.ask("orders", 0, NODE, P))
    await brokers.is_asked.wait()
    others = [asyncio.ensure_future(open_producers.ask("orders", q, NODE, P + q)) for q in (0, 1, 1, 2)]
    await asyncio.sleep(0)
    brokers.may_answer.set()
    await asyncio.gather(first, *others)
    assert brokers.asked == [{0: None}, {0: None, 1: None, 2: None}]
    assert open_producers.asked == 2


async def test_a_leader_that_does_not_answer_says_nothing() -> None:
    """And whoever comes next asks again."""
    open_producers, brokers = asking()
    brokers.is_silent = True
    assert await open_producers.ask("orders", 0, NODE, P) is None
    brokers.is_silent = False
    assert await open_producers.ask("orders", 0, NODE, P) is not None


async def test_a_question_that_fails_leaves_nobody_waiting() -> None:
    """Neither who asked nor who came meanwhile: their clients would wait forever."""
    open_producers, brokers = asking()
    brokers.may_answer.clear()

    async def broken(topic: str, partitions: Any) -> Any:
        brokers.is_asked.set()
        await brokers.may_answer.wait()
        raise ValueError("what a leader says cannot be read")

    brokers.remembered = broken
    first = asyncio.ensure_future(open_producers.ask("orders", 0, NODE, P))
    await brokers.is_asked.wait()
    second = asyncio.ensure_future(open_producers.ask("orders", 1, NODE, P))
    await asyncio.sleep(0)
    brokers.may_answer.set()
    async with asyncio.timeout(10):
        assert [await first, await second] == [None, None]
