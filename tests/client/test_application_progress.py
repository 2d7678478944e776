"""What counts as handled: what the application had got when it came back for more, and nothing later."""

from types import SimpleNamespace
from typing import Any, cast

from aiokafka.consumer.subscription_state import Assignment
from aiokafka.structs import TopicPartition

from kordon.client.application_progress import ApplicationProgress

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BOTH = (P0, P1)


class Consumer:
    """An assignment of two partitions, and an application that waits for records or works on them."""

    def __init__(self) -> None:
        self.subscription = SimpleNamespace(_fetch_count=0)
        untyped: Any = Assignment
        self.assignment = untyped(set(BOTH))
        self.application = ApplicationProgress(cast("Any", self.subscription), 0.0)
        for tp in BOTH:
            self.deliver(tp, 0)

    def deliver(self, tp: TopicPartition, position: int) -> None:
        """Gives the application all of a partition before a position."""
        self.assignment.state_value(tp).seek(position)

    def handled(self, **how: bool) -> list[int]:
        """How much of each partition is handled."""
        places = self.application.places(self.assignment, BOTH, **how)
        return [places[tp].handled for tp in BOTH]


async def test_what_is_delivered_is_handled_when_the_application_comes_back() -> None:
    """What it gets afterwards is not."""
    consumer = Consumer()
    consumer.application.came_back(consumer.assignment, BOTH)
    consumer.deliver(P0, 7)
    assert consumer.handled() == [0, 0]
    consumer.application.came_back(consumer.assignment, BOTH)
    consumer.deliver(P1, 3)
    assert consumer.handled() == [7, 0]


async def test_who_waits_for_records_has_handled_all() -> None:
    """So has an application that has stopped its consumer."""
    consumer = Consumer()
    consumer.deliver(P0, 7)
    assert consumer.handled(all_is_handled=True) == [7, 0]
    consumer.deliver(P0, 9)
    consumer.subscription._fetch_count = 1
    assert consumer.handled() == [9, 0]


async def test_the_application_is_asked_only_while_it_is_behind() -> None:
    """Each call of `getone` would cost more otherwise."""
    consumer = Consumer()
    places = consumer.application.places(consumer.assignment, BOTH)
    consumer.application.came_back(consumer.assignment, BOTH)
    consumer.application.ask(consumer.application.places(consumer.assignment, BOTH))
    assert not consumer.application.wants_to_know
    consumer.deliver(P1, 1)
    assert consumer.application.stands_elsewhere(P1, 1)
    consumer.application.ask(consumer.application.places(consumer.assignment, BOTH))
    assert consumer.application.wants_to_know
    assert places[P1].delivered == 0


async def test_nobody_waits_for_an_application_that_has_handled_all() -> None:
    """For one that works on a record the wait has an end."""
    consumer = Consumer()
    consumer.application.came_back(consumer.assignment, BOTH)
    await consumer.application.wait_until_back(consumer.assignment, BOTH, 3600)
    consumer.deliver(P0, 7)
    await consumer.application.wait_until_back(consumer.assignment, BOTH, 0.01)
    assert consumer.handled() == [0, 0]
    assert consumer.application.wants_to_know
