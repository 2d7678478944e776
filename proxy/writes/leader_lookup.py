"""The leaders of the physical partitions that writes go to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.leaders import NO_NODE, Leaders
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.proxy.writes.stream_queue import StreamQueue
from kordon.proxy.writes.unsent_writes import UnsentWrites

_LEADERLESS_SECONDS: Final = 0.05


class LeaderLookup:
    """Finds leaders, and lets the queues that wait for them continue."""

    def __init__(self, leaders: Leaders, unsent: UnsentWrites, tasks: Tasks) -> None:
        self._leaders = leaders
        self._unsent = unsent
        self._tasks = tasks
        self._looking: set[ManagedTopic] = set()

    def known(self, topic: str, partition: int) -> int | None:
        """Returns the broker that leads a physical partition; None: it is not known, or nobody leads it."""
        leaders = self._leaders.known(topic)
        leader = leaders.get(partition) if leaders is not None else None
        return None if leader is None or leader.node_id == NO_NODE else leader.node_id

    async def nodes_of(self, topic: str, partitions: frozenset[int]) -> set[int]:
        """Returns the brokers that lead these physical partitions, as far as they are found."""
        known = self._leaders.known(topic) or {}
        try:
            if any(partition not in known for partition in partitions):
                await self._leaders.renew(topic)
            leaders = await self._leaders.of(topic)
        except UpstreamUnavailable:
            return set()  # they are looked for again when there is something to send
        return {leaders[q].node_id for q in partitions & leaders.keys()} - {NO_NODE}

    def on_unreachable(self, queues: Iterable[StreamQueue]) -> None:
        """Finds another way for queues whose leader cannot be reached."""
        for queue in queues:
            self._leaders.forget(queue.topic.name)
            self.look_up(queue.topic)

    def look_up(self, topic: ManagedTopic) -> None:
        """Finds the leaders of a topic, then lets its queues continue."""
        if topic not in self._looking:
            self._looking.add(topic)
            self._tasks.keep(partial(self._find, topic), name="find leaders to write to", of=topic.name)

    async def _find(self, topic: ManagedTopic) -> None:
        try:
            if self._lacks_leaders(topic):
                self._leaders.forget(topic.name)  # what is known is older than a partition, or than its election
            await self._leaders.of(topic.name)
            await asyncio.sleep(_LEADERLESS_SECONDS if self._lacks_leaders(topic) else 0)
        except UpstreamUnavailable:
            await asyncio.sleep(_LEADERLESS_SECONDS)
        finally:
            self._looking.discard(topic)
        for queue in self._unsent.queues:
            if queue.topic is topic:
                queue.go_on()

    def _lacks_leaders(self, topic: ManagedTopic) -> bool:
        return any(self.known(topic.name, q) is None for q in set(topic.layout.homes) if q is not None)
