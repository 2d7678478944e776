"""What tests of Produce share: a worker that writes to a real topic, a client of exact words, a reader."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from kordon.codecs.error_codes import Code
from kordon.codecs.messages import api, request, response
from kordon.codecs.produce import build_outcomes, look_produce
from kordon.codecs.records import batches
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.produce import Produce
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import NO_NODE, Leaders
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.ordering.identity import Identity, untag
from kordon.proxy.ordering.images import ImageParts, Written, carried
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Epoch
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.proxy.writes.write_dispatcher import WriteDispatcher
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import create_topic, links_to
from kordon.testing.waiting import until

PRODUCE, FETCH, LIST_OFFSETS, INIT_PRODUCER_ID, DESCRIBE_PRODUCERS = 0, 1, 2, 22, 61
FACE_ID = uuid.UUID(int=77)
_NEWEST = {"timestamp": -1}
_RETRIABLE = frozenset({5, 6, 7, 19, 20, 45, 56})
_WINDOW = 5


def a_batch(
    *values: str, producer_id: int = -1, epoch: int = -1, sequence: int = -1, compression: int = 0, txn: int = 0
) -> bytes:
    """A batch as aiokafka builds it."""
    builder = DefaultRecordBatchBuilder(2, compression, txn, producer_id, epoch, sequence, 16_000_000)
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=1_700_000_000_000, key=None, value=value.encode(), headers=[])
    return bytes(builder.build())


@dataclass
class Stored:
    """A batch in the log of a physical partition."""

    offset: int
    identity: Identity | None
    epoch: int
    sequence: int
    values: list[str]


@dataclass
class Lease:
    """A lease that tests end and renew."""

    alive: bool = True


@dataclass
class Worker:
    """What a worker has to write to one managed topic."""

    topic: ManagedTopic
    topics: ManagedTopics
    links: BrokerConnections
    leaders: Leaders
    dispatcher: WriteDispatcher
    service: Produce
    lease: Lease
    client: Client = field(default_factory=lambda: Client(1))

    async def send(self, *entries: tuple[int, bytes | None], acks: int = -1, version: int = 9) -> list[tuple[int, int]]:
        """Produces batches to virtual partitions; returns error code and base offset of each."""
        return [(row.error_code, row.base_offset) for row in await self.rows(*entries, acks=acks, version=version)]

    async def rows(
        self, *entries: tuple[int, bytes | None], acks: int = -1, version: int = 9, by_table: bool = False
    ) -> list[Any]:
        """Does as `send`, and returns the response's rows, as a client parses them."""
        parts = [{"index": v, "records": records} for v, records in entries]
        names = {"name": self.topic.name, "topic_id": FACE_ID}
        fields = {"acks": acks, "timeout_ms": 10_000, "topic_data": [names | {"partition_data": parts}]}
        body = request(PRODUCE).build(version, fields)
        async with asyncio.timeout(60):
            if by_table:
                served = await self.service.serve(version, request(PRODUCE).parse(version, body), self.client)
                answered = response(PRODUCE).build(version, served)
            else:
                written = await self.service.write(version, look_produce(version, bytearray(body)), self.client)
                answered = build_outcomes(version, written)
        answer = response(PRODUCE).parse(version, answered)
        rows: list[Any] = answer.responses[0].partition_responses
        return rows

    def another(self) -> Worker:
        """Returns another worker for the same topic, that knows nothing of what this one has written."""
        dispatcher = WriteDispatcher(self.links, Leaders(self.links), lambda: self.lease.alive)
        return replace(self, dispatcher=dispatcher, service=Produce(self.topics, dispatcher))

    async def stored(self, partition: int) -> list[Stored]:
        end = (await self.ends_of([partition]))[partition]
        client = await self._leader(partition)
        found: list[Stored] = []
        offset = 0
        while offset < end:
            parts = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 24}]
            fields = {
                "replica_id": -1,
                "max_bytes": 1 << 24,
                "topics": [{"topic": self.topic.name, "partitions": parts}],
            }
            (row,) = (await client.ask(api(FETCH), 11, fields)).responses[0].partitions
            assert row.error_code != Code.OFFSET_OUT_OF_RANGE, "the broker has let records go"
            if row.error_code:
                self.leaders.forget(self.topic.name)
                client = await self._leader(partition)
                continue
            records = row.records
            for span in batches(records):
                assert span.header is not None
                values = [
                    (record.value or b"").decode() for record in DefaultRecordBatch(records[span.start : span.end])
                ]
                header = span.header
                found.append(
                    Stored(
                        header.base_offset,
                        untag(header.producer_id),
                        header.producer_epoch,
                        header.base_sequence,
                        values,
                    )
                )
                offset = header.next_offset
        return found

    async def read(self, v: int) -> list[str]:
        """Reads a virtual partition along its chain."""
        found: list[str] = []
        for stay in self.topic.layout.chains[v].stays:
            for batch in await self.stored(stay.partition):
                inside = batch.offset >= stay.start and (stay.end is None or batch.offset < stay.end)
                if inside and batch.identity is not None and batch.identity[:2] == (v, stay.move):
                    found += batch.values
        return found

    async def ends_of(self, partitions: Iterable[int]) -> dict[int, int]:
        """Asks for the ends of physical partitions; those are missing that are not led."""
        found: dict[int, int] = {}
        for q in partitions:
            fields = {
                "replica_id": -1,
                "topics": [{"name": self.topic.name, "partitions": [_NEWEST | {"partition_index": q}]}],
            }
            answer = await (await self._leader(q)).ask(api(LIST_OFFSETS), 4, fields)
            (row,) = answer.topics[0].partitions
            if row.error_code:
                self.leaders.forget(self.topic.name)
            else:
                found[q] = row.offset
        return found

    async def _leader(self, partition: int) -> UpstreamClient:
        async with asyncio.timeout(60):
            while True:
                leader = (await self.leaders.of(self.topic.name)).get(partition)
                if leader is not None and leader.node_id != NO_NODE:
                    with suppress(UpstreamUnavailable):
                        return await self.links.to(leader.node_id, "test reads")
                self.leaders.forget(self.topic.name)

    async def until_led(self, partitions: Collection[int]) -> None:
        """Returns when the broker itself knows that it leads these: it tells of a new topic a moment earlier."""

        async def led() -> bool:
            return len(await self.ends_of(partitions)) == len(partitions)

        await until("all are led", led)

    def seal(self, u: int) -> frozenset[int]:
        """Raises the fence of a change to `u` partitions."""
        sealed = self.topic.layout.change_to(self.topic.layout.next_epoch(u)).sealed
        self.topic.raise_fence(Fence("test", sealed))
        return sealed

    async def move(self, u: int) -> None:
        """Changes the layout as the controller does: fence, drain, cuts and images, adoption."""
        sealed = self.seal(u)
        async with asyncio.timeout(60):
            await self.dispatcher.drain(self.topic.name, sealed)
        await self.adopt(u)

    async def adopt(self, u: int) -> None:
        """Does the second half of `move`."""
        layout = self.topic.layout
        following = layout.next_epoch(u)
        touched = layout.change_to(following).touched
        async with asyncio.timeout(60):
            while True:  # STILL-CUT: what was lost on its way may land in between
                cuts = await self.ends_of(touched)
                images = await self._images(following)
                if cuts == await self.ends_of(touched) and len(cuts) == len(touched):
                    break
        self.topic.adopt(layout.changed(following, cuts), {**self.topic.images, **images})

    async def _images(self, following: Epoch) -> dict[int, ImageParts]:
        layout = self.topic.layout
        images: dict[int, ImageParts] = {}
        for v in layout.change_to(following).movers:
            home = layout.chains[v].home
            assert home is not None
            here = await self._writers(home.partition, v, home.move)
            image = self.topic.images.get(v)
            images[v] = carried(
                image if isinstance(image, ImageParts) else ImageParts(), here, cut_ms=0, forgotten_ms=0
            )
        return images

    async def _writers(self, partition: int, v: int, move: int) -> dict[int, Written]:
        client = await self._leader(partition)
        fields = {"topics": [{"name": self.topic.name, "partition_indexes": [partition]}]}
        answer = await client.ask(api(DESCRIBE_PRODUCERS), 0, fields)
        found: dict[int, Written] = {}
        for row in answer.topics[0].partitions[0].active_producers:
            identity = untag(row.producer_id)
            if identity is not None and identity[:2] == (v, move):
                found[identity.client_id] = Written(row.producer_epoch, row.last_sequence)
        return found


@asynccontextmanager
async def a_worker(
    cluster: Cluster,
    *,
    n: int = 1,
    u: int = 4,
    v_count: int = 4,
    replicas: int = 1,
    make_leaders: type[Leaders] = Leaders,
) -> AsyncIterator[Worker]:
    """A worker that writes to a new topic of `u` physical partitions, of which `n` are used at first."""
    async with links_to(cluster) as links:
        leaders = make_leaders(links)
        name = f"produce-{uuid.uuid4().hex[:8]}"
        await create_topic(links, {"name": name, "num_partitions": u, "replication_factor": replicas})
        topic = ManagedTopic(Layout.created(name, uuid.UUID(int=5), n, v_count), FACE_ID)
        topics = ManagedTopics()
        topics.add(topic)
        lease = Lease()
        dispatcher = WriteDispatcher(links, leaders, lambda: lease.alive)
        try:
            worker = Worker(topic, topics, links, leaders, dispatcher, Produce(topics, dispatcher), lease)
            await worker.until_led(range(u))
            yield worker
        finally:
            await dispatcher.close()


@dataclass
class Producer:
    """An idempotent producer on one virtual partition: five batches under way, retries in order, as Java does."""

    worker: Worker
    number: int
    v: int
    count: int
    acked: set[int] = field(default_factory=set[int])
    under_way: set[int] = field(default_factory=set[int])
    retries: int = 0

    async def run(self) -> None:
        """Returns when all is acknowledged."""
        tasks: set[asyncio.Task[None]] = set()
        while len(self.acked) < self.count:
            oldest = next(n for n in range(self.count) if n not in self.acked)
            for n in range(oldest, min(oldest + _WINDOW, self.count)):
                if n not in self.acked and n not in self.under_way:
                    self.under_way.add(n)
                    tasks.add(asyncio.ensure_future(self.send(n)))
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def send(self, n: int) -> None:
        """Sends a batch; what is refused is sent again by `run`."""
        batch = a_batch(f"{self.number}-{n}", producer_id=self.number, epoch=0, sequence=n)
        ((code, _),) = await self.worker.send((self.v, batch))
        assert code in _RETRIABLE | {0}, f"error {code}"
        self.under_way.discard(n)
        if code == 0:
            self.acked.add(n)
            return
        self.retries += 1
        if code == 45:
            assert any(before not in self.acked for before in range(n)), "fatal for librdkafka: it was next"
        await asyncio.sleep(0.01)

    async def check(self) -> None:
        """Reads what it has written, along the chain: each record once, in order."""
        values = [value for value in await self.worker.read(self.v) if value.startswith(f"{self.number}-")]
        assert values == [f"{self.number}-{n}" for n in range(self.count)]


async def write_meanwhile(others: Coroutine[Any, Any, None], producers: Collection[Producer]) -> None:
    """Has producers write what they are to, and more until something else has ended."""
    done = asyncio.ensure_future(others)

    async def write(producer: Producer) -> None:
        await producer.run()
        while not done.done():
            producer.count += _WINDOW
            await producer.run()

    await asyncio.gather(done, *map(write, producers))
