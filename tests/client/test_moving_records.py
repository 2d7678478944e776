"""What a producer holds moves with its keys: against a model of the rules by which Kordon takes writes.

The model judges as COUNT-FENCE says: first the image, then the count; it loses requests and answers, shows metadata
that is behind, and has proxies that learn late of a layout which does not concern the partition that is written to.
"""

import asyncio
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError, RequestTimedOutError
from aiokafka.producer.transaction_manager import PidAndEpoch
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import RecordMetadata
from hypothesis import given, settings
from hypothesis import strategies as st

from kordon.client import OrderedProducer
from kordon.client.connection import MetadataAnswer
from kordon.client.errors import OutcomeUnknownError
from kordon.client.homes import NO_STAMP, Stamp
from kordon.client.partitioning import key_hash
from kordon.codecs.messages import response
from kordon.proxy.ordering.hashing import homes

N, V = 3, 12
NOT_LEADER, TOO_LARGE, OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER, INVALID_PARTITION_METADATA = (
    6,
    10,
    45,
    47,
    59,
    16384,
)
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
        self._sequences: dict[int, tuple[int, int]] = defaultdict(lambda: (0, -1))
        """By partition, the epoch and the last sequence of the producer."""
        self._batches: dict[tuple[int, int, int], list[Any]] = {}
        self._forgotten: set[int] = set()

    def values(self, key: bytes | None) -> list[bytes]:
        """What was written with a key, in its order."""
        return [bytes(record.value) for _, _, record in self.written if record.key == key]

    def take_over(self) -> None:
        """The ordinary topic becomes a managed one: every partition is sealed."""
        self.managed = True
        self.counts.append(N)
        self.first_epoch = 1

    def forget(self) -> None:
        """The producer has been silent for a day: nobody knows what it wrote, and no copy is under way any more."""
        self._forgotten |= set(self._sequences)
        self._sequences.clear()
        self._batches.clear()
        self._delayed.clear()

    def happens(self) -> bool:
        """Whether something goes wrong now."""
        return self.chance.random() < self.trouble

    def metadata(self) -> MetadataAnswer:
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
        return MetadataAnswer(response(3).parse(METADATA_VERSION, body))

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Takes a request, in place of the client's network."""
        del node_id, options
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if isinstance(request, InitProducerIdRequest):
            self._sequences.clear()  # those of another id count for themselves
            self._batches.clear()
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
        first, epoch, (known_epoch, last) = batch.base_sequence, batch.producer_epoch, self._sequences[q]
        if epoch < known_epoch:
            assert not heard, "a former epoch"
            return INVALID_EPOCH
        last = last if epoch == known_epoch else -1
        if first <= last:
            same = [r.value for r in self._batches.get((q, epoch, first), ())] == [r.value for r in records]
            assert same or not heard, "a sequence of another"
            return 0
        if first > last + 1 and (q in self._forgotten or not heard):
            return UNKNOWN_PRODUCER if last < 0 else OUT_OF_ORDER
        assert first == last + 1, "out of order sequence"
        if any(record.value == b"large" for record in records):
            return TOO_LARGE
        layout_epoch = self._judge(q)
        u = self.counts[layout_epoch]
        if self.managed and (stamp.undeleted_partition_count != u or q >= u or stamp.layout_epoch < self._opened(q)):
            self.refusals += 1
            return INVALID_PARTITION_METADATA
        self._sequences[q] = epoch, last + len(records)
        self._batches[q, epoch, first] = records
        self.written += [(layout_epoch, q, record) for record in records]
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

    async def coordinator_lookup(_kind: object, _key: str) -> int:
        return 0

    async def ready(_node_id: int, **_how: object) -> bool:
        return True

    client.bootstrap, client._metadata_update, client.send = bootstrap, metadata_update, model.send  # type: ignore[method-assign,assignment]
    client.coordinator_lookup, client.ready = coordinator_lookup, ready
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
    await asyncio.wait_for(producer.flush(), 60)
    await asyncio.wait_for(asyncio.gather(*futures), 60)
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


async def play_with_failures(seed: int, trouble: float) -> tuple[Model, dict[int, Any]]:
    """Sends while what was written is forgotten, records are refused, and the topic grows and shrinks.

    Returns:
        The model, and what became of each number that was sent.
    """
    model = Model(seed, trouble)
    producer = await start(model, max_batch_size=300)
    futures: dict[int, Any] = {}
    for number in range(300):
        is_large = model.chance.random() < 0.03
        value = b"large" if is_large else b"%d" % number
        futures[number] = await producer.send("orders", value, b"key-%d" % (number % 13))
        if model.chance.random() < 0.03:
            model.counts.append(model.chance.choice([u for u in range(N, V + 1) if u != model.counts[-1]]))
        if model.chance.random() < 0.03:
            await asyncio.wait_for(producer.flush(), 60)
            model.forget()
        if model.chance.random() < 0.3:
            await asyncio.sleep(0.001 * model.happens())
    await asyncio.wait_for(producer.flush(), 60)
    outcomes = await asyncio.wait_for(asyncio.gather(*futures.values(), return_exceptions=True), 60)
    await producer.stop()
    return model, dict(zip(futures, outcomes, strict=True))


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.15]))
def test_what_is_refused_or_forgotten_doubles_nothing_and_ends_no_producer(seed: int, trouble: float) -> None:
    """Each key in order, nothing twice; what was acknowledged is there, what was refused is not."""
    model, outcomes = asyncio.run(play_with_failures(seed, trouble))
    for key in range(13):
        numbers = list(map(int, model.values(b"key-%d" % key)))
        assert numbers == sorted(set(numbers))
        kinds = {n: type(outcomes[n]) for n in range(300) if n % 13 == key}
        assert {n for n, kind in kinds.items() if kind is RecordMetadata} <= set(numbers)
        assert set(numbers) <= {n for n, kind in kinds.items() if kind is not MessageSizeTooLargeError}
    seen = {type(outcome) for outcome in outcomes.values()}
    assert seen - ({OutcomeUnknownError} if trouble else set()) == {RecordMetadata, MessageSizeTooLargeError}


async def test_what_moves_in_a_takeover_comes_to_no_batch_of_before() -> None:
    """It would be taken for a record that was sent to that partition on purpose, and stay when its key moves on."""
    model = Model(0, managed=False)
    producer = await start(model, linger_ms=60_000)
    futures = [await producer.send("orders", b"", key) for key in (b"key-2", b"key-1")]
    model.take_over()  # key-2 belongs to partition 0 now, where key-1 waits
    await producer.client.force_metadata_update()
    model.counts.append(N + 1)
    await producer.client.force_metadata_update()
    await producer.flush()
    await asyncio.gather(*futures)
    await producer.stop()
    assert {(record.key, q) for _, q, record in model.written} == {(b"key-1", 0), (b"key-2", 3)}


async def test_what_may_be_written_is_not_sent_under_another_identity() -> None:
    """Its answer was lost, and then it was forgotten: sent again it could be doubled, so that is left to the caller."""
    model = Model(1)
    producer = await start(model)
    await producer.send_and_wait("orders", b"0", b"key")

    async def lose_the_answer(node_id: int, request: Any, **options: Any) -> Any:
        await model.send(node_id, request, **options)
        model.forget()
        producer.client.send = model.send
        raise RequestTimedOutError

    producer.client.send = lose_the_answer
    with pytest.raises(OutcomeUnknownError, match=r"orders-\d+ may be written or not"):
        await producer.send_and_wait("orders", b"1", b"key")
    await producer.send_and_wait("orders", b"2", b"key")
    await producer.stop()
    assert model.values(b"key") == [b"0", b"1", b"2"]


async def test_a_producer_gets_another_id_when_its_epochs_are_used_up() -> None:
    """Brokers count epochs up to 32767."""
    model = Model(1)
    producer = await start(model)
    assert producer._txn_manager is not None
    producer._txn_manager._pid_and_epoch = PidAndEpoch(7, 32766)
    for number in range(4):
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait("orders", b"large", b"key")
        await producer.send_and_wait("orders", b"%d" % number, b"key")
    assert producer._txn_manager.producer_epoch == 0
    await producer.stop()
    assert model.values(b"key") == [b"0", b"1", b"2", b"3"]
