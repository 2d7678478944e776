"""Writes transactions as they stand in the logs of managed topics, by raw requests to brokers and without a proxy.

So readers can be shown what no proxy writes in this order: data without a witness, markers that come late, zombies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import api
from kordon.proxy.kafka.batches import BatchIdentity, Copy, NewRecord, build_copies
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.identity import tag, writer_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import WishRecord, dump
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.ordering.wishes import AllowTransactions
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_restoring import read_layouts
from kordon.testing.waiting import until

_V2_PRODUCE: Final = 12
_RETRIED: Final = frozenset(
    {Code.CONCURRENT_TRANSACTIONS, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR, Code.NOT_LEADER_OR_FOLLOWER}
)


async def layout_of(brokers: Brokers, topic: str) -> Layout:
    """Reads the layout of a managed topic that is in force."""
    read = await read_layouts(brokers)
    assert read is not None
    return read.topics[topic].layout


async def allow_transactions(brokers: Brokers, topic: str) -> None:
    """Has the controller let a managed topic have transactions, and waits until its layout says so."""
    await LayoutsLog(brokers).append([NewRecord(f"wish/{uuid4().hex}", dump(WishRecord(AllowTransactions(topic))))])

    async def is_allowed() -> bool:
        return (await layout_of(brokers, topic)).has_transactions

    await until(f"{topic} has transactions", is_allowed)


@dataclass
class NativeProducer:
    """A transactional producer.

    Attributes:
        topic: A managed topic whose layout has transactions.
    """

    brokers: Brokers
    topic: str
    transactional_id: str
    protocol: Protocol
    timeout_ms: int = 60_000
    producer_id: int = -1
    epoch: int = -1
    _sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """By virtual partition and epoch, of the next record."""
    _witnesses: dict[tuple[int, int], int] = field(default_factory=dict)
    """By physical partition and epoch, of the next record of a witness."""

    async def begin(self) -> None:
        """Asks for a producer id and epoch, which ends the transaction that is open."""
        asked = {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms}
        told = await self._coordinated(apis.INIT_PRODUCER_ID, range(2, 5), asked)
        self.producer_id, self.epoch = told.producer_id, told.producer_epoch

    async def open(self, *qs: int) -> None:
        """Opens the transaction on physical partitions: a witness stands there then."""
        if self.protocol is Protocol.V1:
            await self.add(*qs)
        for q in qs:
            await self.witness(q)

    async def add(self, *qs: int) -> None:
        """Names partitions to the coordinator, as clients of v1 do."""
        asked = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": self.topic, "partitions": list(qs)}],
        }
        await self._coordinated(apis.ADD_PARTITIONS_TO_TXN, range(1, 4), asked)

    async def witness(self, q: int) -> None:
        """Writes a witness."""
        place = q, self.epoch
        sequence = self._witnesses.get(place, 0)
        batch = build_witness(BatchIdentity(self.producer_id, self.epoch, sequence), self.protocol)
        self._witnesses[place] = sequence + (1 if self.protocol is Protocol.V1 else 2)
        versions = range(_V2_PRODUCE, _V2_PRODUCE + 1) if self.protocol is Protocol.V2 else range(9, _V2_PRODUCE)
        await self._produce(q, batch, versions, self.transactional_id)

    async def write(self, layout: Layout, v: int, values: Sequence[str]) -> int:
        """Writes data of the transaction to a virtual partition, wherever it lives; returns its physical partition."""
        home = layout.chains[v].home
        assert home is not None
        place = v, self.epoch
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        producer_id = tag(v, home.move, writer_id(self.producer_id, self.protocol))
        copies = [Copy(value.encode(), value.encode(), 1_700_000_000_000) for value in values]
        batch = build_copies(copies, BatchIdentity(producer_id, self.epoch, sequence))
        await self._produce(home.partition, batch, range(9, _V2_PRODUCE), None)
        return home.partition

    async def end(self, *, commits: bool) -> None:
        """Ends the transaction; on v2 the producer has its next epoch then."""
        asked = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commits,
        }
        versions = range(5, 6) if self.protocol is Protocol.V2 else range(3, 5)
        told = await self._coordinated(apis.END_TXN, versions, asked)
        if self.protocol is Protocol.V2:
            self.producer_id, self.epoch = told.producer_id, told.producer_epoch

    async def _coordinated(self, key: int, versions: range, asked: dict[str, Any]) -> Any:
        answers: list[Any] = []

        async def is_done() -> bool:
            client = await self.brokers.coordinator(CoordinatorKind.TRANSACTION, self.transactional_id, "transactions")
            answers.append(await client.ask(api(key), client.version(key, versions), asked))
            return _error(answers[-1]) not in _RETRIED

        await until(f"api key {key} of {self.transactional_id} is answered", is_done)
        assert _error(answers[-1]) == Code.NONE, answers[-1]
        return answers[-1]

    async def _produce(self, q: int, batch: bytes, versions: range, transactional_id: str | None) -> None:
        partition = {"index": q, "records": batch}
        asked = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": self.topic, "partition_data": [partition]}],
        }

        async def is_written() -> bool:
            client: UpstreamClient = await self.brokers.leader(self.topic, q, "native writes")
            told = await client.ask(api(apis.PRODUCE), client.version(apis.PRODUCE, versions), asked)
            code = told.responses[0].partition_responses[0].error_code
            assert code in {Code.NONE, *_RETRIED}, code
            return bool(code == Code.NONE)

        await until(f"{self.topic}-{q} is written to", is_written)


def _error(answer: Any) -> int:
    """Returns the first error in an answer."""
    rows = [row for topic in answer.get("results_by_topic_v3_and_below", ()) for row in topic.results_by_partition]
    return int(
        next((row.partition_error_code for row in rows if row.partition_error_code), answer.get("error_code", 0))
    )
