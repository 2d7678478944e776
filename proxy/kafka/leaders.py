"""Who leads the physical partitions of a topic, as some broker has said not long ago."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kordon.codecs.bodies import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition, MetadataResponseTopic
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import metadata
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.upstream import UpstreamClient

NO_NODE: Final = -1
_PURPOSE: Final = "metadata"
_VERSIONS: Final = range(7, 13)
"""Metadata 7 tells leader epochs; 10 and later tell topic ids."""
_PAUSE_SECONDS: Final = 0.05
"""Between two questions for the same topic, however often it is forgotten."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a physical partition, and the brokers with copies of it."""

    node_id: int
    """-1 while nobody leads."""
    epoch: int
    """The leader epoch; -1 where the broker does not tell."""
    replicas: tuple[int, ...] = ()

    @property
    def is_elected(self) -> bool:
        """Whether somebody leads it."""
        return self.node_id != NO_NODE


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """What a broker said of a topic."""

    topic_id: UUID | None
    """None: the broker gave an error in place of the topic; the zero id where brokers have no ids."""
    leaders: Mapping[int, Leader]
    """The leaders by physical partition."""
    error_code: int = Code.NONE


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a topic, and for how long."""

    told: TopicLeaders
    asked: float
    """When, in seconds of the monotonic clock."""
    good_until: float
    count: int
    """How often the topic had been forgotten when the broker was asked."""


_NOTHING: Final = _Known(TopicLeaders(None, {}), -1, -1, 0)


def topics_asked(names: Iterable[str]) -> MetadataRequest:
    """Returns a request that asks for topics, and creates none by asking."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


class Leaders:
    """The leaders of topics; what is kept is never older than `upstream.refresh_ms`.

    Args:
        links: Connections by which brokers are asked.
    """

    def __init__(self, links: BrokerConnections) -> None:
        self._told: list[Callable[[str, int], None]] = []
        self._links = links
        self._known: dict[str, _Known] = {}
        self._wanted: set[str] = set()
        self._forgotten: Counter[str] = Counter()
        """How often, by topic: what was asked for before the last time does not count any more."""
        self._asking = asyncio.Lock()

    def tell_elections(self, told: Callable[[str, int], None]) -> None:
        """Calls `told` from now on with each topic's physical partition that has another leader epoch than before."""
        self._told.append(told)

    async def of(self, topic: str) -> Mapping[int, Leader]:
        """Returns the leaders by physical partition; empty for a topic that no broker knows.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return (await self._fresh(topic)).told.leaders

    async def leader(self, topic: str, partition: int) -> Leader:
        """Returns the leader of a physical partition.

        Raises:
            UpstreamUnavailable: Nobody leads it, there is no such partition, or no broker answers.
        """
        told = (await self._fresh(topic)).told
        leader = told.leaders.get(partition)
        if leader is None or leader.node_id == NO_NODE:
            self.forget(topic)
            raise UpstreamUnavailable(f"{topic}-{partition} has no leader ({name_of(told.error_code)})")
        return leader

    async def connection(self, topic: str, partition: int, purpose: str) -> UpstreamClient:
        """Returns a connection to the leader of a physical partition.

        Args:
            purpose: As for `BrokerConnections.to`.

        Raises:
            UpstreamUnavailable: There is no leader, or it cannot be reached.
        """
        return await self._links.to((await self.leader(topic, partition)).node_id, purpose)

    def known(self, topic: str) -> Mapping[int, Leader] | None:
        """Returns the leaders by physical partition where nobody needs to be asked; None: call `of`."""
        known = self._good(topic)
        return known.told.leaders if known is not None else None

    async def topic_id(self, topic: str) -> UUID | None:
        """Returns a topic's id, as `TopicLeaders.topic_id`.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return (await self._fresh(topic)).told.topic_id

    def forget(self, topic: str) -> None:
        """Makes the next caller wait for a new answer; for when a broker says that it is not the leader."""
        self._forgotten[topic] += 1

    async def renew(self, *topics: str) -> dict[str, TopicLeaders]:
        """Asks again; what is known holds until the answer is there, so that nobody waits for it.

        Returns:
            The answer, by topic.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        async with self._asking:
            self._wanted.update(topics)
            await self._ask(self._wanted)
            return {topic: self._known.get(topic, _NOTHING).told for topic in topics}

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
        asked = time.monotonic()
        answer = await self._links.ask_any(_PURPOSE, metadata.API, _VERSIONS, topics_asked(sorted(topics)))
        self._links.topology.learn({broker.node_id: (broker.host, broker.port) for broker in answer.brokers})
        for row in answer.topics:
            name = row.name or ""  # null where a topic is asked for by its id
            former = self._known.get(name, _NOTHING)
            known = self._known[name] = self._read(row, former, asked, counts.get(name, 0))
            before = former.told.leaders
            for partition, leader in known.told.leaders.items():
                if partition in before and before[partition].epoch != leader.epoch:
                    for told in self._told:
                        told(name, partition)

    def _read(self, row: MetadataResponseTopic, former: _Known, asked: float, count: int) -> _Known:
        if row.error_code:
            return _Known(TopicLeaders(None, {}, row.error_code), asked, asked + _PAUSE_SECONDS, count)
        topic_id = row.get("topic_id", UUID(int=0))
        before = former.told.leaders if former.told.topic_id == topic_id else dict[int, Leader]()
        leaders = {each.partition_index: _newer(before.get(each.partition_index), each) for each in row.partitions}
        led = all(leader.node_id != NO_NODE for leader in leaders.values())
        seconds = self._links.topology.config.refresh_ms / 1000 if led else _PAUSE_SECONDS
        return _Known(TopicLeaders(topic_id, leaders), asked, asked + seconds, count)


def _newer(before: Leader | None, row: MetadataResponsePartition) -> Leader:
    """Takes what a broker says, unless it has not heard yet what another one has said before."""
    if before is not None and row.leader_epoch < before.epoch:
        return before
    return Leader(row.leader_id, row.leader_epoch, tuple(row.replica_nodes))
