"""What brokers tell a simulated proxy of topics, logs and groups: answers that the product's controller works with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from kordon.codecs.producers import ProducerRow, ProducerRows
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import Ends, Snapshot
from kordon.proxy.kafka.leaders import NO_NODE, Leader, TopicLeaders
from kordon.proxy.kafka.transaction_coordinators import OpenTransaction
from kordon.proxy.topics.managed_topics import face_of
from kordon.testing.simulation.kafka import REMEMBERED_SECONDS, Partition, batch_bytes

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy

FACE_ID: Final = UUID(int=2)
GROUP: Final = "group"
"""The one that commits to brokers."""
_ELECTION_SECONDS: Final = 0.05

_Answer = TypeVar("_Answer")


class Transactions:
    """What coordinators of transactions say: nobody has any."""

    async def open(self, producer_ids: Collection[int] = ()) -> list[OpenTransaction]:
        """Names none."""
        del producer_ids
        return []


class Admin:
    """What `TopicsAdmin` is to the product.

    Args:
        proxy: Who asks.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cluster = proxy.cluster
        self.ends = Logs(proxy)
        self.groups = Groups(proxy)
        self.transactions = Transactions()

    async def topic_id(self, topic: str) -> UUID:
        """Knows two: that of the topic, and that of its face."""
        return FACE_ID if topic == face_of(self._cluster.topic) else self._cluster.layout.topic_id

    async def topic_configs(self, topic: str) -> dict[str, str | None]:
        """Has set none."""
        del topic
        return {}

    async def gone(self, expected: Mapping[str, UUID]) -> dict[str, UUID | None]:
        """Nobody deletes topics."""
        del expected
        return {}

    async def create_topic(self, name: str, **_: object) -> bool:
        """Creates the face."""
        return await self._proxy.asked(lambda: name == face_of(self._cluster.topic))

    async def delete_topic(self, name: str) -> bool:
        """Deletes the face."""
        return await self._proxy.asked(lambda: name == face_of(self._cluster.topic))

    async def create_partitions(self, topic: str, count: int) -> None:
        """Makes partitions."""
        assert topic == self._cluster.topic

        def there() -> None:
            self._cluster.physical = max(count, self._cluster.physical)

        await self._proxy.asked(there)

    async def wait_for_leaders(self, topic: str, *, partitions: int) -> dict[int, Leader]:
        """Waits until all partitions have leaders."""
        del partitions
        while True:
            found = await self.ends.leaders(topic)
            if all(leader.is_elected for leader in found.values()):
                return found
            await asyncio.sleep(_ELECTION_SECONDS)

    async def producers_remembered_ms(self) -> int:
        """Tells for how long brokers remember producers that are silent."""
        return round(REMEMBERED_SECONDS * 1000)


class Logs:
    """What `PartitionEnds` is to the product: all partitions are led by one broker.

    Args:
        proxy: Who asks.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._world = proxy.world
        self._cluster = proxy.cluster

    async def leaders(self, topic: str) -> dict[int, Leader]:
        """Tells who leads; all partitions are led by one broker."""
        if topic != self._cluster.topic:
            return {}

        def there() -> dict[int, Leader]:
            logs = {q: self._cluster.partition(q) for q in range(self._cluster.physical)}
            return {q: Leader(1 if log.has_leader else NO_NODE, log.leader_epoch) for q, log in logs.items()}

        return await self._proxy.asked(there)

    async def leaders_of(self, topics: Iterable[str]) -> dict[str, TopicLeaders]:
        """No log gets shorter: nobody need be asked."""
        del topics
        return {}

    async def producers_of(self, topic: str, partitions: Collection[int]) -> dict[int, ProducerRows]:
        """Tells who has written to partitions."""
        del topic
        return await self._led(partitions, lambda logs: {q: _rows(log) for q, log in logs.items()})

    async def ends_of(self, topic: str, partitions: Iterable[int]) -> dict[int, Ends]:
        """Tells where logs end."""
        del topic
        return await self._led(partitions, lambda logs: {q: _ends(log) for q, log in logs.items()})

    async def log_starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Tells where logs begin."""
        del topic
        return await self._led(partitions, lambda logs: {q: log.start for q, log in logs.items()})

    async def snapshot(self, topic: str, partition: int) -> Snapshot:
        """Tells log end, producers, and both ends again."""
        return (await self.snapshots(topic, [partition]))[partition]

    async def snapshots(self, topic: str, partitions: Iterable[int]) -> dict[int, Snapshot]:
        """The same of several; between its questions a broker takes what clients write (STILL-CUT)."""
        del topic
        before, found, after = await self._looked(
            partitions, lambda logs, _: {q: _rows(log) for q, log in logs.items()}
        )
        return {q: Snapshot(before[q], found[q], after[q]) for q in before}

    async def read_behind(self, topic: str, positions: Mapping[int, int]) -> dict[int, tuple[Snapshot, memoryview]]:
        """Tells log ends, what stands behind positions, and both ends again."""
        del topic

        def read(logs: Mapping[int, Partition], ends: Mapping[int, int]) -> dict[int, memoryview]:
            if any(log.start > positions[q] for q, log in logs.items()):
                raise UpstreamUnavailable("OFFSET_OUT_OF_RANGE")
            return {q: _bytes(log, positions[q], ends[q]) for q, log in logs.items()}

        before, found, after = await self._looked(positions, read)
        nobody = ProducerRows.of(())
        return {q: (Snapshot(before[q], nobody, after[q]), found[q]) for q in before}

    async def _looked(
        self,
        partitions: Iterable[int],
        look: Callable[[Mapping[int, Partition], Mapping[int, int]], dict[int, _Answer]],
    ) -> tuple[dict[int, int], dict[int, _Answer], dict[int, Ends]]:
        """Asks for log ends, something else and both ends, in this order: under one leader each, or it is refused."""
        logs = {q: self._cluster.partition(q) for q in partitions}
        answer = self._proxy.loop.create_future()

        def ends_before() -> None:
            before = {q: log.end for q, log in logs.items()}
            epochs = {q: log.leader_epoch for q, log in logs.items()}
            self._world.soon(lambda: meanwhile(before, epochs))

        def meanwhile(before: dict[int, int], epochs: dict[int, int]) -> None:
            try:
                found = look(logs, before)
            except UpstreamUnavailable as error:
                back(error)
                return
            self._cluster.nemesis.on_cut()
            self._world.soon(lambda: ends_after(before, epochs, found))

        def ends_after(before: dict[int, int], epochs: dict[int, int], found: dict[int, _Answer]) -> None:
            if any(not log.has_leader or log.leader_epoch != epochs[q] for q, log in logs.items()):
                back(UpstreamUnavailable("NOT_LEADER_OR_FOLLOWER"))
            else:
                back((before, found, {q: _ends(log) for q, log in logs.items()}))

        def back(found: object) -> None:
            self._proxy.later(lambda: None if answer.done() else answer.set_result(found))

        self._proxy.later_there(ends_before)
        told = await answer
        if isinstance(told, UpstreamUnavailable):
            raise told
        found: tuple[dict[int, int], dict[int, _Answer], dict[int, Ends]] = told
        return found

    async def _led(self, partitions: Iterable[int], look: Callable[[Mapping[int, Partition]], _Answer]) -> _Answer:
        """Asks leaders; where there is none, nothing is told."""
        logs = {q: self._cluster.partition(q) for q in partitions}
        found = await self._proxy.asked(lambda: look(logs) if all(log.has_leader for log in logs.values()) else None)
        if found is None:
            raise UpstreamUnavailable("NOT_LEADER_OR_FOLLOWER")
        return found


class Groups:
    """What `GroupOffsets` is to the product: there is one group, of members that know no names.

    Args:
        proxy: Who asks.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cluster = proxy.cluster

    async def groups(self) -> list[str]:
        """Tells of the one."""
        return [GROUP]

    async def committed(self, *_: object) -> dict[str, dict[int, int]]:
        """Tells what it has committed."""
        committed = self._cluster.committed
        return await self._proxy.asked(
            lambda: {GROUP: {v: each for v, each in committed.items() if v < self._cluster.n}}
        )

    async def subscribers(self, *_: object) -> tuple[()]:
        """Nobody subscribes to names."""
        return ()


def _ends(log: Partition) -> Ends:
    return Ends(log.end, log.end, log.leader_epoch)


def _rows(log: Partition) -> ProducerRows:
    return ProducerRows.of(
        ProducerRow(producer_id, epoch, last_sequence, -1, -1, -1)
        for producer_id, (epoch, last_sequence) in log.producers().items()
    )


def _bytes(log: Partition, start: int, end: int) -> memoryview:
    """Returns the batches of [start, end)."""
    return memoryview(b"".join(batch_bytes(batch, base) for base, batch in log.between(start, end)))
