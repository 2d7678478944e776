"""What tests do with single requests to brokers in memory."""

import asyncio
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.bodies import FindCoordinatorRequest
from kordon.codecs.messages import api, find_coordinator
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.testing.fake_broker import Answer, Asked, CutError, FakeBroker

VERSION, WAIT_SECONDS = 4, 60


class Counting(FakeBroker):
    """Answers FindCoordinator with how many of them it has handled."""

    def __init__(self) -> None:
        super().__init__({"orders": 2}, {apis.FIND_COORDINATOR: self._count})
        self.handled = 0

    def _count(self, asked: Asked) -> Answer:
        self.handled += 1
        return counted(self.handled)


def counted(number: int) -> dict[str, Any]:
    """An answer that can be told from others."""
    rows = [{"key": "g", "node_id": number, "host": "h", "port": 1, "error_code": 0}]
    return {"coordinators": rows}


async def ask(broker: FakeBroker, purpose: str = "test") -> int:
    """Asks once; returns the number in the answer."""
    client = await broker.to(1, purpose)
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    answer = await client.ask(find_coordinator.API, VERSION, asked, WAIT_SECONDS)
    return answer.coordinators[0].node_id


async def test_a_request_that_is_held_holds_what_is_behind_it_on_its_connection() -> None:
    """Other connections go on, and all is answered in its order when it is let go."""
    broker = Counting()
    held = broker.hold(apis.FIND_COORDINATOR)
    waiting = [asyncio.ensure_future(ask(broker)) for _ in range(2)]
    await held.come.wait()
    assert await ask(broker, "another") == 1
    assert not any(each.done() for each in waiting)
    held.let_go()
    assert await asyncio.gather(*waiting) == [2, 3]


@pytest.mark.parametrize("handled", [0, 1])
async def test_a_connection_is_cut_before_a_request_is_handled_or_before_its_answer(handled: int) -> None:
    """Whatever waits on it fails, and the next one asks on a connection of its own."""
    broker = Counting()

    async def cut(asked: Asked) -> Answer:
        if handled:
            await broker.handle(asked)
        raise CutError

    broker.hook(apis.FIND_COORDINATOR, cut)
    outcomes = await asyncio.gather(ask(broker), ask(broker), return_exceptions=True)
    assert [type(each) for each in outcomes] == [UpstreamUnavailable] * 2
    assert broker.handled == handled
    assert await ask(broker) == handled + 1


async def test_hooks_answer_a_request_each_in_their_order() -> None:
    """With fields, or with bytes that are no answer: only their own request fails by these."""
    broker = Counting()
    broker.hook(apis.FIND_COORDINATOR, lambda _: counted(70))
    broker.hook(apis.FIND_COORDINATOR, lambda _: b"\xff")
    assert await ask(broker) == 70
    with pytest.raises(UpstreamUnavailable):
        await ask(broker)
    assert await ask(broker) == 1


async def test_brokers_that_are_away_cannot_be_reached() -> None:
    """Nor asked, as any of them."""
    broker = Counting()
    fields = {"topics": None, "allow_auto_topic_creation": False}
    (topic,) = (await broker.ask_any("test", api(apis.METADATA), range(1, 9), fields)).topics
    assert (topic.name, len(topic.partitions)) == ("orders", 2)
    broker.is_away = True
    with pytest.raises(UpstreamUnavailable, match="nobody answers"):
        await broker.ask_any("test", api(apis.METADATA), range(1, 9), fields)
