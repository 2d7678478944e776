"""A worker's transactions without brokers: tests say what leaders, the client's broker and the controller answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.codecs.produce import WriteOutcome
from kordon.codecs.producers import ProducerRow, ProducerRows
from kordon.proxy.core.answers import body_of
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.interception import Question
from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import HeldRequest, ServedRequest
from kordon.proxy.handlers.produce import Produce
from kordon.proxy.handlers.told_clients import ToldClient
from kordon.proxy.handlers.transaction_permits import Permits
from kordon.proxy.handlers.transactional_produce import TransactionalProduce
from kordon.proxy.kafka.ends import Remembered
from kordon.proxy.kafka.leaders import Leader
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.ordering.transactions.beliefs import Ground, ProducerClaim
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.views import VIRTUAL, View
from kordon.proxy.writes.client_writes import ClientWrite
from kordon.proxy.writes.transactions import Transactions
from kordon.testing.handled import route_of, shared
from kordon.testing.managed_writes import a_batch

P: Final = 1000
ID: Final = "orders-1"
TOPIC: Final = "orders"
NOT_OPEN: Final = -1


@dataclass
class FakeBrokers:
    """What stands in for leaders, connections to them, and the lines of writes."""

    leader_epoch: int = 3
    rows: dict[int, ProducerRow] = field(default_factory=dict[int, ProducerRow])
    """By partition, what its leader remembers of a producer."""
    leaderless: set[int] = field(default_factory=set[int])
    high_watermark: int = 100
    is_silent: bool = False
    """Whether no leader answers."""
    asked: list[dict[int, None]] = field(default_factory=list[dict[int, None]])
    """The partitions of each question to leaders."""
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set by the first question."""
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    forgotten: int = 0
    witnesses: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Partition and sequence of each witness of v1."""
    witness_code: int = Code.NONE
    added: list[ClientWrite] = field(default_factory=list[ClientWrite])
    dropped: list[int] = field(default_factory=list[int])
    """Producers whose unsent data were refused."""
    refused: list[int] = field(default_factory=list[int])
    """Error codes of batches that got into no line."""

    def __post_init__(self) -> None:
        self.may_answer.set()
        self.outcomes: dict[str, int] = {}

    @property
    def decisions(self) -> FakeBrokers:
        return self

    def unfit(self, client: Client, topic: ManagedTopic | None, name: str, stream: int, code: int) -> None:
        self.refused.append(code)

    def ground(self, topic: ManagedTopic, partition: int) -> Ground | None:
        return Ground(topic.layout.epoch, self.leader_epoch)

    def add(self, topic: ManagedTopic, stream: int, write: ClientWrite) -> None:
        self.added.append(write)
        write.settle(WriteOutcome(stream, Code.NONE, 0))

    def drop_transaction(self, producer_id: int) -> None:
        self.dropped.append(producer_id)

    async def leader(self, topic: str, partition: int) -> Leader:
        if partition in self.leaderless:
            raise UpstreamUnavailable("nobody leads it")
        return Leader(1, self.leader_epoch)

    async def of(self, topic: str) -> Mapping[int, Leader]:
        return {}

    def forget(self, topic: str) -> None:
        self.forgotten += 1

    async def remembered(self, topic: str, partitions: Iterable[int]) -> dict[int, Remembered]:
        asked = dict.fromkeys(partitions)
        self.asked.append(asked)
        self.is_asked.set()
        await self.may_answer.wait()
        if self.is_silent:
            raise UpstreamUnavailable("nobody answers")
        told = self.high_watermark, self.leader_epoch, self.leader_epoch
        return {q: Remembered(ProducerRows.of([self.rows[q]] if q in self.rows else []), *told) for q in asked}

    async def write(self, topic: str, partition: int, node_id: int, claim: ProducerClaim, sequence: int) -> int:
        self.witnesses.append((partition, sequence))
        return self.witness_code

    def count(self, code: int) -> None:
        self.outcomes[str(code)] = self.outcomes.get(str(code), 0) + 1

    def open(self, partition: int, start: int = 5, epoch: int = 0, sequence: int = 0) -> None:
        """Has a leader say that the producer is open."""
        self.rows[partition] = ProducerRow(P, epoch, sequence, 0, 0, start)


class TransactionsInMemory:
    """A worker, and a client on one connection to it.

    Args:
        n: Physical partitions; there are eight virtual ones, which begin with as many of the first as of the last.
    """

    def __init__(self, n: int = 2, view: View = VIRTUAL) -> None:
        layout = replace(Layout.created(TOPIC, UUID(int=5), n, 8), has_transactions=True)
        self.topic = ManagedTopic(layout, UUID(int=6))
        self.topic.announce(Announcement(1))
        self.topics = ManagedTopics()
        self.topics.add(self.topic)
        self.brokers = FakeBrokers()
        self.serves = True
        self.permit: UpstreamUnavailable | None = None
        """Why the topic has no transactions."""
        self.permits_asked = 0
        self.tasks = Tasks()
        brokers: Any = self.brokers
        self.transactions = Transactions(brokers, brokers, brokers, brokers, self.tasks)
        self.produce = TransactionalProduce(self.transactions, Permits(self._allow), lambda: self.serves)
        self.handler = Produce(self.topics, brokers, view, transactions=self.produce)
        self._shared = shared(self.topics)
        self._told = ToldClient(Client(1), self.topics, NO_JOURNAL)

    def another_client(self) -> None:
        """Has the next requests come on another connection."""
        self._told = ToldClient(Client(self._told.client.number + 1), self.topics, NO_JOURNAL)

    @property
    def told_client(self) -> Client:
        """The client whose connection the next request comes on."""
        return self._told.client

    def own(self, claim: ProducerClaim) -> None:
        """Has a coordinator take partitions from the present client."""
        self.transactions.own(self.told_client, claim)

    def held(self, api_key: int, version: int, fields: Mapping[str, Any]) -> HeldRequest:
        body = memoryview(bytearray(request(api_key).build(version, fields)))
        return HeldRequest(route_of(api_key, version), body, self._shared, self._told)

    def decide(self, *vs: int, version: int = 11, **how: Any) -> ServedRequest:
        """Has a Produce request of one transaction decided on.

        Args:
            how: Fields of the request; `producer_id`, `epoch`, `sequence` and `txn` are of the batches.
        """
        identity = {"producer_id": how.pop("producer_id", P), "epoch": how.pop("epoch", 0)}
        batch = a_batch("a", **identity, sequence=how.pop("sequence", 0), txn=how.pop("txn", 1))
        rows = [{"name": TOPIC, "partition_data": [{"index": v, "records": batch} for v in vs]}]
        fields = {"transactional_id": ID, "acks": -1, "timeout_ms": 1_000, "topic_data": rows} | how
        decision = self.handler.decide(self.held(apis.PRODUCE, version, fields))
        assert isinstance(decision, ServedRequest)
        return decision

    async def codes(self, served: ServedRequest, version: int = 11) -> list[int]:
        """Returns the error codes that a Produce request is answered with."""
        async with asyncio.timeout(10):
            answer = await served.answer(None)
        told = response(apis.PRODUCE).parse(version, body_of(answer))
        return [each.error_code for each in told.responses[0].partition_responses]

    async def _allow(self, topic: ManagedTopic) -> None:
        self.permits_asked += 1
        if self.permit is not None:
            raise self.permit


def asked_of(question: Question) -> Any:
    """Reads what the client's broker is asked."""
    return request(question.route.api.key).at(question.route.version).parse(question.body)[0]


def say_right(question: Question, code: int = Code.UNKNOWN_TOPIC_OR_PARTITION) -> None:
    """Answers AddPartitionsToTxn of a partition that is not there."""
    assert question.route.api.key == apis.ADD_PARTITIONS_TO_TXN
    (row,) = asked_of(question).v3_and_below_topics
    results = [{"partition_index": each, "partition_error_code": code} for each in row.partitions]
    fields = {"results_by_topic_v3_and_below": [{"name": row.name, "results_by_partition": results}]}
    _say(question, fields)


def say_witness(question: Question, code: int = Code.NONE) -> None:
    """Answers for the witnesses of a question."""
    assert question.route.api.key == apis.PRODUCE
    rows = [
        {
            "name": row.name,
            "partition_responses": [{"index": each.index, "error_code": code} for each in row.partition_data],
        }
        for row in asked_of(question).topic_data
    ]
    _say(question, {"responses": rows})


def _say(question: Question, fields: Mapping[str, Any]) -> None:
    told = response(question.route.api.key)
    body = told.build(question.route.version, fields)
    question.told(told.parse(question.route.version, body))
