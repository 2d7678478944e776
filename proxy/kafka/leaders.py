"""Who leads the physical partitions of a topic, as some broker has said not long ago."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kordon.codecs import apis
from kordon.proxy.kafka.links import Links

NO_NODE: Final = -1
_PURPOSE: Final = "metadata"
_VERSIONS: Final = range(7, 13)
"""Metadata 7 tells leader epochs; 10 and later tell topic ids."""
_PAUSE_SECONDS: Final = 0.05
"""Between two questions for the same topic, however often it is forgotten."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a physical partition, and who has copies of it."""

    node_id: int
    """-1 while nobody leads."""
    epoch: int
    """The leader epoch; -1 where the broker does not tell."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a broker said of a topic."""

    topic_id: UUID | None
    """None: there is no such topic."""
    leaders: Mapping[int, Leader]
    asked: float
    """When, in seconds of the monotonic clock."""
    good_until: float
    count: int
    """How often the topic had been forgotten when the broker was asked."""


_NOTHING: Final = _Known(None, {}, -1, -1, 0)


class Leaders:
    """The leaders of topics; what is kept is never older than `upstream.refresh_ms`.

    Args:
        links: By which brokers are asked.
    """

    def __init__(self, links: Links) -> None:
        self.on_elected: Callable[[str, int], None] = _nobody_cares
        """Told of a topic's physical partition that has another leader epoch than before."""
        self._links = links
        self._known: dict[str, _Known] = {}
        self._wanted: set[str] = set()
        self._forgotten: Counter[str] = Counter()
        """How often, by topic: what was asked for before the last time does not count any more."""
        self._asking = asyncio.Lock()

    async def of(self, topic: str) -> Mapping[int, Leader]:
        """Returns the leaders by physical partition; empty for a topic that no broker knows.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return (await self._fresh(topic)).leaders

    def known(self, topic: str) -> Mapping[int, Leader] | None:
        """Returns the leaders by physical partition where nobody needs to be asked; None: call `of`."""
        known = self._good(topic)
        return known.leaders if known is not None else None

    async def topic_id(self, topic: str) -> UUID | None:
        """Returns a topic's id; None for one that no broker knows, the zero id where brokers have no ids.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return (await self._fresh(topic)).topic_id

    def forget(self, topic: str) -> None:
        """Has the next caller wait for a new answer, as when a broker says that it is not the leader."""
        self._forgotten[topic] += 1

    async def renew(self, topic: str) -> None:
        """Asks anew; what is known holds until the answer is there, so that nobody waits for it.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        async with self._asking:
            self._wanted.add(topic)
            await self._ask(self._wanted)

    async def _fresh(self, topic: str) -> _Known:
        self._wanted.add(topic)
        if (known := self._good(topic)) is not None:
            return known
        async with self._asking:
            if (known := self._good(topic)) is not None:
                return known  # who had the lock before asked for this one, too
            await self._pause(topic)
            self._wanted.add(topic)
            await self._ask(self._wanted)
            return self._known.get(topic, _NOTHING)

    def _good(self, topic: str) -> _Known | None:
        known = self._known.get(topic, _NOTHING)
        if time.monotonic() >= known.good_until or known.count != self._forgotten[topic]:
            return None
        self._wanted.discard(topic)
        return known

    async def _pause(self, topic: str) -> None:
        left = self._known.get(topic, _NOTHING).asked + _PAUSE_SECONDS - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)

    async def _ask(self, topics: set[str]) -> None:
        self._wanted = set()
        counts = {name: self._forgotten[name] for name in topics}
        fields = {"topics": [{"name": name} for name in sorted(topics)], "allow_auto_topic_creation": False}
        asked = time.monotonic()
        answer = await self._links.ask_any(_PURPOSE, apis.METADATA, _VERSIONS, fields)
        self._links.topology.learn({broker.node_id: (broker.host, broker.port) for broker in answer.brokers})
        for row in answer.topics:
            former, known = self._known.get(row.name, _NOTHING), self._read(row, asked, counts.get(row.name, 0))
            self._known[row.name] = known
            for partition, leader in known.leaders.items():
                if partition in former.leaders and former.leaders[partition].epoch != leader.epoch:
                    self.on_elected(row.name, partition)

    def _read(self, row: Any, asked: float, count: int) -> _Known:
        if row.error_code:
            return _Known(None, {}, asked, asked + _PAUSE_SECONDS, count)
        topic_id = row.get("topic_id", UUID(int=0))
        former = self._known.get(row.name, _NOTHING)
        before = former.leaders if former.topic_id == topic_id else {}
        leaders = {each.partition_index: _newer(before.get(each.partition_index), each) for each in row.partitions}
        led = all(leader.node_id != NO_NODE for leader in leaders.values())
        seconds = self._links.topology.config.refresh_ms / 1000 if led else _PAUSE_SECONDS
        return _Known(topic_id, leaders, asked, asked + seconds, count)


def _nobody_cares(topic: str, partition: int) -> None:
    """Does nothing."""


def _newer(before: Leader | None, row: Any) -> Leader:
    """Takes what a broker says, unless it has not heard yet what another one has said before."""
    if before is not None and row.leader_epoch < before.epoch:
        return before
    replicas, isr, offline = (tuple(row[name]) for name in ("replica_nodes", "isr_nodes", "offline_replicas"))
    return Leader(row.leader_id, row.leader_epoch, replicas, isr, offline)
