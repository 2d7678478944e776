"""AddPartitionsToTxn: virtual partitions become the physical ones that their data go to (TXN-WITNESS, DOUBLE-ADD).

    plan ──> the client's broker ──> topics take transactions ──> leaders asked ──> witnesses ──> the plan still holds

The coordinator, on the client's own connection, judges the transactional id, the topics and the transaction. Only what
it has taken gets witnesses. What nobody can say now is CONCURRENT_TRANSACTIONS, after which clients ask again: so is a
plan that was made by another layout or announcement, as what was asked on the client's connection cannot be asked
again.

In the dialect a physical partition means itself, whatever changes are to come. When the keys of its data have moved on,
Produce says so, and its client adds where they are now.

Without `ordering.transactions` a request that names managed topics is refused as a whole (NO-TRANSACTIONS). The broker
would not know most of the partitions, and clients would ask again until their transaction times out. On
INVALID_TXN_STATE Java and librdkafka call their producer failed at once, and franz-go fails its producer id. The broker
is asked all the same, with a producer id that no transaction has (`replies.py` says why): it looks at the rights to the
transactional id and to each topic first.

Only brokers send the versions from 4 on.

Source: Request.json in Kafka 4.3; KafkaApis.handleAddPartitionsToTxnRequest, TransactionCoordinator
(Kafka 4.3); TransactionManager.AddPartitionsToTxnHandler (Java), rd_kafka_txn_handle_AddPartitionsToTxn (librdkafka),
sink.doTxnReq (franz-go).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import AddPartitionsToTxnRequest as Request
from kordon.codecs.bodies import AddPartitionsToTxnRequestTopic as Topic
from kordon.codecs.bodies import AddPartitionsToTxnRequestTransaction as Transaction
from kordon.codecs.bodies import AddPartitionsToTxnResponse as Response
from kordon.codecs.bodies import AddPartitionsToTxnResponseResultsByPartition as PartitionResult
from kordon.codecs.bodies import AddPartitionsToTxnResponseResultsByTransaction as TransactionResult
from kordon.codecs.bodies import AddPartitionsToTxnResponseTopicResult as TopicResult
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.api_handler import Handled, HeldRequest, ServedRequest
from kordon.proxy.handlers.batch_checks import TURN_ON
from kordon.proxy.handlers.replies import RepliedApi, Reply
from kordon.proxy.handlers.transaction_questions import NO_PARTITION
from kordon.proxy.handlers.transactional_produce import TransactionalProduce
from kordon.proxy.ordering.transactions.adds import Announcement, Course, Plan, coming_homes, course, plan
from kordon.proxy.ordering.transactions.beliefs import ProducerClaim
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import listed
from kordon.proxy.topics.views import VIRTUAL, View
from kordon.proxy.writes.transactions import AGAINST, MOST_AT_ONCE

log = client_log(__name__)

_NEWEST_OF_CLIENTS: Final = 3
_AS_CLIENTS: Final = f"ask in a version up to {_NEWEST_OF_CLIENTS}: only brokers ask in newer ones"
_NOBODY: Final = -1
"""In place of a producer's id and epoch."""
_LONGEST_SECONDS: Final = 10.0
"""For all witnesses; every client waits longer for its answer."""
_BY_FORM: Final = frozenset({Code.NONE, Code.INVALID_PRODUCER_ID_MAPPING, Code.OPERATION_NOT_ATTEMPTED})
"""What a broker answers that has nothing against the client: the request is spoiled, or another of its rows is bad."""
_OF_MANAGED: Final = _BY_FORM | {Code.UNKNOWN_TOPIC_OR_PARTITION}
"""Likewise for a managed topic, of which the broker does not know all partitions."""


class RefusedTransaction(Reply[Response]):
    """A transaction that is not to write to managed topics.

    Args:
        value: The request, which is made invalid.
        topics: The managed topics that it names.
        cure: What lets the transaction write to the topics, for the log.
    """

    changed = True

    def __init__(self, value: Request, topics: Collection[str], cure: str) -> None:
        self.refused = topics
        self._cure = cure
        self._transactional_id = value.get("v3_and_below_transactional_id", "")
        if "v3_and_below_producer_id" in value:
            value.update({"v3_and_below_producer_id": _NOBODY, "v3_and_below_producer_epoch": _NOBODY})
        for each in value.get("transactions", list[Transaction]()):
            each.update({"producer_id": _NOBODY, "producer_epoch": _NOBODY})

    def __call__(self, answer: Response) -> None:
        """Refuses what the broker has nothing against: as with brokers, a row that fails keeps all others out."""
        for row in _answered(answer):
            is_managed = row.name in self.refused
            judged, code = (
                (_OF_MANAGED, Code.INVALID_TXN_STATE) if is_managed else (_BY_FORM, Code.OPERATION_NOT_ATTEMPTED)
            )
            for each in row.results_by_partition:
                if each.partition_error_code in judged:
                    each["partition_error_code"] = code
                    self.stands |= is_managed
        if self.stands:
            told = {"transactional_id": self._transactional_id, "topics": listed(self.refused)}
            log.warning("transaction_refused", **told, cure=self._cure)


class AddPartitionsToTxn(RepliedApi[Request, Response]):
    """Takes managed topics into transactions, or refuses transactions that are to write to one.

    Args:
        transactions: Take what belongs to transactions; None: that is refused.
        view: Says what a partition's number means.
    """

    key = apis.ADD_PARTITIONS_TO_TXN

    def __init__(self, transactions: TransactionalProduce | None = None, view: View = VIRTUAL) -> None:
        self._produce = transactions
        self._view = view

    def decide(self, held: HeldRequest) -> Handled:
        """Asks the client's broker for physical partitions in place of virtual ones."""
        if self._produce is None or held.version > _NEWEST_OF_CLIENTS:
            return super().decide(held)
        value: Request = held.read()
        topics = {row.name: topic for row in value.v3_and_below_topics if (topic := held.topics.named(row.name))}
        return AddedPartitions(self._produce, held, value, topics, self._view) if topics else None

    def look(self, value: Request, topics: ManagedTopics) -> RefusedTransaction | None:
        """Looks at the topics that a request names."""
        transactions = value.get("transactions", list[Transaction]())
        rows = [
            *value.get("v3_and_below_topics", list[Topic]()),
            *(row for each in transactions for row in each.topics),
        ]
        managed = sorted({row.name for row in rows if topics.named(row.name) is not None})
        cure = TURN_ON if self._produce is None else _AS_CLIENTS
        return RefusedTransaction(value, managed, cure) if managed else None


class AddedPartitions(ServedRequest):
    """A request that names managed topics.

    Args:
        value: The request, read.
        topics: The managed topics that it names.
        view: Says what a partition's number means.
    """

    needs_layouts = False

    def __init__(
        self,
        produce: TransactionalProduce,
        held: HeldRequest,
        value: Request,
        topics: Mapping[str, ManagedTopic],
        view: View,
    ) -> None:
        self._produce = produce
        self._since = asyncio.get_running_loop().time()
        self._view = view
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._held = held
        self._rows = value.v3_and_below_topics
        self._topics = topics
        self._claim = ProducerClaim(
            f"connection {held.client.number}",
            value.v3_and_below_transactional_id,
            value.v3_and_below_producer_id,
            value.v3_and_below_producer_epoch,
        )
        self._named: dict[str, set[int]] = {name: set() for name in topics}
        for row in self._rows:
            if row.name in topics:
                self._named[row.name].update(row.partitions)
        self._homes = {name: self._homes_of(topic) for name, topic in topics.items()}
        """By topic and partition that is there, its home."""
        self._plans = {name: self._plan(topic) for name, topic in topics.items()}
        asked = value.copy()
        asked.update({"v3_and_below_topics": list(self._asked_rows())})
        self.rest = held.build(asked)

    async def answer(self, part: Awaitable[Response] | None) -> Answer:
        """Answers once the transaction is open wherever data of the virtual partitions can go to."""
        assert part is not None, "the broker is asked always"
        told = await part
        codes = {
            (row.name, each.partition_index): each.partition_error_code
            for row in told.results_by_topic_v3_and_below
            for each in row.results_by_partition
        }
        if codes and not any(codes.values()):  # of no partition, brokers answer no error to whoever has no right either
            self._produce.transactions.own(self._held.client, self._claim)
            for topic in self._topics.values():
                self._produce.transactions.beliefs(topic).allow(self._claim, self._since)
            codes |= await self._opened()
        elif AGAINST & set(codes.values()):
            self._produce.transactions.drop(self._claim.producer_id)
        told.update({"results_by_topic_v3_and_below": [self._row(row, codes) for row in self._rows]})
        self._record(told)
        return partial(response(apis.ADD_PARTITIONS_TO_TXN).build, self._held.version, told)

    async def _opened(self) -> dict[tuple[str, int], int]:
        """Opens the transaction on all physical partitions; returns error codes by topic and partition."""
        codes: dict[tuple[str, int], int] = {
            (name, q): Code.CONCURRENT_TRANSACTIONS for name, each in self._plans.items() for q in each.partitions
        }

        async def open_on(name: str) -> None:
            topic, planned = self._topics[name], self._plans[name]
            found = await self._open_all(topic, planned.partitions)
            is_done = self._course(topic, planned) is Course.GO_ON
            if is_done or any(map(_is_final, found.values())):
                codes.update({(name, q): code for q, code in found.items()})

        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                await asyncio.gather(*map(open_on, self._topics))
        except TimeoutError:
            log.warning(
                "transaction_not_opened", transactional_id=self._claim.transactional_id, seconds=_LONGEST_SECONDS
            )
        return codes

    async def _open_all(self, topic: ManagedTopic, partitions: Iterable[int]) -> dict[int, int]:
        """Ensures that the producer is open on physical partitions; returns error codes by partition."""
        wanted = sorted(partitions)
        if refusal := await self._produce.permits.allow(topic):
            is_for_good = refusal.code == Code.INVALID_TXN_STATE
            return dict.fromkeys(wanted, refusal.code if is_for_good else Code.CONCURRENT_TRANSACTIONS)
        codes = await asyncio.gather(*(self._open(topic, each) for each in wanted))
        return dict(zip(wanted, codes, strict=True))

    async def _open(self, topic: ManagedTopic, partition: int) -> int:
        async with self._turns:
            return await self._produce.transactions.open(topic, partition, self._claim)

    def _plan(self, topic: ManagedTopic) -> Plan:
        homes = self._homes[topic.name]
        return plan(homes, homes, topic.layout.epoch, self._announced(topic))

    def _homes_of(self, topic: ManagedTopic) -> dict[int, int]:
        """Returns where the named partitions live; of physical ones, also of those that are retired."""
        named, layout = self._named[topic.name], topic.layout
        if self._view.is_physical:
            return {q: q for q in named & layout.residence.physical_chains.keys()}
        return {v: home for v in named if 0 <= v < len(layout.homes) and (home := layout.homes[v]) is not None}

    def _announced(self, topic: ManagedTopic) -> Announcement:
        """Returns what is announced of the partitions that the client names; physical ones go nowhere."""
        return Announcement(topic.announcement.number) if self._view.is_physical else topic.announcement

    def _course(self, topic: ManagedTopic, planned: Plan) -> Course:
        has_lease = self._produce.may_serve() and topic.unserved is None
        return course(planned, topic.layout.epoch, self._announced(topic), has_lease=has_lease)

    def _asked_rows(self) -> Iterable[Topic]:
        """Returns the rows of what the broker is asked: each topic once, as it refuses a partition named twice."""
        seen: set[str] = set()
        for row in self._rows:
            planned = self._plans.get(row.name)
            if planned is None:
                yield row
            elif row.name not in seen:
                seen.add(row.name)
                are_missing = len(self._homes[row.name]) < len(self._named[row.name])
                partitions = [*sorted(planned.partitions), *([NO_PARTITION] if are_missing else ())]
                yield Topic(name=row.name, partitions=partitions)

    def _row(self, row: Topic, codes: Mapping[tuple[str, int], int]) -> TopicResult:
        results = [
            PartitionResult(partition_index=each, partition_error_code=self._code(row.name, each, codes))
            for each in row.partitions
        ]
        return TopicResult(name=row.name, results_by_partition=results)

    def _code(self, name: str, number: int, codes: Mapping[tuple[str, int], int]) -> int:
        """Returns the error code of a partition that the client names: the first one of the places that it means."""
        topic = self._topics.get(name)
        if topic is None:
            return codes.get((name, number), Code.UNKNOWN_TOPIC_OR_PARTITION)
        home = self._homes[name].get(number)
        if home is None:
            return codes.get((name, NO_PARTITION), Code.UNKNOWN_TOPIC_OR_PARTITION)
        planned = self._plans[name].partitions
        places = [home, *sorted(coming_homes([number], self._announced(topic)) & planned)]
        found = [codes.get((name, q), Code.CONCURRENT_TRANSACTIONS) for q in places]
        return next((each for each in found if each), Code.NONE)

    def _record(self, told: Response) -> None:
        refused = [
            row.name
            for row in told.results_by_topic_v3_and_below
            if row.name in self._topics
            and any(_is_final(each.partition_error_code) for each in row.results_by_partition)
        ]
        if refused:
            self._held.shared.refusals.parts(self._held.client, apis.ADD_PARTITIONS_TO_TXN, told, refused)


def _is_final(code: int) -> bool:
    """Whether an error ends the transaction."""
    return code not in (Code.NONE, Code.CONCURRENT_TRANSACTIONS)


def _answered(answer: Response) -> Iterable[TopicResult]:
    yield from answer.get("results_by_topic_v3_and_below", list[TopicResult]())
    for each in answer.get("results_by_transaction", list[TransactionResult]()):
        yield from each.topic_results
