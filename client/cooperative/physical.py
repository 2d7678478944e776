"""An OrderedConsumer below a CooperativeConsumer: keys move when their records are finished, not when they are read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.structs import TopicPartition

from kordon.client.application_progress import ApplicationProgress
from kordon.client.consumer import OrderedConsumer
from kordon.client.key_move_driver import KeyMoveDriver
from kordon.client.moves_events import MemberPositions

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.


class PhysicalConsumer(OrderedConsumer):
    """Reports to its group only finished records of a partition: all before the oldest one in hand.

    A record that comes later may be fetched and finished long before. If the group were told of that, other members
    would continue with keys whose records are not finished.

    Args:
        finished_to: Returns the stable offset of a partition; None: nothing of it is in hand.
        options: The options of OrderedConsumer.
    """

    def __init__(self, *, finished_to: Callable[[TopicPartition], int | None], **options: Any) -> None:
        self._finished_to = finished_to
        super().__init__(**options)

    def _new_driver(self) -> KeyMoveDriver:
        driver = super()._new_driver()
        driver.application = _Finished(self._subscription, self._finished_to)
        return driver


class _Finished(ApplicationProgress):
    """What is finished counts as handled, whether the application waits for records or not."""

    def __init__(self, subscription: SubscriptionState, finished_to: Callable[[TopicPartition], int | None]) -> None:
        super().__init__(subscription, ask_seconds=0.0)
        self._finished_to = finished_to

    def came_back(self, assignment: Assignment | None, partitions: Collection[TopicPartition]) -> None:
        """Polling for more says nothing of what is finished."""

    def places(
        self, assignment: Assignment, partitions: Collection[TopicPartition], *, all_is_handled: bool = False
    ) -> dict[TopicPartition, MemberPositions]:
        """Returns where each partition stands, and how much of it is finished."""
        places = super().places(assignment, partitions)
        for tp, place in places.items():
            finished = self._finished_to(tp)
            handled = -1 if finished is None else min(finished, place.delivered)  # -1: no more than before
            places[tp] = MemberPositions(place.delivered, handled, place.high_watermark)
        return places

    async def wait_until_back(
        self, assignment: Assignment, partitions: Collection[TopicPartition], seconds: float
    ) -> None:
        """Waits for nothing: records are drained when the partitions are revoked."""
