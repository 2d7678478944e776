"""How far the application has come with the records that its consumer has given it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping

from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.structs import TopicPartition

from kordon.client.moves_events import MemberPositions

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)


class ApplicationProgress:
    """Knows which records are handled: an application that comes back for more has handled all that it got.

    Args:
        subscription: The consumer's; it tells whether the application waits for records.
        ask_seconds: How often the application is asked at most.
    """

    def __init__(self, subscription: SubscriptionState, ask_seconds: float) -> None:
        self.wants_to_know = False
        """Whether `came_back` is to be called when the application asks for more."""
        self._subscription = subscription
        self._ask_seconds = ask_seconds
        self._handled: dict[TopicPartition, int] = {}
        self._looked: dict[TopicPartition, int] = {}
        """Where the partitions stood when `places` looked at them last."""
        self._came_back = asyncio.Event()
        self._came_back_at = 0.0

    def came_back(self, assignment: Assignment | None, partitions: Collection[TopicPartition]) -> None:
        """Notes that the application asks for more records, so it has handled all earlier ones."""
        self.wants_to_know, self._came_back_at = False, time.monotonic()
        if assignment is not None:
            positions = {tp: assignment.state_value(tp) for tp in partitions}
            self._handled.update((tp, state.position) for tp, state in positions.items() if state.has_valid_position)
        self._came_back.set()

    def places(
        self, assignment: Assignment, partitions: Collection[TopicPartition], *, all_is_handled: bool = False
    ) -> dict[TopicPartition, MemberPositions]:
        """Returns where each partition stands, and how much of it is handled."""
        is_here = all_is_handled or self._is_here
        places: dict[TopicPartition, MemberPositions] = {}
        for tp in partitions:
            state = assignment.state_value(tp)
            if state.has_valid_position:
                position = state.position
                handled = position if is_here else self._handled.get(tp, -1)
                places[tp] = MemberPositions(position, handled, -1 if state.highwater is None else state.highwater)
                self._looked[tp] = position
                self._handled.setdefault(tp, position)
                if is_here:
                    self._handled[tp] = position
        return places

    def stands_elsewhere(self, tp: TopicPartition, position: int) -> bool:
        """Whether a partition has moved on since `places` looked at it."""
        return self._looked.get(tp) != position

    def ask(self, places: Mapping[TopicPartition, MemberPositions]) -> None:
        """Asks the application to say when it has handled what it got; not for each record."""
        is_behind = any(place.handled < place.delivered for place in places.values())
        self.wants_to_know = is_behind and time.monotonic() - self._came_back_at >= self._ask_seconds

    async def wait_until_back(
        self, assignment: Assignment, partitions: Collection[TopicPartition], seconds: float
    ) -> None:
        """Waits until the application has handled the last record, for a time at most."""
        places = self.places(assignment, partitions)
        if self._is_here or all(place.handled in (-1, place.delivered) for place in places.values()):
            return
        self._came_back.clear()
        self.wants_to_know = True
        try:
            async with asyncio.timeout(seconds):
                await self._came_back.wait()
        except TimeoutError:
            _log.warning("The application is not back after %.1f s: what it works on is not flushed", seconds)

    def forget(self) -> None:
        """Forgets all partitions: they have been given up."""
        self._handled.clear()
        self._looked.clear()

    @property
    def _is_here(self) -> bool:
        """Whether the application waits for records, so that it has handled all that it got."""
        waiting: int = self._subscription._fetch_count
        return waiting > 0
