"""What a producer holds moves with its keys: against a model of the rules by which Kordon takes writes.

The model judges as rule I8 says: first the image, then the count; it loses requests and answers, shows metadata that is
behind, and has proxies that learn late of a layout which does not concern the partition that is written to.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from aiokafka.errors import KafkaConnectionError, RequestTimedOutError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.client import OrderedProducer
from kordon.client.connection import DialectMetadata
from kordon.client.homes import NO_STAMP, Stamp
from kordon.client.partitioning import key_hash
from kordon.codecs.messages import response
from kordon.proxy.ordering.hashing import homes

N, V = 3, 12
NOT_LEADER, OUT_OF_ORDER, INVALID_PARTITION_METADATA = 6, 45, 16384
METADATA_VERSION = 12


class Write(NamedTuple):
    """A batch on its way."""

    partition: int
    data: bytes
    stamp: Stamp


class Model:
    """A topic behind Kordons, as far as a producer can tell."""

    def __init__(self, seed: int, trouble: float = 0.0, managed: bool = True) -> None:
        self.chance = random.Random(seed)
        self.trouble = trouble
        self.managed = managed
        self.counts = [N]
        """U by layout epoch."""
        self.written: list[tuple[int, int, Any]] = []
        """Layout epoch, partition and record, in the order in which they were written."""
        self.refusals = 0
        self.first_epoch = 0
        """That in which the topic was managed."""
        self._delayed: list[Write] = []
        self._sequences: dict[int, int] = defaultdict(lambda: -1)
        self._batches: dict[tuple[int, int], list[Any]] = {}

    def values(self, key: bytes | None) -> list[bytes]:
        """What was written with a key, in its order."""
        return [bytes(record.value) for _, _, record in self.written if record.key == key]

    def take_over(self) -> None:
        """The ordinary topic becomes a managed one: every partition is sealed."""
        self.managed = True
        self.counts.append(N)
        self.first_epoch = 1

    def happens(self) -> bool:
        """Whether something goes wrong now."""
        return self.chance.random() < self.trouble

    def metadata(self) -> DialectMetadata:
        """What one of the proxies tells, which may be behind."""
        epoch = max(self.first_epoch, len(self.counts) - 1 - self.happens())
        partitions = [
            {"error_code": 0, "partition_index": q, "leader_id": q % 2, "replica_nodes": [0], "isr_nodes": [0]}
            for q in range(self.counts[epoch])
        ]
        row: dict[str, Any] = {"error_code": 0, "name": "orders", "topic_id": UUID(int=1), "partitions": partitions}
        if self.managed:
            row |= {"initial_partition_count": N, "undeleted_partition_count": self.counts[epoch]}
            row |= {"virtual_partition_count": V, "layout_epoch": epoch}
        brokers = [{"node_id": node, "host": "kordon", "port": 9092 + node} for node in range(2)]
        body = response(3).build(METADATA_VERSION, {"brokers": brokers, "topics": [row]})
        return DialectMetadata(response(3).parse(METADATA_VERSION, body))

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Takes a request, in place of the client's network."""
        del node_id, options
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if isinstance(request, InitProducerIdRequest):
            return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=0)
        writes = _writes_of(request)
        if self.happens():
            self._delayed += [write for write in writes if self.happens()]
            raise KafkaConnectionError("lost on its way")
        self._land_what_was_delayed()
        codes = {write.partition: NOT_LEADER if self.happens() else self._write(write) for write in writes}
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if self.happens():
            raise RequestTimedOutError
        if isinstance(request, ProduceRequest):
            return SimpleNamespace(API_VERSION=5, topics=[("orders", [(q, codes[q], -1, -1, 0) for q in codes])])
        rows = [{"index": q, "base_offset": -1, "error_code": codes[q]} for q in codes]
        answer = response(0).build(9, {"responses": [{"name": "orders", "partition_responses": rows}]})
        return response(0).parse(9, answer)

    def _land_what_was_delayed(self) -> None:
        """Copies of requests whose sender has given up arrive, long after that."""
        for write in list(self._delayed):
            if self.happens():
                self._delayed.remove(write)
                self._write(write, heard=False)

    def _write(self, write: Write, *, heard: bool = True) -> int:
        q, data, stamp = write
        batch = MemoryRecords(bytes(data)).next_batch()
        records = list(batch)
        first, last = batch.base_sequence, self._sequences[q]
        if first <= last:
            same = (q, first) in self._batches and [r.value for r in self._batches[q, first]] == [
                r.value for r in records
            ]
            assert same or not heard, "a sequence of another"
            return 0
        if first > last + 1 and not heard:
            return OUT_OF_ORDER
        assert first == last + 1, "out of order sequence"
        epoch = self._judge(q)
        u = self.counts[epoch]
        if self.managed and (stamp.undeleted_partition_count != u or q >= u or stamp.layout_epoch < self._opened(q)):
            self.refusals += 1
            return INVALID_PARTITION_METADATA
        self._sequences[q] = last + len(records)
        self._batches[q, first] = records
        self.written += [(epoch, q, record) for record in records]
        for record in records:
            keyed = record.key is not None and record.key != b"pinned"
            assert not keyed or (home(record.key, u) if self.managed else key_hash(record.key) % N) == q, "misplaced"
        return 0

    def _judge(self, q: int) -> int:
        """The layout of the proxy that is asked: one that is behind would hold writes of what was sealed."""
        epoch = len(self.counts) - 1
        if epoch == self.first_epoch or not self.happens():
            return epoch
        return epoch if self._opened(q) == epoch else epoch - 1

    def _opened(self, q: int) -> int:
        """The layout epoch in which the partition's open segment began."""
        held = [{v for v in range(V) if homes(N, u, V)[v] == q} for u in self.counts]
        return max((e for e in range(1, len(held)) if held[e] != held[e - 1]), default=self.first_epoch)


def _writes_of(request: Any) -> list[Write]:
    if isinstance(request, ProduceRequest):
        return [Write(q, bytes(data), NO_STAMP) for _, rows in request._topics for q, data in rows]
    return [
        Write(row["index"], bytes(row["records"]), Stamp(topic["undeleted_partition_count"], topic["layout_epoch"]))
        for topic in request.body["topic_data"]
        for row in topic["partition_data"]
    ]


def home(key: bytes, u: int) -> int:
    return homes(N, u, V)[key_hash(key) % V]


async def start(model: Model, **options: Any) -> OrderedProducer:
    """A producer whose network is the model."""
    producer = OrderedProducer(retry_backoff_ms=1, **options)
    client = producer.client

    async def metadata_update(cluster: Any, _topics: Any) -> bool:
        cluster.update_metadata(model.metadata())
        return True

    async def bootstrap() -> None:
        await metadata_update(client.cluster, None)
        client._sync_task = asyncio.get_running_loop().create_task(client._md_synchronizer())

    client.bootstrap, client._metadata_update, client.send = bootstrap, metadata_update, model.send  # type: ignore[method-assign,assignment]
    await producer.start()
    return producer


async def play(seed: int, trouble: float, codec: Any = None, taken_over_at: int = -1) -> Model:
    """Sends while the topic grows and shrinks; returns what came of it, all acknowledged.

    Args:
        seed: Of all chance.
        trouble: How often what can go wrong does.
        codec: compression_type.
        taken_over_at: The number of the record before which an ordinary topic becomes a managed one.
    """
    model = Model(seed, trouble, managed=taken_over_at < 0)
    producer = await start(model, max_batch_size=300, compression_type=codec)
    futures = []
    for number in range(300):
        key = b"key-%d" % (number % 13)
        futures.append(await producer.send("orders", b"%d" % number, key))
        if number % 7 == 0:
            futures.append(await producer.send("orders", b"%d" % number))
        if number % 5 == 0:
            futures.append(await producer.send("orders", b"%d" % number, b"pinned", partition=1))
        if number == taken_over_at:
            model.take_over()
        elif model.managed and model.chance.random() < 0.05:
            model.counts.append(model.chance.choice([u for u in range(N, V + 1) if u != model.counts[-1]]))
        if model.chance.random() < 0.3:
            await asyncio.sleep(0.001 * model.happens())
    await asyncio.wait_for(producer.flush(), 30)
    await asyncio.wait_for(asyncio.gather(*futures), 30)
    await producer.stop()
    return model


def assert_all_once_and_in_order(model: Model, pinned: bool = True) -> None:
    """Holds what was written against what was sent; `pinned`: what was sent to a partition as such is in order, too."""
    for key in range(13):
        assert model.values(b"key-%d" % key) == [b"%d" % n for n in range(300) if n % 13 == key]
    given = list(map(int, model.values(b"pinned")))
    assert (given if pinned else sorted(given)) == [n for n in range(300) if n % 5 == 0]
    assert sorted(map(int, model.values(None))) == [n for n in range(300) if n % 7 == 0]


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_each_key_is_written_once_and_in_order_whatever_changes(seed: int) -> None:
    """Growths and shrinks at any moment, without trouble on the way."""
    assert_all_once_and_in_order(asyncio.run(play(seed, trouble=0.0)))


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_each_key_is_written_once_and_in_order_whatever_is_lost(seed: int) -> None:
    """Requests and answers are lost, leaders move, metadata is behind, proxies learn late."""
    assert_all_once_and_in_order(asyncio.run(play(seed, trouble=0.15)))


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_a_producer_goes_on_while_its_topic_is_taken_over(seed: int) -> None:
    """What it placed by the number of partitions goes where managed keys live, and no key loses its order."""
    model = asyncio.run(play(seed, trouble=0.1, taken_over_at=100))
    assert_all_once_and_in_order(model, pinned=False)
    assert {epoch for epoch, _, _ in model.written} > {0}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_move_like_others(codec: str) -> None:
    """They are opened, and their records compressed anew."""
    model = asyncio.run(play(11, trouble=0.1, codec=codec))
    assert model.refusals
    assert_all_once_and_in_order(model)
