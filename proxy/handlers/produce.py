"""Produce: batches for managed topics go into the lines of their streams, the rest goes to the client's broker.

Source topics take no records (EMPTY-SOURCE): an entry for one is refused with the reason.

Clients need the right to write to the topic. In the virtual view an entry's number means a virtual partition, in the
dialect's a physical one. Most requests name nothing but managed topics: these are walked over, and their records stay
where they are. Mixed requests are read by the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.bodies import ProduceRequest as TableRequest
from kordon.codecs.bodies import (
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.look import Buffer
from kordon.codecs.primitives import RowBudget
from kordon.codecs.produce import (
    PartitionData,
    ProduceRequest,
    TopicData,
    WriteOutcome,
    look_produce,
)
from kordon.codecs.row import Row
from kordon.proxy.core.interception import Tell
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import BrokerPart, Handled, HeldRequest, ServedRequest
from kordon.proxy.handlers.produce_intake import ALL, WITH_TOPIC_IDS, Intake, Meant
from kordon.proxy.handlers.topic_rows import ServedApi, ServedTopics, TopicRows, named
from kordon.proxy.handlers.transactional_produce import PreparedProduce, TransactionalProduce
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.layout import NO_COUNT
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import NO_ID
from kordon.proxy.topics.views import VIRTUAL, View
from kordon.proxy.writes.client_writes import PendingProduce
from kordon.proxy.writes.write_dispatcher import WriteDispatcher
from kordon.proxy.writes.write_outcomes import answer_of, end_if_failed

TopicOutcomes: TypeAlias = tuple[str, "UUID | None", list[WriteOutcome]]
"""A topic's name and id as the client gave them, and what came of its entries."""


class Looked(NamedTuple):
    """A Produce request that was walked over."""

    request: ProduceRequest
    managed: bool
    """Whether it names a managed topic."""
    others: bool
    """Whether it names another one."""


class _ProduceRows(TopicRows):
    """Where Produce names topics; records of source topics are refused here."""

    def is_managed(self, row: Row, topics: ManagedTopics) -> bool:
        """Whether a row is answered here."""
        return super().is_managed(row, topics) or (row.get("name", "") or row.get("topic_id", None)) in topics.sources


class Produce(ServedApi[TableRequest, ProduceResponse]):
    """Answers Produce.

    Args:
        opened_bytes: Most bytes of records that a compressed batch may hold where others open it; see `look_records`.
        transactions: Takes what belongs to transactions; None: that is refused (NO-TRANSACTIONS).
    """

    key = apis.PRODUCE
    concerns_sources = True
    right = Operation.WRITE
    rows = _ProduceRows(
        "topic_data",
        "name",
        "responses",
        partitions="partition_data",
        number="index",
        answered_partitions="partition_responses",
        answered_number="index",
        error={"base_offset": -1},
    )
    records_itself: ClassVar[bool] = True

    def __init__(
        self,
        topics: ManagedTopics,
        dispatcher: WriteDispatcher,
        view: View = VIRTUAL,
        opened_bytes: int | None = None,
        transactions: TransactionalProduce | None = None,
    ) -> None:
        self._transactions = transactions
        self._topics = topics
        self._dispatcher = dispatcher
        self._meant = Meant(view, opened_bytes)

    def look(self, version: int, body: Buffer, rows: RowBudget | None = None) -> Looked:
        """Walks over a request; its records stay where they are, and get their identities there when they are sent.

        Raises:
            WireError: The request cannot be read, or has more rows than `rows` allows.
        """
        request = look_produce(version, body, rows)
        found = {self._is_held(version, row) for row in request.topic_data}
        return Looked(request, True in found, False in found)

    async def serve(
        self,
        version: int,
        request: TableRequest,
        client: Client,
        prepared: PreparedProduce | None = None,
        queued: Callable[[], None] | None = None,
    ) -> ProduceResponse:
        """Writes what a request asks for, which the table has read and which has managed topics only; see `write`."""
        topics = [
            TopicData(
                row.get("name", ""),
                row.get("topic_id", None),
                [PartitionData(part.index, _view(part.records)) for part in row.partition_data],
                row.get("undeleted_partition_count", NO_COUNT),
                row.get("layout_epoch", -1),
            )
            for row in request.topic_data
        ]
        asked = ProduceRequest(request.get("transactional_id", None), request.acks, request.timeout_ms, topics)
        written = await self.write(version, asked, client, prepared, queued)
        rows = [
            ProduceResponseTopic(name=name, topic_id=topic_id or NO_ID, partition_responses=list(map(_row, outcomes)))
            for name, topic_id, outcomes in written
        ]
        return ProduceResponse(responses=rows)

    def decide(self, held: HeldRequest) -> Handled:
        """Serves managed topics; the walk shows whether the request has to be taken apart."""
        looked = self.look(held.version, held.body, held.budget())
        if not looked.managed:
            return None
        held.join_line()
        prepared = None
        if self._transactions is not None and looked.request.transactional_id is not None:
            prepared = self._prepare(self._transactions, held, looked.request)
        if not looked.others:
            return WalkedProduce(self, held, looked.request, prepared=prepared)
        served = super().decide(held)
        return MixedProduce(self, held, served, prepared) if isinstance(served, ServedTopics) else served

    def _prepare(
        self, transactions: TransactionalProduce, held: HeldRequest, asked: ProduceRequest
    ) -> PreparedProduce | None:
        if asked.acks != ALL:
            return None
        found: list[tuple[ManagedTopic, list[tuple[Stream, memoryview | None]]]] = []
        for row in asked.topic_data:
            topic = self._find(held.version, row)
            if topic is not None:
                streams = ((self._meant.view.find(topic.layout, part), records) for part, records in row.partition_data)
                found.append((topic, [(each, records) for each, records in streams if not isinstance(each, Code)]))
        return transactions.prepare(held.version, asked, held.client, found, self._meant.opened_bytes)

    async def told(self, asked: ServedTopics[TableRequest, ProduceResponse]) -> Row:
        """Returns the response for managed topics; raises SilentWriteFailed for errors that nobody waits for."""
        try:
            await asked.held.turn()
            served = await self._served(asked)
        finally:
            asked.held.leave_line()
        if not asked.value.acks:
            rows = (row.get("partition_responses", list[Row]()) for row in self.rows.topics_of(served))
            end_if_failed(each.get("error_code", 0) for row in rows for each in row)
        return served

    async def _served(self, asked: ServedTopics[TableRequest, ProduceResponse]) -> Row:
        held, prepared = asked.held, asked.prepared if isinstance(asked, MixedProduce) else None
        if not asked.rows:
            if prepared is not None:
                prepared.in_line()
            return Row({"responses": asked.refused})
        served: Row = await self.serve(held.version, asked.value, held.client, prepared, held.leave_line)
        served["responses"] = [*self.rows.topics_of(served), *asked.refused]
        return served

    async def write(
        self,
        version: int,
        request: ProduceRequest,
        client: Client,
        prepared: PreparedProduce | None = None,
        queued: Callable[[], None] | None = None,
    ) -> list[TopicOutcomes]:
        """Writes what a request asks for.

        Args:
            prepared: The request's prepared transaction. None: it has no transaction that is taken.
            queued: Called when all batches are queued.

        Returns:
            By topic the outcomes of its entries, when all are known. With acks=0 nobody is to be told; it serves to
            wait.

        Raises:
            asyncio.CancelledError: The client went away; what is unsent is not sent any more, but with acks=0: there
                a client may well close its connection behind its last write.
        """
        if prepared is None:
            intake = self._take_in(version, request, client)  # nothing is awaited before: requests come in their order
        else:
            intake = await self._take_in_prepared(version, request, client, prepared)
        if queued is not None:
            queued()
        try:
            await intake.pending.wait()
        except asyncio.CancelledError:
            if request.acks:
                self._dispatcher.forsake(intake.taken)
            raise
        return _by_topic(request, intake.pending)

    def begin(self, held: HeldRequest, request: ProduceRequest, tell: Tell) -> Callable[[], None]:
        """Queues all batches of a request without a transaction now, and has its answer told; see `write`.

        Returns:
            What drops the batches that are not sent.
        """
        intake = self._take_in(held.version, request, held.client)
        held.leave_line()
        intake.pending.tell(partial(tell, partial(_answer, held.version, request, intake.pending)))
        return partial(self._dispatcher.forsake, intake.taken)

    def _take_in(self, version: int, request: ProduceRequest, client: Client) -> Intake:
        takes = self._transactions is not None
        intake = Intake(version, request, self._dispatcher, self._meant, client, transactions=takes)
        self._queue(version, request, intake)
        return intake

    async def _take_in_prepared(
        self, version: int, request: ProduceRequest, client: Client, prepared: PreparedProduce
    ) -> Intake:
        """Queues the batches of a transaction once it is known whether they may go, in the order of requests."""
        try:
            found = (self._find(version, row) for row in request.topic_data)
            await prepared.ready({topic for topic in found if topic is not None})
            intake = Intake(version, request, self._dispatcher, self._meant, client, transactions=prepared)
            self._queue(version, request, intake)
            return intake
        finally:
            prepared.in_line()

    def _queue(self, version: int, request: ProduceRequest, intake: Intake) -> None:
        for row in request.topic_data:
            if source := self._source(version, row):
                intake.refuse_source(source, row, self._topics.sources)
            else:
                intake.topic(self._find(version, row), row)

    def _source(self, version: int, row: TopicData) -> str:
        """Returns the name of the source topic that a row is for; "" if it is for another one."""
        sources = self._topics.sources
        if version < WITH_TOPIC_IDS:
            return row.name if row.name in sources else ""
        return sources.name_of(row.topic_id)

    def _is_held(self, version: int, row: TopicData) -> bool:
        is_named = version < WITH_TOPIC_IDS
        is_managed = self._topics.is_held(row.name) if is_named else self._find(version, row) is not None
        return is_managed or bool(self._source(version, row))

    def _find(self, version: int, row: TopicData) -> ManagedTopic | None:
        if version < WITH_TOPIC_IDS:
            return self._topics.served(row.name)
        return self._topics.served_by_id(row.topic_id) if row.topic_id is not None else None


class WalkedProduce(ServedRequest):
    """A Produce request that names managed topics only, as it was walked over.

    Args:
        refused: The answers for topics that are already refused.
        prepared: The request's transaction, as far as it is prepared.
    """

    right = Produce.right
    may_begin = True

    def __init__(
        self,
        handler: Produce,
        held: HeldRequest,
        request: ProduceRequest,
        refused: Sequence[TopicOutcomes] = (),
        prepared: PreparedProduce | None = None,
    ) -> None:
        if prepared is not None:
            self.questions = prepared.questions
        self._prepared = prepared
        self.request = request
        self.refused = refused
        self._handler = handler
        self._held = held

    def names(self) -> Iterable[str]:
        """Returns the names of the topics that are not refused."""
        return map(self._name, self.request.topic_data)

    def refuse(self, codes: Mapping[str, int]) -> WalkedProduce:
        """Takes topics out, and keeps what their entries are answered."""
        refused, left = [*self.refused], list[TopicData]()
        for row in self.request.topic_data:
            if code := codes.get(self._name(row)):
                outcomes = [WriteOutcome(each.partition, code) for each in row.partition_data]
                refused.append((row.name, row.topic_id, outcomes))
            else:
                left.append(row)
        return WalkedProduce(self._handler, self._held, self.request._replace(topic_data=left), refused, self._prepared)

    def begin(self, tell: Tell) -> Callable[[], None] | None:
        """Queues its batches, if no earlier request's may come in front of them, and the client waits for an answer."""
        held, is_whole = self._held, self._prepared is None and not self.refused
        if not (is_whole and self.request.acks and held.is_first_in_line):
            return None
        return self._handler.begin(held, self.request, tell)

    async def answer(self, part: BrokerPart) -> Answer:
        """Writes what is left; see `Produce.write`."""
        held, write = self._held, self._handler.write
        try:
            await held.turn()
            written = await write(held.version, self.request, held.client, self._prepared, held.leave_line)
        finally:
            held.leave_line()
        return answer_of(held.version, self.request.acks, [*written, *self.refused])

    def _name(self, row: TopicData) -> str:
        return named(row.name, row.topic_id, self._held.topics)


class MixedProduce(ServedTopics[TableRequest, ProduceResponse]):
    """The managed topics of a request that names others too.

    Args:
        prepared: The request's transaction, as far as it is prepared.
    """

    def __init__(
        self,
        handler: Produce,
        held: HeldRequest,
        served: ServedTopics[TableRequest, ProduceResponse],
        prepared: PreparedProduce | None,
    ) -> None:
        super().__init__(handler, held, served.value, rest=served.rest, refused=served.refused)
        if prepared is not None:
            self.questions = prepared.questions
        self.prepared = prepared
        self._produce = handler

    def refuse(self, codes: Mapping[str, int]) -> MixedProduce:
        """Replaces rows of the request by rows of the response."""
        return MixedProduce(self._produce, self.held, super().refuse(codes), self.prepared)


def _by_topic(request: ProduceRequest, pending: PendingProduce) -> list[TopicOutcomes]:
    """Returns what came of all entries of a request, once it is known."""
    outcomes = iter(pending.known)
    return [(row.name, row.topic_id, [next(outcomes) for _ in row.partition_data]) for row in request.topic_data]


def _answer(version: int, request: ProduceRequest, pending: PendingProduce) -> bytes:
    return answer_of(version, request.acks, _by_topic(request, pending))


def _view(records: bytes | None) -> memoryview | None:
    return None if records is None else memoryview(bytearray(records))


def _row(outcome: WriteOutcome) -> ProduceResponsePartition:
    return ProduceResponsePartition(
        index=outcome.partition,
        error_code=outcome.error_code,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
        record_errors=[
            ProduceResponseRecordError(batch_index=index, batch_index_error_message=message)
            for index, message in outcome.record_errors
        ],
        error_message=outcome.error_message,
    )
