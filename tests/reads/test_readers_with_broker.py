"""Fetch of a managed topic on a real broker: batches under tagged ids come back as logs of virtual partitions."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import api, request, response
from kordon.codecs.split import split
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.read_control import ReadControl
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import create_topic, links_to
from kordon.testing.known import known
from kordon.testing.messages.as_read import as_read

pytestmark = pytest.mark.broker
DELETE_RECORDS = 21
FACE_ID = UUID(int=99)
FETCH_VERSIONS = (4, 9, 12, 13, 18)
CLIENT = Client(1)


def batch(values: Iterable[str], producer_id: int = -1, sequence: int = 0, keys: Iterable[str] | None = None) -> bytes:
    told = list(values)
    names = list(keys) if keys is not None else ["k"] * len(told)
    epoch = 0 if producer_id >= 0 else -1
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, epoch, sequence if producer_id >= 0 else -1, 1 << 20)
    for delta, (key, value) in enumerate(zip(names, told, strict=True)):
        builder.append(delta, 1_700_000_000_000 + delta, key.encode(), value.encode(), [])
    return bytes(builder.build())


class Driver:
    """A topic of its own, its layout, and a worker's readers."""

    def __init__(self, links: BrokerConnections, name: str, layout: Layout) -> None:
        self.links = links
        self.name = name
        self.topics = ManagedTopics()
        self.topic = ManagedTopic(layout, FACE_ID)
        self.topics.add(self.topic)
        self.leaders = Leaders(links)
        self.readers = WorkerReads(self.topics, links, self.leaders)
        self.sequences: dict[tuple[int, int], int] = {}

    @property
    def layout(self) -> Layout:
        return self.topic.layout

    async def write(self, q: int, data: bytes) -> int:
        """Writes one batch to a physical partition; returns the offset behind it."""
        fields = {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": self.name, "partition_data": [{"index": q, "records": data}]}],
        }
        row = await self.written(q, fields)
        while row.error_code == Code.NOT_LEADER_OR_FOLLOWER:  # a broker hears of a leader later than another one
            self.leaders.forget(self.name)
            row = await self.written(q, fields)
        assert row.error_code == 0, row
        return int(row.base_offset) + int.from_bytes(data[23:27], "big") + 1

    async def written(self, q: int, fields: dict[str, Any]) -> Any:
        """Asks the leader of a physical partition, as far as it is known, to write; returns the partition's row."""
        leader = (await self.leaders.of(self.name))[q].node_id
        client = await self.links.to(leader, "write")
        return (await client.ask(api(apis.PRODUCE), 8, fields)).responses[0].partition_responses[0]

    async def produce(self, v: int, *values: str) -> int:
        """Writes as Kordon does: to the home of `v`, under its identity."""
        home = known(self.layout.chains[v].home)
        identity = tag(v, home.move, 7)
        at = (home.partition, identity)
        sequence = self.sequences.get(at, 0)
        self.sequences[at] = sequence + len(values)
        return await self.write(home.partition, batch(values, identity, sequence))

    async def ends(self) -> dict[int, int]:
        """Returns the ends of all physical partitions."""
        return await self.readers.ends.of(self.name, range(self.layout.v_count), -1)

    async def resize(self, u: int) -> None:
        following = self.layout.next_epoch(u)
        self.topic.adopt(self.layout.changed(following, await self.ends()), {})
        self.readers.logs.invalidate(self.name)

    async def fetch(self, offsets: dict[int, int], version: int = 12, **fields: Any) -> dict[int, Any]:
        """Fetches by bytes, as a client does; returns the parsed partitions."""
        told = {"max_wait_ms": 300, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "rack_id": ""} | fields
        rows = [{"partition": v, "fetch_offset": at, "partition_max_bytes": 1 << 20} for v, at in offsets.items()]
        topic = {"topic": self.name, "topic_id": FACE_ID, "partitions": rows}
        asked = as_read(request(apis.FETCH), version, told | {"topics": [topic]})
        built = response(apis.FETCH).build(version, await FetchHandler(self.readers).serve(version, asked, CLIENT))
        answer = response(apis.FETCH).parse(version, built)
        assert answer.get("session_id", 0) == 0
        return {row.partition_index: row for row in answer.responses[0].partitions}

    async def read(self, v: int, **fields: Any) -> list[tuple[int, str]]:
        """Reads a virtual partition from its start until its lag is 0; returns offsets and values."""
        found: list[tuple[int, str]] = []
        at, epoch = 0, -1
        while True:
            row = (await self.fetch({v: at}, **fields))[v]
            assert row.error_code == 0
            before = at
            for each in opened(row.records):
                assert each.base_offset + each.count > at
                assert each.leader_epoch == -1 or each.leader_epoch >= epoch
                epoch = max(epoch, each.leader_epoch)
                found += [pair for pair in each.values if pair[0] >= at]
                at = each.next_offset
            if at == before and row.high_watermark == at:
                return found


def opened(records: bytes) -> Iterable[Any]:
    """Opens batches by aiokafka's reader; those of control say no values."""
    reader = MemoryRecords(bytes(records))
    for found in split(records):
        each = reader.next_batch()
        assert each.validate_crc()
        values = [] if each.is_control_batch else [(record.offset, record.value.decode()) for record in each]
        yield SimpleNamespace(
            base_offset=each.base_offset,
            next_offset=each.next_offset,
            count=each.next_offset - each.base_offset,
            leader_epoch=found.leader_epoch,
            values=values,
        )


@asynccontextmanager
async def driver(
    cluster: Cluster, n: int = 2, v_count: int = 8, copies: int = 1, **options: Any
) -> AsyncIterator[Driver]:
    """A new topic with as many physical partitions as virtual ones, `n` of them used at first."""
    name = f"read-{uuid4().hex[:8]}"
    configs = [{"name": key, "value": value} for key, value in options.items()]
    row = {"name": name, "num_partitions": v_count, "replication_factor": copies, "assignments": [], "configs": configs}
    async with links_to(cluster) as links:
        await create_topic(links, row)
        made = Driver(links, name, Layout.created(name, UUID(int=1), n, v_count))
        try:
            while len(await made.ends()) < v_count:
                made.leaders.forget(name)
            yield made
        finally:
            await made.readers.close()


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_a_virtual_partition_is_its_own_batches_in_order(cluster: Cluster, version: int) -> None:
    """Neighbours on the same physical partition are not seen, and the reader ends without lag."""
    async with driver(cluster) as made:
        for n in range(6):
            for v in range(4):
                await made.produce(v, f"{v}-{n}-a", f"{v}-{n}-b")
        for v in range(4):
            values = [value for _, value in await made.read(v, version=version)]
            assert values == [f"{v}-{n}-{part}" for n in range(6) for part in "ab"]
        assert await made.read(7, version=version) == []


async def test_growth_and_shrink_are_read_as_one_log(cluster: Cluster) -> None:
    """Through homes that come, go and come back, offsets rise and every record is there once."""
    async with driver(cluster) as made:
        expected: dict[int, list[str]] = {v: [] for v in range(8)}
        for step, u in enumerate((3, 4, 8, 3, 2, 5)):
            for v in range(8):
                for n in range(step % 3):
                    expected[v].append(f"{v}-{step}-{n}")
                    await made.produce(v, expected[v][-1])
            await made.resize(u)
        for v in range(8):
            found = await made.read(v)
            assert [value for _, value in found] == expected[v]
            offsets = [offset for offset, _ in found]
            assert offsets == sorted(set(offsets))


async def test_a_stray_is_hidden(cluster: Cluster) -> None:
    """What lands behind the cut under the old identity is nobody's."""
    async with driver(cluster) as made:
        mover = next(
            v
            for v in range(8)
            if made.layout.homes[v]
            != made.layout.changed(made.layout.next_epoch(3), dict.fromkeys(range(8), 0)).homes[v]
        )
        old = known(made.layout.chains[mover].home)
        await made.produce(mover, "before")
        await made.resize(3)
        await made.write(old.partition, batch(["stray"], tag(mover, old.move, 7), 1))
        await made.produce(mover, "after")
        assert [value for _, value in await made.read(mover)] == ["before", "after"]
        stayer = made.layout.residence.residents(old.partition)[0]
        assert await made.read(stayer) == []
        assert made.readers.tally.hidden["stray"] == 1


async def test_batches_that_went_round_kordon_are_shared_out_by_key(cluster: Cluster) -> None:
    """Each record goes to one virtual partition that lives there, its key's own if that is one, and none is dropped."""
    async with driver(cluster) as made:
        keys = [f"key-{n}" for n in range(40)]
        await made.write(0, batch([f"value of {key}" for key in keys], keys=keys))
        residents = made.layout.residence.residents(0)
        found = {v: [value for _, value in await made.read(v)] for v in range(8)}
        assert sorted(value for values in found.values() for value in values) == sorted(
            f"value of {key}" for key in keys
        )
        assert {v for v, values in found.items() if values} <= set(residents)
        for key in keys:
            own = (murmur2(key.encode()) & 0x7FFFFFFF) % 8
            if own in residents:
                assert f"value of {key}" in found[own]
        assert made.readers.tally.hidden["bypass"] == 1


async def test_a_quiet_partition_is_moved_on_only_when_the_wait_is_over(cluster: Cluster) -> None:
    """The filler comes alone, and with it the position and the end are one; none comes while its home is sealed."""
    async with driver(cluster, n=1, v_count=2) as made:
        for n in range(5):
            await made.produce(0, f"{n}")
        loop = asyncio.get_running_loop()
        before = loop.time()
        row = (await made.fetch({1: 0}, max_wait_ms=400))[1]
        assert loop.time() - before >= 0.4
        (only,) = opened(row.records)
        assert (only.base_offset, only.next_offset, only.values) == (0, 5, [])
        assert row.high_watermark == row.last_stable_offset == 5
        made.topic.raise_fence(Fence("f", frozenset({0})))
        assert (await made.fetch({1: 0}))[1].records == b""


async def test_nothing_is_shown_beyond_a_fence(cluster: Cluster) -> None:
    """What becomes readable after the freeze stays unseen until the fence ends, and wakes its readers then."""
    async with driver(cluster, n=1, v_count=2) as made:
        await made.produce(0, "before")
        assert len(await made.read(0)) == 1
        made.topic.raise_fence(Fence("f", frozenset({0})))
        marks = await ReadControl(made.readers).freeze(made.name, frozenset({0}))
        assert marks == {0: 1}
        made.topic.fence = Fence("f", frozenset({0}), marks)
        await made.produce(0, "behind")
        row = (await made.fetch({0: 1}))[0]
        assert (row.records, row.high_watermark) == (b"", 1)
        waiting = asyncio.ensure_future(made.fetch({0: 1}, max_wait_ms=3_600_000))
        await asyncio.sleep(0)
        made.topic.cancel_fence()
        made.readers.logs.invalidate(made.name)
        async with asyncio.timeout(60):  # far less than it would wait without being woken
            row = (await waiting)[0]
        assert [each.values for each in opened(row.records)] == [[(1, "behind")]]


async def test_a_hole_is_passed_and_an_end_is_out_of_range(cluster: Cluster) -> None:
    """Records that retention took are passed by a filler; an offset behind the end is refused after a fresh look."""
    async with driver(cluster, n=1, v_count=2) as made:
        for n in range(4):
            await made.produce(0, f"{n}")
        deleted = {"name": made.name, "partitions": [{"partition_index": 0, "offset": 3}]}
        client = await made.links.to(1, "write")
        answer = await client.ask(api(DELETE_RECORDS), 1, {"topics": [deleted], "timeout_ms": 5_000})
        assert answer.topics[0].partitions[0].error_code == 0
        row = (await made.fetch({0: 0}))[0]
        assert [(each.base_offset, each.next_offset, each.values) for each in opened(row.records)] == [(0, 3, [])]
        assert row.log_start_offset == 3
        assert await made.read(0) == [(3, "3")]
        row = (await made.fetch({0: 100}))[0]
        assert (row.error_code, row.records) == (Code.OFFSET_OUT_OF_RANGE, b"")


async def test_a_client_with_another_leader_epoch_is_told(cluster: Cluster) -> None:
    """An epoch of an earlier move is fenced, one of a later move is unknown as yet (KIP-320)."""
    async with driver(cluster) as made:
        await made.resize(8)
        mover = next(v for v in range(8) if len(made.layout.chains[v].stays) > 1)
        found = []
        for move in (0, 1, 2):
            row = {
                "partition": mover,
                "fetch_offset": 0,
                "partition_max_bytes": 1000,
                "current_leader_epoch": move << 15,
            }
            topic = {"topic": made.name, "partitions": [row]}
            body = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1000, "topics": [topic], "rack_id": ""}
            asked = as_read(request(apis.FETCH), 11, body)
            answer = as_read(response(apis.FETCH), 11, await FetchHandler(made.readers).serve(11, asked, CLIENT))
            found.append(answer.responses[0].partitions[0].error_code)
        assert found == [Code.FENCED_LEADER_EPOCH, 0, Code.UNKNOWN_LEADER_EPOCH]


@pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason)
async def test_readers_follow_a_leader_that_moves(cluster3: Cluster) -> None:
    """A reader that waits at the end gets what is written to the next leader, and is told no error."""
    async with driver(cluster3, n=1, v_count=1, copies=3) as made:
        await made.produce(0, "before")
        assert len(await made.read(0)) == 1
        former = (await made.leaders.of(made.name))[0].node_id
        waiting = asyncio.ensure_future(made.fetch({0: 1}, max_wait_ms=60_000))
        await asyncio.to_thread(cluster3.move_leader, made.name, 0, former % 3 + 1)
        made.leaders.forget(made.name)
        await made.produce(0, "after")
        row = (await waiting)[0]
        assert row.error_code == 0
        assert [each.values for each in opened(row.records)] == [[(1, "after")]]
