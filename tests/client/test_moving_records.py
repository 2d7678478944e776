"""What a producer holds moves with its keys: against a model of the rules by which Kordon takes writes.

The model judges as rule I8 says: first the image, then the count; it loses requests and answers, shows metadata that is
behind, and has proxies that learn late of a layout which does not concern the partition that is written to.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from aiokafka.errors import KafkaConnectionError, RequestTimedOutError
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.client import OrderedProducer
from kordon.client.connection import DialectMetadata
from kordon.client.partitioning import key_hash
from kordon.client.requests import WireRequest
from kordon.codecs.messages import response
from kordon.proxy.ordering.hashing import homes

N, V = 3, 12
NOT_LEADER, INVALID_PARTITION_METADATA = 6, 16384
METADATA_VERSION = 12


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
        self._sequences: dict[int, int] = defaultdict(lambda: -1)
        self._batches: dict[tuple[int, int], list[Any]] = {}

    def values(self, key: bytes | None) -> list[bytes]:
        """What was written with a key, in its order."""
        return [bytes(record.value) for _, _, record in self.written if record.key == key]

    def happens(self) -> bool:
        """Whether something goes wrong now."""
        return self.chance.random() < self.trouble

    def metadata(self) -> DialectMetadata:
        """What one of the proxies tells, which may be behind."""
        epoch = max(0, len(self.counts) - 1 - self.happens())
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
        if not isinstance(request, WireRequest):
            return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=0)
        if self.happens():
            raise KafkaConnectionError("lost before it came to anything")
        answer = {"responses": [self._answer(topic) for topic in request.body["topic_data"]]}
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if self.happens():
            raise RequestTimedOutError
        return response(0).parse(9, response(0).build(9, answer))

    def _answer(self, topic: dict[str, Any]) -> dict[str, Any]:
        count = topic["undeleted_partition_count"]
        rows = [
            {"index": row["index"], "base_offset": -1, "error_code": self._write(row["index"], row["records"], count)}
            for row in topic["partition_data"]
        ]
        return {"name": topic["name"], "partition_responses": rows}

    def _write(self, q: int, data: bytes, count: int) -> int:
        if self.happens():
            return NOT_LEADER
        batch = MemoryRecords(bytes(data)).next_batch()
        records = list(batch)
        first, last = batch.base_sequence, self._sequences[q]
        if first <= last:
            assert [r.value for r in self._batches[q, first]] == [r.value for r in records], "a sequence of another"
            return 0
        assert first == last + 1, "out of order sequence"
        epoch = self._judge(q)
        u = self.counts[epoch]
        if count != u or q >= u:
            self.refusals += 1
            return INVALID_PARTITION_METADATA
        self._sequences[q] = last + len(records)
        self._batches[q, first] = records
        self.written += [(epoch, q, record) for record in records]
        for record in records:
            assert record.key is None or record.key.startswith(b"pinned") or home(record.key, u) == q, "misplaced"
        return 0

    def _judge(self, q: int) -> int:
        """The layout of the proxy that is asked: one that is behind would hold writes of what was sealed."""
        epoch = len(self.counts) - 1
        if epoch == 0 or not self.happens():
            return epoch
        held = [{v for v in range(V) if homes(N, u, V)[v] == q} for u in self.counts[-2:]]
        return epoch - 1 if held[0] == held[1] else epoch


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

    client.bootstrap, client._metadata_update, client.send = bootstrap, metadata_update, model.send  # type: ignore[method-assign]
    await producer.start()
    return producer


async def play(seed: int, trouble: float, codec: Any = None) -> Model:
    """Sends while the topic grows and shrinks; returns what came of it, all acknowledged."""
    model = Model(seed, trouble)
    producer = await start(model, max_batch_size=300, compression_type=codec)
    futures = []
    for number in range(300):
        key = b"key-%d" % (number % 13)
        futures.append(await producer.send("orders", b"%d" % number, key))
        if number % 7 == 0:
            futures.append(await producer.send("orders", b"%d" % number))
        if number % 5 == 0:
            futures.append(await producer.send("orders", b"%d" % number, b"pinned", partition=1))
        if model.chance.random() < 0.05:
            model.counts.append(model.chance.choice([u for u in range(N, V + 1) if u != model.counts[-1]]))
        if model.chance.random() < 0.3:
            await asyncio.sleep(0)
    await asyncio.wait_for(producer.flush(), 30)
    await asyncio.wait_for(asyncio.gather(*futures), 30)
    await producer.stop()
    return model


def assert_all_once_and_in_order(model: Model) -> None:
    for key in range(13):
        assert model.values(b"key-%d" % key) == [b"%d" % n for n in range(300) if n % 13 == key]
    assert model.values(b"pinned") == [b"%d" % n for n in range(300) if n % 5 == 0]
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


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_move_like_others(codec: str) -> None:
    """They are opened, and their records compressed anew."""
    model = asyncio.run(play(11, trouble=0.1, codec=codec))
    assert model.refusals
    assert_all_once_and_in_order(model)
